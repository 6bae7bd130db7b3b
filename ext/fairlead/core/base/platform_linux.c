#include "platform.h"

#ifdef FL_LINUX
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

int fl_notifier_open(fl_notifier *notifier) {
    notifier->read_end = notifier->write_end = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return notifier->read_end < 0 ? -1 : 0;
}

void fl_notifier_notify(const fl_notifier *notifier) {
    uint64_t one = 1;
    (void) !write(notifier->write_end, &one, sizeof one); /* EAGAIN: a notification is pending */
}

void fl_notifier_close(fl_notifier *notifier) {
    if (notifier->read_end >= 0)
        close(notifier->read_end);
    notifier->read_end = notifier->write_end = -1;
}

fl_task fl_task_self(void) {
    fl_task task = {.id = (int) syscall(SYS_gettid)};
    pthread_getcpuclockid(pthread_self(), &task.clock);
    return task;
}

/* Reads a file of /proc/self/task; empty if the thread has ended. */
static const char *read_proc(const fl_task *task, const char *name, char text[512]) {
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
    const char *end = strrchr(read_proc(task, "stat", text), ')');
    return end != NULL && end[1] == ' ' ? end[2] : 'X';
}

bool fl_task_sleeps(const fl_task *task) {
    char state = state_of(task);
    return state == 'S' || state == 'D';
}

int fl_memory_descriptor(const char *name, size_t size) {
    int descriptor = (int) syscall(SYS_memfd_create, name, 1u /* MFD_CLOEXEC */);
    if (descriptor >= 0 && ftruncate(descriptor, (off_t) size) < 0) {
        close(descriptor);
        return -1;
    }
    return descriptor;
}

int fl_process_descriptor(int pid) {
    return (int) syscall(SYS_pidfd_open, pid, 0); /* the kernel sets close-on-exec */
}

bool fl_task_is_uninterruptible(const fl_task *task) {
    return state_of(task) == 'D';
}

uint64_t fl_task_run_delay(const fl_task *task) {
    char text[512], *end; /* nanoseconds on a CPU, nanoseconds waiting for one, … */
    strtoull(read_proc(task, "schedstat", text), &end, 10);
    return strtoull(end, NULL, 10) / 1000;
}

#endif
