/* Which deadline a connection has, and what deadlines do when they expire. */
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

/* For what the server waits while the connection is open. */
static fl_deadline_kind awaited_of_open(const fl_connection *connection) {
    if (connection->awaits_room)
        return FL_DEADLINE_WRITE;
    return connection->protocol->awaits != NULL ? connection->protocol->awaits(connection) : FL_DEADLINE_NONE;
}

static fl_deadline_kind awaited_of(const fl_connection *connection) {
    switch (connection->state) {
    case FL_CONNECTION_OPENING:
        return FL_DEADLINE_HEAD;
    case FL_CONNECTION_ENDING:
        return connection->awaits_room ? FL_DEADLINE_WRITE : FL_DEADLINE_NONE;
    case FL_CONNECTION_LINGERING:
        return FL_DEADLINE_LINGER;
    case FL_CONNECTION_CLOSED:
        return FL_DEADLINE_NONE;
    default:
        return awaited_of_open(connection);
    }
}

static void start(fl_connection *connection, fl_deadline_kind kind) {
    uint64_t progress = kind == FL_DEADLINE_WRITE ? taken_by_client(connection) : 0;
    fl_deadline_set(connection->context, &connection->deadline, kind, progress);
}

void fl_connection_update_deadline(fl_connection *connection) {
    fl_deadline_kind kind = awaited_of(connection);
    if (kind == connection->deadline.kind)
        return;
    if (connection->receives && kind == FL_DEADLINE_IDLE)
        kind = FL_DEADLINE_WRITE;
    else
        connection->receives = false;
    if (kind != connection->deadline.kind)
        start(connection, kind);
}

void fl_connection_restart_deadline(fl_connection *connection) {
    start(connection, FL_DEADLINE_NONE);
    fl_connection_update_deadline(connection);
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
    if (connection->out.length == 0 && fl_unacknowledged(transport->descriptor) == 0) {
        start(connection, FL_DEADLINE_NONE);
        connection->receives = false;
        fl_connection_all_sent(connection);
        fl_connection_update_deadline(connection);
    } else if (connection->relayed || /* the other end of a relay has the deadlines of the client */
               fl_deadline_has_progressed(connection->context, &connection->deadline, taken_by_client(connection))) {
        fl_connection_restart_deadline(connection);
    } else {
        transport->kind->reset(transport); /* else the kernel would keep its buffer and retransmit */
        fl_connection_close(connection);
    }
}

static void expire_idle(fl_connection *connection) {
    connection->receives = fl_unacknowledged(connection->transport.descriptor) > 0;
    if (connection->receives)
        fl_connection_restart_deadline(connection);
    else
        fl_connection_close(connection);
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
        start(connection, FL_DEADLINE_NONE);
        expire_head(connection);
        break;
    case FL_DEADLINE_WRITE:
        expire_output(connection);
        break;
    case FL_DEADLINE_IDLE:
        expire_idle(connection);
        break;
    default:
        fl_connection_close(connection);
    }
}
