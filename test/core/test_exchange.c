/* Writing responses: framing, interim responses, hijacking, batching. */
#include "responses.h"

#define CHECK_ALL(expected, actual)                                                                            \
    do {                                                                                                       \
        received_bytes all_ = (actual);                                                                        \
        CHECK_BYTES(expected, strlen(expected), all_.bytes, all_.size);                                        \
        free(all_.bytes);                                                                                      \
    } while (0)

/* Checks the response to a request if the app writes these parts of a body, with or without a turn of the loop after each. */
static void check_exchange(const char *request, int code, bool turns, const char *const *parts, const char *expected,
                        bool stays_open) {
    peer_server server = server_start();
    int socket = client(&server);
    send_text(socket, request);
    fl_exchange *exchange = begin(server.loop, code, -1);
    for (; *parts != NULL; parts++) {
        put(exchange, *parts);
        if (turns)
            fl_loop_turn(server.loop);
    }
    fl_exchange_finish(exchange);
    if (stays_open) {
        CHECK_ALL(expected, receive(server.loop, socket));
        send_text(socket, GET("/next"));
        CHECK_NUMBER(1, answer_all(server.loop));
        CHECK_RECEIVED("HTTP/1.1 200 OK", "\r\n\r\n/next", receive(server.loop, socket));
    } else {
        CHECK_ALL(expected, receive_to_end(server.loop, socket));
    }
    close(socket);
    server_stop(&server);
}

static void a_body_is_framed_by_length_if_it_ends_in_time_else_in_chunks(void) {
    const char *parts[] = {"ab", "", "cde", NULL};
    check_exchange(GET("/"), 200, false, parts, "HTTP/1.1 200 OK\r\ndate: now\r\ncontent-length: 5\r\n\r\nabcde", true);
    check_exchange(GET("/"), 200, true, parts,
                "HTTP/1.1 200 OK\r\ndate: now\r\ntransfer-encoding: chunked\r\n\r\n"
                "2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n",
                true);
}

static void a_client_of_HTTP_1_0_gets_no_chunks(void) {
    const char *parts[] = {"ab", "cde", NULL};
    check_exchange("GET / HTTP/1.0\r\n\r\n", 200, true, parts,
                "HTTP/1.1 200 OK\r\ndate: now\r\nconnection: close\r\n\r\nabcde", false);
    check_exchange("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 200, true, parts,
                "HTTP/1.1 200 OK\r\ndate: now\r\nconnection: close\r\n\r\nabcde", false);
    check_exchange("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 200, false, parts,
                "HTTP/1.1 200 OK\r\ndate: now\r\ncontent-length: 5\r\nconnection: keep-alive\r\n\r\nabcde", true);
}

static void responses_without_a_body_drop_what_the_app_writes(void) {
    const char *parts[] = {"ab", "cde", NULL};
    for (int turns = 0; turns < 2; turns++) {
        check_exchange("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", 200, turns, parts, "HTTP/1.1 200 OK\r\ndate: now\r\n\r\n", true);
        check_exchange(GET("/"), 205, turns, parts, "HTTP/1.1 205 Reset Content\r\ndate: now\r\ncontent-length: 0\r\n\r\n", true);
        check_exchange("CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n", 200, turns, parts,
                    "HTTP/1.1 200 OK\r\ndate: now\r\nconnection: close\r\n\r\n", false);
        check_exchange(GET("/"), 204, turns, parts, "HTTP/1.1 204 No Content\r\ndate: now\r\n\r\n", true);
        check_exchange(GET("/"), 304, turns, parts, "HTTP/1.1 304 Not Modified\r\ndate: now\r\n\r\n", true);
    }
}

