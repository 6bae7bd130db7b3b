/* Opening, reading, events, and closing. */
#include "connection.h"
#include "base/descriptors.h"
#include "base/list.h"
#include "base/platform.h"
#include "context.h"
#include "exchange.h"
#include "internal.h"
#include "proxy_header.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    DROPPED_A_TURN = 16384,
    A_TURN = 262144, /* bytes that a connection moves before it is another one's turn, */
    A_READ = 256,    /* and how many more each read counts for, which may bring a single byte */
};

void fl_connection_count(fl_connection *connection, int connections, int fresh) {
    fl_context *context = connection->context;
    context->counts.connections += (uint32_t) connections;
    context->counts.fresh += (uint32_t) fresh;
    context->calls->connections_changed(context);
}

const fl_protocol *fl_connection_find_protocol(const fl_connection *connection, const char *name) {
    const fl_protocol *const *protocol = connection->listener->protocols;
    while (*protocol != NULL && strcmp((*protocol)->name, name) != 0) protocol++;
    return *protocol;
}

static void open_protocol(fl_connection *connection, const fl_protocol *protocol) {
    connection->protocol = protocol;
    connection->state = FL_CONNECTION_OPEN;
    if (protocol->open != NULL)
        protocol->open(connection);
    fl_connection_update_deadline(connection);
}

/* Chooses the protocol once the transport is open. */
static void begin(fl_connection *connection) {
    const char *negotiated = connection->transport.protocol;
    const fl_protocol *protocol = negotiated == NULL ? NULL : fl_connection_find_protocol(connection, negotiated);
    open_protocol(connection, protocol != NULL ? protocol : connection->listener->protocols[0]);
}

void fl_connection_switch_protocol(fl_connection *connection, const fl_protocol *protocol) {
    while (connection->exchanges != NULL) fl_exchange_free(connection->exchanges);
    if (connection->protocol->close != NULL)
        connection->protocol->close(connection);
    memset(connection->protocol_state, 0, sizeof connection->protocol_state);
    open_protocol(connection, protocol);
}

/* A handshake computes for long: it goes on later, where it delays no request. */
static void queue_handshake(fl_connection *connection) {
    fl_context *context = connection->context;
    if (connection->shakes)
        return;
    connection->shakes = true;
    context->handshakes.count++;
    connection->handshake_next = NULL;
    if (context->handshakes.last != NULL)
        context->handshakes.last->handshake_next = connection;
    else
        context->handshakes.first = connection;
    context->handshakes.last = connection;
}

fl_connection *fl_context_next_handshake(fl_context *context) {
    fl_connection *connection = context->handshakes.first;
    if (connection == NULL)
        return NULL;
    context->handshakes.first = connection->handshake_next;
    if (context->handshakes.first == NULL)
        context->handshakes.last = NULL;
    connection->shakes = false;
    context->handshakes.count--;
    return connection;
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
        /* Its turn may have come late: a client of a server that stops has a second from here on. */
        if (connection->context->draining && !connection->context->handing_over)
            fl_connection_restart_deadline(connection);
    } else {
        fl_connection_close(connection);
    }
}

void fl_context_shake_hands(fl_context *context, uint64_t microseconds) {
    uint64_t end = fl_clock() + microseconds;
    for (fl_connection *connection; (connection = fl_context_next_handshake(context)) != NULL;) {
        if (connection->state == FL_CONNECTION_OPENING)
            shake_hands(connection);
        if (fl_clock() >= end)
            return;
    }
}

/* The transport is ready to open. */
static void open_transport(fl_connection *connection) {
    if (connection->transport.kind->handshake == NULL) {
        begin(connection);
        return;
    }
    fl_connection_restart_deadline(connection);
    queue_handshake(connection);
}

/* The bytes behind the header belong to the transport, so the header is only looked at until it is complete. */
static void receive_proxy_header(fl_connection *connection) {
    char bytes[FL_PROXY_HEADER_MAX];
    int descriptor = connection->transport.descriptor;
    ssize_t available = recv(descriptor, bytes, sizeof bytes, MSG_PEEK);
    bool waits = available < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    ssize_t size = available > 0 ? fl_proxy_header_parse(bytes, (size_t) available, &connection->client) : waits ? 0 : -1;
    if (size == 0 && !connection->half_closed)
        return;
    if (size <= 0 || recv(descriptor, bytes, (size_t) size, 0) != size) {
        connection->context->counts.refused += available > 0;
        fl_connection_close(connection);
        return;
    }
    connection->awaits_proxy = false;
    open_transport(connection);
    if (connection->state == FL_CONNECTION_OPEN) {
        connection->readable = true; /* the poll has reported what follows already */
        fl_connection_receive(connection);
    }
}

static fl_connection *new_connection(fl_context *context, fl_listener *listener, int descriptor, const char *bytes,
                                     size_t size) {
    fl_connection *connection = calloc(1, sizeof *connection);
    const fl_transport_kind *transport = context->handed.relayed ? &fl_transport_plain : listener->transport;
    if (connection == NULL || !fl_transport_open(&connection->transport, transport, listener->configuration, descriptor)) {
        free(connection);
        close(descriptor);
        return NULL;
    }
    if (fl_buffer_append(&context->slab, &connection->in, bytes, size) == FL_OK &&
        fl_poll_add_connection(&context->poll, descriptor, connection) == 0) {
        if (context->handed.identity != NULL)
            connection->transport.identity = fl_identity_retain(context->handed.identity);
        return connection;
    }
    fl_buffer_free(&context->slab, &connection->in);
    connection->transport.kind->close(&connection->transport);
    free(connection);
    return NULL;
}

