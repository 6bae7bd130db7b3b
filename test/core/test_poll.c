/* Which events a poll reports. Every backend has to pass: make test, make fallbacks, make kqueue. */
#include "poll_fixture.h"

static void input_is_reported_once(void) {
    connect_pair(SOCK_STREAM);
    CHECK_NUMBER(0, fl_poll_add_connection(&poller, ours, &ours));
    CHECK_EVENTS(0, &ours);
    CHECK_NUMBER(1, send(theirs, "a", 1, 0));
    CHECK_EVENTS(FL_READABLE, &ours);
    CHECK_EVENTS(0, &ours); /* although the byte was not read */
    CHECK_NUMBER(1, read_all());
    CHECK_EVENTS(0, &ours);
    CHECK_NUMBER(2, send(theirs, "bc", 2, 0));
    CHECK_EVENTS(FL_READABLE, &ours);
    CHECK_NUMBER(2, read_all());
    hang_up();
}

static void input_received_before_the_connection_was_added_is_reported(void) {
    connect_pair(SOCK_STREAM);
    CHECK_NUMBER(1, send(theirs, "a", 1, 0));
    CHECK_NUMBER(0, fl_poll_add_connection(&poller, ours, &ours));
    CHECK_EVENTS(FL_READABLE, &ours);
    hang_up();
}

static void input_is_reported_although_earlier_input_was_not_read_to_its_end(void) {
    connect_pair(SOCK_STREAM);
    CHECK_NUMBER(0, fl_poll_add_connection(&poller, ours, &ours));
    CHECK_NUMBER(1, send(theirs, "a", 1, 0));
    CHECK_EVENTS(FL_READABLE, &ours);
    char byte;
    CHECK_NUMBER(1, recv(ours, &byte, 1, 0));
    CHECK_NUMBER(1, send(theirs, "b", 1, 0));
    CHECK_EVENTS(FL_READABLE, &ours);
    hang_up();
}

static void writability_is_reported_on_request_and_then_each_time(void) {
    connect_pair(SOCK_STREAM);
    CHECK_NUMBER(0, fl_poll_add_connection(&poller, ours, &ours));
    CHECK_EVENTS(0, &ours);
    CHECK_NUMBER(0, fl_poll_want_writable(&poller, ours, &ours));
    CHECK_EVENTS(FL_WRITABLE, &ours);
    for (int i = 0; i < 3; i++) {
        fill();
        CHECK_EVENTS(0, &ours);
        drain_their_side();
        CHECK_EVENTS(FL_WRITABLE, &ours);
    }
    CHECK_NUMBER(1, send(theirs, "a", 1, 0)); /* writability may be reported again with it */
    int times = 0;
    CHECK(events_of(&ours, &times) & FL_READABLE);
    hang_up();
}

static void the_end_of_the_peers_side_is_reported_as_nothing_else(void) {
    for (int tcp = 0; tcp < 2; tcp++) {
        if (tcp)
            connect_tcp();
        else
            connect_pair(SOCK_STREAM);
        CHECK_NUMBER(0, fl_poll_add_connection(&poller, ours, &ours));
        shutdown(theirs, SHUT_WR);
        int times = 0;
        uint32_t ready = events_of(&ours, &times);
        CHECK(ready & (FL_READABLE | FL_HALF_CLOSED));
        CHECK_NUMBER(0, ready & FL_BROKEN);
        CHECK_NUMBER(0, read_all());
        CHECK_NUMBER(0, send(ours, "still", 5, FL_SEND_FLAGS) - 5);
        times = 0;
        events_of(&ours, &times);
        CHECK(times < 3);
        hang_up();
    }
}

/* Otherwise the app would run requests of clients that have gone. */
static void the_end_is_reported_before_unread_input_is_read(void) {
    connect_tcp();
    CHECK_NUMBER(0, fl_poll_add_connection(&poller, ours, &ours));
    CHECK_NUMBER(1, send(theirs, "a", 1, 0));
    CHECK_EVENTS(FL_READABLE, &ours);
    shutdown(theirs, SHUT_WR);
    int times = 0;
    CHECK(events_of(&ours, &times) & FL_HALF_CLOSED);
    hang_up();
}

