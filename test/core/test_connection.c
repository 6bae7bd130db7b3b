/* Requests and responses over real sockets, and clients that disconnect. */
#include "peer.h"

#include <sys/wait.h>

static void a_request_is_taken_and_answered(void) {
    peer_server server = server_start();
    int socket = client(&server);
    send_text(socket, GET("/one"));
    fl_exchange *exchange = take(server.loop);
    CHECK_TEXT("/one", path_of(exchange));
    CHECK_NUMBER(1, server.loop->context.counts.in_flight);
    answer(exchange, 200, "hello");
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\ncontent-length: 5\r\ndate: ", " GMT\r\n\r\nhello", receive(server.loop, socket));
    CHECK_NUMBER(0, server.loop->context.counts.in_flight);
    CHECK_NUMBER(1, server.loop->context.counts.connections);
    close(socket);
    TURN_UNTIL(server.loop, server.loop->context.counts.connections == 0);
    server_stop(&server);
}

static void pipelined_requests_are_answered_in_order(void) {
    peer_server server = server_start();
    int socket = client(&server);
    char expected[40];
    for (int i = 0; i < 20; i++) {
        char request[120];
        snprintf(request, sizeof request, "POST /%02d HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", i);
        send_text(socket, request);
    }
    turn(server.loop);
    CHECK_NUMBER(1, server.loop->ready.count); /* at most one per connection */
    CHECK_NUMBER(20, answer_all(server.loop));
    received_bytes received = receive(server.loop, socket);
    const char *at = received.bytes;
    for (int i = 0; i < 20; i++) {
        snprintf(expected, sizeof expected, "\r\n\r\n/%02d", i);
        at = strstr(at, expected);
        CHECK(at != NULL);
        if (at == NULL)
            break;
    }
    free(received.bytes);
    close(socket);
    server_stop(&server);
}

/* The body exceeds one read, and all of it has been received when the first request is answered. */
static void a_body_behind_another_request_is_read_to_its_end(void) {
    enum { SIZE = 40000 };
    static const char head[] = "GET /first HTTP/1.1\r\nHost: a\r\n\r\n"
                               "POST /second HTTP/1.1\r\nHost: a\r\nContent-Length: 40000\r\n\r\n";
    static char bytes[sizeof head - 1 + SIZE];
    memcpy(bytes, head, sizeof head - 1);
    memset(bytes + sizeof head - 1, 'b', SIZE);
    peer_server server = server_start();
    int socket = client(&server);
    send_bytes(socket, bytes, sizeof bytes);
    turn(server.loop);
    CHECK_NUMBER(2, answer_all(server.loop));
    received_bytes received = receive(server.loop, socket);
    CHECK(strstr(received.bytes, "\r\n\r\n/second") != NULL);
    free(received.bytes);
    close(socket);
    server_stop(&server);
}

static void a_request_in_single_bytes_is_the_same_request(void) {
    peer_server server = server_start();
    int socket = client(&server);
    static const char request[] =
        "POST /slow HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nT: x\r\n\r\n";
    for (size_t i = 0; i + 1 < sizeof request; i++) {
        CHECK_NUMBER(0, server.loop->ready.count);
        send_bytes(socket, request + i, 1);
        fl_loop_wait(server.loop, 100 * MILLISECOND);
        fl_loop_turn(server.loop);
    }
    fl_exchange *exchange = take(server.loop);
    const char *bytes;
    size_t size;
    CHECK_NUMBER(FL_OK, fl_exchange_body(exchange, &bytes, &size));
    CHECK_BYTES("abcde", 5, bytes, size);
    fl_exchange_consume_body(exchange, size);
    CHECK_NUMBER(FL_OK, fl_exchange_body(exchange, &bytes, &size));
    CHECK_NUMBER(0, size);
    answer(exchange, 200, "");
    close(socket);
    server_stop(&server);
}

static void a_chunked_body_ends_where_the_next_request_begins(void) {
    peer_server server = server_start();
    int socket = client(&server);
    send_text(socket, "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" GET("/b"));
    CHECK_NUMBER(2, answer_all(server.loop));
    CHECK_RECEIVED("HTTP/1.1 200 OK", "\r\n\r\n/b", receive(server.loop, socket));
    /* The same, with the end of the body in a second read */
    send_text(socket, "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na");
    turn(server.loop);
    send_text(socket, "bc\r\n0\r\n\r\n" GET("/c"));
    CHECK_NUMBER(2, answer_all(server.loop));
    CHECK_RECEIVED("HTTP/1.1 200 OK", "\r\n\r\n/c", receive(server.loop, socket));
    close(socket);
    server_stop(&server);
}

