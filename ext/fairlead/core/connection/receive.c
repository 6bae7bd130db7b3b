/* What a connection reads: heads, and bodies as far as there is room for them. */
#include "context.h"
#include "exchange.h"
#include "parts.h"

#include <string.h>

enum {
    READ_SIZE = 4096, /* for heads: most fit, and the block is small */
    BODY_READ_SIZE = 65536,
};

/* The socket is empty: what comes later is a new event. */
static void all_read(fl_connection *connection) {
    connection->readable = false;
    fl_poll_again(&connection->context->poll, connection->transport.descriptor, FL_READABLE);
}

/* Reads into `buffer`; answers how many bytes, 0 when there is nothing now, -1 when the stream has ended. */
static ssize_t read_into(fl_connection *connection, fl_buffer *buffer, size_t most) {
    if (fl_buffer_reserve(&connection->context->slab, buffer, most) != FL_OK) {
        fl_connection_close(connection);
        return 0;
    }
    ssize_t count = connection->transport.kind->read(&connection->transport, fl_buffer_room(buffer), most);
    if (count == FL_TRANSPORT_BROKEN) {
        fl_connection_close(connection);
        return 0;
    }
    if (count == FL_TRANSPORT_WAIT) {
        all_read(connection);
        fl_buffer_consume(&connection->context->slab, buffer, 0);
        return 0;
    }
    if (count == 0) {
        connection->readable = false;
        connection->half_closed = true;
        fl_buffer_consume(&connection->context->slab, buffer, 0);
        return -1;
    }
    connection->progress += (uint64_t) count;
    if ((size_t) count < most && !connection->half_closed)
        all_read(connection);
    return count;
}

/* Takes `size` bytes of the coded body, which lie at the end of `buffer` or elsewhere, out of `bytes`; answers how many
 * were used, or -1 when the connection has been refused. Those of the body move to its buffer. */
static ssize_t accept_body(fl_exchange *exchange, char *bytes, size_t size, bool in_place) {
    fl_connection *connection = exchange->connection;
    fl_context *context = connection->context;
    size_t used, decoded;
    if (exchange->chunked) {
        fl_status status = fl_chunks_decode(&exchange->chunks, bytes, size, &used, &decoded);
        if (status != FL_OK && status != FL_AGAIN) {
            fl_connection_refuse(connection, status);
            return -1;
        }
        exchange->body_done = status == FL_OK;
        size_t trailers = exchange->chunks.trailers;
        bool none = exchange->body_done && exchange->trailers.length == 0 && used - trailers <= 2;
        if (used > trailers && !none &&
            fl_buffer_append(&context->slab, &exchange->trailers, bytes + trailers, used - trailers) != FL_OK) {
            fl_connection_refuse(connection, FL_NO_MEMORY);
            return -1;
        }
    } else {
        uint64_t left = exchange->body_expected - exchange->body_received;
        used = decoded = size < left ? size : (size_t) left;
        exchange->body_done = decoded == left;
    }
    exchange->body_received += decoded;
    if (exchange->body_received > context->limits.body_size) {
        fl_connection_refuse(connection, FL_BODY_TOO_LARGE);
        return -1;
    }
    if (in_place) {
        fl_buffer_added(&exchange->body, decoded);
    } else if (fl_buffer_append(&context->slab, &exchange->body, bytes, decoded) != FL_OK) {
        fl_connection_refuse(connection, FL_NO_MEMORY);
        return -1;
    }
    return (ssize_t) used;
}

/* The request may go on: all of its body is here, or as much as is read ahead. */
static void body_has_grown(fl_connection *connection) {
    fl_exchange *exchange = connection->exchange;
    if (connection->state == FL_CONNECTION_SERVED) {
        fl_exchange_wake(exchange);
        exchange->awaits_body = false; /* the client's deadline ends here, however long the app takes to come back */
    } else if (exchange->body_done ||
               exchange->body.length >= fl_context_keeps(connection->context, connection->context->limits.body_buffer)) {
        fl_connection_request_is_ready(connection);
    } else if (connection->deadline_kind == FL_DEADLINE_NONE || connection->deadline_kind == FL_DEADLINE_IDLE ||
               connection->deadline_kind == FL_DEADLINE_HEAD) {
        fl_connection_set_deadline(connection, FL_DEADLINE_BODY);
    }
}

