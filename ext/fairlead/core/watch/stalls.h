/* What is told of stalls: for each reactor that stays away for long, since when, why, and what was done about it.
 * The records are part of the watch, and written by its thread; anybody may read them at any time. Who has been told of
 * one that is over gives it back with fl_stall_reported; until then no other stall of that reactor is recorded.
 * Nothing is allocated, and nothing can fail. */
#ifndef FL_STALLS_H
#define FL_STALLS_H

#include "base/shared_page.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct fl_watch;
struct fl_thread;

typedef enum fl_stall_phase {
    FL_STALL_CALM,
    FL_STALL_OPEN,    /* away, for too short a time yet */
    FL_STALL_LONG,    /* may have to be told: its backtrace should be taken now */
    FL_STALL_LASTING, /* for so long that it is told while it goes on */
    FL_STALL_OVER,    /* to be told */
} fl_stall_phase;

typedef struct fl_stall_record {
    _Atomic int phase;
    _Atomic uint64_t began;            /* of fl_clock: it is known by that */
    _Atomic uint64_t lasted;           /* of one that is over: see fl_stall_lasted */
    _Atomic uint64_t released, asleep, computed; /* microseconds, about: its thread was without the GVL; asleep with
                                                      * it; on a CPU. Else it waited for the GVL, or for the machine */
    _Atomic int wanted;                /* fl_stall: of which kind of time the backtrace should be */
    _Atomic bool foreign;              /* another thread, that serves nothing, has the GVL */
    _Atomic uint64_t passed;           /* what was done: a standby took the lead of that which began then, */
    _Atomic bool relief;               /* a relief worker was asked for, */
    _Atomic uint64_t handed;           /* requests were given to */
    _Atomic int sibling;               /* this one */

    /* of the watch thread alone */
    const struct fl_thread *subject;
    uint64_t last_look, last_clock;
    const struct fl_thread *thread; /* that is away */
    uint64_t delayed_before;
} fl_stall_record;

/* Of the watch thread, at each look. */
void fl_stalls_update(struct fl_watch *watch, uint64_t now);

/* Whether any is open: the watch thread must not sleep. */
bool fl_stalls_open(const struct fl_watch *watch);

/* What the watch thread has done while this reactor was away. */
void fl_stall_standby(struct fl_watch *watch, int reactor);
bool fl_stall_has_standby(const fl_stall_record *record);
void fl_stall_relief(struct fl_watch *watch, int reactor);
void fl_stall_handed(struct fl_watch *watch, int reactor, uint64_t count, int sibling);

/* Whether a reactor is still away, as it was when its record began. With the GVL, from another thread or its own, it
 * stays so until the GVL is let go. */
bool fl_stall_goes_on(const struct fl_watch *watch, int reactor);

/* Microseconds, but for those in which the machine, busy with other things, did not let the thread run. */
uint64_t fl_stall_lasted(const fl_stall_record *record);

fl_stall fl_stall_kind(const fl_stall_record *record);

/* One that is over has been told of. */
static inline void fl_stall_reported(fl_stall_record *record) {
    atomic_store(&record->phase, FL_STALL_CALM);
}

#endif
