/* What the loop asks of the kernel: which descriptors are ready. One backend a file: poll_epoll.c for Linux, poll_kqueue.c
 * for macOS and BSD, poll_poll.c for all that has poll(2); platform.h chooses.
 * fl_poll_open allocates descriptors, fl_poll_close gives them back. Every descriptor is removed before it is closed.
 * Events are valid until the next wait.
 * fl_poll_wake may be called from any thread, also in a signal handler; the others by one thread at a time, except
 * fl_poll_wait may run beside them. Failures are -1 with errno. */
#ifndef FL_POLL_H
#define FL_POLL_H

#include "platform.h"
#include <stdbool.h>
#include <stdint.h>

enum {
    FL_READABLE = 1,
    FL_WRITABLE = 2,
    FL_HALF_CLOSED = 4, /* the peer sends no more, as far as the system tells before all has been read */
    FL_BROKEN = 8,      /* reset; on Linux also closed both ways */
};

typedef struct fl_event {
    void *data;
    uint32_t ready;
} fl_event;

enum { FL_POLL_EVENTS = 256 };

typedef struct fl_poll {
    int descriptor; /* readable when anything below is ready: another poll can wait for it */
    int wake;
    int timer;
    struct fl_poll_set *set; /* where the kernel keeps none for us */
} fl_poll;

int fl_poll_open(fl_poll *poll);
void fl_poll_close(fl_poll *poll);

/* Likewise, in the child of a fork: nothing of the parent's is touched. */
void fl_poll_forget(fl_poll *poll);

/* A listener: level-triggered; of several processes that watch it, as few as possible are woken. */
int fl_poll_add_listener(fl_poll *poll, int descriptor, void *data);

/* A connection: each change is told once (edge-triggered). Writability is told only after fl_poll_want_writable, and from
 * then on. An event may tell of less than there is, and another one of the rest. */
int fl_poll_add_connection(fl_poll *poll, int descriptor, void *data);
int fl_poll_want_writable(fl_poll *poll, int descriptor, void *data);

/* A connection has been read from, or written to, until it would have to wait (FL_READABLE or FL_WRITABLE): the next
 * change is to be told. Only who has to find the edges himself needs to hear it. */
#if FL_POLLER == FL_POLL
void fl_poll_again(fl_poll *poll, int descriptor, uint32_t ready);
#else
static inline void fl_poll_again(fl_poll *poll, int descriptor, uint32_t ready) {
    (void) poll, (void) descriptor, (void) ready;
}
#endif

/* Any other descriptor to read from, level-triggered. */
int fl_poll_add_reader(fl_poll *poll, int descriptor, void *data);

int fl_poll_remove(fl_poll *poll, int descriptor);

/* Makes the descriptor readable at this time of fl_clock; the next wait after it clears it. */
int fl_poll_set_timer(fl_poll *poll, uint64_t at);

void fl_poll_wake(fl_poll *poll);

/* Waits up to `microseconds` (0: not at all; negative: for ever) and fills `events`, FL_POLL_EVENTS of them at the
 * most. Answers how many, 0 also when it was woken, timed out or interrupted. `woken` tells whether anything at all
 * happened. */
int fl_poll_wait(fl_poll *poll, fl_event *events, int64_t microseconds, bool *woken);

#endif
