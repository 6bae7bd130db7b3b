/* What the loop's own files use of each other. For the loop files alone; the contract of loop.h holds here too. */
#ifndef FL_LOOP_PARTS_H
#define FL_LOOP_PARTS_H

#include "loop.h"

/* Whether the poll tells of new connections. */
void fl_loop_watch_listeners(fl_loop *loop, bool watch);

/* At most so many; or, for want of descriptors, fewer: then siblings that have room get what is there, and the listeners are
 * left alone until loop->listen_again. */
void fl_loop_accept(fl_loop *loop, fl_listener *listener, int most);

/* Once that time has come. */
void fl_loop_listen_again(fl_loop *loop);

/* Takes what is there already, then leaves the listeners alone. */
void fl_loop_stop_accepting(fl_loop *loop);

/* What has waited for too long, until loop->now. */
void fl_loop_see_to_deadlines(fl_loop *loop);

/* So that the loop is turned when the next deadline is due. */
void fl_loop_set_timer(fl_loop *loop);

#endif
