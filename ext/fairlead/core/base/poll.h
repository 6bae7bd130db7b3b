/* Reports which descriptors are ready. Backends: poll_epoll.c for Linux, poll_kqueue.c for macOS and BSD; platform.h chooses.
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
    FL_HALF_CLOSED = 4, /* the peer has ended its side; not every system reports it before all data is read */
    FL_BROKEN = 8,      /* reset; on Linux also if both sides have ended */
};

typedef struct fl_event {
    void *data;
    uint32_t ready;
} fl_event;

enum { FL_POLL_EVENTS = 256 };

typedef struct fl_poll {
    int descriptor; /* readable when an event is ready, so that another poll can wait for it */
    int wake;
    int timer;
} fl_poll;

int fl_poll_open(fl_poll *poll);
void fl_poll_close(fl_poll *poll);

/* Closes the poll in the child of a fork, without a change to the parent's. */
void fl_poll_forget(fl_poll *poll);

/* Watches a listener, level-triggered. The kernel wakes as few as possible of the processes that watch it. */
int fl_poll_add_listener(fl_poll *poll, int descriptor, void *data);

/* Watches a connection, edge-triggered. The poll reports writability only after fl_poll_want_writable, also if the descriptor is writable
 * at that time. Several events may report one change. */
int fl_poll_add_connection(fl_poll *poll, int descriptor, void *data);
int fl_poll_want_writable(fl_poll *poll, int descriptor, void *data);

/* Watches any other descriptor for reading, level-triggered. */
int fl_poll_add_reader(fl_poll *poll, int descriptor, void *data);

int fl_poll_remove(fl_poll *poll, int descriptor);

/* Makes the poll's descriptor readable at this time of fl_clock. The next wait clears it. */
int fl_poll_set_timer(fl_poll *poll, uint64_t at);

void fl_poll_wake(fl_poll *poll);

/* Waits up to `microseconds` (negative: no limit) and fills `events`, at most FL_POLL_EVENTS. Returns how many; 0 also after a wake-up,
 * a timeout or a signal. Sets `woken` if there was any event, wake-up or timer. */
int fl_poll_wait(fl_poll *poll, fl_event *events, int64_t microseconds, bool *woken);

#endif
