/* Time limits of requests, and the responses and connections of requests that exceed them. */
#include "peer.h"

#define TIMEOUT_TEXT "the request took too long\n"

enum { LIMIT = 30 * MILLISECOND };

static peer_server server_with_limit(void) {
    fl_limits limits = peer_limits;
    limits.request_timeout = LIMIT;
    return server_with(limits);
}

static fl_exchange *serve(peer_server *server, int socket, const char *request) {
    send_text(socket, request);
    fl_exchange *exchange = take(server->loop);
    fl_exchange_release_head(exchange);
    return exchange;
}

static void await_expiry(fl_loop *loop, fl_exchange *exchange) {
    uint64_t id = 0;
    TURN_UNTIL(loop, (id = fl_context_next_expired(&loop->context)) != 0);
    CHECK_NUMBER(exchange->id, id);
    CHECK_NUMBER(0, fl_context_next_expired(&loop->context)); /* it is reported once */
}

static void a_request_that_takes_too_long_gets_504_instead_of_its_response(void) {
    peer_server server = server_with_limit();
    int socket = client(&server);
    uint64_t began = fl_clock();
    fl_exchange *exchange = serve(&server, socket, GET("/"));
    await_expiry(server.loop, exchange);
    CHECK(fl_clock() - began >= LIMIT);
    CHECK_RECEIVED("HTTP/1.1 504 Gateway Timeout\r\n", "content-length: 26\r\n\r\n" TIMEOUT_TEXT, receive_to_end(server.loop, socket));
    size_t used;
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 200));
    CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, 2));
    CHECK_NUMBER(FL_CLOSED, fl_exchange_write(exchange, "ok", 2, &used));
    CHECK_NUMBER(1, server.loop->context.counts.in_flight);
    fl_exchange_abandon(exchange);
    close(socket);
    TURN_UNTIL(server.loop, server.loop->context.counts.connections == 0);
    CHECK_NUMBER(0, server.loop->context.counts.in_flight);
    CHECK_NUMBER(1, server.loop->context.counts.timed_out);
    server_stop(&server);
}

static void many_requests_expire_in_order_over_several_turns(void) {
    enum { MANY = 300 };
    fl_limits limits = peer_limits;
    limits.request_timeout = 5 * SECOND;
    limits.in_flight = MANY;
    peer_server server = server_with(limits);
    int sockets[MANY];
    fl_exchange *exchanges[MANY];
    for (int i = 0; i < MANY; i++) {
        sockets[i] = client(&server);
        exchanges[i] = serve(&server, sockets[i], GET("/"));
    }
    for (int i = 0; i < MANY; i++) exchanges[i]->timing.expires_at = fl_clock();
    fl_loop_turn(server.loop);
    CHECK(server.loop->context.counts.timed_out > MANY / 2 && server.loop->context.counts.timed_out < MANY);
    CHECK(exchanges[0]->timing.timed_out && !exchanges[MANY - 1]->timing.timed_out);
    uint64_t since = fl_clock();
    fl_loop_wait(server.loop, 8 * SECOND);
    CHECK(fl_clock() < since + 4 * SECOND); /* the others are due already */
    CHECK_NUMBER(MANY, server.loop->context.counts.timed_out);
    for (int i = 0; i < MANY; i++) {
        CHECK_NUMBER(exchanges[i]->id, fl_context_next_expired(&server.loop->context));
        fl_exchange_abandon(exchanges[i]);
        close(sockets[i]);
    }
    server_stop(&server);
}

static void the_504_of_a_HEAD_request_has_no_body(void) {
    peer_server server = server_with_limit();
    int socket = client(&server);
    fl_exchange *exchange = serve(&server, socket, "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    await_expiry(server.loop, exchange);
    CHECK_RECEIVED("HTTP/1.1 504 ", "content-length: 26\r\n\r\n", receive_to_end(server.loop, socket));
    fl_exchange_finish(exchange);
    close(socket);
    server_stop(&server);
}

static void earlier_pipelined_requests_are_answered_and_later_ones_are_not(void) {
    peer_server server = server_with_limit();
    int socket = client(&server);
    send_text(socket, GET("/1") GET("/2") GET("/3"));
    answer(take(server.loop), 200, "one");
    fl_exchange *exchange = fl_loop_take(server.loop);
    fl_exchange_release_head(exchange);
    await_expiry(server.loop, exchange);
    received_bytes received = receive_to_end(server.loop, socket);
    CHECK_NUMBER(2, occurrences(&received, "HTTP/1.1 "));
    CHECK_RECEIVED("HTTP/1.1 200 OK", "\r\n\r\n" TIMEOUT_TEXT, received);
    CHECK_NUMBER(0, server.loop->ready.count);
    fl_exchange_abandon(exchange);
    close(socket);
    server_stop(&server);
}

static void a_staged_response_is_replaced(void) {
    peer_server server = server_with_limit();
    int socket = client(&server);
    fl_exchange *exchange = serve(&server, socket, GET("/"));
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 200));
    CHECK_NUMBER(FL_OK, fl_exchange_header(exchange, "x", 1, "y", 1));
    await_expiry(server.loop, exchange);
    CHECK_RECEIVED("HTTP/1.1 504 ", TIMEOUT_TEXT, receive_to_end(server.loop, socket));
    fl_exchange_abandon(exchange);
    close(socket);
    server_stop(&server);
}

