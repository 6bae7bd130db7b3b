/* How long a request may be served, and what becomes of its client and its connection when that has been too long. */
#include "peer.h"

#define GET(path) "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"
#define TOO_LONG "the request took too long\n"

enum { LIMIT = 30 * MILLISECOND };

static peer_server server_with_limit(void) {
    fl_limits limits = peer_limits;
    limits.request_timeout = LIMIT;
    return server_with(limits);
}

static fl_exchange *asked(peer_server *server, int socket, const char *request) {
    say(socket, request);
    fl_exchange *exchange = take(server->loop);
    fl_exchange_release_head(exchange);
    return exchange;
}

static void await_overdue(fl_loop *loop, fl_exchange *exchange) {
    uint64_t id = 0;
    TURN_UNTIL(loop, (id = fl_context_next_expired(&loop->context)) != 0);
    CHECK_NUMBER(exchange->id, id);
    CHECK_NUMBER(0, fl_context_next_expired(&loop->context)); /* it is told once */
}

static void one_that_takes_too_long_is_answered_504_and_its_own_answer_is_dropped(void) {
    peer_server server = server_with_limit();
    int socket = client(&server);
    uint64_t began = fl_clock();
    fl_exchange *exchange = asked(&server, socket, GET("/"));
    await_overdue(server.loop, exchange);
    CHECK(fl_clock() - began >= LIMIT);
    CHECK_HEARD("HTTP/1.1 504 Gateway Timeout\r\n", "content-length: 26\r\n\r\n" TOO_LONG, hear_end(server.loop, socket));
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

static void many_whose_time_is_up_together_are_told_in_order_over_several_turns(void) {
    enum { MANY = 300 };
    fl_limits limits = peer_limits;
    limits.request_timeout = 5 * SECOND;
    limits.in_flight = MANY;
    peer_server server = server_with(limits);
    int sockets[MANY];
    fl_exchange *exchanges[MANY];
    for (int i = 0; i < MANY; i++) {
        sockets[i] = client(&server);
        exchanges[i] = asked(&server, sockets[i], GET("/"));
    }
    for (int i = 0; i < MANY; i++) exchanges[i]->timing.expires_at = fl_clock();
    fl_loop_turn(server.loop);
    CHECK(server.loop->context.counts.timed_out > MANY / 2 && server.loop->context.counts.timed_out < MANY);
    CHECK(exchanges[0]->timing.timed_out && !exchanges[MANY - 1]->timing.timed_out);
    uint64_t since = fl_clock();
    fl_loop_wait(server.loop, SECOND);
    CHECK(fl_clock() < since + SECOND / 2); /* the rest is due now */
    CHECK_NUMBER(MANY, server.loop->context.counts.timed_out);
    for (int i = 0; i < MANY; i++) {
        CHECK_NUMBER(exchanges[i]->id, fl_context_next_expired(&server.loop->context));
        fl_exchange_abandon(exchanges[i]);
        close(sockets[i]);
    }
    server_stop(&server);
}

static void head_gets_no_body(void) {
    peer_server server = server_with_limit();
    int socket = client(&server);
    fl_exchange *exchange = asked(&server, socket, "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    await_overdue(server.loop, exchange);
    CHECK_HEARD("HTTP/1.1 504 ", "content-length: 26\r\n\r\n", hear_end(server.loop, socket));
    fl_exchange_finish(exchange);
    close(socket);
    server_stop(&server);
}

static void answers_that_went_before_it_come_first_and_what_was_asked_after_it_is_not_answered(void) {
    peer_server server = server_with_limit();
    int socket = client(&server);
    say(socket, GET("/1") GET("/2") GET("/3"));
    answer(take(server.loop), 200, "one");
    fl_exchange *exchange = fl_loop_take(server.loop);
    fl_exchange_release_head(exchange);
    await_overdue(server.loop, exchange);
    fl_heard heard = hear_end(server.loop, socket);
    CHECK_NUMBER(2, occurrences(&heard, "HTTP/1.1 "));
    CHECK_HEARD("HTTP/1.1 200 OK", "\r\n\r\n" TOO_LONG, heard);
    CHECK_NUMBER(0, server.loop->ready.count);
    fl_exchange_abandon(exchange);
    close(socket);
    server_stop(&server);
}

static void what_was_staged_but_not_sent_is_dropped_for_it(void) {
    peer_server server = server_with_limit();
    int socket = client(&server);
    fl_exchange *exchange = asked(&server, socket, GET("/"));
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 200));
    CHECK_NUMBER(FL_OK, fl_exchange_header(exchange, "x", 1, "y", 1));
    await_overdue(server.loop, exchange);
    CHECK_HEARD("HTTP/1.1 504 ", TOO_LONG, hear_end(server.loop, socket));
    fl_exchange_abandon(exchange);
    close(socket);
    server_stop(&server);
}

