/* Limits and deadlines of queued requests, and deadlines of connections. */
#include "peer.h"

static void requests_over_the_limit_wait_in_the_queue(void) {
    fl_limits limits = peer_limits;
    limits.in_flight = 2;
    peer_server server = server_with(limits);
    int sockets[5];
    for (int i = 0; i < 5; i++) {
        char request[80];
        snprintf(request, sizeof request, "GET /%d HTTP/1.1\r\nHost: a\r\n\r\n", i);
        sockets[i] = client(&server);
        send_text(sockets[i], request);
        turn(server.loop);
    }
    CHECK_NUMBER(2, fl_loop_takeable(server.loop));
    fl_exchange *first = fl_loop_take(server.loop), *second = fl_loop_take(server.loop);
    CHECK(first != NULL && second != NULL && fl_loop_take(server.loop) == NULL);
    CHECK_TEXT("/1", path_of(second));
    answer(first, 200, "");
    fl_exchange *third = fl_loop_take(server.loop);
    CHECK_TEXT("/2", path_of(third));
    CHECK(fl_loop_take(server.loop) == NULL);
    fl_exchange_mark_long_lived(second); /* does not count any more */
    fl_exchange *fourth = fl_loop_take(server.loop);
    CHECK_TEXT("/3", path_of(fourth));
    CHECK_NUMBER(1, server.loop->context.counts.streams);
    CHECK(fl_loop_take(server.loop) == NULL);
    for (int i = 0; i < 5; i++) close(sockets[i]);
    turn(server.loop);
    fl_exchange_finish(second);
    fl_exchange_finish(third);
    fl_exchange_finish(fourth);
    CHECK_NUMBER(0, server.loop->context.counts.streams + server.loop->context.counts.in_flight);
    server_stop(&server);
}

static void a_request_that_waits_too_long_gets_503(void) {
    fl_limits limits = peer_limits;
    limits.in_flight = 1;
    limits.queue_timeout = 200 * MILLISECOND;
    peer_server server = server_with(limits);
    int busy = client(&server), late = client(&server);
    send_text(busy, GET("/"));
    fl_exchange *exchange = take(server.loop);
    send_text(late, GET("/"));
    uint64_t before = fl_clock();
    received_bytes received = receive_to_end(server.loop, late);
    CHECK(fl_clock() - before < 4 * SECOND); /* before any deadline of a connection */
    CHECK(strstr(received.bytes, "\r\nretry-after: ") != NULL);
    CHECK_RECEIVED("HTTP/1.1 503 Service Unavailable\r\n", "\n", received);
    answer(exchange, 200, "");
    CHECK_NUMBER(1, server.loop->context.counts.refused);
    close(busy);
    close(late);
    server_stop(&server);
}

enum { MANY = 300 };

/* After a turn, which has rejected some of them. */
static void let_many_wait_too_long(peer_server *server, int sockets[MANY]) {
    for (int i = 0; i < MANY; i++) {
        sockets[i] = client(server);
        send_text(sockets[i], GET("/"));
        TURN_UNTIL(server->loop, server->loop->ready.count == (uint32_t) i + 1);
    }
    server->loop->context.limits.queue_timeout = 1;
    server->loop->context.timer_stale = true; /* it has the previous limit */
    fl_loop_turn(server->loop);
}

static void many_queued_requests_expire_in_order_over_several_turns(void) {
    peer_server server = server_start();
    int sockets[MANY];
    let_many_wait_too_long(&server, sockets);
    CHECK(server.loop->context.counts.refused > MANY / 2 && server.loop->context.counts.refused < MANY);
    received_bytes first = {0}, last = {0};
    receive_available(sockets[0], &first);
    receive_available(sockets[MANY - 1], &last);
    CHECK_RECEIVED("HTTP/1.1 503 Service Unavailable\r\n", "\n", first);
    CHECK_NOTHING_RECEIVED(last);
    uint64_t since = fl_clock();
    fl_loop_wait(server.loop, 8 * SECOND);
    CHECK(fl_clock() < since + 4 * SECOND); /* the others are due already */
    CHECK_NUMBER(MANY, server.loop->context.counts.refused);
    for (int i = 0; i < MANY; i++) close(sockets[i]);
    server_stop(&server);
}