fl_connection *fl_connection_open(fl_context *context, fl_listener *listener, int descriptor, const char *bytes, size_t size) {
    bool relayed = context->handed.relayed;
    fl_descriptor_track(descriptor); /* first: another thread may fork at any time */
    if (relayed)
        fl_descriptor_set_relayed(descriptor, true);
    fl_connection *connection = new_connection(context, listener, descriptor, bytes, size);
    if (connection == NULL) {
        if (relayed)
            fl_descriptor_set_relayed(descriptor, false);
        return NULL;
    }
    connection->source = FL_SOURCE_CONNECTION;
    connection->context = context;
    connection->listener = listener;
    FL_LIST_PUSH(context->connections, connection, previous, next);
    connection->fresh = true;
    fl_connection_count(connection, 1, 1);
    bool known = context->handed.client.family != 0;
    connection->client = known ? context->handed.client : fl_client_of_peer(descriptor);
    connection->relayed = relayed;
    connection->awaits_proxy = listener->proxied && !known && !connection->relayed;
    if (connection->awaits_proxy)
        fl_connection_update_deadline(connection);
    else
        open_transport(connection);
    return connection;
}

/* Everything but closing the transport. `client_gone`: false if the socket stays open. */
static void disconnect(fl_connection *connection, bool client_gone) {
    fl_context *context = connection->context;
    connection->state = FL_CONNECTION_CLOSED;
    fl_connection_update_deadline(connection);
    for (fl_exchange *exchange; (exchange = connection->exchanges) != NULL;) {
        fl_exchange_detach(exchange);
        fl_exchange_connection_lost(exchange, client_gone);
    }
    if (connection->protocol != NULL && connection->protocol->close != NULL)
        connection->protocol->close(connection);
    fl_buffer_free(&context->slab, &connection->in);
    fl_buffer_free(&context->slab, &connection->out);
    if (connection->transport.identity != NULL)
        fl_identity_release(connection->transport.identity);
    connection->transport.identity = NULL;
    /* A child process of the app may have the socket too: then closing it would not remove it from the poll. */
    fl_poll_remove(&context->poll, connection->transport.descriptor);
    if (connection->relayed)
        fl_descriptor_set_relayed(connection->transport.descriptor, false);

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
    fl_connection_update_deadline(connection);
    fl_connection_receive(connection);
}

void fl_connection_end(fl_connection *connection) {
    connection->state = FL_CONNECTION_ENDING;
    fl_connection_send(connection, NULL);
}

void fl_connection_all_sent(fl_connection *connection) {
    connection->awaits_room = false;
    if (connection->state == FL_CONNECTION_ENDING) {
        linger(connection);
    } else if (connection->state == FL_CONNECTION_OPEN || connection->state == FL_CONNECTION_SENDING) {
        fl_connection_update_deadline(connection);
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
        if (connection->awaits_proxy)
            receive_proxy_header(connection);
        else
            queue_handshake(connection);
        return;
    }
    if (ready & (FL_READABLE | FL_HALF_CLOSED | connection->transport.read_needs))
        connection->readable = true;
    if (connection->half_closed && connection->protocol->half_closed != NULL) {
        connection->protocol->half_closed(connection);
        if (connection->state == FL_CONNECTION_CLOSED)
            return;
    }
    if ((ready & connection->transport.write_needs) && (connection->out.length > 0 || connection->awaits_room))
        fl_connection_send(connection, NULL);
    if (connection->state != FL_CONNECTION_CLOSED)
        fl_connection_receive(connection);
}

bool fl_connection_is_idle(const fl_connection *connection) {
    return connection->state == FL_CONNECTION_OPEN && connection->exchanges == NULL && connection->in.length == 0 &&
           connection->out.length == 0 && !connection->readable && !connection->half_closed && !connection->tunneled;
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
        connection->received += (uint64_t) count;
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

/* A client may send for as long as it lingers, so others have their turn in between. */
static void drop_input(fl_connection *connection) {
    fl_buffer scratch = {0};
    if (fl_connection_read(connection, &scratch, DROPPED_A_TURN) < 0)
        fl_connection_close(connection);
    else if (connection->state == FL_CONNECTION_LINGERING && connection->readable)
        fl_connection_mark_dirty(connection); /* goes on at the next turn */
    fl_buffer_free(&connection->context->slab, &scratch);
}

void fl_connection_receive(fl_connection *connection) {
    uint64_t before, end = connection->received + connection->sent + A_TURN;
    do {
        if (!connection->readable)
            return;
        before = connection->received + connection->sent;
        if (connection->state == FL_CONNECTION_LINGERING)
            drop_input(connection);
        if (connection->state != FL_CONNECTION_OPEN)
            return;
        if (before >= end) {
            fl_connection_mark_dirty(connection); /* goes on at the next turn */
            return;
        }
        end -= A_READ;
        connection->protocol->receive(connection);
    } while (connection->state == FL_CONNECTION_OPEN && connection->received + connection->sent != before);
}
