/* Functions that only the files of this folder call. The contract is that of loop.h. */
#ifndef FL_LOOP_PARTS_H
#define FL_LOOP_PARTS_H

#include "loop.h"

/* Sets whether the poll reports new connections. */
void fl_loop_watch_listeners(fl_loop *loop, bool watch);

/* Accepts at most `most` connections. If descriptors run out, siblings with room get the rest of the backlog, and the listeners are
 * not watched until accepting.again_at. */
void fl_loop_accept(fl_loop *loop, fl_listener *listener, int most);

/* Opens the connections that siblings have handed over, or passes them on if there is no room. A connection without a descriptor is
 * lost: its client sees it closed. */
void fl_loop_receive(fl_loop *loop);

/* How many more connections there are descriptors for, as far as is known. */
int64_t fl_loop_room(const fl_loop *loop);

/* The spare descriptor is closed before a connection is received that may have to be passed on, and opened again afterwards. If that
 * fails, the loop stops accepting for a while. */
void fl_loop_give_up_reserve(fl_loop *loop);
void fl_loop_keep_reserve(fl_loop *loop);

/* Watches the listeners again once accepting.again_at has come. */
void fl_loop_listen_again(fl_loop *loop);

/* Accepts what is in the backlog, then stops watching the listeners. */
void fl_loop_stop_accepting(fl_loop *loop);

/* Ends the requests, bodies and connections whose deadline context.now has reached. */
void fl_loop_process_deadlines(fl_loop *loop);

/* In a lane worker: hands requests that do not belong there, and idle connections, back to the other workers. */
void fl_loop_give_back(fl_loop *loop);

/* Sets the poll's timer to the next deadline. */
void fl_loop_set_timer(fl_loop *loop);

/* The members of fl_context_calls. */
bool fl_loop_enqueue(fl_exchange *exchange);
void fl_loop_dequeue(fl_exchange *exchange);
void fl_loop_ended(fl_exchange *exchange);
bool fl_loop_gathers(const fl_context *context);
void fl_loop_flush_late(fl_context *context);
bool fl_loop_goes_to_owner(fl_exchange *exchange);
void fl_loop_session_began(fl_context *context, const char *id, size_t size);

#endif
