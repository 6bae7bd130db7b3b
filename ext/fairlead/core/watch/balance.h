/* First come, first served across workers: who hands which request to whom.
 * Nothing is allocated. The holder of the loop calls; siblings' figures are read from the shared page, and may be some
 * milliseconds old. Nothing fails: what cannot be given stays. */
#ifndef FL_BALANCE_H
#define FL_BALANCE_H

#include "loop/loop.h"

/* A worker that is stuck leaves new connections to its siblings, as long as one of them is not stuck too. */
void fl_balance_listen(fl_loop *loop, bool stuck);

/* Hands over what siblings would serve sooner. `away`: microseconds for which our reactor has been in one request;
 * `stuck`: it will not come back soon, all that waits may go. Answers how many requests still wait here. */
uint32_t fl_balance(fl_loop *loop, bool stuck, uint64_t away);

/* Whether a sibling has nothing to do: what waits here goes there with the next look. Anybody may ask. */
bool fl_balance_would_be_taken(const fl_loop *loop);

/* Requests that hold the GVL go to a lane worker, in their order. */
void fl_balance_lanes(fl_loop *loop);

#endif
