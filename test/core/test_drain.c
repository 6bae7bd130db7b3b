/* Draining a loop, and connections that go to a sibling. */
#include "peer.h"
#include "siblings/handoff.h"

/* The connections seem to have come a second earlier; a minute later: their second lasts as long as the test wants. */
static void shift(fl_loop *loop, int64_t microseconds) {
    for (fl_connection *connection = loop->context.connections; connection != NULL; connection = connection->next)
        connection->deadline.at = (uint64_t) ((int64_t) connection->deadline.at + microseconds);
}

static void make_older(fl_loop *loop) {
    shift(loop, -SECOND);
}

static void make_new(fl_loop *loop) {
    shift(loop, 60 * SECOND);
}

static void a_draining_loop_answers_its_requests_and_closes_idle_connections(void) {
    peer_server server = server_start();
    int idle = client(&server), busy = client(&server), sent = client(&server);
    send_text(busy, GET("/busy"));
    fl_exchange *exchange = take(server.loop);
    send_text(sent, GET("/sent"));
    fl_loop_drain(server.loop, false);
    turn(server.loop);
    CHECK(!fl_loop_is_drained(server.loop));
    make_older(server.loop);
    CHECK_RECEIVED("", "", receive_to_end(server.loop, idle));
    answer(exchange, 200, "b");
    received_bytes last = receive_to_end(server.loop, busy);
    CHECK(strstr(last.bytes, "\r\nconnection: close\r\n") != NULL);
    CHECK_RECEIVED("HTTP/1.1 200 OK", "\r\n\r\nb", last);
    CHECK_NUMBER(1, answer_all(server.loop));
    CHECK_RECEIVED("HTTP/1.1 200 OK", "\r\n\r\n/sent", receive_to_end(server.loop, sent));
    CHECK(fl_loop_is_drained(server.loop));
    close(idle);
    close(busy);
    close(sent);
    server_stop(&server);
}

static void a_client_that_has_just_connected_is_answered_by_a_draining_loop(void) {
    peer_server server = server_start();
    int asking = client(&server), silent = client(&server), known = client(&server);
    send_text(known, GET("/first"));
    CHECK_NUMBER(1, answer_all(server.loop));
    CHECK_RECEIVED("HTTP/1.1 200 OK", "/first", receive(server.loop, known));
    TURN_UNTIL(server.loop, server.loop->context.counts.connections == 3);
    make_new(server.loop);
    fl_loop_drain(server.loop, false);
    CHECK_RECEIVED("", "", receive_to_end(server.loop, known));
    CHECK_NUMBER(2, server.loop->context.counts.connections);
    send_text(asking, GET("/asked"));
    CHECK_NUMBER(1, answer_all(server.loop));
    received_bytes last = receive_to_end(server.loop, asking);
    CHECK_NUMBER(1, occurrences(&last, "\r\nconnection: close\r\n"));
    CHECK_RECEIVED("HTTP/1.1 200 OK", "\r\n\r\n/asked", last);
    close(asking);
    CHECK_NOTHING_RECEIVED(receive(server.loop, silent));
    shift(server.loop, -62 * SECOND);
    CHECK_RECEIVED("", "", receive_to_end(server.loop, silent));
    TURN_UNTIL(server.loop, fl_loop_is_drained(server.loop));
    close(silent);
    close(known);
    server_stop(&server);
}

/* It has come after the last turn, and the poll does not report what was read before. */
static void what_a_draining_loop_reads_before_it_waits_ends_its_wait(void) {
    peer_server server = server_start();
    int late = client(&server);
    TURN_UNTIL(server.loop, server.loop->context.counts.connections == 1);
    make_new(server.loop);
    fl_loop_drain(server.loop, false);
    turn(server.loop);
    shift(server.loop, -62 * SECOND);
    send_text(late, GET("/late"));
    fl_loop_prepare_wait(server.loop, true, false);
    CHECK_NUMBER(1, server.loop->ready.count);
    CHECK(fl_loop_wait(server.loop, 0));
    CHECK_NUMBER(1, answer_all(server.loop));
    CHECK_RECEIVED("HTTP/1.1 200 OK", "/late", receive_to_end(server.loop, late));
    CHECK(fl_loop_is_drained(server.loop));
    close(late);
    server_stop(&server);
}

