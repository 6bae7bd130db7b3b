/* What the deadlines of connections and exchanges do when they expire. */
#include "base/platform.h"
#include "connection.h"
#include "context.h"
#include "event_stream.h"
#include "exchange.h"
#include "internal.h"

enum { MIN_RATE = 32 }; /* bytes a second: a client that moves fewer, but some, only keeps its connection busy */

/* The kernel reports writability only when a third of its buffer is free, which may be megabytes. Acknowledged bytes tell a slow client
 * from a stalled one. */
static uint64_t taken_by_client(const fl_connection *connection) {
    return connection->sent - (uint64_t) fl_unacknowledged(connection->transport.descriptor);
}

void fl_connection_start_write_deadline(fl_connection *connection) {
    fl_deadline_set(connection->context, &connection->deadline, FL_DEADLINE_WRITE, taken_by_client(connection));
}

bool fl_deadline_has_progressed(const fl_context *context, const fl_deadline *deadline, uint64_t progress) {
    uint64_t least = 1 + context->limits.deadlines[deadline->kind] * MIN_RATE / 1000000;
    return (int64_t) (progress - deadline->progress) >= (int64_t) least;
}

static void expire_body(fl_exchange *exchange) {
    fl_deadline *deadline = &exchange->request.deadline;
    bool progressed = fl_deadline_has_progressed(exchange->context, deadline, exchange->request.received);
    fl_exchange_stop_deadline(exchange);
    if (exchange->state == FL_EXCHANGE_SERVED && !exchange->request.awaited)
        return; /* the app does not wait for the client */
    if (progressed)
        fl_deadline_set(exchange->context, deadline, FL_DEADLINE_BODY, exchange->request.received);
    else
        fl_exchange_reject(exchange, FL_BODY_TIMEOUT);
}

static void expire_head(fl_connection *connection) {
    fl_exchange *exchange = connection->exchanges;
    while (exchange != NULL && exchange->state != FL_EXCHANGE_HEAD) exchange = exchange->stream_next;
    if (exchange != NULL)
        fl_exchange_reject(exchange, FL_HEAD_TIMEOUT);
    else
        fl_connection_close(connection);
}

static void expire_output(fl_connection *connection) {
    fl_transport *transport = &connection->transport;
    bool progressed = fl_deadline_has_progressed(connection->context, &connection->deadline, taken_by_client(connection));
    fl_connection_set_deadline(connection, FL_DEADLINE_NONE);
    if (connection->out.length == 0 && fl_unacknowledged(transport->descriptor) == 0) {
        fl_connection_all_sent(connection);
    } else if (progressed || connection->relayed) { /* the other end of a relay has the deadlines of the client */
        fl_connection_start_write_deadline(connection);
    } else {
        transport->kind->reset(transport); /* else the kernel would keep its buffer and retransmit */
        fl_connection_close(connection);
    }
}

void fl_deadline_expired(fl_deadline *deadline) {
    fl_connection *connection = fl_connection_of_deadline(deadline);
    switch (deadline->kind) {
    case FL_DEADLINE_BODY:
        expire_body(fl_exchange_of_deadline(deadline));
        break;
    case FL_DEADLINE_EVENTS:
    case FL_DEADLINE_END:
        fl_event_stream_expired(fl_exchange_of_deadline(deadline));
        break;
    case FL_DEADLINE_STREAM:
        ((fl_stream_deadline *) deadline)->expired((fl_stream_deadline *) deadline);
        break;
    case FL_DEADLINE_HEAD:
        fl_connection_set_deadline(connection, FL_DEADLINE_NONE);
        expire_head(connection);
        break;
    case FL_DEADLINE_WRITE:
        expire_output(connection);
        break;
    case FL_DEADLINE_IDLE:
        if (fl_unacknowledged(connection->transport.descriptor) > 0) { /* the client still receives the last response */
            fl_connection_start_write_deadline(connection);
            break;
        }
        /* fall through */
    default:
        fl_connection_close(connection);
    }
}