/* The client must be able to tell that it is not whole, in each framing. */
static void cut_off(const char *request, int64_t length, bool by_reset) {
    peer_server server = server_with_limit();
    int socket = client(&server);
    fl_exchange *exchange = asked(&server, socket, request);
    size_t used;
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 200));
    CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, length));
    CHECK_NUMBER(FL_OK, fl_exchange_write(exchange, "part", 4, &used));
    await_overdue(server.loop, exchange);
    fl_heard heard = hear_end(server.loop, socket);
    CHECK_NUMBER(by_reset, heard.reset);
    if (!by_reset) {
        CHECK_NUMBER(1, occurrences(&heard, "part"));
        CHECK_NUMBER(0, occurrences(&heard, "504"));
        CHECK_NUMBER(0, occurrences(&heard, "\r\n0\r\n"));
    }
    free(heard.bytes);
    CHECK_NUMBER(FL_CLOSED, fl_exchange_write(exchange, "more", 4, &used));
    fl_exchange_abandon(exchange);
    close(socket);
    server_stop(&server);
}

static void a_response_that_has_begun_is_cut_off(void) {
    cut_off(GET("/"), -1, false);
    cut_off(GET("/"), 100, false);
    cut_off("GET / HTTP/1.0\r\n\r\n", -1, true);
}

static void each_piece_of_a_response_gives_it_the_time_again(void) {
    fl_limits limits = peer_limits;
    limits.request_timeout = 5 * SECOND;
    peer_server server = server_with(limits);
    int socket = client(&server);
    fl_exchange *exchange = asked(&server, socket, GET("/"));
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 200));
    CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, -1));
    size_t used;
    for (int i = 0; i < 3; i++) {
        exchange->timing.expires_at = fl_clock(); /* its time is up, but for this piece */
        CHECK_NUMBER(FL_OK, fl_exchange_write(exchange, "x", 1, &used));
        fl_loop_turn(server.loop);
    }
    fl_exchange_finish(exchange);
    CHECK_HEARD("HTTP/1.1 200 OK", "0\r\n\r\n", hear(server.loop, socket));
    CHECK_NUMBER(0, server.loop->context.counts.timed_out);
    close(socket);
    server_stop(&server);
}