static void waiting_requests_are_rejected_when_the_drain_times_out(void) {
    peer_server server = server_start();
    int served = client(&server), waiting[] = {client(&server), client(&server), client(&server)};
    send_text(served, GET("/served"));
    fl_exchange *exchange = take(server.loop);
    send_text(waiting[0], GET("/1") GET("/2"));
    send_text(waiting[1], "PUT /3 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab");
    send_text(waiting[2], "GET /4 HTTP/1.1\r\nHo");
    turn(server.loop);
    fl_loop_drain(server.loop, false);
    CHECK_NUMBER(1, server.loop->ready.count);
    fl_loop_stop(server.loop, true);
    received_bytes ended = receive_to_end(server.loop, served);
    CHECK_NUMBER(1, occurrences(&ended, "\r\nretry-after: 1\r\n"));
    CHECK_RECEIVED("HTTP/1.1 503 ", "the server is shutting down\n", ended);
    CHECK_NUMBER(0, server.loop->context.counts.timed_out);
    for (int i = 0; i < 3; i++) {
        received_bytes refused = receive_to_end(server.loop, waiting[i]);
        CHECK_NUMBER(1, occurrences(&refused, "HTTP/1.1 "));
        CHECK_NUMBER(1, occurrences(&refused, "\r\nretry-after: 1\r\n"));
        CHECK_NUMBER(1, occurrences(&refused, "\r\nconnection: close\r\n"));
        CHECK_RECEIVED("HTTP/1.1 503 ", "the server is shutting down\n", refused);
        close(waiting[i]);
    }
    CHECK_NUMBER(3, server.loop->context.counts.turned_away);
    fl_exchange_abandon(exchange);
    close(served);
    TURN_UNTIL(server.loop, fl_loop_is_drained(server.loop));
    server_stop(&server);
}

static void an_idle_connection_goes_to_the_sibling(void) {
    peer_server old = server_start(), young = server_start();
    int channels[4];
    fl_shared_page *page = make_siblings(&old, &young, channels);
    fl_slot_set(&page->slots[1], FL_SLOT_state, FL_WORKER_BOOTING); /* so that it gets no new connection */
    int idle = client(&old), busy = client(&old);
    send_text(idle, GET("/before"));
    CHECK_NUMBER(1, answer_all(old.loop));
    CHECK_RECEIVED("HTTP/1.1 200 OK", "/before", receive(old.loop, idle));
    send_text(busy, GET("/busy"));
    fl_exchange *exchange = take(old.loop);
    fl_slot_set(&page->slots[1], FL_SLOT_state, FL_WORKER_SERVING);

    fl_loop_drain(old.loop, true);
    turn(old.loop);
    turn(young.loop);
    CHECK_NUMBER(1, old.loop->context.counts.connections);
    CHECK_NUMBER(1, young.loop->context.counts.connections);
    send_text(idle, GET("/after"));
    CHECK_NUMBER(1, answer_all(young.loop));
    CHECK_RECEIVED("HTTP/1.1 200 OK", "/after", receive(young.loop, idle));
    answer(exchange, 200, "b"); /* with keep-alive */
    turn(old.loop);
    CHECK_RECEIVED("HTTP/1.1 200 OK", "\r\n\r\nb", receive(old.loop, busy));
    TURN_UNTIL(old.loop, fl_loop_is_drained(old.loop));
    send_text(busy, GET("/again"));
    CHECK_NUMBER(1, answer_all(young.loop));
    CHECK_RECEIVED("HTTP/1.1 200 OK", "/again", receive(young.loop, busy));
    server_stop(&old);
    server_stop(&young);
    for (int i = 0; i < 4; i++) close(channels[i]);
    close(idle);
    close(busy);
}

/* Between its last look and its end: the sibling believes that it serves. */
static void what_a_sibling_sends_to_a_loop_that_has_ended_is_left_for_another(void) {
    peer_server old = server_start(), young = server_start(), next = server_start();
    int channels[4], none = -1;
    fl_shared_page *page = make_siblings(&old, &young, channels);
    int late = client(&young);
    TURN_UNTIL(young.loop, young.loop->context.counts.connections == 1);
    fl_loop_drain(old.loop, true);
    turn(old.loop);
    CHECK(fl_loop_end(old.loop));
    CHECK(fl_handoff_give(&young.loop->siblings, young.loop->context.connections, 0));
    turn(old.loop);
    CHECK(fl_loop_end(old.loop));
    server_stop(&old);
    CHECK_NUMBER(FL_OK, fl_loop_join(next.loop, page, 0, channels[0], &none, 1));
    send_text(late, GET("/late"));
    CHECK_NUMBER(1, answer_all(next.loop));
    CHECK_RECEIVED("HTTP/1.1 200 OK", "/late", receive(next.loop, late));
    server_stop(&young);
    server_stop(&next);
    for (int i = 0; i < 4; i++) close(channels[i]);
    close(late);
    fl_shared_page_close(page);
}

static uint64_t cpu_time(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t) time.tv_sec * 1000000 + (uint64_t) time.tv_nsec / 1000;
}

