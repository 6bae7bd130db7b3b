/* Timers, timeouts and wake-ups of a poll; forks and closing. Every backend has to pass: make test, make fallbacks, make kqueue. */
#include "poll_fixture.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

static void a_timer_fires_at_its_time_and_once(void) {
    fl_event events[FL_POLL_EVENTS];
    bool woken;
    uint64_t at = fl_clock() + 30 * MILLISECOND;
    CHECK_NUMBER(0, fl_poll_set_timer(&poller, at));
    CHECK_PENDING(true, 5000);
    CHECK_NUMBER(0, fl_poll_wait(&poller, events, 5 * SECOND, &woken));
    CHECK(woken && fl_clock() >= at);
    CHECK_PENDING(false, 20);

    at = fl_clock() + 30 * MILLISECOND;
    CHECK_NUMBER(0, fl_poll_set_timer(&poller, at));
    CHECK_NUMBER(0, fl_poll_wait(&poller, events, -1, &woken)); /* the same in a wait */
    CHECK(woken && fl_clock() >= at);
    CHECK_NUMBER(0, fl_poll_wait(&poller, events, 80 * MILLISECOND, &woken)); /* it does not repeat */
    CHECK(!woken);
}

static void a_timer_can_be_set_again(void) {
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
    CHECK_NUMBER(0, fl_poll_set_timer(&poller, fl_clock() - 1)); /* in the past */
    CHECK_PENDING(true, 5000);
    CHECK_NUMBER(0, fl_poll_wait(&poller, events, 5 * SECOND, &woken));
    CHECK(woken);
}

static void a_wait_ends_at_its_timeout(void) {
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
    CHECK_PENDING(true, 1000);
    CHECK_NUMBER(0, fl_poll_wait(&poller, events, -1, &woken));
    CHECK(woken);
    CHECK_NUMBER(0, fl_poll_wait(&poller, events, 20 * MILLISECOND, &woken)); /* three wake-ups are one */
    CHECK(!woken);
}

static void *wait_for_ever(void *data) {
    fl_event events[FL_POLL_EVENTS];
    bool woken;
    int count = fl_poll_wait(&poller, events, -1, &woken);
    *(void **) data = count > 0 ? events[0].data : NULL;
    return woken ? data : NULL;
}

static void another_thread_ends_the_wait_with_a_wake_up_or_a_new_event(void) {
    for (int i = 0; i < 4; i++) {
        pthread_t thread;
        void *found = &poller, *woken;
        connect_pair(SOCK_STREAM);
        if (i == 2) /* added, but not for writability */
            CHECK_NUMBER(0, fl_poll_add_connection(&poller, ours, &ours));
        pthread_create(&thread, NULL, wait_for_ever, &found);
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * MILLISECOND}, NULL); /* most likely, the thread waits by then */
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

static void a_signal_handler_may_wake_it(void) {
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

static void a_child_that_forgets_it_does_not_affect_the_parent(void) {
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
    CHECK_EVENTS(0, &ours);
    CHECK_NUMBER(1, send(theirs, "a", 1, 0));
    CHECK_EVENTS(FL_READABLE, &ours);
    hang_up();
}

#ifndef LIBKQUEUE
static void opening_and_closing_leaks_no_descriptor(void) {
    int before = dup(0);
    close(before);
    for (int i = 0; i < 3; i++) {
        fl_poll one;
        CHECK_NUMBER(0, fl_poll_open(&one));
        fl_poll_close(&one);
        CHECK(one.descriptor < 0);
        fl_poll_close(&one); /* no error */
    }
    int after = dup(0);
    CHECK_NUMBER(before, after);
    close(after);
}
#endif

int main(void) {
    POLL_TEST(a_timer_fires_at_its_time_and_once);
    POLL_TEST(a_timer_can_be_set_again);
    POLL_TEST(a_wait_ends_at_its_timeout);
    POLL_TEST(a_wake_up_before_the_wait_ends_it);
    POLL_TEST(another_thread_ends_the_wait_with_a_wake_up_or_a_new_event);
    POLL_TEST(a_signal_handler_may_wake_it);
    POLL_TEST(a_child_that_forgets_it_does_not_affect_the_parent);
#ifndef LIBKQUEUE
    POLL_TEST(opening_and_closing_leaks_no_descriptor);
#endif
    return test_summary();
}
