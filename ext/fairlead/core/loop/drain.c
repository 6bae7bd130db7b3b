/* Draining: connections without a request leave, the others are answered. Part of the loop: its contract is in loop.h. */
#include "connection/event_stream.h"
#include "internal.h"
#include "loop.h"
#include "siblings/handoff.h"
#include "siblings/relay.h"

/* A client that has just connected sends its first request now, and would take the end of the connection for an error. HTTP/2 tells its
 * clients which requests count. A handshake that waits for its turn here is not late. */
static bool is_expected(const fl_loop *loop, const fl_connection *connection) {
    bool begins = connection->state == FL_CONNECTION_OPENING || (connection->fresh && connection->protocol->moves);
    return connection->shakes || (begins && !fl_loop_has_lasted(loop, &connection->deadline));
}

/* Returns false if no sibling has room for it. */
static bool release(fl_loop *loop, fl_connection *connection, bool hands_over) {
    bool opening = connection->state == FL_CONNECTION_OPENING;
    if (!opening && !fl_connection_is_idle(connection))
        return true;
    if (hands_over && fl_handoff_possible(connection))
        return fl_handoff_give_to_least_loaded(&loop->siblings, connection);
    bool goes_on = opening && hands_over; /* a handshake that has begun may end, as a head that has begun may */
    if (!goes_on && !is_expected(loop, connection))
        fl_connection_drain(connection);
    return true;
}

static void release_idle(fl_loop *loop) {
    static const fl_deadline_kind kinds[] = {FL_DEADLINE_IDLE, FL_DEADLINE_WRITE, FL_DEADLINE_HEAD};
    bool hands_over = loop->context.handing_over || !loop->context.draining;
    if (hands_over && loop->siblings.slot == NULL)
        return;
    for (int i = 0; i < 3; i++)
        for (fl_deadline *deadline = loop->context.deadlines[kinds[i]].first, *next; deadline != NULL; deadline = next) {
            next = deadline->after;
            if (!release(loop, fl_connection_of_deadline(deadline), hands_over))
                return;
        }
}

/* Tunnels are the app's, and end once nothing else goes on: the request that a tunnel belongs to may be running. */
static void drain_tunnels(fl_context *context) {
    if (context->served != NULL || context->counts.connections != context->tunnels)
        return;
    for (fl_connection *connection = context->connections, *next; connection != NULL; connection = next) {
        next = connection->next;
        fl_connection_drain(connection);
    }
}

void fl_loop_release_idle(fl_loop *loop) {
    release_idle(loop);
    if (loop->context.draining)
        drain_tunnels(&loop->context);
}

/* Connections of protocols that cannot move: also those with requests. */
static void drain_staying(fl_context *context) {
    for (fl_connection *connection = context->connections, *next; connection != NULL; connection = next) {
        next = connection->next;
        if (connection->protocol != NULL && !connection->protocol->moves && !connection->tunneled)
            fl_connection_drain(connection);
    }
}

void fl_loop_drain(fl_loop *loop, bool handing_over) {
    fl_context_update_clock(&loop->context);
    if (!loop->context.draining) {
        fl_loop_stop_accepting(loop);
        loop->accepting.again_at = 0;
        fl_event_streams_drain(&loop->context);
    }
    loop->context.draining = true;
    loop->context.handing_over = handing_over;
    if (handing_over)
        fl_loop_release_idle(loop);
    drain_staying(&loop->context);
    fl_loop_wake(loop); /* the next turn ends the others, once it has read what has come */
}

/* Rejects requests that wait or are incomplete, and without `streams` no file that is being sent. */
static void reject_waiting(fl_connection *connection, bool streams) {
    for (fl_exchange *exchange = connection->exchanges, *next; exchange != NULL; exchange = next) {
        next = exchange->stream_next;
        /* An incomplete head has its own deadline; its end would be that of all streams of HTTP/2. */
        bool waits = exchange->state > (streams ? FL_EXCHANGE_NEW : FL_EXCHANGE_HEAD) && exchange->state < FL_EXCHANGE_SERVED;
        if (waits || (streams && exchange->state > FL_EXCHANGE_SERVED))
            fl_exchange_reject(exchange, FL_ENDING);
        if (connection->state == FL_CONNECTION_CLOSED)
            return;
    }
}

void fl_loop_stop(fl_loop *loop, bool streams) {
    fl_context *context = &loop->context;
    fl_context_update_clock(context);
    fl_context_flush(context); /* a stream that has just written can end in order */
    fl_event_streams_end(context);
    fl_context_stop_all(context, streams);
    if (streams)
        fl_relays_stop(context);
    for (fl_connection *connection = context->connections, *next; connection != NULL; connection = next) {
        next = connection->next;
        const fl_exchange *exchange = connection->exchanges;
        bool waits = exchange != NULL && exchange->state == FL_EXCHANGE_QUEUED;
        if (!waits || !context->handing_over || !fl_handoff_give_to_least_loaded(&loop->siblings, connection))
            reject_waiting(connection, streams);
    }
}

bool fl_loop_is_drained(const fl_loop *loop) {
    return loop->context.draining && loop->context.connections == NULL && loop->context.served == NULL;
}

bool fl_loop_end(fl_loop *loop) {
    if (!fl_loop_is_drained(loop))
        return false;
    if (loop->siblings.receiving >= 0 && !loop->accepting.ended)
        fl_poll_remove(&loop->context.poll, loop->siblings.receiving);
    loop->accepting.ended = true;
    return true;
}