static void the_body_has_the_announced_length(void) {
    peer_server server = server_start();
    int socket = client(&server);
    send_text(socket, GET("/"));
    fl_exchange *exchange = take(server.loop);
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 200));
    header(exchange, "Content-Length", "4");
    header(exchange, "content-length", "4"); /* the duplicate is dropped */
    CHECK_NUMBER(FL_BAD_HEADER_VALUE, fl_exchange_header(exchange, "content-length", 14, "5", 1));
    CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, -1));
    put(exchange, "abcdef"); /* the excess is dropped */
    put(exchange, "g");
    fl_exchange_finish(exchange);
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\nContent-Length: 4\r\ndate: ", "\r\n\r\nabcd", receive(server.loop, socket));

    send_text(socket, GET("/"));
    exchange = begin(server.loop, 200, 4);
    put(exchange, "ab");
    fl_exchange_finish(exchange); /* too short: closes the connection */
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", "\r\n\r\nab", receive_to_end(server.loop, socket));
    close(socket);
    server_stop(&server);
}

static void a_response_may_start_over_until_some_of_it_is_sent(void) {
    peer_server server = server_start();
    int socket = client(&server);
    send_text(socket, GET("/") GET("/"));
    fl_exchange *exchange = begin(server.loop, 200, -1);
    put(exchange, "secret");
    CHECK_NUMBER(FL_BAD_HEADER_VALUE, fl_exchange_header(exchange, "x", 1, "a\r\nb: c", 7));
    CHECK_NUMBER(FL_BAD_HEADER_NAME, fl_exchange_header(exchange, "x y", 3, "a", 1));
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 500));
    header(exchange, "date", "now");
    CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, 2));
    put(exchange, "no");
    fl_exchange_finish(exchange);
    CHECK_ALL("HTTP/1.1 500 Internal Server Error\r\ndate: now\r\ncontent-length: 2\r\n\r\nno",
              receive(server.loop, socket));
    exchange = begin(server.loop, 200, -1);
    put(exchange, "first");
    turn(server.loop);
    CHECK_NUMBER(FL_CLOSED, fl_exchange_begin(exchange, 500));
    fl_exchange_abandon(exchange);
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", "5\r\nfirst\r\n", receive_to_end(server.loop, socket)); /* no last chunk */
    close(socket);
    server_stop(&server);
}

static void a_malformed_body_is_rejected_if_the_app_sends_no_response(void) {
    for (int responds = 0; responds < 2; responds++) {
        fl_limits limits = peer_limits;
        limits.body_buffer = 2;
        peer_server server = server_with(limits);
        int socket = client(&server);
        send_text(socket, "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n");
        fl_exchange *exchange = take(server.loop);
        fl_exchange_release_head(exchange);
        send_text(socket, "zz\r\n" GET("/smuggled"));
        turn(server.loop);
        size_t used;
        if (responds) {
            fl_exchange_begin(exchange, 200);
            fl_exchange_head_end(exchange, -1);
            fl_exchange_write(exchange, "part", 4, &used);
            fl_exchange_flush(exchange);
        }
        fl_exchange_abandon(exchange);
        CHECK_NUMBER(0, server.loop->context.counts.in_flight);
        CHECK(server.loop->context.served == NULL);
        received_bytes received = receive_to_end(server.loop, socket);
        CHECK_NUMBER(1, occurrences(&received, "HTTP/1.1 "));
        if (responds)
            CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", "4\r\npart\r\n", received);
        else
            CHECK_RECEIVED("HTTP/1.1 400 Bad Request\r\n", "a chunk is malformed\n", received);
        close(socket);
        server_stop(&server);
    }
}

static void ambiguous_response_headers_are_not_sent(void) {
    peer_server server = server_start();
    int socket = client(&server);
    send_text(socket, GET("/"));
    fl_exchange *exchange = take(server.loop);
    fl_exchange_release_head(exchange);
    CHECK_NUMBER(FL_BAD_STATUS, fl_exchange_begin(exchange, 199));
    CHECK_NUMBER(FL_BAD_STATUS, fl_exchange_begin(exchange, 1000));
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 200));
    header(exchange, "Transfer-Encoding", "chunked");
    CHECK_NUMBER(FL_BAD_HEADER_VALUE, fl_exchange_header(exchange, "content-length", 14, "1", 1));
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 200));
    header(exchange, "content-length", "1");
    CHECK_NUMBER(FL_BAD_HEADER_VALUE, fl_exchange_header(exchange, "transfer-encoding", 17, "chunked", 7));
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 200));
    header(exchange, "connection", "x ,\tClose");
    header(exchange, "transfer-encoding", "chunked");
    CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, -1));
    put(exchange, "1\r\na\r\n0\r\n\r\n");
    fl_exchange_finish(exchange);
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n", "1\r\na\r\n0\r\n\r\n",
                receive_to_end(server.loop, socket));
    close(socket);
    server_stop(&server);
}