/* No other deadline runs, and nothing happens in the loop while it waits. */
static void a_request_that_comes_to_the_queue_after_a_response_waits_no_longer(void) {
    fl_limits limits = peer_limits;
    limits.in_flight = 1;
    limits.queue_timeout = 200 * MILLISECOND;
    limits.deadlines[FL_DEADLINE_IDLE] = limits.deadlines[FL_DEADLINE_HEAD] = 20 * MILLISECOND;
    peer_server server = server_with(limits);
    fl_loop *loop = server.loop;
    int first = client(&server), second = client(&server);
    send_text(first, GET("/stream") GET("/next"));
    fl_exchange *stream = take(loop);
    fl_exchange_mark_long_lived(stream);
    send_text(second, GET("/"));
    fl_exchange *running = take(loop);
    TURN_UNTIL(loop, loop->context.timer < fl_clock());
    answer(stream, 200, "all");
    CHECK_NUMBER(1, loop->ready.count);
    fl_loop_prepare_wait(loop, true, true);
    uint64_t since = fl_clock();
    fl_loop_wait(loop, 8 * SECOND);
    CHECK(fl_clock() < since + 4 * SECOND);
    TURN_UNTIL(loop, loop->ready.count == 0);
    answer(running, 200, "");
    close(first);
    close(second);
    server_stop(&server);
}

static void an_expired_queued_request_is_not_taken(void) {
    peer_server server = server_start();
    int sockets[MANY];
    let_many_wait_too_long(&server, sockets);
    CHECK(server.loop->context.counts.refused < MANY);
    CHECK(fl_loop_take(server.loop) == NULL);
    CHECK_NUMBER(MANY, server.loop->context.counts.refused);
    for (int i = 0; i < MANY; i++) close(sockets[i]);
    server_stop(&server);
}

