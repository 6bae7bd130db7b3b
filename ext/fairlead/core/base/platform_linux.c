#include "platform.h"

#ifdef FL_LINUX
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

int fl_notifier_open(fl_notifier *bell) {
    bell->listening = bell->ringing = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return bell->listening < 0 ? -1 : 0;
}

void fl_notifier_notify(const fl_notifier *bell) {
    uint64_t one = 1;
    (void) !write(bell->ringing, &one, sizeof one); /* full: it has been rung already */
}

void fl_notifier_close(fl_notifier *bell) {
    if (bell->listening >= 0)
        close(bell->listening);
    bell->listening = bell->ringing = -1;
}

fl_task fl_task_self(void) {
    fl_task task = {.id = (int) syscall(SYS_gettid)};
    pthread_getcpuclockid(pthread_self(), &task.clock);
    return task;
}

/* What the kernel tells of it in such a file; empty: nothing, or it has ended. */
static const char *tell_of(const fl_task *task, const char *name, char text[512]) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/%s", task->id, name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = file < 0 ? 0 : read(file, text, 511);
    if (file >= 0)
        close(file);
    text[size > 0 ? size : 0] = '\0';
    return text;
}

static char state_of(const fl_task *task) {
    char text[512];
    const char *end = strrchr(tell_of(task, "stat", text), ')');
    return end != NULL && end[1] == ' ' ? end[2] : 'X';
}

/* S and D wait; R does not. */
bool fl_task_sleeps(const fl_task *task) {
    char state = state_of(task);
    return state == 'S' || state == 'D';
}

int fl_process_descriptor(int pid) {
    return (int) syscall(SYS_pidfd_open, pid, 0); /* closed on exec */
}

bool fl_task_waits_for_machine(const fl_task *task) {
    return state_of(task) == 'D';
}

uint64_t fl_task_delayed(const fl_task *task) {
    char text[512], *end; /* nanoseconds on a CPU, nanoseconds waiting for one, … */
    strtoull(tell_of(task, "schedstat", text), &end, 10);
    return strtoull(end, NULL, 10) / 1000;
}

#endif
