/* Load shedding: when the queue is limited, and which requests are turned away. The decision depends on numbers only, so time is simulated
 * here. */
#include "peer.h"

#define TURNED_AWAY "HTTP/1.1 503 Service Unavailable\r\n"

enum { SERVED_IN = 10 * MILLISECOND, TARGET = 300 * MILLISECOND };

static peer_server server_with_target(uint64_t target) {
    fl_limits limits = peer_limits;
    limits.queue_target = target;
    return server_with(limits);
}

/* Requests come at a steady rate and are served one after the other. Returns when the queue was limited; 0: never. */
static uint64_t serve(fl_loop *loop, double come_while_one_is_served, uint32_t at_once, uint64_t duration) {
    double length = at_once;
    static uint64_t now = 1000 * (uint64_t) SECOND;
    uint64_t began = now;
    for (uint64_t passed = 0; passed < duration; passed += SERVED_IN) {
        now = began + passed;
        /* The oldest came when the queue was shorter by all requests that have come since. */
        double wait = length * SERVED_IN;
        if (come_while_one_is_served > 1 && length > at_once)
            wait = (length - at_once) / come_while_one_is_served * SERVED_IN + at_once * SERVED_IN;
        loop->ready.count = (uint32_t) length;
        fl_load_shedding_taken(loop, (uint64_t) wait, now);
        if (loop->shedding.most != 0)
            return passed + 1;
        length += come_while_one_is_served - 1;
        if (length < 0)
            length = 0;
    }
    return 0;
}

#define CHECK_NEVER(loop, rate, at_once)                                                                       \
    do {                                                                                                       \
        CHECK_NUMBER(0, serve(loop, rate, at_once, 20 * SECOND));                                              \
        loop->shedding = (fl_load_shedding){0};                                                                             \
    } while (0)

static void a_queue_that_stands_and_grows_is_limited_to_what_can_be_served_within_the_target(void) {
    peer_server server = server_with_target(TARGET);
    for (double rate = 1.25; rate <= 20; rate *= 2) {
        server.loop->shedding = (fl_load_shedding){0};
        uint64_t when = serve(server.loop, rate, 0, 20 * SECOND);
        CHECK(when > 500 * MILLISECOND);
        /* Soon; or, if the queue grows slowly, before it takes 1.5 s to serve. */
        CHECK(when < 1500 * MILLISECOND || server.loop->ready.count < 150);
        CHECK(server.loop->shedding.most >= 25 && server.loop->shedding.most <= 30);
    }
    server.loop->ready.count = 0;
    server_stop(&server);
}

static void a_long_queue_that_does_not_grow_is_not_limited(void) {
    peer_server server = server_with_target(TARGET);
    CHECK_NEVER(server.loop, 1, 160);   /* each client asks again after its response */
    CHECK_NEVER(server.loop, 1, 10000);
    CHECK_NEVER(server.loop, 0.5, 2000);/* a burst beside the usual requests */
    CHECK_NEVER(server.loop, 0, 400);
    CHECK_NEVER(server.loop, 0.95, 10);
    server.loop->ready.count = 0;
    server_stop(&server);
}

static void the_queue_may_be_longer_if_more_requests_wait_in_fibers(void) {
    peer_server server = server_with_target(TARGET);
    server.loop->context.counts.in_flight = 1000;
    uint64_t when = serve(server.loop, 5, 0, 20 * SECOND);
    CHECK(when > 9 * SECOND);
    CHECK_NUMBER(1000, server.loop->shedding.most);
    server.loop->context.counts.in_flight = server.loop->ready.count = 0;
    server_stop(&server);
}

/* 512 clients ask again after each response. While a worker has no time to begin new requests, those that waited in fibers return to the
 * queue. */
static void clients_whose_requests_waited_in_fibers_are_no_overload(void) {
    peer_server server = server_with_target(TARGET);
    fl_loop *loop = server.loop;
    for (int i = 0; i < 200; i++) {
        loop->ready.count = 112 + (uint32_t) (i < 175 ? 2 * i : 350);
        loop->context.counts.in_flight = 512 - loop->ready.count;
        fl_load_shedding_taken(loop, SECOND, 1000 * (uint64_t) SECOND + (uint64_t) i * SERVED_IN);
        CHECK_NUMBER(0, loop->shedding.most);
    }
    loop->context.counts.in_flight = loop->ready.count = 0;
    server_stop(&server);
}

