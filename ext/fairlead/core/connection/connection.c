/* Opening, reading, events, deadlines, and closing. */
#include "connection.h"
#include "base/descriptors.h"
#include "base/list.h"
#include "base/platform.h"
#include "context.h"
#include "event_stream.h"
#include "exchange.h"
#include "internal.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

enum {
    MIN_PROGRESS = 4096, /* a client that moves fewer bytes within a deadline has stalled */
    DROPPED_AT_ONCE = 65536,
};

static void store_client(fl_connection *connection) {
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    if (getpeername(connection->transport.descriptor, (struct sockaddr *) &address, &size) < 0)
        return;
    fl_client *client = &connection->client;
    const struct in6_addr *six = &((struct sockaddr_in6 *) &address)->sin6_addr;
    client->family = (uint8_t) address.ss_family;
    if (address.ss_family == AF_INET) {
        memcpy(client->address, &((struct sockaddr_in *) &address)->sin_addr, 4);
    } else if (address.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(six)) { /* a listener on [::] accepts IPv4 too */
        client->family = AF_INET;
        memcpy(client->address, six->s6_addr + 12, 4);
    } else if (address.ss_family == AF_INET6) {
        memcpy(client->address, six, 16);
    }
}

void fl_connection_count(fl_connection *connection, int connections, int fresh) {
    fl_context *context = connection->context;
    context->counts.connections += (uint32_t) connections;
    context->counts.fresh += (uint32_t) fresh;
    context->calls->connections_changed(context);
}

/* Chooses the protocol once the transport is open. */
static void begin(fl_connection *connection) {
    const fl_protocol *const *protocol = connection->listener->protocols;
    const char *negotiated = connection->transport.protocol;
    while (negotiated != NULL && protocol[1] != NULL && strcmp((*protocol)->name, negotiated) != 0) protocol++;
    connection->protocol = *protocol;
    connection->state = FL_CONNECTION_OPEN;
    if (connection->protocol->open != NULL)
        connection->protocol->open(connection);
}

static void shake_hands(fl_connection *connection) {
    fl_transport *transport = &connection->transport;
    int outcome = transport->kind->handshake(transport);
    connection->readable = outcome == 0; /* the transport may have buffered input */
    if (outcome == 0) {
        begin(connection);
        fl_connection_receive(connection);
    } else if (outcome == FL_TRANSPORT_WAIT) {
        fl_connection_await(connection, transport->read_needs);
    } else {
        fl_connection_close(connection);
    }
}

static fl_connection *new_connection(fl_context *context, fl_listener *listener, int descriptor, const char *bytes,
                                     size_t size) {
    fl_connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL ||
        !fl_transport_open(&connection->transport, listener->transport, listener->configuration, descriptor)) {
        free(connection);
        close(descriptor);
        return NULL;
    }
    if (fl_buffer_append(&context->slab, &connection->in, bytes, size) == FL_OK &&
        fl_poll_add_connection(&context->poll, descriptor, connection) == 0)
        return connection;
    fl_buffer_free(&context->slab, &connection->in);
    connection->transport.kind->close(&connection->transport);
    free(connection);
    return NULL;
}

fl_connection *fl_connection_open(fl_context *context, fl_listener *listener, int descriptor, const char *bytes, size_t size) {
    fl_connection *connection = new_connection(context, listener, descriptor, bytes, size);
    if (connection == NULL)
        return NULL;
    connection->source = FL_SOURCE_CONNECTION;
    connection->context = context;
    connection->listener = listener;
    FL_LIST_PUSH(context->connections, connection, previous, next);
    connection->fresh = true;
    fl_descriptor_track(descriptor);
    fl_connection_count(connection, 1, 1);
    store_client(connection);
    if (connection->transport.kind->handshake == NULL) {
        begin(connection);
    } else {
        fl_connection_set_deadline(connection, FL_DEADLINE_HEAD);
        shake_hands(connection);
    }
    return connection;
}

/* Everything but closing the transport. `client_gone`: false if the socket stays open. */
static void disconnect(fl_connection *connection, bool client_gone) {
    fl_context *context = connection->context;
    fl_connection_set_deadline(connection, FL_DEADLINE_NONE);
    connection->state = FL_CONNECTION_CLOSED;
    for (fl_exchange *exchange; (exchange = connection->exchanges) != NULL;) {
        fl_exchange_detach(exchange);
        fl_exchange_connection_lost(exchange, client_gone);
    }
    if (connection->protocol != NULL && connection->protocol->close != NULL)
        connection->protocol->close(connection);
    fl_buffer_free(&context->slab, &connection->in);
    fl_buffer_free(&context->slab, &connection->out);
    /* A child process of the app may have the socket too: then closing it would not remove it from the poll. */
    fl_poll_remove(&context->poll, connection->transport.descriptor);

    FL_LIST_UNLINK(context->connections, connection, previous, next);
    connection->next = context->closed;
    context->closed = connection;
    fl_connection_count(connection, -1, connection->fresh ? -1 : 0);
}

void fl_connection_close(fl_connection *connection) {
    if (connection->state == FL_CONNECTION_CLOSED)
        return;
    disconnect(connection, true);
    connection->transport.kind->close(&connection->transport);
}

int fl_connection_release_socket(fl_connection *connection) {
    int descriptor = connection->transport.descriptor;
    disconnect(connection, false);
    connection->transport.descriptor = -1;
    return descriptor;
}

