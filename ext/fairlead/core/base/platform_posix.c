/* The POSIX implementation, and macOS' thread information. */
#include "platform.h"

#ifndef FL_LINUX
#include <pthread.h>

int fl_notifier_open(fl_notifier *notifier) {
    int ends[2];
    *notifier = (fl_notifier) {-1, -1};
    if (pipe(ends) < 0)
        return -1;
    *notifier = (fl_notifier) {ends[0], ends[1]};
    if (fl_close_on_exec_nonblocking(ends[0]) == 0 && fl_close_on_exec_nonblocking(ends[1]) == 0)
        return 0;
    fl_notifier_close(notifier);
    return -1;
}

void fl_notifier_notify(const fl_notifier *notifier) {
    (void) !write(notifier->write_end, "", 1); /* EAGAIN: notifications are pending */
}

void fl_notifier_close(fl_notifier *notifier) {
    if (notifier->read_end >= 0)
        close(notifier->read_end);
    if (notifier->write_end >= 0)
        close(notifier->write_end);
    *notifier = (fl_notifier) {-1, -1};
}

#ifdef __APPLE__
#include <mach/mach.h>

fl_task fl_task_self(void) {
    return (fl_task) {.id = (int) pthread_mach_thread_np(pthread_self())};
}

static bool get_info(const fl_task *task, thread_basic_info_data_t *found) {
    mach_msg_type_number_t size = THREAD_BASIC_INFO_COUNT;
    return thread_info((thread_act_t) task->id, THREAD_BASIC_INFO, (thread_info_t) found, &size) == KERN_SUCCESS;
}

uint64_t fl_task_clock(const fl_task *task) {
    thread_basic_info_data_t found;
    if (!get_info(task, &found))
        return 0;
    return (uint64_t) (found.user_time.seconds + found.system_time.seconds) * 1000000 +
           (uint64_t) (found.user_time.microseconds + found.system_time.microseconds);
}

bool fl_task_sleeps(const fl_task *task) {
    thread_basic_info_data_t found;
    return get_info(task, &found) && (found.run_state == TH_STATE_WAITING || found.run_state == TH_STATE_UNINTERRUPTIBLE);
}

bool fl_task_is_uninterruptible(const fl_task *task) {
    thread_basic_info_data_t found;
    return get_info(task, &found) && found.run_state == TH_STATE_UNINTERRUPTIBLE;
}

#else

enum { OBSERVATION = 2000000 }; /* nanoseconds */

fl_task fl_task_self(void) {
    fl_task task = {0};
    pthread_getcpuclockid(pthread_self(), &task.clock);
    return task;
}

/* A thread that has waited for a CPU all the time counts as asleep, too: POSIX cannot tell them apart. */
bool fl_task_sleeps(const fl_task *task) {
    uint64_t before = fl_task_clock(task);
    struct timespec pause = {.tv_nsec = OBSERVATION};
    nanosleep(&pause, NULL);
    return before != 0 && fl_task_clock(task) == before;
}

bool fl_task_is_uninterruptible(const fl_task *task) {
    (void) task;
    return false;
}
#endif

int fl_memory_descriptor(const char *name, size_t size) {
    (void) name, (void) size;
    return -1;
}

int fl_process_descriptor(int pid) {
    (void) pid;
    return -1;
}

uint64_t fl_task_run_delay(const fl_task *task) {
    (void) task;
    return 0;
}

#endif
