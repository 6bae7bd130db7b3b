/* What POSIX has where Linux has something better; of threads, what macOS says itself. */
#include "platform.h"

#ifndef FL_LINUX
#include <pthread.h>

int fl_notifier_open(fl_notifier *bell) {
    int ends[2];
    *bell = (fl_notifier) {-1, -1};
    if (pipe(ends) < 0)
        return -1;
    *bell = (fl_notifier) {ends[0], ends[1]};
    if (fl_close_on_exec_nonblocking(ends[0]) == 0 && fl_close_on_exec_nonblocking(ends[1]) == 0)
        return 0;
    fl_notifier_close(bell);
    return -1;
}

void fl_notifier_notify(const fl_notifier *bell) {
    (void) !write(bell->ringing, "", 1); /* full: it has been rung often enough */
}

void fl_notifier_close(fl_notifier *bell) {
    if (bell->listening >= 0)
        close(bell->listening);
    if (bell->ringing >= 0)
        close(bell->ringing);
    *bell = (fl_notifier) {-1, -1};
}

#ifdef __APPLE__
#include <mach/mach.h>

fl_task fl_task_self(void) {
    return (fl_task) {.id = (int) pthread_mach_thread_np(pthread_self())};
}

static bool look(const fl_task *task, thread_basic_info_data_t *found) {
    mach_msg_type_number_t size = THREAD_BASIC_INFO_COUNT;
    return thread_info((thread_act_t) task->id, THREAD_BASIC_INFO, (thread_info_t) found, &size) == KERN_SUCCESS;
}

uint64_t fl_task_clock(const fl_task *task) {
    thread_basic_info_data_t found;
    if (!look(task, &found))
        return 0;
    return (uint64_t) (found.user_time.seconds + found.system_time.seconds) * 1000000 +
           (uint64_t) (found.user_time.microseconds + found.system_time.microseconds);
}

bool fl_task_sleeps(const fl_task *task) {
    thread_basic_info_data_t found;
    return look(task, &found) && (found.run_state == TH_STATE_WAITING || found.run_state == TH_STATE_UNINTERRUPTIBLE);
}

bool fl_task_waits_for_machine(const fl_task *task) {
    thread_basic_info_data_t found;
    return look(task, &found) && found.run_state == TH_STATE_UNINTERRUPTIBLE;
}

#else

enum { STILL = 2000000 }; /* nanoseconds in which a thread that computes has been seen to */

fl_task fl_task_self(void) {
    fl_task task = {0};
    pthread_getcpuclockid(pthread_self(), &task.clock);
    return task;
}

/* One that the machine has not let run meanwhile is taken for one that sleeps: nobody here can tell. */
bool fl_task_sleeps(const fl_task *task) {
    uint64_t before = fl_task_clock(task);
    struct timespec pause = {.tv_nsec = STILL};
    nanosleep(&pause, NULL);
    return before != 0 && fl_task_clock(task) == before;
}

bool fl_task_waits_for_machine(const fl_task *task) {
    (void) task;
    return false;
}
#endif

int fl_process_descriptor(int pid) {
    (void) pid;
    return -1;
}

uint64_t fl_task_delayed(const fl_task *task) {
    (void) task;
    return 0;
}

#endif