static void a_request_whose_client_has_disconnected_is_not_taken(void) {
    fl_limits limits = peer_limits;
    limits.in_flight = 1;
    peer_server server = server_with(limits);
    int busy = client(&server), gone = client(&server);
    send_text(busy, GET("/"));
    fl_exchange *exchange = take(server.loop);
    send_text(gone, GET("/gone"));
    turn(server.loop);
    CHECK_NUMBER(1, server.loop->ready.count);
    struct linger now = {1, 0};
    setsockopt(gone, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(gone);
    TURN_UNTIL(server.loop, server.loop->ready.count == 0);
    answer(exchange, 200, "");
    CHECK(fl_loop_take(server.loop) == NULL);
    close(busy);
    server_stop(&server);
}

static void one_take_drops_a_limited_number_of_disconnected_clients(void) {
    peer_server server = server_start();
    fl_loop *loop = server.loop;
    struct linger now = {1, 0};
    for (int i = 0; i < MANY; i++) {
        int gone = client(&server);
        send_text(gone, GET("/"));
        TURN_UNTIL(loop, loop->ready.count == (uint32_t) i + 1);
        setsockopt(gone, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        loop->ready.last->connection->half_closed = true; /* as if it had ended its side before it reset the connection: */
        close(gone);
        fl_poll_remove(&loop->context.poll, loop->ready.last->connection->transport.descriptor); /* that has no event so far */
    }
    loop->context.now = loop->turns.turned_at;
    CHECK(fl_loop_take(loop) == NULL);
    CHECK(loop->ready.count > 0 && loop->ready.count < MANY / 2);
    CHECK(fl_loop_take(loop) == NULL);
    CHECK_NUMBER(0, loop->ready.count);
    server_stop(&server);
}

static void deadlines_end_stalled_connections(void) {
    static const struct {
        const char *name, *request, *answer;
    } stalls[] = {
        {"idle", "", ""},
        {"empty lines", "\r\n", ""},
        {"head", "GET / HTTP/1.1\r\nHo", "HTTP/1.1 408 Request Timeout\r\n"},
        {"body", "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab", "HTTP/1.1 408 Request Timeout\r\n"},
    };
    fl_limits limits = peer_limits;
    for (int kind = 1; kind < FL_DEADLINE_KINDS; kind++) limits.deadlines[kind] = 20 * MILLISECOND;
    peer_server server = server_with(limits);
    for (size_t i = 0; i < sizeof stalls / sizeof stalls[0]; i++) {
        int socket = client(&server);
        send_text(socket, stalls[i].request);
        received_bytes received = receive_to_end(server.loop, socket);
        if (received.size < strlen(stalls[i].answer) || (stalls[i].answer[0] == 0 && received.size > 0))
            test_fail(__FILE__, __LINE__, "%s: %s", stalls[i].name, received.bytes);
        CHECK_RECEIVED(stalls[i].answer, "", received);
        close(socket);
    }
    TURN_UNTIL(server.loop, server.loop->context.counts.connections == 0);
    server_stop(&server);
}

/* Closing takes some microseconds each, which would delay other connections. */
static void many_idle_connections_expire_over_several_turns(void) {
    fl_limits limits = peer_limits;
    limits.deadlines[FL_DEADLINE_IDLE] = 60 * SECOND;
    peer_server server = server_with(limits);
    int sockets[MANY];
    for (int i = 0; i < MANY; i++) {
        sockets[i] = client(&server);
        fl_loop_turn(server.loop);
    }
    TURN_UNTIL(server.loop, server.loop->context.counts.connections == MANY);
    turn(server.loop); /* handshakes end */
    for (fl_deadline *one = server.loop->context.deadlines[FL_DEADLINE_IDLE].first; one != NULL; one = one->after)
        one->at = fl_clock();
    server.loop->context.timer_stale = true;
    fl_loop_turn(server.loop);
    uint32_t left = server.loop->context.counts.connections;
    CHECK(left < MANY && left > MANY / 2);
    uint64_t since = fl_clock();
    fl_loop_wait(server.loop, 8 * SECOND);
    CHECK(fl_clock() < since + 4 * SECOND); /* the others are due already */
    TURN_UNTIL(server.loop, server.loop->context.counts.connections == 0);
    for (int i = 0; i < MANY; i++) close(sockets[i]);
    server_stop(&server);
}

/* Sends a body in pieces, each after a pause. Returns whether the body was still wanted at the end. */
static bool trickle(size_t piece, int pieces, uint64_t pause, bool served) {
    fl_limits limits = peer_limits;
    limits.deadlines[FL_DEADLINE_BODY] = 1 * SECOND;
    limits.body_buffer = served ? 2 : 1 << 20;
    peer_server server = server_with(limits);
    int socket = client(&server);
    send_text(socket, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nab");
    fl_exchange *exchange = served ? take(server.loop) : NULL;
    const char *bytes;
    size_t size;
    char some[100] = {0};
    fl_status status = FL_OK;
    for (int i = 0; i < pieces && server.loop->context.counts.refused == 0 && status != FL_CLOSED; i++) {
        for (uint64_t end = fl_clock() + pause; fl_clock() < end;) {
            fl_loop_wait(server.loop, 10 * MILLISECOND);
            fl_loop_turn(server.loop);
            while (served && (status = fl_exchange_body(exchange, &bytes, &size)) == FL_OK)
                fl_exchange_consume_body(exchange, size);
            fl_context_next_woken(&server.loop->context);
        }
        if (send(socket, some, piece, MSG_NOSIGNAL) < 0)
            break;
    }
    bool wanted = server.loop->context.counts.refused == 0 && status != FL_CLOSED;
    if (served)
        fl_exchange_abandon(exchange);
    close(socket);
    TURN_UNTIL(server.loop, server.loop->context.counts.connections == 0);
    server_stop(&server);
    return wanted;
}

/* For three times as long as it may pause. */
static void a_body_may_come_slowly_but_not_stop_nor_dribble(void) {
    for (int served = 0; served < 2; served++) {
        CHECK(trickle(50, 30, 100 * MILLISECOND, served));
        CHECK(!trickle(1, 30, 100 * MILLISECOND, served));
        CHECK(!trickle(100, 2, 3 * SECOND, served));
    }
}

/* Deadlines run only while the server waits for the client. */
static void no_deadline_expires_while_the_app_has_the_request(void) {
    fl_limits limits = peer_limits;
    for (int kind = 1; kind < FL_DEADLINE_KINDS; kind++) limits.deadlines[kind] = 150 * MILLISECOND;
    limits.body_buffer = 4;
    peer_server server = server_with(limits);
    int socket = client(&server);
    send_text(socket, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nabcd");
    fl_exchange *exchange = take(server.loop);
    fl_exchange_release_head(exchange);
    const char *bytes;
    size_t size;
    CHECK_NUMBER(FL_OK, fl_exchange_body(exchange, &bytes, &size));
    fl_exchange_consume_body(exchange, size);
    CHECK_NUMBER(FL_AGAIN, fl_exchange_body(exchange, &bytes, &size));
    send_text(socket, "efg");
    TURN_UNTIL(server.loop, fl_context_next_woken(&server.loop->context) == exchange->id);
    for (uint64_t end = fl_clock() + 400 * MILLISECOND; fl_clock() < end;) {
        fl_loop_wait(server.loop, 10 * MILLISECOND);
        fl_loop_turn(server.loop);
    }
    CHECK(!exchange->request.failed && exchange->connection != NULL);
    CHECK_NUMBER(FL_OK, fl_exchange_body(exchange, &bytes, &size));
    CHECK_BYTES("efg", 3, bytes, size);
    fl_exchange_consume_body(exchange, size);
    CHECK_NUMBER(FL_AGAIN, fl_exchange_body(exchange, &bytes, &size)); /* waits for the client */
    TURN_UNTIL(server.loop, fl_context_next_woken(&server.loop->context) == exchange->id);
    CHECK_NUMBER(FL_CLOSED, fl_exchange_body(exchange, &bytes, &size));
    answer(exchange, 408, "");
    close(socket);
    server_stop(&server);
}

/* The client reads the first response slowly; then the app takes long for the second one. */
static void the_write_deadline_ends_once_all_is_written(void) {
    peer_server server = server_start();
    int socket = narrow_client(&server);
    send_text(socket, GET("/large") GET("/long"));
    fl_exchange *exchange = take(server.loop);
    char large[20000];
    memset(large, 'x', sizeof large);
    large[sizeof large - 1] = 0;
    answer(exchange, 200, large);
    turn(server.loop);
    CHECK_NUMBER(1, server.loop->ready.count); /* the second request waits, and so does a part of the first response */
    CHECK(server.loop->context.connections->out.length > 0);
    CHECK_NUMBER(FL_DEADLINE_WRITE, server.loop->context.connections->deadline.kind);
    received_bytes received = {0};
    TURN_UNTIL(server.loop, (receive_available(socket, &received), server.loop->context.connections->out.length == 0));
    CHECK_NUMBER(FL_DEADLINE_NONE, server.loop->context.connections->deadline.kind);
    CHECK_NUMBER(1, server.loop->ready.count);
    CHECK_NUMBER(1, answer_all(server.loop));
    receive_available(socket, &received);
    CHECK_NUMBER(2, occurrences(&received, "HTTP/1.1 200 OK"));
    CHECK_RECEIVED("HTTP/1.1 200 OK", "\r\n\r\n/long", received);
    close(socket);
    server_stop(&server);
}

/* Though the rest of the response is staged meanwhile: a deadline that starts again forgets how little the client reads. */
static void the_write_deadline_runs_on_while_output_waits(void) {
    peer_server server = server_start();
    int socket = narrow_client(&server);
    send_text(socket, GET("/"));
    fl_exchange *exchange = take(server.loop);
    char large[20000];
    size_t used;
    memset(large, 'x', sizeof large);
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 200));
    CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, sizeof large + 4));
    CHECK_NUMBER(FL_OK, fl_exchange_write(exchange, large, sizeof large, &used));
    fl_exchange_flush(exchange);
    fl_connection *connection = exchange->connection;
    CHECK_NUMBER(FL_DEADLINE_WRITE, connection->deadline.kind);
    uint64_t at = connection->deadline.at -= SECOND;
    CHECK_NUMBER(FL_OK, fl_exchange_write(exchange, "last", 4, &used));
    fl_exchange_finish(exchange);
    CHECK(connection->out.length > 0);
    CHECK_NUMBER(FL_DEADLINE_WRITE, connection->deadline.kind);
    CHECK_NUMBER(at, connection->deadline.at);
    close(socket);
    server_stop(&server);
}

