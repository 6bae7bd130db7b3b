/* What the deadlines of connections and exchanges do when they expire. */
#include "base/platform.h"
#include "connection.h"
#include "context.h"
#include "event_stream.h"
#include "exchange.h"
#include "internal.h"

enum {
    MIN_PROGRESS = 4096, /* bytes: a client that takes fewer of a response within a deadline has stalled; */
    MIN_RATE = 32,       /* bytes of a body a second: one that sends fewer, but some, only keeps its connection busy */
};

/* The kernel reports writability only when a third of its buffer is free, which may be megabytes. Acknowledged bytes tell a slow client
 * from a stalled one. */
static uint64_t progress_of(const fl_connection *connection, fl_deadline_kind kind) {
    if (kind != FL_DEADLINE_WRITE)
        return connection->progress;
    return connection->progress - (uint64_t) fl_unacknowledged(connection->transport.descriptor);
}

void fl_connection_start_deadline(fl_connection *connection, fl_deadline_kind kind) {
    fl_deadline_set(connection->context, &connection->deadline, kind, progress_of(connection, kind));
}

static bool has_progressed(uint64_t progress, const fl_deadline *deadline, uint64_t least) {
    return (int64_t) (progress - deadline->progress) >= (int64_t) least;
}

/* Bytes of a body within its deadline, at least one. */
static uint64_t least_of_body(const fl_context *context) {
    return 1 + context->limits.deadlines[FL_DEADLINE_BODY] * MIN_RATE / 1000000;
}

static void expire_body(fl_exchange *exchange) {
    fl_deadline *deadline = &exchange->request.deadline;
    bool progressed = has_progressed(exchange->request.received, deadline, least_of_body(exchange->context));
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
    bool progressed = has_progressed(progress_of(connection, FL_DEADLINE_WRITE), &connection->deadline, MIN_PROGRESS);
    fl_connection_set_deadline(connection, FL_DEADLINE_NONE);
    if (connection->out.length == 0 && fl_unacknowledged(transport->descriptor) == 0) {
        fl_connection_all_sent(connection);
    } else if (progressed || connection->relayed) { /* the other end of a relay has the deadlines of the client */
        fl_connection_start_deadline(connection, FL_DEADLINE_WRITE);
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
            fl_connection_start_deadline(connection, FL_DEADLINE_WRITE);
            break;
        }
        /* fall through */
    default:
        fl_connection_close(connection);
    }
}
