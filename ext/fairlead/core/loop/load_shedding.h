/* Whether the line of requests that wait for their turn gets longer and longer, and what becomes of its end then. Part of
 * the loop, which it belongs to: nothing is allocated, nothing fails, and who calls holds the loop.
 *
 * A long line alone says nothing: a burst is over in a moment, and a thousand clients that each wait for their answer
 * before they ask again never make it longer than a thousand, and are never more, here and in their fibers together. What is
 * told apart here is a line that stands (for a while nobody was taken who had not waited), that would keep who comes now
 * waiting for long, and since whose beginning the requests have doubled, here and in their fibers, and still become more:
 * more comes than can be served. Then those who came last are told so at once, until what is left can be served within the
 * target; those who are kept are served first come, first served. So it goes on until for a while nobody had to be turned
 * away: that the line was once too short says only that it was cut too short.
 *
 * Requests that wait in their fibers do not stand in this line; the more of them there are, the longer it may be. */
#ifndef FL_LINE_H
#define FL_LINE_H

#include <stdbool.h>
#include <stdint.h>

struct fl_loop;
struct fl_exchange;

typedef struct fl_load_shedding {
    uint64_t since;      /* of fl_clock, when it began to stand; 0: who was taken last had hardly waited, or nobody waits */
    uint64_t counted_at; /* since when requests are counted that are taken */
    uint32_t taken;
    uint32_t at_first;   /* how many requests there were when it began to stand, in all workers, in their fibers too */
    uint32_t before;     /* likewise, when counting began */
    uint32_t most;       /* that may wait; 0: any number, nobody is turned away */
    uint64_t cut_at;     /* of fl_clock, when somebody was last turned away */
} fl_load_shedding;

/* One that has waited for so many microseconds is taken now. */
void fl_load_shedding_taken(struct fl_loop *loop, uint64_t waited, uint64_t now);

/* Turns away those at the end of the line who are too many. */
void fl_load_shedding_cut(struct fl_loop *loop);

#endif