#ifndef FL_FALLBACKS
static void a_head_is_awaited_while_the_last_response_is_on_its_way(void) {
    fl_limits limits = peer_limits;
    limits.deadlines[FL_DEADLINE_IDLE] = 20 * MILLISECOND;
    peer_server server = server_with(limits);
    int socket = narrow_client(&server);
    fl_connection *connection = server.loop->context.connections;
    send_text(socket, GET("/"));
    answer(take(server.loop), 200, "first");
    TURN_UNTIL(server.loop, connection->deadline.kind == FL_DEADLINE_WRITE); /* the client was idle for long */
    CHECK_NUMBER(0, connection->out.length);
    send_text(socket, "GET / HTTP/1.1\r\nHo");
    TURN_UNTIL(server.loop, connection->exchanges != NULL);
    CHECK_NUMBER(FL_DEADLINE_HEAD, connection->deadline.kind);
    close(socket);
    server_stop(&server);
}
#endif

static void a_client_that_does_not_read_is_dropped(void) {
    fl_limits limits = peer_limits;
    limits.deadlines[FL_DEADLINE_WRITE] = 30 * MILLISECOND;
    peer_server server = server_with(limits);
    int socket = narrow_client(&server);
    send_text(socket, GET("/"));
    fl_exchange *exchange = take(server.loop);
    char *large = calloc(1, 500001);
    memset(large, 'x', 500000);
    answer(exchange, 200, large);
    free(large);
    CHECK_NUMBER(0, server.loop->context.counts.in_flight); /* the response is buffered */
    CHECK_NUMBER(1, server.loop->context.counts.connections);
    TURN_UNTIL(server.loop, server.loop->context.counts.connections == 0);
    close(socket);
    server_stop(&server);
}