static void an_interim_response_goes_before_the_final_one(void) {
    peer_server server = server_start();
    int socket = client(&server), old = client(&server);
    static const char hint[] = "link: a\r\n";
    send_text(socket, "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n");
    fl_exchange *exchange = take(server.loop);
    CHECK_NUMBER(FL_OK, fl_exchange_send_interim(exchange, 103, hint, sizeof hint - 1));
    CHECK_RECEIVED("HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n", "", receive(server.loop, socket));
    answer(exchange, 200, "x");
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", "x", receive(server.loop, socket));
    send_text(old, "GET /1 HTTP/1.0\r\n\r\n");
    exchange = take(server.loop);
    CHECK_NUMBER(FL_OK, fl_exchange_send_interim(exchange, 103, hint, sizeof hint - 1));
    CHECK_NOTHING_RECEIVED(receive(server.loop, old));
    answer(exchange, 200, "x");
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", "x", receive_to_end(server.loop, old));
    close(socket);
    close(old);
    server_stop(&server);
}

static void hijacking_passes_the_socket_and_unused_input_to_the_caller(void) {
    peer_server server = server_start();
    int socket = client(&server);
    fl_buffer unsent = {0}, ahead = {0};
    send_text(socket, "POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcahead");
    fl_exchange *exchange = take(server.loop);
    int descriptor = fl_exchange_hijack(exchange, &unsent, &ahead);
    CHECK(descriptor >= 0);
    CHECK_NUMBER(0, unsent.length);
    CHECK_BYTES("abcahead", 8, fl_buffer_at(&ahead), ahead.length);
    CHECK_NUMBER(0, server.loop->context.counts.connections);
    CHECK_NUMBER(1, server.loop->context.counts.in_flight);
    CHECK_NUMBER(-1, fl_exchange_hijack(exchange, &unsent, &ahead));
    fl_buffer_free(&server.loop->context.slab, &ahead);
    fl_loop_drain(server.loop, false);
    CHECK(!fl_loop_is_drained(server.loop));
    fl_exchange_finish(exchange);
    turn(server.loop);
    CHECK(fl_loop_is_drained(server.loop));
    send_text(descriptor, "by hand");
    CHECK_RECEIVED("by hand", "", receive(server.loop, socket));
    close(descriptor);
    close(socket);
    server_stop(&server);
}

static void a_response_that_has_begun_cannot_be_hijacked(void) {
    peer_server server = server_with(peer_limits);
    int socket = client(&server);
    fl_buffer unsent = {0}, ahead = {0};
    send_text(socket, "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n");
    fl_exchange *exchange = take(server.loop);
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 200));
    CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, -1));
    fl_exchange_flush(exchange);
    CHECK_NUMBER(-1, fl_exchange_hijack(exchange, &unsent, &ahead));
    fl_exchange_finish(exchange);
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", "0\r\n\r\n", receive(server.loop, socket));
    CHECK_NUMBER(1, server.loop->context.counts.connections);
    close(socket);
    server_stop(&server);
}