static void a_client_that_ends_its_side_gets_all_responses(void) {
    peer_server server = server_start();
    int socket = client(&server);
    send_text(socket, GET("/1") GET("/2") GET("/3"));
    shutdown(socket, SHUT_WR);
    CHECK_NUMBER(3, answer_all(server.loop));
    received_bytes received = receive_to_end(server.loop, socket);
    CHECK_NUMBER(3, occurrences(&received, "HTTP/1.1 200 OK"));
    CHECK(received.ended);
    CHECK_RECEIVED("HTTP/1.1 ", "\r\n\r\n/3", received);
    CHECK_NUMBER(0, server.loop->context.counts.connections);
    close(socket);
    server_stop(&server);
}

static void a_client_that_still_sends_receives_the_rejection(void) {
    peer_server server = server_start();
    int socket = client(&server);
    send_text(socket, "GET / HTTP/1.1\r\nHost : a\r\n\r\n");
    static char more[200000];
    memset(more, 'x', sizeof more);
    send_bytes(socket, more, sizeof more);
    turn(server.loop);
    send_text(socket, GET("/never"));
    shutdown(socket, SHUT_WR);
    received_bytes received = receive_to_end(server.loop, socket);
    CHECK(received.ended && !received.reset);
    CHECK_NUMBER(1, occurrences(&received, "HTTP/1.1 "));
    CHECK_RECEIVED("HTTP/1.1 400 Bad Request\r\n", "\n", received);
    CHECK_NUMBER(0, server.loop->ready.count);
    CHECK_NUMBER(1, server.loop->context.counts.refused);
    CHECK_NUMBER(0, server.loop->context.counts.turned_away);
    close(socket);
    server_stop(&server);
}

enum { ENDLESS_READS = 1000 };

static unsigned endless_reads;

/* A client that sends a malformed request and then goes on sending, as fast as the server reads. */
static ssize_t endless_read(fl_transport *transport, void *bytes, size_t size) {
    static const char malformed[] = "GET / HTTP/1.1\r\nHost : a\r\n\r\n";
    transport->drained = false;
    if (endless_reads == ENDLESS_READS)
        return FL_TRANSPORT_WAIT;
    if (endless_reads++ > 0)
        return (ssize_t) size;
    memcpy(bytes, malformed, sizeof malformed - 1);
    return sizeof malformed - 1;
}

static void a_rejected_client_that_never_stops_sending_does_not_keep_the_loop(void) {
    fl_transport_kind endless = fl_transport_plain;
    endless.read = endless_read;
    endless_reads = 0;
    peer_server server = server_start();
    server.loop->accepting.listeners->transport = &endless;
    int socket = client(&server);
    send_text(socket, "x");
    TURN_UNTIL(server.loop, endless_reads > 0);
    CHECK_NUMBER(1, server.loop->context.counts.connections);
    CHECK(endless_reads < ENDLESS_READS / 10);
    close(socket);
    server_stop(&server);
}

static void the_rejection_of_a_HEAD_request_has_no_body(void) {
    peer_server server = server_start();
    int socket = client(&server);
    send_text(socket, "HEAD / HTTP/1.1\r\nHost: a\r\nExpect: a miracle\r\n\r\n");
    CHECK_RECEIVED("HTTP/1.1 417 Expectation Failed\r\n", "\r\n\r\n", receive_to_end(server.loop, socket));
    close(socket);
    server_stop(&server);
}