static void a_slow_app_may_always_have_a_few_requests_in_the_queue(void) {
    peer_server server = server_with_target(TARGET);
    for (int i = 0; i < 100; i++) {
        server.loop->ready.count = (uint32_t) (i < 16 ? i : 16);
        fl_load_shedding_taken(server.loop, 5 * SECOND, 1000 * (uint64_t) SECOND + (uint64_t) i * SECOND);
        CHECK_NUMBER(0, server.loop->shedding.most);
    }
    server.loop->ready.count = 0;
    server_stop(&server);
}

static void shedding_ends_when_a_request_is_taken_that_has_hardly_waited(void) {
    peer_server server = server_with_target(TARGET);
    uint64_t when = serve(server.loop, 10, 0, 20 * SECOND);
    CHECK(when > 0);
    fl_load_shedding_taken(server.loop, 20 * MILLISECOND, fl_clock());
    CHECK_NUMBER(0, server.loop->shedding.most);
    CHECK_NUMBER(0, server.loop->shedding.since);
    server.loop->ready.count = 0;
    server_stop(&server);
}

static void while_requests_are_turned_away_the_limit_is_only_adjusted(void) {
    peer_server server = server_with_target(TARGET);
    fl_loop *loop = server.loop;
    uint64_t cut_at = fl_clock();
    loop->shedding = (fl_load_shedding){.since = cut_at, .counted_at = cut_at, .most = 9, .cut_at = cut_at};
    loop->ready.count = 5;
    for (int i = 1; i <= 24; i++) {
        fl_load_shedding_taken(loop, 50 * MILLISECOND, cut_at + (uint64_t) i * SERVED_IN);
        CHECK_NUMBER(9, loop->shedding.most);
    }
    loop->shedding.cut_at += 20 * SERVED_IN;
    fl_load_shedding_taken(loop, 50 * MILLISECOND, cut_at + 25 * SERVED_IN);
    CHECK_NUMBER(30, loop->shedding.most); /* now more can be served within the target */
    fl_load_shedding_taken(loop, 50 * MILLISECOND, cut_at + 50 * SERVED_IN);
    CHECK_NUMBER(0, loop->shedding.most);
    loop->ready.count = 0;
    server_stop(&server);
}

static void shedding_ends_when_the_last_request_of_the_queue_is_taken(void) {
    peer_server server = server_with_target(TARGET);
    CHECK(serve(server.loop, 10, 0, 20 * SECOND) > 0);
    fl_load_shedding_taken(server.loop, TARGET, fl_clock());
    CHECK(server.loop->shedding.most > 0);
    server.loop->ready.count = 0;
    fl_load_shedding_taken(server.loop, TARGET, fl_clock());
    CHECK_NUMBER(0, server.loop->shedding.most);
    server_stop(&server);
}

static void without_a_target_all_requests_wait(void) {
    peer_server server = server_with_target(0);
    CHECK_NEVER(server.loop, 10, 0);
    server.loop->ready.count = 0;
    server_stop(&server);
}

static void while_a_sibling_has_room_no_request_is_turned_away(void) {
    peer_server server = server_with_target(TARGET);
    fl_shared_page *page = fl_shared_page_open(2);
    int sending[2] = {-1, -1};
    for (int i = 0; i < 2; i++)
        fl_slot_set(&page->slots[i], FL_SLOT_state, FL_WORKER_SERVING);
    CHECK_NUMBER(FL_OK, fl_loop_join(server.loop, page, 0, -1, sending, 2));
    CHECK_NEVER(server.loop, 10, 0);
    fl_slot_set(&page->slots[1], FL_SLOT_oldest_us, 1);
    CHECK(serve(server.loop, 10, 0, 20 * SECOND) > 0);

    server.loop->shedding = (fl_load_shedding){0};
    fl_slot_set(&page->slots[1], FL_SLOT_queued, 1000000); /* among so many, this queue has not grown: workers pass requests around */
    CHECK_NEVER(server.loop, 10, 0);
    server.loop->ready.count = 0;
    server_stop(&server);
    fl_shared_page_close(page);
}

/* Which requests are turned away */

static peer_server bounded_server(uint32_t most) {
    peer_server server = server_with_target(TARGET);
    server.loop->shedding = (fl_load_shedding){.since = fl_clock(), .counted_at = fl_clock(), .most = most};
    return server;
}

