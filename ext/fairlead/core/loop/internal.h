/* Functions that only the files of this folder call. The contract of loop.h holds. */
#ifndef FL_LOOP_INTERNAL_H
#define FL_LOOP_INTERNAL_H

#include "loop.h"

/* Sets whether the poll reports new connections. */
void fl_loop_watch_listeners(fl_loop *loop, bool watch);

/* Accepts at most `most` connections. If descriptors run out, siblings with room get the rest of the backlog, and the listeners are
 * not watched until accepting.again_at. */
void fl_loop_accept(fl_loop *loop, fl_listener *listener, int most);

/* Opens the connections that siblings have handed over, or passes them on if there is no room. A connection without a descriptor is
 * lost: its client sees it closed. */
void fl_loop_receive(fl_loop *loop);

/* How many more connections there are descriptors for, as far as the loop knows. */
int64_t fl_loop_room(const fl_loop *loop);

/* The loop closes its spare descriptor before it receives a connection that it may have to pass on, and opens it again afterwards. If
 * that fails, it stops accepting for a while. */
void fl_loop_close_reserve(fl_loop *loop);
void fl_loop_open_reserve(fl_loop *loop);

/* Watches the listeners that may be watched now: none while siblings accept instead, or descriptors have run out, or the worker drains or
 * serves a lane. */
void fl_loop_resume_accepting(fl_loop *loop);

/* The same once accepting.again_at has come. */
void fl_loop_listen_again(fl_loop *loop);

/* Whether a connection that has been idle, or in its handshake, since this deadline was set has had its time, a second. */
bool fl_loop_has_lasted(const fl_loop *loop, const fl_deadline *deadline);

/* Accepts what is in the backlog, then stops watching the listeners. */
void fl_loop_stop_accepting(fl_loop *loop);

/* Goes on with handshakes, or has the next wait do so, which does not hold the GVL. While requests want to run, handshakes get half of the
 * time. */
void fl_loop_process_handshakes(fl_loop *loop, bool without_gvl);

/* Ends the requests, bodies and connections whose deadline context.now has reached. */
void fl_loop_process_deadlines(fl_loop *loop);

/* In a lane worker: returns idle connections, and requests that do not belong in the lane, to the other workers. */
void fl_loop_return_connections(fl_loop *loop);

/* Sets the poll's timer to the next deadline. */
void fl_loop_set_timer(fl_loop *loop);

/* The members of fl_context_calls. */
bool fl_loop_enqueue(fl_exchange *exchange);
void fl_loop_dequeue(fl_exchange *exchange);
void fl_loop_ended(fl_exchange *exchange);
bool fl_loop_batches_responses(const fl_context *context);
void fl_loop_flush_late(fl_context *context);
fl_owner fl_loop_find_owner(fl_exchange *exchange);
void fl_loop_session_began(fl_context *context, const char *id, size_t size);

#endif
