/* Large bodies, slow clients, and clients that disconnect in the middle of a body. */
#include "http1/http1.h"
#include "responses.h"

static char large[1500001];

static void an_unread_body_ends_the_connection(void) {
    fl_limits limits = peer_limits;
    limits.body_buffer = 1000;
    peer_server server = server_with(limits);
    int socket = client(&server);
    send_text(socket, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 900000\r\n\r\n");
    send_bytes(socket, large, 100000);
    turn(server.loop);
    send_text(socket, GET("/smuggled"));
    answer(take(server.loop), 200, "early");
    received_bytes received = {0};
    TURN_UNTIL(server.loop, (receive_available(socket, &received), received.ended));
    CHECK(strstr(received.bytes, "\r\nconnection: close\r\n") != NULL);
    CHECK(!received.reset && occurrences(&received, "HTTP/1.1 ") == 1);
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", "\r\n\r\nearly", received);
    send_bytes(socket, large, 10); /* dropped */
    turn(server.loop);
    CHECK_NUMBER(0, server.loop->ready.count);
    close(socket);
    TURN_UNTIL(server.loop, server.loop->context.counts.connections == 0);
    server_stop(&server);
}

static peer_server server_buffering(uint32_t response_buffer) {
    fl_limits limits = peer_limits;
    limits.response_buffer = response_buffer;
    return server_with(limits);
}

/* Sends a large body to a slow client: every byte arrives once, and the writer has to wait. */
static void transfer_large_body(const char *request, int64_t length, size_t piece, uint32_t response_buffer) {
    peer_server server = server_buffering(response_buffer);
    int socket = narrow_client(&server);
    send_text(socket, request);
    fl_exchange *exchange = begin(server.loop, 200, length);
    size_t size = sizeof large - 1, written = 0;
    unsigned waits = 0;
    received_bytes received = {0};
    while (written < size) {
        size_t used, now = size - written < piece ? size - written : piece;
        fl_status status = fl_exchange_write(exchange, large + written, now, &used);
        written += used;
        CHECK(exchange->connection->out.length + exchange->response.out.length <= response_buffer + 65536 + 40);
        if (status == FL_AGAIN) {
            waits++;
            TURN_UNTIL(server.loop,
                       (receive_available(socket, &received), fl_context_next_woken(&server.loop->context) == exchange->id));
        } else if (status != FL_OK) {
            CHECK_NUMBER(FL_OK, status);
            break;
        }
    }
    CHECK(waits > 0);
    fl_exchange_finish(exchange);
    CHECK_NUMBER(0, server.loop->context.counts.in_flight);
    /* With libkqueue the end arrives a little later. */
    TURN_UNTIL(server.loop,
               (receive_available(socket, &received), received.ended || (server.loop->context.connections != NULL &&
                                                                         server.loop->context.connections->out.length == 0)));
    receive_available(socket, &received);
    char *body = strstr(received.bytes, "\r\n\r\n");
    body = body == NULL ? received.bytes : body + 4;
    size_t got = received.size - (size_t) (body - received.bytes);
    if (strstr(received.bytes, "chunked") != NULL) {
        fl_chunks chunks = {0};
        size_t used;
        CHECK_NUMBER(FL_OK, fl_chunks_decode(&chunks, body, got, &used, &got));
    }
    CHECK_BYTES(large, size, body, got);
    free(received.bytes);
    close(socket);
    server_stop(&server);
}

static void a_large_body_arrives_complete_in_each_framing(void) {
    for (size_t i = 0; i + 1 < sizeof large; i++) large[i] = (char) (' ' + i % 89);
    int64_t size = sizeof large - 1;
    for (int small = 0; small < 2; small++)
        for (int i = 0; i < 3; i++) {
            size_t piece = i == 0 ? sizeof large : i == 1 ? 100000 : 999;
            uint32_t buffer = small ? 4096 : 1 << 20;
            transfer_large_body(GET("/"), size, piece, buffer);
            transfer_large_body(GET("/"), -1, piece, buffer);
            transfer_large_body("GET / HTTP/1.0\r\n\r\n", -1, piece, buffer);
        }
}

static void little_is_copied_of_a_part_that_exceeds_the_buffer(void) {
    peer_server server = server_buffering(1 << 20);
    int socket = narrow_client(&server);
    send_text(socket, GET("/"));
    fl_exchange *exchange = begin(server.loop, 200, sizeof large - 1);
    size_t used;
    CHECK_NUMBER(FL_AGAIN, fl_exchange_write(exchange, large, sizeof large - 1, &used));
    CHECK(used < sizeof large - 1);
    CHECK(exchange->connection->out.length > 0 && exchange->connection->out.length <= 131072);
    fl_exchange_abandon(exchange);
    close(socket);
    server_stop(&server);
}

#ifndef FL_FALLBACKS /* they have no TCP_NOTSENT_LOWAT */
static void little_is_copied_to_the_kernel_if_the_client_does_not_read(void) {
    peer_server server = server_buffering(65536);
    int socket = client(&server);
    send_text(socket, GET("/"));
    fl_exchange *exchange = begin(server.loop, 200, sizeof large - 1);
    size_t used;
    CHECK_NUMBER(FL_AGAIN, fl_exchange_write(exchange, large, sizeof large - 1, &used));
    CHECK(used < 1000000);
    fl_exchange_abandon(exchange);
    close(socket);
    server_stop(&server);
}
#endif

static unsigned writes;

static ssize_t counted_write(fl_transport *transport, const struct iovec *parts, int count) {
    writes++;
    return fl_transport_plain.write(transport, parts, count);
}

static void the_head_is_sent_together_with_the_body(void) {
    fl_transport_kind counted = fl_transport_plain;
    counted.write = counted_write;
    peer_server server = server_start();
    int socket = client(&server);
    send_text(socket, GET("/"));
    fl_exchange *exchange = begin(server.loop, 200, 60000);
    exchange->connection->transport.kind = &counted;
    size_t used;
    writes = 0;
    CHECK_NUMBER(FL_OK, fl_exchange_write(exchange, large, 60000, &used));
    fl_exchange_finish(exchange);
    CHECK_NUMBER(1, writes);
    received_bytes received = receive(server.loop, socket);
    CHECK(received.size > 60000 && memcmp(received.bytes + received.size - 60000, large, 60000) == 0);
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", "", received);
    close(socket);
    server_stop(&server);
}

/* If the kernel takes all bytes, the poll reports no writability later. */
static void a_write_does_not_wait_while_the_kernel_has_room(void) {
    peer_server server = server_buffering(4096);
    int socket = client(&server);
    send_text(socket, GET("/"));
    fl_exchange *exchange = begin(server.loop, 200, -1);
    put(exchange, "x");
    turn(server.loop);
    size_t used;
    CHECK_NUMBER(FL_OK, fl_exchange_write(exchange, large, 60000, &used));
    CHECK_NUMBER(60000, used);
    fl_exchange_finish(exchange);
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", "0\r\n\r\n", receive(server.loop, socket));
    close(socket);
    server_stop(&server);
}

static void a_body_that_is_not_read_is_not_received(void) {
    fl_limits limits = peer_limits;
    limits.body_buffer = 0;
    peer_server server = server_with(limits);
    int socket = client(&server);
    send_text(socket, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1500000\r\n\r\n");
    fl_exchange *exchange = take(server.loop);
    fl_exchange_release_head(exchange);
    size_t sent = 0, received = 0, most = 0;
    while (received < 1500000) {
        ssize_t count = sent < 1500000 ? send(socket, large + sent, 1500000 - sent, MSG_NOSIGNAL) : 0;
        if (count > 0)
            sent += (size_t) count;
        turn(server.loop);
        most = exchange->request.body.length > most ? exchange->request.body.length : most;
        const char *bytes;
        size_t size;
        fl_status status = fl_exchange_body(exchange, &bytes, &size);
        if (status == FL_AGAIN)
            continue;
        if (status != FL_OK || size == 0 || memcmp(bytes, large + received, size) != 0) {
            CHECK_NUMBER(FL_OK, status);
            CHECK(size > 0);
            break;
        }
        received += size;
        fl_exchange_consume_body(exchange, size);
    }
    CHECK_NUMBER(1500000, received);
    CHECK(most <= 65536);
    answer(exchange, 200, "");
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", "\r\n\r\n", receive(server.loop, socket));
    CHECK_NUMBER(1, server.loop->context.counts.connections);
    close(socket);
    server_stop(&server);
}

static void a_truncated_or_malformed_body_wakes_its_reader(void) {
    static const char *const ends[] = {"", "zz\r\n", "5\r\nabcdeX"};
    for (size_t i = 0; i < 3; i++) {
        fl_limits limits = peer_limits;
        limits.body_buffer = 2;
        peer_server server = server_with(limits);
        int socket = client(&server);
        send_text(socket, "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n");
        fl_exchange *exchange = take(server.loop);
        fl_exchange_release_head(exchange);
        const char *bytes;
        size_t size;
        CHECK_NUMBER(FL_OK, fl_exchange_body(exchange, &bytes, &size));
        CHECK_BYTES("ab", 2, bytes, size);
        fl_exchange_consume_body(exchange, size);
        CHECK_NUMBER(FL_AGAIN, fl_exchange_body(exchange, &bytes, &size));
        send_text(socket, ends[i]);
        if (ends[i][0] == 0)
            shutdown(socket, SHUT_WR);
        TURN_UNTIL(server.loop, fl_context_next_woken(&server.loop->context) == exchange->id);
        CHECK_NUMBER(FL_CLOSED, fl_exchange_body(exchange, &bytes, &size));
        answer(exchange, 400, "bad");
        CHECK_RECEIVED("HTTP/1.1 400 Bad Request\r\n", "\r\n\r\nbad", receive_to_end(server.loop, socket));
        close(socket);
        server_stop(&server);
    }
}

static void a_reader_learns_that_its_client_has_disconnected(void) {
    enum { WAITS, HAS_READ, HAS_BEGUN, CASES };
    for (int does = 0; does < CASES; does++) {
        fl_limits limits = peer_limits;
        limits.body_buffer = 2;
        peer_server server = server_with(limits);
        int socket = client(&server);
        send_text(socket, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nab");
        fl_exchange *exchange = take(server.loop);
        fl_exchange_release_head(exchange);
        const char *bytes;
        size_t size;
        if (does != HAS_BEGUN) {
            CHECK_NUMBER(FL_OK, fl_exchange_body(exchange, &bytes, &size));
            fl_exchange_consume_body(exchange, size);
        }
        if (does == WAITS)
            CHECK_NUMBER(FL_AGAIN, fl_exchange_body(exchange, &bytes, &size));
        struct linger resets = {1, 0};
        setsockopt(socket, SOL_SOCKET, SO_LINGER, &resets, sizeof resets);
        close(socket);
        TURN_UNTIL(server.loop, server.loop->context.counts.connections == 0);
        CHECK_NUMBER(does == WAITS ? exchange->id : 0, fl_context_next_woken(&server.loop->context));
        if (does == HAS_BEGUN) {
            CHECK_NUMBER(FL_OK, fl_exchange_body(exchange, &bytes, &size));
            CHECK_BYTES("ab", 2, bytes, size);
            fl_exchange_consume_body(exchange, size);
        }
        CHECK_NUMBER(FL_CLOSED, fl_exchange_body(exchange, &bytes, &size));
        fl_exchange_abandon(exchange);
        CHECK_NUMBER(0, server.loop->context.counts.in_flight);
        server_stop(&server);
    }
}

static void a_writer_learns_that_its_client_has_disconnected(void) {
    peer_server server = server_start();
    int socket = narrow_client(&server);
    send_text(socket, GET("/"));
    fl_exchange *exchange = begin(server.loop, 200, -1);
    size_t used;
    CHECK_NUMBER(FL_AGAIN, fl_exchange_write(exchange, large, sizeof large - 1, &used));
    close(socket);
    TURN_UNTIL(server.loop, fl_context_next_woken(&server.loop->context) == exchange->id);
    CHECK_NUMBER(FL_CLOSED, fl_exchange_write(exchange, "x", 1, &used));
    fl_exchange_abandon(exchange);
    CHECK_NUMBER(0, server.loop->context.counts.in_flight + server.loop->context.counts.connections);
    server_stop(&server);
}

/* Two fibers write: what one has written meanwhile takes no wake-up from the other, which waits for room. */
static void a_write_that_finds_room_takes_no_wake_up_from_one_that_waits(void) {
    peer_server server = server_buffering(65536);
    int socket = narrow_client(&server);
    send_text(socket, GET("/"));
    fl_exchange *exchange = begin(server.loop, 200, -1);
    size_t used;
    CHECK_NUMBER(FL_AGAIN, fl_exchange_write(exchange, large, sizeof large - 1, &used));
    size_t full = exchange->connection->out.length;
    char some[4096];
    TURN_UNTIL(server.loop, (recv(socket, some, sizeof some, 0), exchange->connection->out.length < full));
    CHECK(exchange->connection->out.length > 0);
    CHECK_NUMBER(FL_OK, fl_exchange_write(exchange, "x", 1, &used));
    received_bytes received = {0};
    TURN_UNTIL(server.loop,
               (receive_available(socket, &received), fl_context_next_woken(&server.loop->context) == exchange->id));
    CHECK(!exchange->response.awaits_room);
    fl_exchange_abandon(exchange);
    free(received.bytes);
    close(socket);
    server_stop(&server);
}

static void a_read_that_finds_bytes_takes_no_wake_up_from_one_that_waits(void) {
    fl_limits limits = peer_limits;
    limits.body_buffer = 2;
    peer_server server = server_with(limits);
    int socket = client(&server);
    send_text(socket, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nab");
    fl_exchange *exchange = take(server.loop);
    fl_exchange_release_head(exchange);
    const char *bytes;
    size_t size;
    CHECK_NUMBER(FL_OK, fl_exchange_body(exchange, &bytes, &size));
    fl_exchange_consume_body(exchange, size);
    CHECK_NUMBER(FL_AGAIN, fl_exchange_body(exchange, &bytes, &size)); /* the first one waits */
    send_text(socket, "cd");
    exchange->connection->readable = true;                          /* as the poll would say */
    CHECK_NUMBER(FL_OK, fl_exchange_body(exchange, &bytes, &size)); /* the second one comes first */
    CHECK_BYTES("cd", 2, bytes, size);
    fl_exchange_consume_body(exchange, size);
    CHECK_NUMBER(exchange->id, fl_context_next_woken(&server.loop->context));
    CHECK_NUMBER(FL_AGAIN, fl_exchange_body(exchange, &bytes, &size));
    CHECK(exchange->request.awaited);
    fl_exchange_abandon(exchange);
    close(socket);
    server_stop(&server);
}

int main(void) {
    TEST(an_unread_body_ends_the_connection);
    TEST(a_large_body_arrives_complete_in_each_framing);
    TEST(little_is_copied_of_a_part_that_exceeds_the_buffer);
#ifndef FL_FALLBACKS
    TEST(little_is_copied_to_the_kernel_if_the_client_does_not_read);
#endif
    RAW_TEST(the_head_is_sent_together_with_the_body);
    TEST(a_write_does_not_wait_while_the_kernel_has_room);
    TEST(a_body_that_is_not_read_is_not_received);
    RAW_TEST(a_truncated_or_malformed_body_wakes_its_reader);
    TEST(a_reader_learns_that_its_client_has_disconnected);
    TEST(a_writer_learns_that_its_client_has_disconnected);
    TEST(a_write_that_finds_room_takes_no_wake_up_from_one_that_waits);
    TEST(a_read_that_finds_bytes_takes_no_wake_up_from_one_that_waits);
    return test_summary();
}