/* A client of TCP whose system buffers little: it tells the server of what it reads in steps of a kilobyte or two. */
static int small_client(peer_server *server) {
    int descriptor = socket(AF_INET, SOCK_STREAM, 0), size = 2304;
    setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_port = htons((uint16_t) server->port)};
    if (connect(descriptor, (struct sockaddr *) &address, sizeof address) < 0)
        abort();
    return client_socket(descriptor);
}

/* Has the app send more than the client's system and the server's take. */
static fl_exchange *begin_download(peer_server *server) {
    enum { LARGE = 8 << 20 };
    fl_exchange *exchange = take(server->loop);
    char *large = calloc(1, LARGE);
    size_t used;
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 200));
    CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, LARGE));
    CHECK_NUMBER(FL_AGAIN, fl_exchange_write(exchange, large, LARGE, &used));
    free(large);
    CHECK_NUMBER(FL_DEADLINE_WRITE, server->loop->context.connections->deadline.kind);
    return exchange;
}

/* Returns whether the connection is still open afterwards. */
static bool write_deadline_passes(peer_server *server) {
    server->loop->context.connections->deadline.at = 0;
    server->loop->context.timer_stale = true;
    fl_loop_turn(server->loop);
    return server->loop->context.counts.connections > 0;
}

#ifndef FL_FALLBACKS /* they do not tell what the client's system has taken */
static uint64_t read_since_deadline(const fl_connection *connection) {
    return connection->sent - (uint64_t) fl_unacknowledged(connection->transport.descriptor) - connection->deadline.progress;
}

