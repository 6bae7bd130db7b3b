/* Requests of a session go to the worker that began it. Part of the loop: its contract is in loop.h. */
#include "base/sessions.h"
#include "loop.h"
#include "internal.h"
#include "siblings/handoff.h"

void fl_loop_session_began(fl_context *context, const char *id, size_t size) {
    const fl_siblings *siblings = &fl_loop_of(context)->siblings;
    if (siblings->slot != NULL)
        fl_sessions_began(&siblings->page->sessions, id, size, siblings->own, fl_clock());
}

static int owner_of(const fl_exchange *exchange, const fl_siblings *siblings) {
    fl_span session = exchange->request.head->session;
    const char *id = fl_exchange_head_bytes(exchange) + session.at;
    return fl_sessions_owner(&siblings->page->sessions, id, session.size, exchange->context->now);
}

bool fl_loop_goes_to_owner(fl_exchange *exchange) {
    fl_siblings *siblings = &fl_loop_of(exchange->context)->siblings;
    fl_connection *connection = exchange->connection;
    int owner = siblings->slot == NULL ? -1 : owner_of(exchange, siblings);
    if (owner == siblings->own)
        exchange->queueing.pinned = true; /* even if this worker is stuck: no other knows the session */
    if (owner < 0 || owner == siblings->own || !fl_siblings_may_own(siblings, owner))
        return false;
    if (connection->out.length > 0) /* the response to the request before, which was pipelined */
        fl_connection_send(connection, NULL);
    return connection->state == FL_CONNECTION_CLOSED || fl_handoff_give_unread(siblings, connection, owner);
}