static void our_own_shutdown_is_not_reported_as_the_peers(void) {
    connect_tcp();
    CHECK_NUMBER(0, fl_poll_add_connection(&poller, ours, &ours));
    CHECK_NUMBER(0, fl_poll_want_writable(&poller, ours, &ours));
    CHECK_EVENTS(FL_WRITABLE, &ours);
    shutdown(ours, SHUT_WR);
    int times = 0;
    CHECK_NUMBER(0, events_of(&ours, &times) & (FL_BROKEN | FL_HALF_CLOSED));
    hang_up();
}

static void a_reset_is_reported_as_broken(void) {
    connect_tcp();
    CHECK_NUMBER(0, fl_poll_add_connection(&poller, ours, &ours));
    struct linger at_once = {.l_onoff = 1};
    setsockopt(theirs, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(theirs);
    theirs = -1;
    int times = 0;
    CHECK(events_of(&ours, &times) & FL_BROKEN);
    hang_up();
}

static void a_listener_is_reported_until_its_backlog_is_empty(void) {
    struct sockaddr_in address;
    int listener = listen_somewhere(&address), clients[2], accepted[2];
    CHECK_NUMBER(0, fl_poll_add_listener(&poller, listener, &listener));
    CHECK_EVENTS(0, &listener);
    for (int i = 0; i < 2; i++) clients[i] = connect_to(&address);
    for (int i = 0; i < 2; i++) {
        fl_event event[FL_POLL_EVENTS];
        bool woken;
        for (int k = 0; k < 3; k++) { /* level-triggered */
            CHECK_NUMBER(1, fl_poll_wait(&poller, event, SECOND, &woken));
            CHECK(event[0].data == &listener && event[0].ready == FL_READABLE);
        }
        CHECK_PENDING(true, 1000);
        accepted[i] = fl_accept(listener, NULL, NULL);
        CHECK(accepted[i] >= 0);
    }
    CHECK_EVENTS(0, &listener);
    CHECK_NUMBER(0, fl_poll_remove(&poller, listener));
    for (int i = 0; i < 2; i++) {
        close(clients[i]);
        close(accepted[i]);
    }
    close(listener);
}

static void a_reader_is_reported_until_all_is_read(void) {
    connect_pair(FL_PACKETS);
    CHECK_NUMBER(0, fl_poll_add_reader(&poller, ours, &ours));
    CHECK_NUMBER(5, send(theirs, "hello", 5, 0));
    fl_event event[FL_POLL_EVENTS];
    bool woken;
    char bytes[16];
    for (int i = 0; i < 3; i++) {
        CHECK_NUMBER(1, fl_poll_wait(&poller, event, SECOND, &woken));
        CHECK(woken && event[0].data == &ours && event[0].ready == FL_READABLE);
    }
    CHECK_NUMBER(5, recv(ours, bytes, sizeof bytes, 0));
    CHECK_EVENTS(0, &ours);
    hang_up();
}

static void a_removed_descriptor_is_not_reported(void) {
    connect_pair(SOCK_STREAM);
    CHECK_NUMBER(0, fl_poll_add_connection(&poller, ours, &ours));
    CHECK_NUMBER(0, fl_poll_want_writable(&poller, ours, &ours));
    CHECK_NUMBER(1, send(theirs, "a", 1, 0));
    CHECK_PENDING(true, 1000);
    CHECK_NUMBER(0, fl_poll_remove(&poller, ours));
    CHECK_EVENTS(0, &ours);
    CHECK_NUMBER(1, send(theirs, "b", 1, 0));
    CHECK_EVENTS(0, &ours);
    CHECK_PENDING(false, 20);
    CHECK_NUMBER(0, fl_poll_add_connection(&poller, ours, &theirs)); /* the descriptor may belong to another connection by then */
    CHECK_EVENTS(FL_READABLE, &theirs);
    CHECK_EVENTS(0, &ours);
    hang_up();
    CHECK(fl_poll_remove(&poller, ours) < 0);
}

static void the_polls_descriptor_is_readable_while_an_event_is_pending(void) {
    connect_pair(SOCK_STREAM);
    CHECK_NUMBER(0, fl_poll_add_connection(&poller, ours, &ours));
    CHECK_EVENTS(0, &ours);
    CHECK_PENDING(false, 20);
    for (int i = 0; i < 3; i++) {
        CHECK_NUMBER(1, send(theirs, "a", 1, 0));
        CHECK_PENDING(true, 5000);
        CHECK_PENDING(true, 0); /* until the next wait */
        CHECK_EVENTS(FL_READABLE, &ours);
        CHECK_PENDING(false, 20);
        read_all();
    }
    hang_up();
}

#ifndef LIBKQUEUE
static void another_poll_can_watch_its_descriptor(void) {
    fl_poll outer;
    fl_event events[FL_POLL_EVENTS];
    bool woken;
    CHECK_NUMBER(0, fl_poll_open(&outer));
    connect_pair(SOCK_STREAM);
    CHECK_NUMBER(0, fl_poll_add_connection(&poller, ours, &ours));
    CHECK_EVENTS(0, &ours);
    CHECK_NUMBER(0, fl_poll_add_reader(&outer, poller.descriptor, &outer));
    CHECK_NUMBER(0, fl_poll_wait(&outer, events, 20 * MILLISECOND, &woken));
    CHECK_NUMBER(1, send(theirs, "a", 1, 0));
    CHECK_NUMBER(1, fl_poll_wait(&outer, events, 5 * SECOND, &woken));
    CHECK(events[0].data == &outer);
    CHECK_EVENTS(FL_READABLE, &ours);
    CHECK_NUMBER(0, fl_poll_wait(&outer, events, 20 * MILLISECOND, &woken));
    fl_poll_remove(&outer, poller.descriptor);
    fl_poll_close(&outer);
    hang_up();
}
#endif

static void events_beyond_one_wait_are_each_reported_once(void) {
    enum { PAIRS = FL_POLL_EVENTS + 50 };
    static int pairs[PAIRS][2], times[PAIRS];
    memset(times, 0, sizeof times);
    for (int i = 0; i < PAIRS; i++) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i]) < 0)
            abort();
        CHECK_NUMBER(0, fl_poll_add_connection(&poller, pairs[i][0], &times[i]));
        CHECK_NUMBER(1, send(pairs[i][1], "a", 1, 0));
    }
    fl_event events[FL_POLL_EVENTS];
    bool woken = true;
    while (woken) {
        int count = fl_poll_wait(&poller, events, 20 * MILLISECOND, &woken);
        for (int i = 0; i < count; i++) ++*(int *) events[i].data;
    }
    int wrong = 0;
    for (int i = 0; i < PAIRS; i++) {
        wrong += times[i] != 1;
        fl_poll_remove(&poller, pairs[i][0]);
        close(pairs[i][0]);
        close(pairs[i][1]);
    }
    CHECK_NUMBER(0, wrong);
}

int main(void) {
    POLL_TEST(input_is_reported_once);
    POLL_TEST(input_received_before_the_connection_was_added_is_reported);
    POLL_TEST(input_is_reported_although_earlier_input_was_not_read_to_its_end);
    POLL_TEST(writability_is_reported_on_request_and_then_each_time);
    POLL_TEST(the_end_of_the_peers_side_is_reported_as_nothing_else);
    POLL_TEST(the_end_is_reported_before_unread_input_is_read);
    POLL_TEST(our_own_shutdown_is_not_reported_as_the_peers);
    POLL_TEST(a_reset_is_reported_as_broken);
    POLL_TEST(a_listener_is_reported_until_its_backlog_is_empty);
    POLL_TEST(a_reader_is_reported_until_all_is_read);
    POLL_TEST(a_removed_descriptor_is_not_reported);
    POLL_TEST(the_polls_descriptor_is_readable_while_an_event_is_pending);
#ifndef LIBKQUEUE
    POLL_TEST(another_poll_can_watch_its_descriptor);
#endif
    POLL_TEST(events_beyond_one_wait_are_each_reported_once);
    return test_summary();
}
