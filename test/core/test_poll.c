/* What every backend of poll.h has to keep. The same program is built for each: make test, make fallbacks, make kqueue. */
#include "base/poll.h"
#include "test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/poll.h>
#include <sys/wait.h>

enum { MILLISECOND = 1000, SECOND = 1000000 };

static fl_poll poller;
static int ours, theirs; /* the ends of a connection */

static void connect_pair(int type) {
    int ends[2];
    if (socketpair(AF_UNIX, type, 0, ends) < 0)
        abort();
    ours = ends[0];
    theirs = ends[1];
    fl_close_on_exec_nonblocking(ours);
    fl_close_on_exec_nonblocking(theirs);
}

static int listen_somewhere(struct sockaddr_in *address) {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t size = sizeof *address;
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    if (bind(listener, (struct sockaddr *) address, size) < 0 || listen(listener, 16) < 0 ||
        getsockname(listener, (struct sockaddr *) address, &size) < 0)
        abort();
    fl_close_on_exec_nonblocking(listener);
    return listener;
}

static int connect_to(const struct sockaddr_in *address) {
    int descriptor = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(descriptor, (const struct sockaddr *) address, sizeof *address) < 0)
        abort();
    return descriptor;
}

static void connect_tcp(void) {
    struct sockaddr_in address;
    int listener = listen_somewhere(&address);
    theirs = connect_to(&address);
    struct pollfd waiting = {.fd = listener, .events = POLLIN};
    poll(&waiting, 1, 5000);
    ours = fl_accept(listener, NULL, NULL);
    close(listener);
}

static void hang_up(void) {
    fl_poll_remove(&poller, ours);
    close(ours);
    close(theirs);
}

/* All that is told of `data` until nothing more comes. */
static uint32_t told_of(const void *data, int *times) {
    fl_event events[FL_POLL_EVENTS];
    uint32_t ready = 0;
    bool woken = true;
    for (int round = 0; round < 20 && woken; round++) {
        int count = fl_poll_wait(&poller, events, 20 * MILLISECOND, &woken);
        for (int i = 0; i < count; i++)
            if (events[i].data == data) {
                ready |= events[i].ready;
                *times += 1;
            }
    }
    CHECK(!woken); /* it comes to rest */
    return ready;
}

#define CHECK_TOLD(expected, data)                                                                             \
    do {                                                                                                       \
        int times_ = 0;                                                                                        \
        CHECK_NUMBER(expected, told_of(data, &times_));                                                        \
        if (expected)                                                                                          \
            CHECK(times_ > 0);                                                                                 \
        else                                                                                                   \
            CHECK_NUMBER(0, times_);                                                                           \
    } while (0)

/* Whether who waits for its descriptor is told within the time. libkqueue's cannot be waited for: there it is passed over. */
static bool shows(int milliseconds) {
    struct pollfd descriptor = {.fd = poller.descriptor, .events = POLLIN};
    return poll(&descriptor, 1, milliseconds) == 1;
}

#ifdef LIBKQUEUE
#define CHECK_SHOWS(expected, milliseconds) ((void) shows)
#else
#define CHECK_SHOWS(expected, milliseconds) CHECK(shows(milliseconds) == (expected))
#endif

/* To the last byte, and says so. Answers how many. */
static size_t read_all(void) {
    char bytes[65536];
    size_t all = 0;
    for (ssize_t count; (count = recv(ours, bytes, sizeof bytes, 0)) > 0;) all += (size_t) count;
    return all;
}

static void fill(void) {
    static const char bytes[65536];
    while (send(ours, bytes, sizeof bytes, FL_SEND_FLAGS) > 0) continue;
}

static void drain_their_side(void) {
    char bytes[65536];
    while (recv(theirs, bytes, sizeof bytes, MSG_DONTWAIT) > 0) continue;
}

static void bytes_are_told_once(void) {
    connect_pair(SOCK_STREAM);
    CHECK_NUMBER(0, fl_poll_add_connection(&poller, ours, &ours));
    CHECK_TOLD(0, &ours);
    CHECK_NUMBER(1, send(theirs, "a", 1, 0));
    CHECK_TOLD(FL_READABLE, &ours);
    CHECK_TOLD(0, &ours); /* though they have not been read */
    CHECK_NUMBER(1, read_all());
    CHECK_TOLD(0, &ours);
    CHECK_NUMBER(2, send(theirs, "bc", 2, 0));
    CHECK_TOLD(FL_READABLE, &ours);
    CHECK_NUMBER(2, read_all());
    hang_up();
}

