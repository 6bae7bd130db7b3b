/* The functions that each system implements in its own way. */
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

static void notifying_never_blocks(void) {
    fl_notifier notifier;
    CHECK_NUMBER(0, fl_notifier_open(&notifier));
    for (int i = 0; i < 100000; i++) fl_notifier_notify(&notifier);
    CHECK(readable(notifier.read_end, 1000));
    fl_notifier_close(&notifier);
}

static void a_notifier_is_close_on_exec(void) {
    fl_notifier notifier;
    CHECK_NUMBER(0, fl_notifier_open(&notifier));
    CHECK(fcntl(notifier.read_end, F_GETFD) & FD_CLOEXEC);
    CHECK(fcntl(notifier.write_end, F_GETFD) & FD_CLOEXEC);
    fl_notifier_close(&notifier);
}

/* Another thread, which the test makes sleep, compute, or start a process. */
static struct {
    fl_task task;
    _Atomic bool computes, starts, known, ends;
} other;

/* vfork suspends the thread until the child exits. */
static void start_process(void) {
    pid_t child = vfork();
    if (child == 0) {
        nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * MILLISECOND}, NULL);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void *run_other(void *unused) {
    (void) unused;
    other.task = fl_task_self();
    other.known = true;
    while (!other.ends)
        if (other.starts)
            start_process();
        else if (!other.computes)
            nanosleep(&(struct timespec){.tv_nsec = 5 * 1000 * MILLISECOND}, NULL);
    return NULL;
}

static uint64_t used_in(int milliseconds) {
    uint64_t before = fl_task_clock(&other.task);
    nanosleep(&(struct timespec){.tv_nsec = (long) milliseconds * 1000 * MILLISECOND}, NULL);
    return fl_task_clock(&other.task) - before;
}

/* Waits for the result, since a busy machine may delay the thread. */
static bool becomes(bool (*asked)(const fl_task *), bool answer) {
    for (uint64_t give_up = fl_clock() + 5 * SECOND; fl_clock() < give_up; used_in(1))
        if (asked(&other.task) == answer)
            return true;
    return false;
}

static void sleeping_and_computing_threads_are_told_apart(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, run_other, NULL);
    while (!other.known) continue;
    CHECK(becomes(fl_task_sleeps, true));
    CHECK(used_in(50) < 25 * MILLISECOND);
    other.computes = true;
    CHECK(becomes(fl_task_sleeps, false));
    uint64_t used = 0;
    for (int i = 0; i < 250 && used < 20 * MILLISECOND; i++) used += used_in(20);
    CHECK(used >= 20 * MILLISECOND);
    CHECK(!fl_task_is_uninterruptible(&other.task));
#ifdef FL_LINUX
    other.starts = true;
    CHECK(becomes(fl_task_is_uninterruptible, true));
#endif
    other.ends = true;
    pthread_join(thread, NULL);
}

static void packets_preserve_message_boundaries(void) {
    int ends[2];
    char bytes[128];
    static const char large[64000];
    CHECK_NUMBER(0, socketpair(AF_UNIX, FL_PACKETS, 0, ends));
    CHECK_NUMBER(3, send(ends[0], "one", 3, 0));
    CHECK_NUMBER(5, send(ends[0], "three", 5, 0));
    CHECK_NUMBER(3, recv(ends[1], bytes, sizeof bytes, 0));
    CHECK_NUMBER(5, recv(ends[1], bytes, sizeof bytes, 0));
    for (int i = 0, room = 4 * sizeof large; i < 2; i++) { /* the default of macOS is 2 KB */
        setsockopt(ends[i], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
        setsockopt(ends[i], SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    }
    CHECK_NUMBER(sizeof large, send(ends[0], large, sizeof large, MSG_DONTWAIT));
    ssize_t last, sent = 1;
    while ((last = send(ends[0], large, sizeof large, MSG_DONTWAIT)) > 0 && sent < 1000) sent++;
    CHECK(last < 0); /* a packet without room fails at once, as a whole */
    static char received[sizeof large + 1];
    for (; sent > 0; sent--) CHECK_NUMBER(sizeof large, recv(ends[1], received, sizeof received, MSG_DONTWAIT));
    CHECK(recv(ends[1], received, sizeof received, MSG_DONTWAIT) < 0);
    close(ends[0]);
    close(ends[1]);
}

int main(void) {
    TEST(a_notification_is_pending_until_it_is_read);
    TEST(notifying_never_blocks);
    TEST(a_notifier_is_close_on_exec);
    TEST(sleeping_and_computing_threads_are_told_apart);
    TEST(packets_preserve_message_boundaries);
    return test_summary();
}