/* In each framing, the client must notice that the response is incomplete. */
static void check_truncation(const char *request, int64_t length, bool by_reset) {
    peer_server server = server_with_limit();
    int socket = client(&server);
    fl_exchange *exchange = serve(&server, socket, request);
    size_t used;
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 200));
    CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, length));
    CHECK_NUMBER(FL_OK, fl_exchange_write(exchange, "part", 4, &used));
    await_expiry(server.loop, exchange);
    received_bytes received = receive_to_end(server.loop, socket);
    CHECK_NUMBER(by_reset, received.reset);
    if (!by_reset) {
        CHECK_NUMBER(1, occurrences(&received, "part"));
        CHECK_NUMBER(0, occurrences(&received, "504"));
        CHECK_NUMBER(0, occurrences(&received, "\r\n0\r\n"));
    }
    free(received.bytes);
    CHECK_NUMBER(FL_CLOSED, fl_exchange_write(exchange, "more", 4, &used));
    fl_exchange_abandon(exchange);
    close(socket);
    server_stop(&server);
}

static void a_response_that_has_begun_is_truncated(void) {
    check_truncation(GET("/"), -1, false);
    check_truncation(GET("/"), 100, false);
    check_truncation("GET / HTTP/1.0\r\n\r\n", -1, true);
}

static void each_part_of_a_response_restarts_the_limit(void) {
    fl_limits limits = peer_limits;
    limits.request_timeout = 5 * SECOND;
    peer_server server = server_with(limits);
    int socket = client(&server);
    fl_exchange *exchange = serve(&server, socket, GET("/"));
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 200));
    CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, -1));
    size_t used;
    for (int i = 0; i < 3; i++) {
        exchange->timing.expires_at = fl_clock(); /* expired, unless the next write restarts it */
        CHECK_NUMBER(FL_OK, fl_exchange_write(exchange, "x", 1, &used));
        fl_loop_turn(server.loop);
    }
    fl_exchange_finish(exchange);
    CHECK_RECEIVED("HTTP/1.1 200 OK", "0\r\n\r\n", receive(server.loop, socket));
    CHECK_NUMBER(0, server.loop->context.counts.timed_out);
    close(socket);
    server_stop(&server);
}