static void a_client_may_disconnect_at_any_stage(void) {
    static const char *const beginnings[] = {
        "", "\r\n", "GET / HT", GET("/"), GET("/") GET("/"),
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        "GET / HTTP/1.1\r\n\r\n"};
    struct linger now = {1, 0};
    for (size_t i = 0; i < sizeof beginnings / sizeof beginnings[0]; i++)
        for (int stage = 0; stage < 4; stage++)
            for (int reset = 0; reset < 2; reset++) {
                peer_server server = server_start();
                int socket = client(&server);
                send_text(socket, beginnings[i]);
                if (stage > 0)
                    turn(server.loop);
                fl_exchange *exchange = stage > 1 ? fl_loop_take(server.loop) : NULL;
                if (exchange != NULL && stage > 2) {
                    size_t used;
                    fl_exchange_release_head(exchange);
                    fl_exchange_begin(exchange, 200);
                    fl_exchange_head_end(exchange, -1);
                    fl_exchange_write(exchange, "part", 4, &used);
                }
                if (reset)
                    setsockopt(socket, SOL_SOCKET, SO_LINGER, &now, sizeof now);
                close(socket);
                turn(server.loop);
                if (exchange != NULL)
                    fl_exchange_finish(exchange);
                while ((exchange = fl_loop_take(server.loop)) != NULL) answer(exchange, 200, "late");
                TURN_UNTIL(server.loop, server.loop->context.counts.connections == 0);
                CHECK_NUMBER(0, server.loop->context.counts.in_flight);
                CHECK_NUMBER(0, server.loop->ready.count);
                CHECK(server.loop->context.served == NULL && server.loop->context.woken.first == NULL);
                server_stop(&server);
            }
}

