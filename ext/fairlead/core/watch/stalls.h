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
    FL_STALL_OPEN,    /* too short to report so far */
    FL_STALL_LONG,    /* may have to be reported: its backtrace should be taken now */
    FL_STALL_LASTING, /* so long that it is reported while it goes on */
    FL_STALL_OVER,    /* waits for the reporter */
} fl_stall_phase;

typedef struct fl_stall_record {
    _Atomic int phase;
    _Atomic uint64_t began;  /* fl_clock: identifies the stall */
    _Atomic uint64_t lasted; /* set when the stall is over: see fl_stall_lasted */
    /* Approximate microseconds that the thread was without the GVL, slept with it, and computed. The rest of the time it waited for
     * the GVL or a CPU. */
    _Atomic uint64_t released, asleep, computed;
    _Atomic uint64_t asked;      /* sum of these three when the backtrace was last asked for; 0: never */
    _Atomic int wanted;          /* fl_stall: the kind of time that the backtrace should show */
    _Atomic bool foreign;        /* the GVL is held by a thread that is no reactor */
    _Atomic uint64_t standby_at; /* `began` of the stall in which a standby took the lead */
    _Atomic bool relief;         /* a relief worker was requested */
    _Atomic uint64_t handed;     /* requests handed to `sibling` */
    _Atomic int sibling;

    /* of the watch thread alone */
    const struct fl_thread *subject;
    uint64_t last_look, last_clock;
    const struct fl_thread *thread; /* of the reactor */
    uint64_t delayed_before;
} fl_stall_record;

/* The watch thread calls it at each tick. */
void fl_stalls_update(struct fl_watch *watch, uint64_t now);

/* Likewise. Without reports only the leading reactor is watched: shows how it stalls. */
void fl_stalls_show_leader(const struct fl_watch *watch, fl_stall stall, uint64_t away, uint64_t now);

/* Whether a record is open, so that the watch thread must not sleep. */
bool fl_stalls_open(const struct fl_watch *watch);

/* Record what the watch thread has done while this reactor was away. */
void fl_stall_standby(struct fl_watch *watch, int reactor);
bool fl_stall_has_standby(const fl_stall_record *record);
void fl_stall_handed(struct fl_watch *watch, int reactor, uint64_t count, int sibling);

/* Whether a reactor is still in the stall of its record. While the caller holds the GVL, true stays true. */
bool fl_stall_goes_on(const struct fl_watch *watch, int reactor);

/* Whether a record is of a stall that goes on, and is long enough to take its backtrace. */
static inline bool fl_stall_is_long(const fl_stall_record *record) {
    int phase = atomic_load(&record->phase);
    return phase == FL_STALL_LONG || phase == FL_STALL_LASTING;
}

/* Microseconds without those in which the thread waited for a CPU. */
uint64_t fl_stall_lasted(const fl_stall_record *record);

fl_stall fl_stall_kind(const fl_stall_record *record);

/* Whether a stall, which may go on, is long enough by now to be reported when it is over. */
bool fl_stall_is_due(const struct fl_watch *watch, const fl_stall_record *record);

/* The reporter calls it when it has read a record that is over. */
static inline void fl_stall_reported(fl_stall_record *record) {
    atomic_store(&record->phase, FL_STALL_CALM);
}

#endif
