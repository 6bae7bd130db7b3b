/* The lanes of a worker: the watch thread learns which routes stall, and gives their requests to reactors that serve nothing else, or
 * to a lane worker. Nothing is allocated, nothing fails. */
#ifndef FL_LANES_H
#define FL_LANES_H

#include "watch.h"

/* The watch thread calls it at each tick, without the lock. Returns whether a request waits in a lane or stalls. */
bool fl_lanes_update(fl_watch *watch, uint64_t now);

/* Wakes a reactor for each request that waits in a lane, as long as there are reactors. The caller holds the lock. */
void fl_lanes_serve(void *watch);

#endif
