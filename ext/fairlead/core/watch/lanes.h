/* The lanes of a worker: the watch thread learns which routes stall, and gives their requests to reactors that serve nothing else, or
 * to a lane worker. Nothing is allocated, nothing fails. */
#ifndef FL_LANES_H
#define FL_LANES_H

#include "watch.h"

/* Called by the watch thread at each tick, without the lock. Returns whether a request waits in a lane or stalls. */
bool fl_lanes_update(fl_watch *watch, uint64_t now);

/* Wakes a reactor for each request that waits in a lane, as far as there are reactors. With the lock. */
void fl_lanes_serve(void *watch);

#endif