static void a_client_may_read_slowly_but_not_dribble(void) {
    for (int dribbles = 0; dribbles < 2; dribbles++) {
        fl_limits limits = peer_limits;
        limits.deadlines[FL_DEADLINE_WRITE] = (dribbles ? 1000ull : 60) * SECOND;
        peer_server server = server_with(limits);
        int socket = small_client(&server);
        send_text(socket, GET("/"));
        fl_exchange *exchange = begin_download(&server);
        char some[100];
        for (int i = 0; i < 3 && server.loop->context.connections != NULL; i++) {
            TURN_UNTIL(server.loop, (recv(socket, some, sizeof some, 0), read_since_deadline(exchange->connection) > 60 * 32));
            CHECK_NUMBER(!dribbles, write_deadline_passes(&server));
        }
        fl_exchange_abandon(exchange);
        close(socket);
        server_stop(&server);
    }
}
#endif

static size_t send_some(int descriptor, const char *bytes, size_t size) {
    ssize_t count = send(descriptor, bytes, size, MSG_NOSIGNAL);
    return count > 0 ? (size_t) count : 0;
}

static void what_a_client_sends_does_not_count_as_reading(void) {
    enum { UPLOAD = 200000 };
    fl_limits limits = peer_limits;
    limits.deadlines[FL_DEADLINE_WRITE] = 1000ull * SECOND;
    limits.body_buffer = 1; /* the app gets the request with the first byte of its body */
    peer_server server = server_with(limits);
    int socket = small_client(&server);
    send_text(socket, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n");
    char *bytes = calloc(1, UPLOAD);
    size_t sent = 0;
    send_bytes(socket, "x", 1);
    fl_exchange *exchange = begin_download(&server);
    server.loop->context.limits.body_buffer = 1 << 20;
    TURN_UNTIL(server.loop, (sent += send_some(socket, bytes, UPLOAD - sent), exchange->request.received == 1 + UPLOAD));
    CHECK(!write_deadline_passes(&server));
    fl_exchange_abandon(exchange);
    free(bytes);
    close(socket);
    server_stop(&server);
}

int main(void) {
    TEST(requests_over_the_limit_wait_in_the_queue);
    TEST(a_request_that_waits_too_long_gets_503);
    TEST(many_queued_requests_expire_in_order_over_several_turns);
    TEST(a_request_that_comes_to_the_queue_after_a_response_waits_no_longer);
    TEST(an_expired_queued_request_is_not_taken);
    TEST(a_request_whose_client_has_disconnected_is_not_taken);
    TEST(one_take_drops_a_limited_number_of_disconnected_clients);
    TEST(deadlines_end_stalled_connections);
    TEST(many_idle_connections_expire_over_several_turns);
    TEST(a_body_may_come_slowly_but_not_stop_nor_dribble);
    TEST(no_deadline_expires_while_the_app_has_the_request);
    TEST(the_write_deadline_ends_once_all_is_written);
    TEST(the_write_deadline_runs_on_while_output_waits);
    TEST(a_client_that_does_not_read_is_dropped);
#ifndef FL_FALLBACKS
    TEST(a_head_is_awaited_while_the_last_response_is_on_its_way);
    TEST(a_client_may_read_slowly_but_not_dribble);
#endif
    RAW_TEST(what_a_client_sends_does_not_count_as_reading); /* pieces of a byte take many turns, in which the systems take more */
    return test_summary();
}