/* Closing a socket with unread input resets the connection, and the client might lose the response. */
static void linger(fl_connection *connection) {
    if (!connection->readable && (connection->half_closed || connection->in.length == 0)) {
        fl_connection_close(connection);
        return;
    }
    connection->state = FL_CONNECTION_LINGERING;
    fl_buffer_free(&connection->context->slab, &connection->in);
    connection->transport.kind->finish(&connection->transport);
    fl_connection_set_deadline(connection, FL_DEADLINE_LINGER);
    fl_connection_receive(connection);
}

void fl_connection_end(fl_connection *connection) {
    connection->state = FL_CONNECTION_ENDING;
    fl_connection_send(connection, NULL);
}

void fl_connection_all_sent(fl_connection *connection) {
    if (connection->state == FL_CONNECTION_ENDING) {
        linger(connection);
    } else if (connection->state == FL_CONNECTION_OPEN || connection->state == FL_CONNECTION_SENDING) {
        fl_connection_set_deadline(connection, FL_DEADLINE_NONE);
        for (fl_exchange *exchange = connection->exchanges; exchange != NULL; exchange = exchange->stream_next)
            if (exchange->response.awaits_room)
                fl_exchange_wake(exchange);
        connection->protocol->sent(connection);
    }
}

void fl_connection_drain(fl_connection *connection) {
    if (connection->state == FL_CONNECTION_OPENING)
        fl_connection_close(connection);
    else if (connection->protocol != NULL)
        connection->protocol->drain(connection);
}

void fl_connection_event(fl_connection *connection, uint32_t ready) {
    if (connection->state == FL_CONNECTION_CLOSED)
        return;
    if (ready & FL_BROKEN) {
        fl_connection_close(connection);
        return;
    }
    if (ready & FL_HALF_CLOSED)
        connection->half_closed = true;
    if (connection->state == FL_CONNECTION_OPENING) {
        shake_hands(connection);
        return;
    }
    if (ready & (FL_READABLE | FL_HALF_CLOSED | connection->transport.read_needs))
        connection->readable = true;
    if (connection->half_closed && connection->protocol->half_closed != NULL) {
        connection->protocol->half_closed(connection);
        if (connection->state == FL_CONNECTION_CLOSED)
            return;
    }
    if ((ready & connection->transport.write_needs) && connection->out.length > 0)
        fl_connection_send(connection, NULL);
    if (connection->state != FL_CONNECTION_CLOSED)
        fl_connection_receive(connection);
}

bool fl_connection_is_idle(const fl_connection *connection) {
    return connection->state == FL_CONNECTION_OPEN && connection->exchanges == NULL && connection->in.length == 0 &&
           connection->out.length == 0 && !connection->readable && !connection->half_closed;
}

/* Waits for the event that the next read needs. Writability has to be requested again: the socket may be writable all the time. */
static void await_input(fl_connection *connection) {
    connection->readable = false;
    if (connection->transport.read_needs == FL_WRITABLE)
        connection->wants_writable = false;
    fl_connection_await(connection, connection->transport.read_needs);
}

ssize_t fl_connection_read(fl_connection *connection, fl_buffer *buffer, size_t most) {
    if (fl_buffer_reserve(&connection->context->slab, buffer, most) != FL_OK) {
        fl_connection_close(connection);
        return 0;
    }
    fl_transport *transport = &connection->transport;
    ssize_t count = transport->kind->read(transport, fl_buffer_room(buffer), most);
    if (count > 0) {
        connection->progress += (uint64_t) count;
        if (transport->drained && !connection->half_closed)
            await_input(connection);
        return count;
    }
    if (count == FL_TRANSPORT_BROKEN) {
        fl_connection_close(connection);
        return 0;
    }
    if (count == FL_TRANSPORT_WAIT) {
        await_input(connection);
    } else {
        connection->readable = false;
        connection->half_closed = true;
    }
    fl_buffer_consume(&connection->context->slab, buffer, 0);
    return count == 0 ? -1 : 0;
}

static void drop_input(fl_connection *connection) {
    fl_buffer scratch = {0};
    for (int i = 0; i < 16 && connection->readable && connection->state == FL_CONNECTION_LINGERING; i++)
        if (fl_connection_read(connection, &scratch, DROPPED_AT_ONCE) < 0) {
            fl_connection_close(connection);
            break;
        }
    fl_buffer_free(&connection->context->slab, &scratch);
}

void fl_connection_receive(fl_connection *connection) {
    uint64_t before;
    do {
        if (!connection->readable)
            return;
        before = connection->progress;
        if (connection->state == FL_CONNECTION_LINGERING)
            drop_input(connection);
        if (connection->state != FL_CONNECTION_OPEN)
            return;
        connection->protocol->receive(connection);
    } while (connection->progress != before);
}

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

static bool has_progressed(uint64_t progress, const fl_deadline *deadline) {
    return (int64_t) (progress - deadline->progress) >= MIN_PROGRESS;
}

static void expire_body(fl_exchange *exchange) {
    fl_deadline *deadline = &exchange->request.deadline;
    bool progressed = has_progressed(exchange->request.received, deadline);
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
    bool progressed = has_progressed(progress_of(connection, FL_DEADLINE_WRITE), &connection->deadline);
    fl_connection_set_deadline(connection, FL_DEADLINE_NONE);
    if (connection->out.length == 0 && fl_unacknowledged(transport->descriptor) == 0) {
        fl_connection_all_sent(connection);
    } else if (progressed) {
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
        fl_event_stream_expired(fl_exchange_of_deadline(deadline));
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
