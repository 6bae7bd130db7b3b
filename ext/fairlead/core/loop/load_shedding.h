/* Load shedding: decides whether more requests come than can be served, and turns the newest away. Part of the loop: the caller holds
 * its lock. Nothing is allocated, nothing fails.
 *
 * A long queue alone is no overload. A burst passes, and a thousand clients that each wait for their response never make the queue
 * longer than a thousand. Load is shed if the queue has stood for a while (every request that was taken had waited), if a new request would
 * wait for long, and if the requests of all workers, in queues and in fibers, have doubled since the queue began to stand and still
 * increase. Then the newest requests are turned away at once, until the others can be served within the target; those keep their
 * order. Shedding ends when no request had to be turned away for a while.
 *
 * Requests that wait in fibers are not in the queue; the more there are, the longer the queue may be. */
#ifndef FL_LOAD_SHEDDING_H
#define FL_LOAD_SHEDDING_H

#include <stdbool.h>
#include <stdint.h>

struct fl_loop;
struct fl_exchange;

typedef struct fl_load_shedding {
    uint64_t since;      /* fl_clock when the queue began to stand; 0: it does not */
    uint64_t counted_at; /* fl_clock since when taken requests are counted */
    uint32_t taken;      /* since then */
    uint32_t at_first;   /* requests of all workers when the queue began to stand */
    uint32_t before;     /* the same when counting began */
    uint32_t most;       /* requests that may wait; 0: any number */
    uint64_t cut_at;     /* fl_clock when a request was last turned away */
} fl_load_shedding;

/* Counts a request that is taken after it has waited for `waited` microseconds. */
void fl_load_shedding_taken(struct fl_loop *loop, uint64_t waited, uint64_t now);

/* Turns away the newest requests beyond `most`. */
void fl_load_shedding_cut(struct fl_loop *loop);

#endif