static void while_the_client_is_awaited_the_clients_deadlines_count(void) {
    peer_server server = server_with_limit();
    int socket = client(&server);
    say(socket, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n");
    char piece[70000] = {0};
    say_bytes(socket, piece, sizeof piece); /* more than is read ahead: it is served now */
    fl_exchange *exchange = take(server.loop);
    fl_exchange_release_head(exchange);
    const char *bytes;
    size_t size;
    while (fl_exchange_body(exchange, &bytes, &size) == FL_OK) fl_exchange_consume_body(exchange, size);
    for (uint64_t began = fl_clock(); fl_clock() < began + 3 * LIMIT; fl_loop_turn(server.loop))
        fl_loop_wait(server.loop, 5 * MILLISECOND);
    CHECK_NUMBER(0, server.loop->context.counts.timed_out);
    say_bytes(socket, piece, sizeof piece); /* it has something to read now, and does not come back */
    await_overdue(server.loop, exchange);
    fl_exchange_abandon(exchange);
    close(socket);
    server_stop(&server);
}

static void one_may_have_a_time_of_its_own_or_none(void) {
    peer_server server = server_with_limit();
    int sockets[3] = {client(&server), client(&server), client(&server)};
    uint64_t began = fl_clock();
    fl_exchange *longer = asked(&server, sockets[0], GET("/longer"));
    fl_exchange_set_time_limit(longer, 20 * LIMIT);
    fl_exchange *any = asked(&server, sockets[1], GET("/any"));
    fl_exchange_set_time_limit(any, 0);
    fl_exchange *usual = asked(&server, sockets[2], GET("/usual"));
    await_overdue(server.loop, usual);
    await_overdue(server.loop, longer);
    CHECK(fl_clock() - began >= 20 * LIMIT);
    CHECK(server.loop->context.time_limits == NULL);
    fl_exchange_abandon(usual);
    fl_exchange_abandon(longer);
    answer(any, 200, "whenever");
    CHECK_HEARD("HTTP/1.1 200 OK", "whenever", hear(server.loop, sockets[1]));
    for (int i = 0; i < 3; i++) close(sockets[i]);
    server_stop(&server);
}

static int by_end(const void *one, const void *other) {
    const fl_exchange *a = *(fl_exchange *const *) one, *b = *(fl_exchange *const *) other;
    return a->timing.expires_at != b->timing.expires_at ? (a->timing.expires_at < b->timing.expires_at ? -1 : 1) : a->id < b->id ? -1 : 1;
}

static void those_with_a_time_of_their_own_end_in_order_whatever_has_come_and_gone(void) {
    enum { MANY = 2000, STAY = 1000 };
    peer_server server = server_start();
    static fl_exchange *exchanges[MANY];
    srand(1);
    for (int i = 0; i < MANY; i++) {
        exchanges[i] = fl_exchange_new(&server.loop->context, NULL);
        fl_exchange_set_time_limit(exchanges[i], SECOND + (uint64_t) (rand() % 500) * MILLISECOND);
        fl_exchange_set_time_limit(exchanges[rand() % (i + 1)], SECOND + (uint64_t) (rand() % 500) * MILLISECOND);
    }
    for (int i = STAY; i < MANY; i++) {
        if (i % 2 == 0)
            fl_exchange_set_time_limit(exchanges[i], 0);
        fl_exchange_free(exchanges[i]);
    }
    qsort(exchanges, STAY, sizeof *exchanges, by_end);
    for (int i = 0; i < STAY; i++) {
        CHECK(server.loop->context.time_limits == exchanges[i]);
        fl_exchange_free(exchanges[i]);
    }
    CHECK(server.loop->context.time_limits == NULL);
    server_stop(&server);
}

static uint64_t cpu_time_of_timed(fl_loop *loop) {
    enum { TIMES = 3000 };
    uint64_t least = UINT64_MAX;
    for (int round = 0; round < 3; round++) {
        struct timespec from, to;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
        for (int i = 0; i < TIMES; i++) {
            fl_exchange *exchange = fl_exchange_new(&loop->context, NULL);
            fl_exchange_set_time_limit(exchange, SECOND);
            fl_exchange_restart_time_limit(exchange);
            fl_exchange_free(exchange);
        }
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
        uint64_t took = (uint64_t) ((to.tv_sec - from.tv_sec) * 1000000 + (to.tv_nsec - from.tv_nsec) / 1000);
        least = took < least ? took : least;
    }
    return least;
}

static void one_costs_the_same_whatever_others_may_take(void) {
    enum { OTHERS = 10000 };
    peer_server server = server_start();
    uint64_t alone = cpu_time_of_timed(server.loop);
    static fl_exchange *others[OTHERS];
    for (int i = 0; i < OTHERS; i++) {
        others[i] = fl_exchange_new(&server.loop->context, NULL);
        fl_exchange_free_head(others[i]);
        fl_exchange_set_time_limit(others[i], (uint64_t) (i % 2 == 0 ? 600 : 300) * SECOND);
    }
    uint64_t beside = cpu_time_of_timed(server.loop);
    if (beside > 4 * alone)
        test_fail(__FILE__, __LINE__, "%lu us beside others, %lu alone", (unsigned long) beside, (unsigned long) alone);
    for (int i = 0; i < OTHERS; i++) fl_exchange_free(others[i]);
    server_stop(&server);
}

/* Whoever takes it then, as from a lane, may not come back to the loop before its time is up. */
static void one_whose_time_begins_while_the_loop_is_waited_for_is_told_too(void) {
    peer_server server = server_start();
    int socket = client(&server);
    fl_exchange *exchange = asked(&server, socket, GET("/"));
    atomic_store(&server.loop->driver.resting, true);
    fl_exchange_set_time_limit(exchange, LIMIT);
    CHECK(fl_loop_wait(server.loop, 2 * SECOND));
    CHECK(exchange->timing.timed_out);
    fl_exchange_abandon(exchange);
    close(socket);
    server_stop(&server);
}

static void one_whose_client_has_gone_is_told_all_the_same(void) {
    peer_server server = server_with_limit();
    int socket = client(&server);
    fl_exchange *exchange = asked(&server, socket, GET("/"));
    struct linger at_once = {1, 0};
    setsockopt(socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(socket);
    TURN_UNTIL(server.loop, exchange->connection == NULL);
    await_overdue(server.loop, exchange);
    fl_exchange_abandon(exchange);
    server_stop(&server);
}

static void one_that_ends_in_time_leaves_nothing_behind(void) {
    peer_server server = server_with_limit();
    int socket = client(&server);
    answer(asked(&server, socket, GET("/")), 200, "ok");
    fl_exchange *exchange = asked(&server, socket, GET("/"));
    for (uint64_t began = fl_clock(); fl_clock() < began + 2 * LIMIT;) fl_loop_wait(server.loop, 5 * MILLISECOND);
    fl_exchange_abandon(exchange); /* expired, and nobody was told */
    CHECK_NUMBER(0, fl_context_next_expired(&server.loop->context));
    CHECK(server.loop->context.time_limits == NULL);
    CHECK(server.loop->context.expired.first == NULL && server.loop->context.expired.last == NULL);
    close(socket);
    server_stop(&server);
}

static void all_that_is_served_can_be_timed_out_at_once(void) {
    peer_server server = server_start();
    int sockets[3];
    fl_exchange *exchanges[3];
    for (int i = 0; i < 3; i++) {
        sockets[i] = client(&server);
        exchanges[i] = asked(&server, sockets[i], GET("/"));
    }
    fl_context_expire_all(&server.loop->context);
    for (int i = 0; i < 3; i++) {
        CHECK_HEARD("HTTP/1.1 504 ", TOO_LONG, hear_end(server.loop, sockets[i]));
        fl_exchange_abandon(exchanges[i]);
        close(sockets[i]);
    }
    CHECK_NUMBER(3, server.loop->context.counts.timed_out);
    server_stop(&server);
}

static void end_side(peer_server *server, int socket) {
    CHECK_NUMBER(0, shutdown(socket, SHUT_WR));
    for (int i = 0; i < 3; i++)
        fl_loop_turn(server->loop);
}

static void one_whose_client_has_gone_is_told_where_that_is_wanted(void) {
    fl_limits limits = peer_limits;
    limits.cancel_abandoned = true;
    peer_server server = server_with(limits);
    int socket = client(&server);
    fl_exchange *reading = asked(&server, socket, GET("/"));
    end_side(&server, socket); /* it still reads */
    int other = client(&server);
    fl_exchange *exchange = asked(&server, other, GET("/"));
    close(other);
    await_overdue(server.loop, exchange);
    CHECK(exchange->connection == NULL);
    CHECK(!exchange->timing.timed_out);
    CHECK(reading->connection != NULL);
    CHECK_NUMBER(0, server.loop->context.counts.timed_out);
    fl_exchange_abandon(exchange);
    fl_exchange_abandon(reading);
    close(socket);
    server_stop(&server);
}

static void elsewhere_one_whose_client_has_gone_is_left_alone(void) {
    peer_server server = server_start();
    int socket = client(&server);
    fl_exchange *exchange = asked(&server, socket, GET("/"));
    end_side(&server, socket);
    CHECK_NUMBER(0, fl_context_next_expired(&server.loop->context));
    fl_exchange_abandon(exchange);
    close(socket);
    server_stop(&server);
}

/* The loop may go before those that serve. */
static void an_overdue_one_outlives_its_loop(void) {
    peer_server server = server_with_limit();
    int socket = client(&server);
    fl_exchange *exchange = asked(&server, socket, GET("/"));
    TURN_UNTIL(server.loop, exchange->timing.timed_out);
    server_stop(&server);
    fl_exchange_set_time_limit(exchange, LIMIT);
    CHECK(exchange->context == NULL);
    free(exchange);
    close(socket);
}

int main(void) {
    TEST(one_that_takes_too_long_is_answered_504_and_its_own_answer_is_dropped);
    TEST(many_whose_time_is_up_together_are_told_in_order_over_several_turns);
    TEST(head_gets_no_body);
    TEST(answers_that_went_before_it_come_first_and_what_was_asked_after_it_is_not_answered);
    TEST(what_was_staged_but_not_sent_is_dropped_for_it);
    TEST(a_response_that_has_begun_is_cut_off);
    TEST(each_piece_of_a_response_gives_it_the_time_again);
    TEST(while_the_client_is_awaited_the_clients_deadlines_count);
    TEST(one_may_have_a_time_of_its_own_or_none);
    TEST(those_with_a_time_of_their_own_end_in_order_whatever_has_come_and_gone);
    TEST(one_costs_the_same_whatever_others_may_take);
    TEST(one_whose_time_begins_while_the_loop_is_waited_for_is_told_too);
    TEST(one_whose_client_has_gone_is_told_all_the_same);
    TEST(one_that_ends_in_time_leaves_nothing_behind);
    TEST(all_that_is_served_can_be_timed_out_at_once);
    TEST(one_whose_client_has_gone_is_told_where_that_is_wanted);
    TEST(elsewhere_one_whose_client_has_gone_is_left_alone);
    TEST(an_overdue_one_outlives_its_loop);
    return test_summary();
}
