/* What the loop's own files use of each other. For the loop files alone; the contract of loop.h holds here too. */
#ifndef FL_LOOP_PARTS_H
#define FL_LOOP_PARTS_H

#include "loop.h"

/* Whether the poll tells of new connections. */
void fl_loop_watch_listeners(fl_loop *loop, bool watch);

/* At most so many; or, for want of descriptors, fewer: then siblings that have room get what is there, and the listeners are
 * left alone until loop->accepting.again_at. */
void fl_loop_accept(fl_loop *loop, fl_listener *listener, int most);

/* Takes in what siblings have handed to us, or passes it on, if we have no room. A connection for which there is no descriptor
 * even so is lost: its client sees it closed. */
void fl_loop_receive(fl_loop *loop);

/* For how many more connections there are descriptors, as far as is known. */
int64_t fl_loop_room(const fl_loop *loop);

/* One descriptor is kept for when there is no other. It is given up before a connection is received that may have to be
 * passed on; who then finds none to keep takes in no more for a while. */
void fl_loop_give_up_reserve(fl_loop *loop);
void fl_loop_keep_reserve(fl_loop *loop);

/* Once that time has come. */
void fl_loop_listen_again(fl_loop *loop);

/* Takes what is there already, then leaves the listeners alone. */
void fl_loop_stop_accepting(fl_loop *loop);

/* What has waited for too long, until loop->context.now. */
void fl_loop_process_deadlines(fl_loop *loop);

/* Of a lane worker: what does not belong there goes back to the others, connections between two requests too. */
void fl_loop_give_back(fl_loop *loop);

/* So that the loop is turned when the next deadline is due. */
void fl_loop_set_timer(fl_loop *loop);

/* fl_context_calls: see there. */
bool fl_loop_enqueue(fl_exchange *exchange);
void fl_loop_dequeue(fl_exchange *exchange);
void fl_loop_ended(fl_exchange *exchange);
bool fl_loop_gathers(const fl_context *context);
void fl_loop_flush_late(fl_context *context);

#endif
