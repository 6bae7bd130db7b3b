/* Records of stalls: for each reactor that stays away for long, since when, why, and what was done about it.
 * The watch thread writes the records; any thread may read them at any time. After the reporter has read the record of a stall that is
 * over, it frees it with fl_stall_reported; until then no other stall of that reactor is recorded. Nothing is allocated, nothing
 * fails. */
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
    FL_STALL_OPEN,    /* too short so far */
    FL_STALL_LONG,    /* may have to be reported: its backtrace should be taken now */
    FL_STALL_LASTING, /* so long that it is reported while it goes on */
    FL_STALL_OVER,    /* to be reported */
} fl_stall_phase;

typedef struct fl_stall_record {
    _Atomic int phase;
    _Atomic uint64_t began;                      /* fl_clock: identifies the stall */
    _Atomic uint64_t lasted;                     /* once it is over: see fl_stall_lasted */
    _Atomic uint64_t released, asleep, computed; /* about so many microseconds its thread was without the GVL; asleep
                                                      * with it; on a CPU. For the rest it waited for the GVL or a CPU */
    _Atomic int wanted;                          /* fl_stall: the kind of time that the backtrace should show */
    _Atomic bool foreign;                        /* another thread, which serves nothing, holds the GVL */
    _Atomic uint64_t passed;                     /* what was done: a standby took the lead in the stall that began then, */
    _Atomic bool relief;                         /* a relief worker was asked for, */
    _Atomic uint64_t handed;                     /* requests were given to */
    _Atomic int sibling;                         /* this one */

    /* of the watch thread alone */
    const struct fl_thread *subject;
    uint64_t last_look, last_clock;
    const struct fl_thread *thread; /* that is away */
    uint64_t delayed_before;
} fl_stall_record;

/* Called by the watch thread at each tick. */
void fl_stalls_update(struct fl_watch *watch, uint64_t now);

/* Whether a record is open, so that the watch thread must not sleep. */
bool fl_stalls_open(const struct fl_watch *watch);

/* What the watch thread has done while this reactor was away. */
void fl_stall_standby(struct fl_watch *watch, int reactor);
bool fl_stall_has_standby(const fl_stall_record *record);
void fl_stall_relief(struct fl_watch *watch, int reactor);
void fl_stall_handed(struct fl_watch *watch, int reactor, uint64_t count, int sibling);

/* Whether a reactor is still in the stall of its record. For a caller with the GVL that stays true until it releases the GVL. */
bool fl_stall_goes_on(const struct fl_watch *watch, int reactor);

/* Microseconds without those in which the thread waited for a CPU. */
uint64_t fl_stall_lasted(const fl_stall_record *record);

fl_stall fl_stall_kind(const fl_stall_record *record);

/* The reporter has read a record that is over. */
static inline void fl_stall_reported(fl_stall_record *record) {
    atomic_store(&record->phase, FL_STALL_CALM);
}

#endif
