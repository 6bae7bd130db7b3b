/* What each system answers in its own way: the same is wanted of all. */
#include "base/platform.h"
#include "test.h"

#include <pthread.h>
#include <sched.h>
#include <sys/poll.h>
#include <sys/wait.h>

enum { MILLISECOND = 1000, SECOND = 1000000 };

static bool readable(int descriptor, int milliseconds) {
    struct pollfd asked = {.fd = descriptor, .events = POLLIN};
    return poll(&asked, 1, milliseconds) == 1;
}

static void a_notification_is_pending_until_it_is_read(void) {
    fl_notifier notifier;
    char bytes[64];
    CHECK_NUMBER(0, fl_notifier_open(&notifier));
    CHECK(!readable(notifier.read_end, 0));
    for (int i = 0; i < 3; i++) fl_notifier_notify(&notifier);
    CHECK(readable(notifier.read_end, 1000));
    CHECK(read(notifier.read_end, bytes, sizeof bytes) > 0);
    CHECK(!readable(notifier.read_end, 0));
    CHECK(read(notifier.read_end, bytes, sizeof bytes) < 0 && errno == EAGAIN);
    fl_notifier_notify(&notifier);
    CHECK(readable(notifier.read_end, 1000));
    fl_notifier_close(&notifier);
    CHECK(notifier.read_end < 0 && notifier.write_end < 0);
    fl_notifier_close(&notifier);
}

static void nobody_has_to_hear_a_bell(void) {
    fl_notifier notifier;
    CHECK_NUMBER(0, fl_notifier_open(&notifier));
    for (int i = 0; i < 100000; i++) fl_notifier_notify(&notifier); /* and it does not wait for anybody */
    CHECK(readable(notifier.read_end, 1000));
    fl_notifier_close(&notifier);
}

static void a_bell_is_not_for_programs_that_are_started(void) {
    fl_notifier notifier;
    CHECK_NUMBER(0, fl_notifier_open(&notifier));
    CHECK(fcntl(notifier.read_end, F_GETFD) & FD_CLOEXEC);
    CHECK(fcntl(notifier.write_end, F_GETFD) & FD_CLOEXEC);
    fl_notifier_close(&notifier);
}

/* Another thread, which waits or computes as it is told. */
static struct {
    fl_task task;
    _Atomic bool computes, starts, known, ends;
} other;

/* As a process that has not come to begin yet. */
static void starts_a_process(void) {
    pid_t child = vfork();
    if (child == 0) {
        nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * MILLISECOND}, NULL);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void *other_runs(void *unused) {
    (void) unused;
    other.task = fl_task_self();
    other.known = true;
    while (!other.ends)
        if (other.starts)
            starts_a_process();
        else if (!other.computes)
            nanosleep(&(struct timespec){.tv_nsec = 5 * 1000 * MILLISECOND}, NULL);
    return NULL;
}

static uint64_t used_in(int milliseconds) {
    uint64_t before = fl_task_clock(&other.task);
    nanosleep(&(struct timespec){.tv_nsec = (long) milliseconds * 1000 * MILLISECOND}, NULL);
    return fl_task_clock(&other.task) - before;
}

/* On a machine with much else to do, one that would like to compute, or to wait, may not be let for long. */
static bool is_once(bool (*asked)(const fl_task *), bool answer) {
    for (uint64_t give_up = fl_clock() + 5 * SECOND; fl_clock() < give_up; used_in(1))
        if (asked(&other.task) == answer)
            return true;
    return false;
}

static void one_that_waits_is_told_from_one_that_computes(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, other_runs, NULL);
    while (!other.known) continue;
    CHECK(is_once(fl_task_sleeps, true));
    CHECK(used_in(50) < 25 * MILLISECOND);
    other.computes = true;
    CHECK(is_once(fl_task_sleeps, false));
    uint64_t used = 0;
    for (int i = 0; i < 250 && used < 20 * MILLISECOND; i++) used += used_in(20);
    CHECK(used >= 20 * MILLISECOND);
    CHECK(!fl_task_is_uninterruptible(&other.task));
#ifdef FL_LINUX
    other.starts = true;
    CHECK(is_once(fl_task_is_uninterruptible, true));
#endif
    other.ends = true;
    pthread_join(thread, NULL);
}

static void packets_are_kept_apart(void) {
    int ends[2];
    char bytes[128];
    static const char large[64000];
    CHECK_NUMBER(0, socketpair(AF_UNIX, FL_PACKETS, 0, ends));
    CHECK_NUMBER(3, send(ends[0], "one", 3, 0));
    CHECK_NUMBER(5, send(ends[0], "three", 5, 0));
    CHECK_NUMBER(3, recv(ends[1], bytes, sizeof bytes, 0));
    CHECK_NUMBER(5, recv(ends[1], bytes, sizeof bytes, 0));
    for (int i = 0, room = 4 * sizeof large; i < 2; i++) { /* macOS takes 2 KB otherwise */
        setsockopt(ends[i], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
        setsockopt(ends[i], SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    }
    CHECK_NUMBER(sizeof large, send(ends[0], large, sizeof large, MSG_DONTWAIT));
    ssize_t last, sent = 1;
    while ((last = send(ends[0], large, sizeof large, MSG_DONTWAIT)) > 0 && sent < 1000) sent++;
    CHECK(last < 0); /* one that finds no room does not wait, and nothing of it is sent */
    static char received[sizeof large + 1];
    for (; sent > 0; sent--) CHECK_NUMBER(sizeof large, recv(ends[1], received, sizeof received, MSG_DONTWAIT));
    CHECK(recv(ends[1], received, sizeof received, MSG_DONTWAIT) < 0);
    close(ends[0]);
    close(ends[1]);
}

int main(void) {
    TEST(a_notification_is_pending_until_it_is_read);
    TEST(nobody_has_to_hear_a_bell);
    TEST(a_bell_is_not_for_programs_that_are_started);
    TEST(one_that_waits_is_told_from_one_that_computes);
    TEST(packets_are_kept_apart);
    return test_summary();
}