static void bytes_that_were_there_before_it_was_added_are_told(void) {
    connect_pair(SOCK_STREAM);
    CHECK_NUMBER(1, send(theirs, "a", 1, 0));
    CHECK_NUMBER(0, fl_poll_add_connection(&poller, ours, &ours));
    CHECK_TOLD(FL_READABLE, &ours);
    hang_up();
}

static void bytes_that_come_before_it_is_said_that_all_is_read_are_told(void) {
    connect_pair(SOCK_STREAM);
    CHECK_NUMBER(0, fl_poll_add_connection(&poller, ours, &ours));
    CHECK_NUMBER(1, send(theirs, "a", 1, 0));
    CHECK_TOLD(FL_READABLE, &ours);
    char byte;
    CHECK_NUMBER(1, recv(ours, &byte, 1, 0));
    CHECK_NUMBER(1, send(theirs, "b", 1, 0));
    CHECK_TOLD(FL_READABLE, &ours);
    hang_up();
}

static void room_is_told_only_to_who_wants_it_and_then_whenever_it_comes(void) {
    connect_pair(SOCK_STREAM);
    CHECK_NUMBER(0, fl_poll_add_connection(&poller, ours, &ours));
    CHECK_TOLD(0, &ours);
    CHECK_NUMBER(0, fl_poll_want_writable(&poller, ours, &ours));
    CHECK_TOLD(FL_WRITABLE, &ours);
    for (int i = 0; i < 3; i++) {
        fill();
        CHECK_TOLD(0, &ours);
        drain_their_side();
        CHECK_TOLD(FL_WRITABLE, &ours);
    }
    CHECK_NUMBER(1, send(theirs, "a", 1, 0)); /* with it or without: room may be told of again */
    int times = 0;
    CHECK(told_of(&ours, &times) & FL_READABLE);
    hang_up();
}

static void an_end_is_told_and_no_more_said(void) {
    for (int tcp = 0; tcp < 2; tcp++) {
        if (tcp)
            connect_tcp();
        else
            connect_pair(SOCK_STREAM);
        CHECK_NUMBER(0, fl_poll_add_connection(&poller, ours, &ours));
        shutdown(theirs, SHUT_WR);
        int times = 0;
        uint32_t ready = told_of(&ours, &times);
        CHECK(ready & (FL_READABLE | FL_HALF_CLOSED));
        CHECK_NUMBER(0, ready & FL_BROKEN);
        CHECK_NUMBER(0, read_all());
        CHECK_NUMBER(0, send(ours, "still", 5, FL_SEND_FLAGS) - 5);
        times = 0;
        told_of(&ours, &times);
        CHECK(times < 3);
        hang_up();
    }
}

/* Else a request would be run for nobody: nothing else looks for it while one waits. */
static void an_end_behind_bytes_that_were_told_of_is_told_before_they_are_read(void) {
    connect_tcp();
    CHECK_NUMBER(0, fl_poll_add_connection(&poller, ours, &ours));
    CHECK_NUMBER(1, send(theirs, "a", 1, 0));
    CHECK_TOLD(FL_READABLE, &ours);
    shutdown(theirs, SHUT_WR);
    int times = 0;
    CHECK(told_of(&ours, &times) & FL_HALF_CLOSED);
    hang_up();
}

static void our_own_end_is_not_taken_for_theirs(void) {
    connect_tcp();
    CHECK_NUMBER(0, fl_poll_add_connection(&poller, ours, &ours));
    CHECK_NUMBER(0, fl_poll_want_writable(&poller, ours, &ours));
    CHECK_TOLD(FL_WRITABLE, &ours);
    shutdown(ours, SHUT_WR);
    int times = 0;
    CHECK_NUMBER(0, told_of(&ours, &times) & (FL_BROKEN | FL_HALF_CLOSED));
    hang_up();
}