static void the_newest_requests_get_503_at_once_and_their_clients_may_ask_again(void) {
    peer_server server = bounded_server(2);
    int sockets[5];
    for (int i = 0; i < 5; i++) {
        sockets[i] = client(&server);
        send_text(sockets[i], i == 3 ? "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n"
                      : i == 4 ? "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
                               : GET("/"));
        turn(server.loop);
    }
    CHECK_NUMBER(2, server.loop->ready.count);
    CHECK_NUMBER(3, server.loop->context.counts.refused);
    CHECK_NUMBER(3, server.loop->context.counts.turned_away);
    for (int i = 2; i < 5; i++) {
        received_bytes received = receive(server.loop, sockets[i]);
        CHECK_NUMBER(1, occurrences(&received, "retry-after: 1\r\n"));
        CHECK_NUMBER(0, occurrences(&received, "connection: close"));
        CHECK_RECEIVED(TURNED_AWAY, i == 3 ? "\r\n\r\n" : "the server is overloaded\n", received);
    }
    for (int i = 0; i < 2; i++) {
        answer(take(server.loop), 200, "kept");
        CHECK_RECEIVED("HTTP/1.1 200 OK", "kept", receive(server.loop, sockets[i]));
    }
    for (int i = 2; i < 5; i++) {
        send_text(sockets[i], GET("/again"));
        CHECK_NUMBER(1, answer_all(server.loop));
        CHECK_RECEIVED("HTTP/1.1 200 OK", "/again", receive(server.loop, sockets[i]));
    }
    for (int i = 0; i < 5; i++)
        close(sockets[i]);
    server_stop(&server);
}

static void a_connection_that_cannot_go_on_is_closed(void) {
    const char *requests[] = {GET("/") GET("/pipelined"), "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
                              "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"};
    for (int i = 0; i < 3; i++) {
        peer_server server = bounded_server(1);
        int first = client(&server), second = client(&server);
        send_text(first, GET("/"));
        turn(server.loop);
        send_text(second, requests[i]);
        received_bytes received = receive_to_end(server.loop, second);
        CHECK_NUMBER(1, occurrences(&received, "connection: close\r\n"));
        CHECK_NUMBER(1, occurrences(&received, "HTTP/1.1 "));
        CHECK_RECEIVED(TURNED_AWAY, "the server is overloaded\n", received);
        CHECK_NUMBER(1, server.loop->ready.count);
        close(first);
        close(second);
        server_stop(&server);
    }
}

static void a_long_queue_is_cut_over_several_turns(void) {
    peer_server server = server_with_target(TARGET);
    int sockets[200];
    for (int i = 0; i < 200; i++) {
        sockets[i] = client(&server);
        send_text(sockets[i], GET("/"));
        if (i % 20 == 0)
            turn(server.loop);
    }
    TURN_UNTIL(server.loop, server.loop->ready.count == 200);
    server.loop->shedding = (fl_load_shedding){.since = fl_clock(), .counted_at = fl_clock(), .most = 10};
    for (int turns = 0; turns < 3; turns++) {
        fl_loop_turn(server.loop);
        CHECK(server.loop->ready.count >= 10);
    }
    CHECK_NUMBER(10, server.loop->ready.count);
    for (int i = 10; i < 200; i++)
        CHECK_RECEIVED(TURNED_AWAY, "the server is overloaded\n", receive(server.loop, sockets[i]));
    CHECK_NUMBER(10, answer_all(server.loop));
    for (int i = 0; i < 200; i++)
        close(sockets[i]);
    server_stop(&server);
}

int main(void) {
    TEST(a_queue_that_stands_and_grows_is_limited_to_what_can_be_served_within_the_target);
    TEST(a_long_queue_that_does_not_grow_is_not_limited);
    TEST(the_queue_may_be_longer_if_more_requests_wait_in_fibers);
    TEST(clients_whose_requests_waited_in_fibers_are_no_overload);
    TEST(a_slow_app_may_always_have_a_few_requests_in_the_queue);
    TEST(shedding_ends_when_a_request_is_taken_that_has_hardly_waited);
    TEST(while_requests_are_turned_away_the_limit_is_only_adjusted);
    TEST(shedding_ends_when_the_last_request_of_the_queue_is_taken);
    TEST(without_a_target_all_requests_wait);
    TEST(while_a_sibling_has_room_no_request_is_turned_away);
    TEST(the_newest_requests_get_503_at_once_and_their_clients_may_ask_again);
    TEST(a_connection_that_cannot_go_on_is_closed);
    TEST(a_long_queue_is_cut_over_several_turns);
    return test_summary();
}
