/* Requests of a session go to the worker that began it. Part of the loop: its contract is in loop.h. */
#include "base/sessions.h"
#include "loop.h"
#include "internal.h"
#include "siblings/handoff.h"

#include <string.h>

void fl_loop_session_began(fl_context *context, const char *id, size_t size) {
    const fl_siblings *siblings = &fl_loop_of(context)->siblings;
    if (siblings->slot != NULL)
        fl_sessions_began(&siblings->page->sessions, id, size, siblings->own, fl_clock());
}

/* Servers of the older HTTP+SSE transport name the session in the URL to which messages are posted. */
static fl_span session_in_query(const char *bytes, fl_span query) {
    static const char *const names[] = {"session_id=", "sessionId="};
    for (uint32_t at = query.at, end = query.at + query.size, next; at < end; at = next + 1) {
        const char *separator = memchr(bytes + at, '&', end - at);
        next = separator == NULL ? end : (uint32_t) (separator - bytes);
        for (int i = 0; i < 2; i++) {
            uint32_t size = (uint32_t) strlen(names[i]);
            if (next - at > size && memcmp(bytes + at, names[i], size) == 0)
                return (fl_span) {at + size, next - at - size};
        }
    }
    return (fl_span) {0};
}

static int owner_of(const fl_exchange *exchange, const fl_siblings *siblings) {
    const fl_head *head = exchange->request.head;
    const char *bytes = fl_exchange_head_bytes(exchange);
    fl_sessions *sessions = &siblings->page->sessions;
    if (!atomic_load_explicit(&sessions->used, memory_order_relaxed))
        return -1;
    fl_span id = head->session.size > 0 ? head->session : session_in_query(bytes, head->query);
    return id.size == 0 ? -1 : fl_sessions_owner(sessions, bytes + id.at, id.size, exchange->context->now);
}

fl_owner fl_loop_find_owner(fl_exchange *exchange) {
    fl_siblings *siblings = &fl_loop_of(exchange->context)->siblings;
    fl_connection *connection = exchange->connection;
    int owner = siblings->slot == NULL ? -1 : owner_of(exchange, siblings);
    if (owner == siblings->own)
        exchange->queueing.pinned = true; /* even if this worker is stuck: no other knows the session */
    if (owner < 0 || owner == siblings->own || !fl_siblings_may_own(siblings, owner))
        return FL_OWNER_HERE;
    if (connection->out.length > 0) /* the response to the request before, which was pipelined */
        fl_connection_send(connection, NULL);
    if (connection->state == FL_CONNECTION_CLOSED)
        return FL_OWNER_HAS_IT;
    if (!fl_handoff_may_give_unread(connection))
        return FL_OWNER_HERE;
    if (connection->out.length > 0)
        return FL_OWNER_AWAITED;
    if (!fl_handoff_give_unread(siblings, connection, owner))
        fl_exchange_reject(exchange, FL_OVERLOADED);
    return FL_OWNER_HAS_IT;
}