static void the_app_gets_the_socket_after_101(void) {
    peer_server server = server_start();
    int socket = client(&server);
    fl_buffer unsent = {0}, ahead = {0};
    send_text(socket, "GET /1 HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: b\r\n\r\nahead");
    fl_exchange *exchange = take(server.loop);
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 101));
    CHECK_NUMBER(FL_OK, fl_exchange_header(exchange, "upgrade", 7, "b", 1));
    CHECK_NUMBER(FL_OK, fl_exchange_header(exchange, "connection", 10, "upgrade", 7));
    CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, -1));
    int descriptor = fl_exchange_hijack(exchange, &unsent, &ahead);
    CHECK_BYTES("ahead", 5, fl_buffer_at(&ahead), ahead.length);
    fl_buffer_free(&server.loop->context.slab, &ahead);
    fl_exchange_finish(exchange);
    CHECK_RECEIVED("HTTP/1.1 101 Switching Protocols\r\nupgrade: b\r\nconnection: upgrade\r\ndate: ", "GMT\r\n\r\n",
                receive(server.loop, socket));
    close(descriptor);
    close(socket);
    server_stop(&server);
}

enum { MAX_REQUESTS = 5 };

/* Checks whether the loop keeps the first of several responses, and sends all of them once they are due. */
static void check_batching(peer_server *server, int count, int64_t usual, bool batched) {
    fl_loop *loop = server->loop;
    loop->pace.interval = usual;
    int sockets[MAX_REQUESTS];
    received_bytes received[MAX_REQUESTS] = {0};
    for (int i = 0; i < count; i++) {
        sockets[i] = client(server);
        send_text(sockets[i], GET("/"));
    }
    TURN_UNTIL(loop, loop->ready.count == (uint32_t) count);
    for (int i = 0; i < count; i++) {
        fl_exchange_finish(begin(loop, 204, -1));
        if (i > 0)
            continue;
        fl_loop_flush_complete(loop, 5 * SECOND); /* not due yet */
        receive_available(sockets[0], &received[0]);
        CHECK((received[0].size > 0) == !batched);
    }
    fl_loop_flush_complete(loop, 0);
    for (int i = 0; i < count; i++) {
        receive_available(sockets[i], &received[i]);
        CHECK(received[i].size > 0);
        free(received[i].bytes);
        close(sockets[i]);
    }
}

static void responses_of_short_requests_are_batched_while_the_watch_thread_runs(void) {
    peer_server server = server_start();
    check_batching(&server, 3, 5, false);
    server.loop->watched = true;
    check_batching(&server, 3, 5, true);
    check_batching(&server, 3, 500, false);
    check_batching(&server, MAX_REQUESTS, 500, true);
    check_batching(&server, MAX_REQUESTS, 5000, false);
    server_stop(&server);
}

static void the_watch_thread_does_not_flush_incomplete_responses(void) {
    peer_server server = server_start();
    int socket = client(&server);
    send_text(socket, GET("/"));
    fl_exchange *exchange = begin(server.loop, 200, -1);
    put(exchange, "part");
    fl_loop_flush_complete(server.loop, 0);
    CHECK(!exchange->response.committed);
    turn(server.loop);
    CHECK(exchange->response.committed);
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", "4\r\npart\r\n", receive(server.loop, socket));
    fl_exchange_finish(exchange);
    close(socket);
    server_stop(&server);
}

int main(void) {
    TEST(responses_of_short_requests_are_batched_while_the_watch_thread_runs);
    TEST(the_watch_thread_does_not_flush_incomplete_responses);
    TEST(a_body_is_framed_by_length_if_it_ends_in_time_else_in_chunks);
    TEST(a_client_of_HTTP_1_0_gets_no_chunks);
    TEST(responses_without_a_body_drop_what_the_app_writes);
    TEST(the_body_has_the_announced_length);
    TEST(a_response_may_start_over_until_some_of_it_is_sent);
    TEST(a_malformed_body_is_rejected_if_the_app_sends_no_response);
    TEST(ambiguous_response_headers_are_not_sent);
    TEST(an_interim_response_goes_before_the_final_one);
    RAW_TEST(hijacking_passes_the_socket_and_unused_input_to_the_caller);
    TEST(a_response_that_has_begun_cannot_be_hijacked);
    RAW_TEST(the_app_gets_the_socket_after_101);
    return test_summary();
}