static void receive_body(fl_connection *connection) {
    fl_exchange *exchange = connection->exchange;
    fl_context *context = connection->context;
    uint32_t limit = fl_context_keeps(context, context->limits.body_buffer);
    if (connection->state == FL_CONNECTION_SERVED && limit < BODY_READ_SIZE)
        limit = BODY_READ_SIZE; /* who serves it reads it, however little is read ahead */
    if (exchange->body_done || exchange->body_failed)
        return;
    if (exchange->body.length >= limit) {
        if (connection->state == FL_CONNECTION_BODY)
            body_has_grown(connection); /* less is kept than when it came */
        return;
    }
    size_t most = limit - exchange->body.length;
    if (most > BODY_READ_SIZE)
        most = BODY_READ_SIZE;
    if (!exchange->chunked && most > exchange->body_expected - exchange->body_received)
        most = (size_t) (exchange->body_expected - exchange->body_received);
    ssize_t count = read_into(connection, &exchange->body, most);
    if (connection->state == FL_CONNECTION_CLOSED)
        return;
    if (count < 0) {
        if (connection->state == FL_CONNECTION_SERVED) {
            exchange->body_failed = true;
            fl_exchange_wake(exchange);
        } else {
            fl_connection_close(connection);
        }
        return;
    }
    if (count == 0)
        return;
    char *bytes = fl_buffer_room(&exchange->body);
    ssize_t used = accept_body(exchange, bytes, (size_t) count, true);
    if (used < 0)
        return;
    if (used < count) { /* the next request; `bytes` are still where they were read */
        if (fl_buffer_append(&context->slab, &connection->in, bytes + used, (size_t) (count - used)) != FL_OK) {
            fl_connection_close(connection);
            return;
        }
    }
    body_has_grown(connection);
}

static void head_is_complete(fl_connection *connection) {
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    fl_exchange *exchange = connection->exchange;
    fl_context *context = connection->context;
    fl_http1_head *head = exchange->head;
    exchange->minor = head->minor;
    exchange->head_method = head->head_method;
    exchange->connect_method = head->form == FL_TARGET_AUTHORITY;
    exchange->chunked = head->chunked;
    exchange->body_expected = head->has_length ? head->content_length : 0;
    exchange->body_done = !head->chunked && exchange->body_expected == 0;
    /* Bytes behind a CONNECT may be meant for a tunnel: they are never the next request. */
    connection->keep_alive = head->keep_alive && !exchange->connect_method;
    if (exchange->body_done) {
        fl_connection_request_is_ready(connection);
        return;
    }
    if (exchange->body_expected > context->limits.body_size) {
        fl_connection_refuse(connection, FL_BODY_TOO_LARGE);
        return;
    }
    connection->state = FL_CONNECTION_BODY;
    fl_buffer *in = &connection->in;
    size_t rest = in->length - head->size;
    if (rest > 0) {
        char *bytes = fl_buffer_at(in) + head->size;
        ssize_t used = accept_body(exchange, bytes, rest, false);
        if (used < 0)
            return;
        memmove(bytes, bytes + used, rest - (size_t) used);
        in->length -= (uint32_t) used;
    } else if (head->expect_continue) {
        if (fl_buffer_append(&context->slab, &connection->out, go_on, sizeof go_on - 1) == FL_OK)
            fl_connection_send(connection, NULL);
        if (connection->state == FL_CONNECTION_CLOSED)
            return;
    }
    body_has_grown(connection);
}

static void parse_one(fl_connection *connection) {
    fl_context *context = connection->context;
    if (connection->exchange == NULL) {
        connection->exchange = fl_exchange_new(context, connection);
        if (connection->exchange == NULL) {
            fl_connection_refuse(connection, FL_NO_MEMORY);
            return;
        }
        connection->state = FL_CONNECTION_HEAD;
    }
    fl_http1_limits limits = context->limits.http1;
    limits.head = fl_context_keeps(context, limits.head);
    fl_status status =
        fl_http1_parse(connection->exchange->head, fl_buffer_at(&connection->in), connection->in.length, &limits);
    if (status == FL_OK)
        head_is_complete(connection);
    else if (status != FL_AGAIN)
        fl_connection_refuse(connection, status);
    else if (connection->deadline_kind != FL_DEADLINE_HEAD && connection->deadline_kind != FL_DEADLINE_WRITE)
        fl_connection_set_deadline(connection, FL_DEADLINE_HEAD);
}

void fl_connection_parse(fl_connection *connection) {
    if (connection->in.length > 0)
        parse_one(connection);
    while (connection->state == FL_CONNECTION_IDLE && connection->in.length > 0) /* that was answered by us */
        parse_one(connection);
}

static void receive_head(fl_connection *connection) {
    ssize_t count = read_into(connection, &connection->in, READ_SIZE);
    if (count < 0) {
        if (connection->out.length > 0) /* it has asked, and ended its side: it may still read */
            fl_connection_end(connection);
        else
            fl_connection_close(connection);
    }
    if (count <= 0)
        return;
    fl_buffer_added(&connection->in, (size_t) count);
    fl_connection_parse(connection);
}

static void drop_input(fl_connection *connection) {
    fl_buffer scratch = {0};
    for (int i = 0; i < 16 && connection->readable && connection->state == FL_CONNECTION_LINGERING; i++)
        if (read_into(connection, &scratch, BODY_READ_SIZE) < 0) {
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
        switch (connection->state) {
        case FL_CONNECTION_IDLE:
        case FL_CONNECTION_HEAD:
            receive_head(connection);
            break;
        case FL_CONNECTION_BODY:
        case FL_CONNECTION_SERVED:
            receive_body(connection);
            break;
        case FL_CONNECTION_LINGERING:
            drop_input(connection);
            return;
        default: /* busy with what has come already */
            return;
        }
    } while (connection->progress != before);
}
