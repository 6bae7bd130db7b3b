/* Balancing: first come, first served across workers. Decides which request goes to which sibling, by the figures in the shared page,
 * which may be some milliseconds old. The caller holds the lock. Nothing is allocated; a request that cannot be given stays. */
#ifndef FL_BALANCE_H
#define FL_BALANCE_H

#include "loop/loop.h"

/* Pauses accepting while this worker is stuck and a sibling is not. */
void fl_balance_listen(fl_loop *loop, bool stuck);

/* Hands over requests that siblings would serve sooner. `away`: microseconds that the reactor has been in one request; `stuck`: it will
 * not come back soon, so all may go. Returns how many requests still wait here. */
uint32_t fl_balance(fl_loop *loop, bool stuck, uint64_t away);

/* Whether a sibling is idle, so that it gets what waits here at the next tick. May be called without the lock. */
bool fl_balance_would_be_taken(const fl_loop *loop);

/* Hands requests that hold the GVL to a lane worker, in order. */
void fl_balance_lanes(fl_loop *loop);

#endif
