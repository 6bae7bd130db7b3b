/* Whose requests compute first, where more workers do than there are processors: the kernel would share these out by its own
 * measure, and who came first would be served last. So no more workers go on at once than there are processors, those
 * whose requests came first; the others step back, until one that has answered gives its processor to who waits longest.
 * None is left idle for it: a worker steps back only while as many others compute, and its watch thread looks again.
 * The holder of the loop calls. Nothing is allocated, and nothing fails. */
#ifndef FL_PROCESSORS_H
#define FL_PROCESSORS_H

#include "loop.h"

/* How many no sibling computes on; less than one: there are more that compute. */
long fl_processors_free(const fl_loop *loop);

/* Whether this worker's oldest request may be taken now. If not, the loop is woken when it may. */
bool fl_processors_claim(fl_loop *loop);

/* Whether one that has stepped back has got one since. */
bool fl_processors_given(const fl_loop *loop);

/* Of one that has stepped back, now and then: whether one has become free that nobody has given away. */
void fl_processors_look(fl_loop *loop);

/* Nothing waits here any more: ours goes to who waits longest. */
void fl_processors_leave(fl_loop *loop);

#endif