static void a_reset_is_told_as_that(void) {
    connect_tcp();
    CHECK_NUMBER(0, fl_poll_add_connection(&poller, ours, &ours));
    struct linger at_once = {.l_onoff = 1};
    setsockopt(theirs, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(theirs);
    theirs = -1;
    int times = 0;
    CHECK(told_of(&ours, &times) & FL_BROKEN);
    hang_up();
}

static void a_listener_is_told_until_nobody_waits_there(void) {
    struct sockaddr_in address;
    int listener = listen_somewhere(&address), clients[2], accepted[2];
    CHECK_NUMBER(0, fl_poll_add_listener(&poller, listener, &listener));
    CHECK_TOLD(0, &listener);
    for (int i = 0; i < 2; i++) clients[i] = connect_to(&address);
    for (int i = 0; i < 2; i++) {
        fl_event event[FL_POLL_EVENTS];
        bool woken;
        for (int k = 0; k < 3; k++) { /* asked thrice, told thrice */
            CHECK_NUMBER(1, fl_poll_wait(&poller, event, SECOND, &woken));
            CHECK(event[0].data == &listener && event[0].ready == FL_READABLE);
        }
        CHECK_SHOWS(true, 1000);
        accepted[i] = fl_accept(listener, NULL, NULL);
        CHECK(accepted[i] >= 0);
    }
    CHECK_TOLD(0, &listener);
    CHECK_NUMBER(0, fl_poll_remove(&poller, listener));
    for (int i = 0; i < 2; i++) {
        close(clients[i]);
        close(accepted[i]);
    }
    close(listener);
}

static void a_reader_is_told_until_all_is_read(void) {
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
    CHECK_TOLD(0, &ours);
    hang_up();
}

static void nothing_is_told_of_what_was_removed(void) {
    connect_pair(SOCK_STREAM);
    CHECK_NUMBER(0, fl_poll_add_connection(&poller, ours, &ours));
    CHECK_NUMBER(0, fl_poll_want_writable(&poller, ours, &ours));
    CHECK_NUMBER(1, send(theirs, "a", 1, 0));
    CHECK_SHOWS(true, 1000);
    CHECK_NUMBER(0, fl_poll_remove(&poller, ours));
    CHECK_TOLD(0, &ours);
    CHECK_NUMBER(1, send(theirs, "b", 1, 0));
    CHECK_TOLD(0, &ours);
    CHECK_SHOWS(false, 20);
    CHECK_NUMBER(0, fl_poll_add_connection(&poller, ours, &theirs)); /* it may be somebody else's by then */
    CHECK_TOLD(FL_READABLE, &theirs);
    CHECK_TOLD(0, &ours);
    hang_up();
    CHECK(fl_poll_remove(&poller, ours) < 0);
}

static void its_descriptor_is_readable_while_anything_is_ready(void) {
    connect_pair(SOCK_STREAM);
    CHECK_NUMBER(0, fl_poll_add_connection(&poller, ours, &ours));
    CHECK_TOLD(0, &ours);
    CHECK_SHOWS(false, 20);
    for (int i = 0; i < 3; i++) {
        CHECK_NUMBER(1, send(theirs, "a", 1, 0));
        CHECK_SHOWS(true, 5000);
        CHECK_SHOWS(true, 0); /* until somebody looks */
        CHECK_TOLD(FL_READABLE, &ours);
        CHECK_SHOWS(false, 20);
        read_all();
    }
    hang_up();
}

#ifndef LIBKQUEUE
static void it_can_be_waited_for_by_another_one(void) {
    fl_poll outer;
    fl_event events[FL_POLL_EVENTS];
    bool woken;
    CHECK_NUMBER(0, fl_poll_open(&outer));
    connect_pair(SOCK_STREAM);
    CHECK_NUMBER(0, fl_poll_add_connection(&poller, ours, &ours));
    CHECK_TOLD(0, &ours);
    CHECK_NUMBER(0, fl_poll_add_reader(&outer, poller.descriptor, &outer));
    CHECK_NUMBER(0, fl_poll_wait(&outer, events, 20 * MILLISECOND, &woken));
    CHECK_NUMBER(1, send(theirs, "a", 1, 0));
    CHECK_NUMBER(1, fl_poll_wait(&outer, events, 5 * SECOND, &woken));
    CHECK(events[0].data == &outer);
    CHECK_TOLD(FL_READABLE, &ours);
    CHECK_NUMBER(0, fl_poll_wait(&outer, events, 20 * MILLISECOND, &woken));
    fl_poll_remove(&outer, poller.descriptor);
    fl_poll_close(&outer);
    hang_up();
}
#endif

static void a_timer_shows_at_its_time_and_once(void) {
    fl_event events[FL_POLL_EVENTS];
    bool woken;
    uint64_t at = fl_clock() + 30 * MILLISECOND;
    CHECK_NUMBER(0, fl_poll_set_timer(&poller, at));
    CHECK_SHOWS(true, 5000);
    CHECK_NUMBER(0, fl_poll_wait(&poller, events, 5 * SECOND, &woken));
    CHECK(woken && fl_clock() >= at);
    CHECK_SHOWS(false, 20);

    at = fl_clock() + 30 * MILLISECOND;
    CHECK_NUMBER(0, fl_poll_set_timer(&poller, at));
    CHECK_NUMBER(0, fl_poll_wait(&poller, events, -1, &woken)); /* likewise while it is waited here */
    CHECK(woken && fl_clock() >= at);
    CHECK_NUMBER(0, fl_poll_wait(&poller, events, 80 * MILLISECOND, &woken)); /* nor after the same time again */
    CHECK(!woken);
}

static void a_timer_can_be_set_anew(void) {
    fl_event events[FL_POLL_EVENTS];
    bool woken;
    CHECK_NUMBER(0, fl_poll_set_timer(&poller, fl_clock() + 60 * (uint64_t) SECOND));
    CHECK_NUMBER(0, fl_poll_set_timer(&poller, fl_clock() + 10 * MILLISECOND)); /* earlier */
    CHECK_NUMBER(0, fl_poll_wait(&poller, events, 5 * SECOND, &woken));
    CHECK(woken);
    CHECK_NUMBER(0, fl_poll_set_timer(&poller, fl_clock() + 10 * MILLISECOND));
    CHECK_NUMBER(0, fl_poll_set_timer(&poller, fl_clock() + 60 * (uint64_t) SECOND)); /* later */
    CHECK_NUMBER(0, fl_poll_wait(&poller, events, 100 * MILLISECOND, &woken));
    CHECK(!woken);
    CHECK_NUMBER(0, fl_poll_set_timer(&poller, fl_clock() - 1)); /* it is time */
    CHECK_SHOWS(true, 5000);
    CHECK_NUMBER(0, fl_poll_wait(&poller, events, 5 * SECOND, &woken));
    CHECK(woken);
}

static void waiting_ends_when_its_time_is_up(void) {
    fl_event events[FL_POLL_EVENTS];
    bool woken = true;
    uint64_t before = fl_clock();
    CHECK_NUMBER(0, fl_poll_wait(&poller, events, 30 * MILLISECOND, &woken));
    CHECK(!woken && fl_clock() - before >= 30 * MILLISECOND);
    CHECK_NUMBER(0, fl_poll_wait(&poller, events, 0, &woken));
    CHECK(!woken);
}

static void a_wake_up_before_the_wait_ends_it(void) {
    fl_event events[FL_POLL_EVENTS];
    bool woken;
    for (int i = 0; i < 3; i++) fl_poll_wake(&poller);
    CHECK_SHOWS(true, 1000);
    CHECK_NUMBER(0, fl_poll_wait(&poller, events, -1, &woken));
    CHECK(woken);
    CHECK_NUMBER(0, fl_poll_wait(&poller, events, 20 * MILLISECOND, &woken)); /* however often it was woken */
    CHECK(!woken);
}

static void *wait_for_ever(void *data) {
    fl_event events[FL_POLL_EVENTS];
    bool woken;
    int count = fl_poll_wait(&poller, events, -1, &woken);
    *(void **) data = count > 0 ? events[0].data : NULL;
    return woken ? data : NULL;
}

static void who_waits_is_woken_by_another_thread_and_by_what_that_adds(void) {
    for (int i = 0; i < 4; i++) {
        pthread_t thread;
        void *found = &poller, *woken;
        connect_pair(SOCK_STREAM);
        if (i == 2) /* it is there, and nobody has asked for room yet */
            CHECK_NUMBER(0, fl_poll_add_connection(&poller, ours, &ours));
        pthread_create(&thread, NULL, wait_for_ever, &found);
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * MILLISECOND}, NULL); /* so that it waits, most likely */
        if (i == 0)
            fl_poll_wake(&poller);
        if (i == 1 || i == 3)
            CHECK_NUMBER(0, fl_poll_add_connection(&poller, ours, &ours));
        if (i == 2)
            CHECK_NUMBER(0, fl_poll_want_writable(&poller, ours, &ours));
        if (i == 1)
            CHECK_NUMBER(1, send(theirs, "a", 1, 0));
        if (i == 3)
            CHECK_NUMBER(0, fl_poll_set_timer(&poller, fl_clock() + 5 * MILLISECOND));
        pthread_join(thread, &woken);
        CHECK(woken != NULL);
        CHECK(found == (i == 0 || i == 3 ? NULL : (void *) &ours));
        hang_up();
    }
}

