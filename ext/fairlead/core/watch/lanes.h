/* The lanes of a worker: which routes stall is learnt here, and their requests are given to reactors that serve nothing
 * else, or to a lane worker. Nothing is allocated, nothing fails. */
#ifndef FL_LANES_H
#define FL_LANES_H

#include "watch.h"

/* One look, of the watch thread, without the lock. Answers whether anything waits in a lane, or stalls. */
bool fl_lanes_update(fl_watch *watch, uint64_t now);

/* Wakes a reactor for each request that waits in a lane here, as far as there are any. Of the holder of the loop. */
void fl_lanes_serve(void *watch);

#endif
