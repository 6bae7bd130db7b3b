/* Which descriptors are ready. One backend per file: poll_epoll.c for Linux, poll_kqueue.c for macOS and BSD; platform.h chooses.
 * fl_poll_open allocates descriptors, fl_poll_close frees them. Remove a descriptor before you close it. Events are valid until the next
 * wait. fl_poll_wake may be called from any thread and from signal handlers; the other functions by one thread at a time, but
 * fl_poll_wait may run beside them. On failure they return -1 with errno. */
#ifndef FL_POLL_H
#define FL_POLL_H

#include "platform.h"
#include <stdbool.h>
#include <stdint.h>

enum {
    FL_READABLE = 1,
    FL_WRITABLE = 2,
    FL_HALF_CLOSED = 4, /* the peer sends no more; not every system reports it before all is read */
    FL_BROKEN = 8,      /* reset; on Linux also closed both ways */
};

typedef struct fl_event {
    void *data;
    uint32_t ready;
} fl_event;

enum { FL_POLL_EVENTS = 256 };

typedef struct fl_poll {
    int descriptor; /* readable when anything is ready, so that another poll can wait for it */
    int wake;
    int timer;
} fl_poll;

int fl_poll_open(fl_poll *poll);
void fl_poll_close(fl_poll *poll);

/* The same in the child of a fork: does not touch what the parent uses. */
void fl_poll_forget(fl_poll *poll);

/* Watches a listener, level-triggered. If several processes watch it, as few as possible are woken. */
int fl_poll_add_listener(fl_poll *poll, int descriptor, void *data);

/* Watches a connection, edge-triggered. Writability is reported only after fl_poll_want_writable, which also reports it if it is there
 * already. One change may be reported by several events. */
int fl_poll_add_connection(fl_poll *poll, int descriptor, void *data);
int fl_poll_want_writable(fl_poll *poll, int descriptor, void *data);

/* Watches any other descriptor for reading, level-triggered. */
int fl_poll_add_reader(fl_poll *poll, int descriptor, void *data);

int fl_poll_remove(fl_poll *poll, int descriptor);

/* Makes the descriptor readable at this time of fl_clock. The next wait clears it. */
int fl_poll_set_timer(fl_poll *poll, uint64_t at);

void fl_poll_wake(fl_poll *poll);

/* Waits up to `microseconds` (0: not at all; negative: no limit) and fills `events`, at most FL_POLL_EVENTS. Returns how many; 0 also if
 * it was woken, timed out or interrupted. `woken`: whether anything happened. */
int fl_poll_wait(fl_poll *poll, fl_event *events, int64_t microseconds, bool *woken);

#endif
