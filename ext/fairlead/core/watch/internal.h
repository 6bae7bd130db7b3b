/* Functions that only the files of this folder call, all in the watch thread. */
#ifndef FL_WATCH_INTERNAL_H
#define FL_WATCH_INTERNAL_H

#include "watch.h"

/* The longest time in microseconds that one of the reactors has been away, and which. */
uint64_t fl_watch_longest_away(const fl_watch *watch, uint64_t now, int *which);

/* Whether a thread sleeps for longer than a moment, with the GVL or without. Called at each tick with the same sample. */
bool fl_stays_asleep(fl_sample *sample, const fl_thread *thread, uint64_t now);

/* Asks a thread that has held the GVL for long to answer, at each tick: Ruby code answers at once, C code does not. */
void fl_watch_check_gvl(fl_watch *watch, uint64_t now);

/* Why a reactor is away. `away`: microseconds since it left its loop or, in its loop, since it requested the GVL. */
fl_stall fl_watch_classify(fl_watch *watch, const fl_reactor *reactor, uint64_t now, uint64_t *away);

/* Works around a stall of the leader: does what cannot wait until the leader returns. */
void fl_watch_relieve(fl_watch *watch, fl_stall stall, uint64_t away, uint64_t now);

/* Shows the leader as idle again, if it was shown as busy and waits now. */
void fl_watch_show_idle(fl_watch *watch);

/* Hands a request to a sibling while nothing stalls, if the queue is longer here. */
void fl_watch_even_out(fl_watch *watch, uint64_t now);

/* Makes a computing reactor yield the GVL before the end of its time slice, if the leader has work. */
void fl_watch_yield_to_leader(fl_watch *watch, uint64_t now);

/* Has the supervisor replace this worker, if one of its reactors has been away for `lost`: it may never return. */
void fl_watch_report_loss(fl_watch *watch, uint64_t now);

#endif
