#include "tunnel.h"
#include "base/descriptors.h"
#include "base/platform.h"
#include "context.h"
#include "protocol.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    READ_SIZE = 16384,
    READS_A_TURN = 8, /* so that one tunnel does not hold up the others */
};

struct fl_tunnel {
    fl_source source;
    bool readable; /* the app may have written more */
    bool ended;    /* the app knows that the client has ended its side */
    int descriptor;
    fl_connection *connection;
    fl_buffer to_app;
};

static fl_tunnel *tunnel_of(const fl_connection *connection) {
    return *(fl_tunnel *const *) (const void *) connection->protocol_state;
}

static bool has_to_wait(void) {
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

/* Passes on what the client has sent. */
static void write_to_app(fl_tunnel *tunnel) {
    fl_connection *connection = tunnel->connection;
    fl_buffer *to_app = &tunnel->to_app;
    while (to_app->length > 0) {
        ssize_t count = send(tunnel->descriptor, fl_buffer_at(to_app), to_app->length, FL_SEND_FLAGS);
        if (count < 0 && has_to_wait()) {
            fl_poll_want_writable(&connection->context->poll, tunnel->descriptor, tunnel);
            return;
        }
        if (count < 0) { /* the app has closed its end */
            fl_connection_close(connection);
            return;
        }
        fl_buffer_consume(&connection->context->slab, to_app, (size_t) count);
    }
    if (connection->half_closed && !connection->readable && !tunnel->ended) {
        tunnel->ended = true;
        shutdown(tunnel->descriptor, SHUT_WR);
    }
}

/* Reads what the app has sent into `out`. Returns false at the app's end. */
static bool read_from_app(fl_tunnel *tunnel) {
    fl_connection *connection = tunnel->connection;
    fl_slab *slab = &connection->context->slab;
    if (fl_buffer_reserve(slab, &connection->out, READ_SIZE) != FL_OK)
        return false;
    ssize_t count = recv(tunnel->descriptor, fl_buffer_room(&connection->out), READ_SIZE, 0);
    if (count > 0) {
        fl_buffer_added(&connection->out, (size_t) count);
        return true;
    }
    bool wait = count < 0 && has_to_wait();
    fl_buffer_consume(slab, &connection->out, 0);
    tunnel->readable = false;
    return wait;
}

/* Passes on what the app has sent, as far as the client takes it. */
static void write_to_client(fl_tunnel *tunnel) {
    fl_connection *connection = tunnel->connection;
    for (int reads = 0; tunnel->readable && connection->state == FL_CONNECTION_OPEN && connection->out.length == 0; reads++) {
        if (reads == READS_A_TURN) {
            fl_connection_mark_dirty(connection); /* goes on at the next turn */
            return;
        }
        if (!read_from_app(tunnel))
            fl_connection_end(connection);
        else if (connection->out.length > 0)
            fl_connection_send(connection, NULL);
    }
}

static void receive(fl_connection *connection) {
    fl_tunnel *tunnel = tunnel_of(connection);
    if (tunnel->to_app.length > 0)
        return;
    ssize_t count = fl_connection_read(connection, &tunnel->to_app, READ_SIZE);
    if (connection->state == FL_CONNECTION_CLOSED)
        return;
    if (count > 0)
        fl_buffer_added(&tunnel->to_app, (size_t) count);
    if (count != 0)
        write_to_app(tunnel);
}

static void sent(fl_connection *connection) {
    write_to_client(tunnel_of(connection));
}

static void send_staged(fl_connection *connection) {
    if (connection->out.length > 0) /* a response that came before */
        fl_connection_send(connection, NULL);
    write_to_client(tunnel_of(connection));
}

static bool app_has_closed(const fl_tunnel *tunnel) {
    struct pollfd end = {.fd = tunnel->descriptor};
    return poll(&end, 1, 0) > 0 && (end.revents & POLLHUP) != 0;
}

/* What the app has written before it closed its end is sent to its end. */
static void drain(fl_connection *connection) {
    fl_tunnel *tunnel = tunnel_of(connection);
    if (connection->state != FL_CONNECTION_OPEN)
        return;
    tunnel->readable = true;
    write_to_client(tunnel);
    if (connection->state == FL_CONNECTION_OPEN && !app_has_closed(tunnel))
        fl_connection_end(connection);
}

/* Copies of the end in forked children must not keep the app from noticing. */
static void close_tunnel(fl_connection *connection) {
    fl_tunnel *tunnel = tunnel_of(connection);
    fl_context *context = connection->context;
    context->tunnels--;
    fl_buffer_free(&context->slab, &tunnel->to_app);
    fl_poll_remove(&context->poll, tunnel->descriptor);
    fl_descriptor_set_relayed(tunnel->descriptor, false);
    shutdown(tunnel->descriptor, SHUT_RDWR);
    close(tunnel->descriptor);
}

static const fl_protocol tunnel_protocol = {
    .name = "tunnel",
    .receive = receive,
    .sent = sent,
    .send_staged = send_staged,
    .drain = drain,
    .close = close_tunnel,
};

int fl_tunnel_begin(fl_connection *connection) {
    fl_context *context = connection->context;
    int pair[2];
    fl_tunnel *tunnel = calloc(1, sizeof *tunnel);
    if (tunnel == NULL || !fl_socket_pair(pair)) {
        free(tunnel);
        return -1;
    }
    *tunnel = (fl_tunnel) {.source = FL_SOURCE_TUNNEL, .readable = true, .descriptor = pair[0], .connection = connection};
    if (fl_close_on_exec_nonblocking(pair[0]) < 0 || fl_poll_add_connection(&context->poll, pair[0], tunnel) < 0) {
        free(tunnel);
        close(pair[0]);
        close(pair[1]);
        return -1;
    }
    fl_descriptor_track(pair[0]);
    fl_descriptor_set_relayed(pair[0], true);
    fl_connection_switch_protocol(connection, &tunnel_protocol);
    *(fl_tunnel **) (void *) connection->protocol_state = tunnel;
    connection->tunneled = true;
    context->tunnels++;
    fl_connection_mark_dirty(connection); /* the transport may hold bytes that cause no event */
    return pair[1];
}

void fl_tunnel_event(fl_tunnel *tunnel, uint32_t ready) {
    fl_connection *connection = tunnel->connection;
    if (connection->state != FL_CONNECTION_OPEN)
        return;
    if (ready & FL_WRITABLE) {
        write_to_app(tunnel);
        if (connection->state == FL_CONNECTION_OPEN)
            fl_connection_receive(connection);
    }
    if (ready & (FL_READABLE | FL_HALF_CLOSED | FL_BROKEN)) {
        tunnel->readable = true;
        write_to_client(tunnel);
    }
}

void fl_tunnel_free(fl_connection *connection) {
    free(tunnel_of(connection));
}