/* The loop sends the staged response to the first request when it is about to take the second one. */
static void a_client_may_have_disconnected_when_its_next_request_is_taken(void) {
    struct linger now = {1, 0};
    peer_server server = server_start();
    fl_loop *loop = server.loop;
    loop->watched = true; /* batches responses of very short requests */
    loop->pace.interval = 0;
    int socket = client(&server), other = client(&server);
    send_text(socket, GET("/first") GET("/second"));
    TURN_UNTIL(loop, loop->ready.count == 1);
    send_text(other, GET("/other"));
    TURN_UNTIL(loop, loop->ready.count == 2);
    answer(fl_loop_take(loop), 200, "first");
    atomic_store(&loop->context.staged_at, fl_clock() + 60 * SECOND); /* not due yet, even on a slow machine */
    answer(fl_loop_take(loop), 200, "other");
    CHECK_NUMBER(1, loop->ready.count);
    setsockopt(socket, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(socket);
    atomic_store(&loop->context.staged_at, fl_clock() - SECOND);
    CHECK(fl_loop_take(loop) == NULL);
    CHECK_NUMBER(0, loop->context.counts.in_flight);
    CHECK_RECEIVED("HTTP/1.1 200 ", "other", receive(loop, other));
    close(other);
    server_stop(&server);
}

static void events_of_a_connection_closed_meanwhile_are_ignored(void) {
    peer_server server = server_start();
    int sockets[20];
    fl_exchange *exchanges[20];
    for (int i = 0; i < 20; i++) {
        sockets[i] = client(&server);
        send_text(sockets[i], GET("/"));
        exchanges[i] = take(server.loop);
    }
    for (int i = 0; i < 20; i++) send_text(sockets[i], GET("/next"));
    fl_loop_wait(server.loop, SECOND); /* fetches their events */
    for (int i = 0; i < 20; i++) fl_exchange_abandon(exchanges[i]);
    turn(server.loop);
    CHECK_NUMBER(0, server.loop->context.counts.connections);
    for (int i = 0; i < 20; i++) close(sockets[i]);
    server_stop(&server);
}

static void the_loop_spins_only_while_that_finds_requests(void) {
    peer_server server = server_start();
    int socket = client(&server);
    turn(server.loop);
    CHECK(fl_loop_may_spin(server.loop));
    for (int round = 0; round < 3; round++) {
        send_text(socket, GET("/"));
        atomic_store(&server.loop->driver.waiting, true);
        CHECK(fl_loop_spin(server.loop));
        CHECK(!atomic_load(&server.loop->driver.waiting)); /* otherwise it would keep the lead while it is away */
        CHECK_NUMBER(1, answer_all(server.loop));
        int vain = 0, idle = 0;
        for (; vain < 100 && fl_loop_may_spin(server.loop); vain++) CHECK(!fl_loop_spin(server.loop));
        for (; idle < 100 && !fl_loop_may_spin(server.loop); idle++) continue;
        CHECK_NUMBER(8, vain);
        CHECK(idle > 40 && idle < 100); /* it seldom tries again */
    }
    close(socket);
    server_stop(&server);
}

static void a_wait_processes_the_events_that_it_finds(void) {
    peer_server server = server_start();
    int socket = client(&server);
    turn(server.loop);
    send_text(socket, GET("/"));
    CHECK(fl_loop_wait(server.loop, SECOND));
    CHECK_NUMBER(1, fl_loop_takeable(server.loop));
    CHECK(!fl_loop_wait(server.loop, 0));
    CHECK_NUMBER(1, fl_loop_turn(server.loop));
    close(socket);
    server_stop(&server);
}

static void a_closing_loop_leaves_served_requests_to_their_owners(void) {
    peer_server server = server_start();
    int socket = client(&server);
    send_text(socket, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab");
    fl_exchange *exchange = take(server.loop);
    fl_exchange_release_head(exchange);
    server_stop(&server);
    const char *bytes;
    size_t size, used;
    CHECK_NUMBER(FL_CLOSED, fl_exchange_body(exchange, &bytes, &size));
    CHECK_NUMBER(FL_CLOSED, fl_exchange_begin(exchange, 200));
    CHECK_NUMBER(FL_CLOSED, fl_exchange_header(exchange, "a", 1, "b", 1));
    CHECK_NUMBER(FL_CLOSED, fl_exchange_head_end(exchange, 2));
    CHECK_NUMBER(FL_CLOSED, fl_exchange_write(exchange, "ab", 2, &used));
    fl_exchange_flush(exchange);
    free(exchange);
    close(socket);
}

static bool is_open(int descriptor) {
    return fcntl(descriptor, F_GETFD) >= 0;
}

/* At the fork, another thread may hold the lock and change the lists: the child finds the lock held for ever. What it frees later must not
 * write to files that it has opened since, or close them. */
static void the_child_of_a_fork_closes_the_connections_of_a_locked_loop(void) {
    peer_server server = server_start();
    int socket = client(&server), hijacked = client(&server);
    send_text(socket, GET("/"));
    fl_exchange *exchange = take(server.loop);
    send_text(hijacked, GET("/"));
    fl_exchange *second = take(server.loop);
    fl_buffer unsent = {0}, ahead = {0};
    int ours = exchange->connection->transport.descriptor, apps = fl_exchange_hijack(second, &unsent, &ahead);
    int listener = server.loop->accepting.listeners->descriptor, other = dup(0);
    pthread_mutex_lock(&server.loop->context.lock);
    fl_connection *torn = server.loop->context.connections;
    server.loop->context.connections = (fl_connection *) 1;
    pid_t child = fork();
    if (child == 0) {
        fl_loop_forget(server.loop);
        fl_exchange_disown(exchange);
        size_t used;
        bool closed = !is_open(ours) && is_open(apps) && is_open(other);
        int accepts = 0;
        socklen_t size = sizeof accepts;
        bool keeps_descriptor = is_open(listener) && getsockopt(listener, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &size) < 0;
        bool finds_client_gone = fl_exchange_write(exchange, "ab", 2, &used) == FL_CLOSED;
        _exit((closed ? 0 : 1) | (keeps_descriptor ? 0 : 2) | (finds_client_gone ? 0 : 4));
    }
    server.loop->context.connections = torn;
    pthread_mutex_unlock(&server.loop->context.lock);
    int status = -1;
    waitpid(child, &status, 0);
    CHECK_NUMBER(0, status);
    fl_exchange_finish(second);
    close(apps);
    close(other);
    close(hijacked);
    fl_exchange_begin(exchange, 200);
    fl_exchange_head_end(exchange, 0);
    fl_exchange_finish(exchange);
    fl_context_flush(&server.loop->context);
    char answer[256];
    CHECK(recv(socket, answer, sizeof answer, 0) > 0);
    close(socket);
    server_stop(&server);
}

int main(void) {
    TEST(a_request_is_taken_and_answered);
    TEST(pipelined_requests_are_answered_in_order);
    TEST(a_body_behind_another_request_is_read_to_its_end);
    TEST(a_request_in_single_bytes_is_the_same_request);
    TEST(a_chunked_body_ends_where_the_next_request_begins);
    TEST(a_client_that_ends_its_side_gets_all_responses);
    TEST(a_client_that_still_sends_receives_the_rejection);
    TEST(a_rejected_client_that_never_stops_sending_does_not_keep_the_loop);
    TEST(the_rejection_of_a_HEAD_request_has_no_body);
    TEST(a_client_may_disconnect_at_any_stage);
    TEST(a_client_may_have_disconnected_when_its_next_request_is_taken);
    TEST(events_of_a_connection_closed_meanwhile_are_ignored);
    TEST(the_loop_spins_only_while_that_finds_requests);
    RAW_TEST(a_wait_processes_the_events_that_it_finds);
    TEST(a_closing_loop_leaves_served_requests_to_their_owners);
    RAW_TEST(the_child_of_a_fork_closes_the_connections_of_a_locked_loop);
    return test_summary();
}