static _Atomic int interruptions;
static void interrupted(int signal) {
    (void) signal;
    interruptions++;
    fl_poll_wake(&poller);
}

static void it_is_woken_from_a_signal_handler(void) {
    struct sigaction action = {.sa_handler = interrupted}, before;
    sigaction(SIGALRM, &action, &before);
    fl_event events[FL_POLL_EVENTS];
    bool woken = false;
    alarm(1);
    for (int i = 0; i < 3 && !woken; i++) CHECK_NUMBER(0, fl_poll_wait(&poller, events, -1, &woken));
    CHECK(woken);
    CHECK_NUMBER(1, interruptions);
    sigaction(SIGALRM, &before, NULL);
}

static void more_than_fit_into_one_wait_are_told_each_once(void) {
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

static void a_child_that_forgets_it_leaves_the_parent_alone(void) {
    connect_pair(SOCK_STREAM);
    CHECK_NUMBER(0, fl_poll_add_connection(&poller, ours, &ours));
    pid_t child = fork();
    if (child == 0) {
        fl_poll_forget(&poller);
        _exit(poller.descriptor < 0 ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK_NUMBER(0, status);
    CHECK_TOLD(0, &ours);
    CHECK_NUMBER(1, send(theirs, "a", 1, 0));
    CHECK_TOLD(FL_READABLE, &ours);
    hang_up();
}

#ifndef LIBKQUEUE
static void it_is_opened_and_closed_without_a_trace(void) {
    int before = dup(0);
    close(before);
    for (int i = 0; i < 3; i++) {
        fl_poll one;
        CHECK_NUMBER(0, fl_poll_open(&one));
        fl_poll_close(&one);
        CHECK(one.descriptor < 0);
        fl_poll_close(&one); /* nothing happens */
    }
    int after = dup(0);
    CHECK_NUMBER(before, after);
    close(after);
}
#endif

int main(void) {
    static const struct {
        const char *name;
        void (*run)(void);
    } tests[] = {
#define ROW(name) {#name, name}
        ROW(bytes_are_told_once),
        ROW(bytes_that_were_there_before_it_was_added_are_told),
        ROW(bytes_that_come_before_it_is_said_that_all_is_read_are_told),
        ROW(room_is_told_only_to_who_wants_it_and_then_whenever_it_comes),
        ROW(an_end_is_told_and_no_more_said),
        ROW(an_end_behind_bytes_that_were_told_of_is_told_before_they_are_read),
        ROW(our_own_end_is_not_taken_for_theirs),
        ROW(a_reset_is_told_as_that),
        ROW(a_listener_is_told_until_nobody_waits_there),
        ROW(a_reader_is_told_until_all_is_read),
        ROW(nothing_is_told_of_what_was_removed),
        ROW(its_descriptor_is_readable_while_anything_is_ready),
#ifndef LIBKQUEUE
        ROW(it_can_be_waited_for_by_another_one),
        ROW(it_is_opened_and_closed_without_a_trace),
#endif
        ROW(a_timer_shows_at_its_time_and_once),
        ROW(a_timer_can_be_set_anew),
        ROW(waiting_ends_when_its_time_is_up),
        ROW(a_wake_up_before_the_wait_ends_it),
        ROW(who_waits_is_woken_by_another_thread_and_by_what_that_adds),
        ROW(it_is_woken_from_a_signal_handler),
        ROW(more_than_fit_into_one_wait_are_told_each_once),
        ROW(a_child_that_forgets_it_leaves_the_parent_alone),
#undef ROW
    };
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        if (fl_poll_open(&poller) < 0)
            abort();
        test_begin(tests[i].name);
        tests[i].run();
        test_end();
        fl_poll_close(&poller);
    }
    return test_summary();
}