static void releasing_idle_connections_skips_busy_ones_cheaply(void) {
    enum { STREAMS = 400, TIMES = 4000 };
    fl_limits limits = peer_limits;
    limits.in_flight = STREAMS;
    peer_server server = server_with(limits);
    static int streams[STREAMS];
    static fl_exchange *exchanges[STREAMS];
    fl_shared_page *page = fl_shared_page_open(1);
    int none = -1;
    CHECK_NUMBER(FL_OK, fl_loop_join(server.loop, page, 0, -1, &none, 1));
    uint64_t began = cpu_time();
    for (int i = 0; i < TIMES; i++) fl_loop_release_idle(server.loop);
    uint64_t alone = cpu_time() - began;
    for (int i = 0; i < STREAMS; i++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
            abort();
        streams[i] = pair[1];
        fl_close_on_exec_nonblocking(pair[0]);
        CHECK(fl_connection_open(&server.loop->context, server.loop->accepting.listeners, pair[0], GET("/"), sizeof GET("/") - 1) != NULL);
        CHECK((exchanges[i] = fl_loop_take(server.loop)) != NULL);
    }
    began = cpu_time();
    for (int i = 0; i < TIMES; i++) fl_loop_release_idle(server.loop);
    uint64_t beside = cpu_time() - began;
    if (beside > 10 * alone + 300)
        test_fail(__FILE__, __LINE__, "%lu us beside streams, %lu alone", (unsigned long) beside, (unsigned long) alone);
    for (int i = 0; i < STREAMS; i++) {
        fl_exchange_abandon(exchanges[i]);
        close(streams[i]);
    }
    server_stop(&server);
    fl_shared_page_close(page);
}

static void a_half_closed_connection_is_answered_by_the_sibling(void) {
    for (int minor = 0; minor <= 1; minor++) {
        peer_server old = server_start(), young = server_start();
        int channels[4], waiting = client(&old);
        fl_shared_page *page = make_siblings(&old, &young, channels);
        (void) page;
        send_text(waiting, minor == 0 ? "GET /half HTTP/1.0\r\n\r\n" : GET("/half"));
        TURN_UNTIL(old.loop, old.loop->ready.count == 1);
        shutdown(waiting, SHUT_WR);
        turn(old.loop);
        old.loop->ready.first->queueing.ready_at -= SECOND;
        TURN_UNTIL(old.loop, fl_handoff_give(&old.loop->siblings, old.loop->context.connections, 1));
        turn(old.loop);
        CHECK_NUMBER(1, answer_all(young.loop));
        CHECK_RECEIVED("HTTP/1.1 ", "/half", receive(young.loop, waiting));
        server_stop(&old);
        server_stop(&young);
        for (int i = 0; i < 4; i++) close(channels[i]);
        close(waiting);
    }
}

static void new_connections_go_to_the_least_loaded_worker(void) {
    peer_server old = server_start(), young = server_start();
    int channels[4], clients[5];
    fl_shared_page *page = make_siblings(&old, &young, channels);
    for (int i = 0; i < 5; i++) clients[i] = client(&old);
    turn(old.loop);
    CHECK_NUMBER(3, old.loop->context.counts.connections);
    CHECK_NUMBER(3, fl_slot_get(&page->slots[0], FL_SLOT_fresh));
    CHECK_NUMBER(2, fl_slot_get(&page->slots[1], FL_SLOT_incoming_connections));
    turn(young.loop);
    CHECK_NUMBER(2, fl_slot_get(&page->slots[1], FL_SLOT_connections));
    CHECK_NUMBER(2, fl_slot_get(&page->slots[1], FL_SLOT_fresh));
    CHECK_NUMBER(0, fl_slot_get(&page->slots[1], FL_SLOT_incoming_connections));
    for (int i = 0; i < 5; i++) {
        fl_loop *loop = i % 2 == 0 ? old.loop : young.loop;
        send_text(clients[i], GET("/first"));
        CHECK_NUMBER(1, answer_all(loop));
        CHECK_RECEIVED("HTTP/1.1 200 OK", "/first", receive(loop, clients[i]));
    }
    CHECK_NUMBER(0, fl_slot_get(&page->slots[0], FL_SLOT_fresh) + fl_slot_get(&page->slots[1], FL_SLOT_fresh));
    server_stop(&old);
    server_stop(&young);
    for (int i = 0; i < 4; i++) close(channels[i]);
    for (int i = 0; i < 5; i++) close(clients[i]);
}

int main(void) {
    RAW_TEST(releasing_idle_connections_skips_busy_ones_cheaply);
    RAW_TEST(a_half_closed_connection_is_answered_by_the_sibling);
    RAW_TEST(a_draining_loop_answers_its_requests_and_closes_idle_connections);
    TEST(a_client_that_has_just_connected_is_answered_by_a_draining_loop);
    RAW_TEST(what_a_draining_loop_reads_before_it_waits_ends_its_wait);
    TEST(waiting_requests_are_rejected_when_the_drain_times_out);
    RAW_TEST(an_idle_connection_goes_to_the_sibling);
    RAW_TEST(what_a_sibling_sends_to_a_loop_that_has_ended_is_left_for_another);
    RAW_TEST(new_connections_go_to_the_least_loaded_worker);
    return test_summary();
}
