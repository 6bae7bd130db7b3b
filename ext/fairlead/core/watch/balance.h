/* Balancing: first come, first served across workers. It decides which request goes to which sibling, by the figures in the shared page,
 * which may be some milliseconds old. The caller holds the lock. Nothing is allocated. A request that no sibling can take stays. */
#ifndef FL_BALANCE_H
#define FL_BALANCE_H

#include "loop/loop.h"

/* Hands over requests that siblings would serve sooner. `away`: microseconds that the reactor has been in one request. `stuck`: the
 * reactor will not return soon, so all requests may go. Returns how many requests still wait here. */
uint32_t fl_balance(fl_loop *loop, bool stuck, uint64_t away);

/* Whether a sibling is idle, and would get a waiting request at the next tick. May be called without the lock. */
bool fl_balance_finds_idle_sibling(const fl_loop *loop);

/* Hands requests that hold the GVL to lane workers, in order. */
void fl_balance_lanes(fl_loop *loop);

#endif