static void only_the_clients_deadlines_count_while_the_app_waits_for_the_client(void) {
    peer_server server = server_with_limit();
    int socket = client(&server);
    send_text(socket, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n");
    char piece[70000] = {0};
    send_bytes(socket, piece, sizeof piece); /* more than the read-ahead limit: the request is queued */
    fl_exchange *exchange = take(server.loop);
    fl_exchange_release_head(exchange);
    const char *bytes;
    size_t size;
    while (fl_exchange_body(exchange, &bytes, &size) == FL_OK) fl_exchange_consume_body(exchange, size);
    for (uint64_t began = fl_clock(); fl_clock() < began + 3 * LIMIT; fl_loop_turn(server.loop))
        fl_loop_wait(server.loop, 5 * MILLISECOND);
    CHECK_NUMBER(0, server.loop->context.counts.timed_out);
    send_bytes(socket, piece, sizeof piece); /* the app does not read it */
    await_expiry(server.loop, exchange);
    fl_exchange_abandon(exchange);
    close(socket);
    server_stop(&server);
}

static void a_request_may_have_another_limit_or_none(void) {
    peer_server server = server_with_limit();
    int sockets[3] = {client(&server), client(&server), client(&server)};
    uint64_t began = fl_clock();
    fl_exchange *longer = serve(&server, sockets[0], GET("/longer"));
    fl_exchange_set_time_limit(longer, 20 * LIMIT);
    fl_exchange *any = serve(&server, sockets[1], GET("/any"));
    fl_exchange_set_time_limit(any, 0);
    fl_exchange *usual = serve(&server, sockets[2], GET("/usual"));
    await_expiry(server.loop, usual);
    await_expiry(server.loop, longer);
    CHECK(fl_clock() - began >= 20 * LIMIT);
    CHECK(server.loop->context.time_limits == NULL);
    fl_exchange_abandon(usual);
    fl_exchange_abandon(longer);
    answer(any, 200, "whenever");
    CHECK_RECEIVED("HTTP/1.1 200 OK", "whenever", receive(server.loop, sockets[1]));
    for (int i = 0; i < 3; i++) close(sockets[i]);
    server_stop(&server);
}

/* A reactor that takes a request from a lane does not turn the loop. */
static void a_limit_set_while_another_thread_waits_in_the_loop_expires_in_time(void) {
    peer_server server = server_start();
    int socket = client(&server);
    fl_exchange *exchange = serve(&server, socket, GET("/"));
    atomic_store(&server.loop->driver.waiting, true);
    fl_exchange_set_time_limit(exchange, LIMIT);
    CHECK(fl_loop_wait(server.loop, 2 * SECOND));
    CHECK(exchange->timing.timed_out);
    fl_exchange_abandon(exchange);
    close(socket);
    server_stop(&server);
}

static void a_request_expires_although_its_client_has_disconnected(void) {
    peer_server server = server_with_limit();
    int socket = client(&server);
    fl_exchange *exchange = serve(&server, socket, GET("/"));
    struct linger at_once = {1, 0};
    setsockopt(socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(socket);
    TURN_UNTIL(server.loop, exchange->connection == NULL);
    await_expiry(server.loop, exchange);
    fl_exchange_abandon(exchange);
    server_stop(&server);
}

static void a_finished_request_leaves_no_limit_behind(void) {
    peer_server server = server_with_limit();
    int socket = client(&server);
    answer(serve(&server, socket, GET("/")), 200, "ok");
    fl_exchange *exchange = serve(&server, socket, GET("/"));
    for (uint64_t began = fl_clock(); fl_clock() < began + 2 * LIMIT;) fl_loop_wait(server.loop, 5 * MILLISECOND);
    fl_exchange_abandon(exchange); /* expired, but not reported */
    CHECK_NUMBER(0, fl_context_next_expired(&server.loop->context));
    CHECK(server.loop->context.time_limits == NULL);
    CHECK(server.loop->context.expired.first == NULL && server.loop->context.expired.last == NULL);
    close(socket);
    server_stop(&server);
}

static void all_served_requests_can_be_ended_at_once(void) {
    peer_server server = server_start();
    int sockets[3];
    fl_exchange *exchanges[3];
    for (int i = 0; i < 3; i++) {
        sockets[i] = client(&server);
        exchanges[i] = serve(&server, sockets[i], GET("/"));
    }
    fl_context_stop_all(&server.loop->context, true);
    for (int i = 0; i < 3; i++) {
        CHECK_RECEIVED("HTTP/1.1 503 ", "the server is shutting down\n", receive_to_end(server.loop, sockets[i]));
        fl_exchange_abandon(exchanges[i]);
        close(sockets[i]);
    }
    CHECK_NUMBER(0, server.loop->context.counts.timed_out);
    server_stop(&server);
}

static void end_side(peer_server *server, int socket) {
    CHECK_NUMBER(0, shutdown(socket, SHUT_WR));
    for (int i = 0; i < 3; i++)
        fl_loop_turn(server->loop);
}

static void a_disconnected_client_expires_its_request_with_cancel_abandoned(void) {
    fl_limits limits = peer_limits;
    limits.cancel_abandoned = true;
    peer_server server = server_with(limits);
    int socket = client(&server);
    fl_exchange *reading = serve(&server, socket, GET("/"));
    end_side(&server, socket); /* the client still reads */
    int other = client(&server);
    fl_exchange *exchange = serve(&server, other, GET("/"));
    close(other);
    await_expiry(server.loop, exchange);
    CHECK(exchange->connection == NULL);
    CHECK(!exchange->timing.timed_out);
    CHECK(reading->connection != NULL);
    CHECK_NUMBER(0, server.loop->context.counts.timed_out);
    fl_exchange_abandon(exchange);
    fl_exchange_abandon(reading);
    close(socket);
    server_stop(&server);
}

static void a_disconnected_client_does_not_expire_its_request_by_default(void) {
    peer_server server = server_start();
    int socket = client(&server);
    fl_exchange *exchange = serve(&server, socket, GET("/"));
    end_side(&server, socket);
    CHECK_NUMBER(0, fl_context_next_expired(&server.loop->context));
    fl_exchange_abandon(exchange);
    close(socket);
    server_stop(&server);
}

static void an_expired_request_may_outlive_its_loop(void) {
    peer_server server = server_with_limit();
    int socket = client(&server);
    fl_exchange *exchange = serve(&server, socket, GET("/"));
    TURN_UNTIL(server.loop, exchange->timing.timed_out);
    server_stop(&server);
    fl_exchange_set_time_limit(exchange, LIMIT);
    CHECK(exchange->context == NULL);
    free(exchange);
    close(socket);
}

int main(void) {
    TEST(a_request_that_takes_too_long_gets_504_instead_of_its_response);
    TEST(many_requests_expire_in_order_over_several_turns);
    TEST(the_504_of_a_HEAD_request_has_no_body);
    TEST(earlier_pipelined_requests_are_answered_and_later_ones_are_not);
    TEST(a_staged_response_is_replaced);
    TEST(a_response_that_has_begun_is_truncated);
    TEST(each_part_of_a_response_restarts_the_limit);
    TEST(only_the_clients_deadlines_count_while_the_app_waits_for_the_client);
    TEST(a_request_may_have_another_limit_or_none);
    TEST(a_limit_set_while_another_thread_waits_in_the_loop_expires_in_time);
    TEST(a_request_expires_although_its_client_has_disconnected);
    TEST(a_finished_request_leaves_no_limit_behind);
    TEST(all_served_requests_can_be_ended_at_once);
    TEST(a_disconnected_client_expires_its_request_with_cancel_abandoned);
    TEST(a_disconnected_client_does_not_expire_its_request_by_default);
    TEST(an_expired_request_may_outlive_its_loop);
    return test_summary();
}
