/* What HTTP/1 reads: heads, and bodies as far as there is room for them. */
#include "protocol_parts.h"

#include <string.h>

enum {
    READ_SIZE = 4096, /* for heads: most fit, and the block is small */
    BODY_READ_SIZE = 65536,
};

/* Takes `size` bytes of the coded body, which lie at the end of `buffer` or elsewhere, out of `bytes`; answers how many
 * were used, or -1 when the connection has been refused. Those of the body move to its buffer. */
static ssize_t accept_body(fl_exchange *exchange, char *bytes, size_t size, bool in_place) {
    fl_connection *connection = exchange->connection;
    fl_context *context = connection->context;
    size_t used, decoded;
    if (exchange->request.chunked) {
        fl_chunks *chunks = &fl_http1_part(exchange)->chunks;
        fl_status status = fl_chunks_decode(chunks, bytes, size, &used, &decoded);
        if (status != FL_OK && status != FL_AGAIN) {
            fl_exchange_reject(exchange, status);
            return -1;
        }
        exchange->request.whole = status == FL_OK;
        size_t trailers = chunks->trailers;
        bool none = exchange->request.whole && exchange->request.trailers.length == 0 && used - trailers <= 2;
        if (used > trailers && !none &&
            fl_buffer_append(&context->slab, &exchange->request.trailers, bytes + trailers, used - trailers) != FL_OK) {
            fl_exchange_reject(exchange, FL_NO_MEMORY);
            return -1;
        }
    } else {
        uint64_t left = exchange->request.expected - exchange->request.received;
        used = decoded = size < left ? size : (size_t) left;
        exchange->request.whole = decoded == left;
    }
    exchange->request.received += decoded;
    if (exchange->request.received > context->limits.body_size) {
        fl_exchange_reject(exchange, FL_BODY_TOO_LARGE);
        return -1;
    }
    if (in_place) {
        fl_buffer_added(&exchange->request.body, decoded);
    } else if (fl_buffer_append(&context->slab, &exchange->request.body, bytes, decoded) != FL_OK) {
        fl_exchange_reject(exchange, FL_NO_MEMORY);
        return -1;
    }
    return (ssize_t) used;
}

static void receive_body(fl_connection *connection, fl_exchange *exchange) {
    fl_context *context = connection->context;
    uint32_t limit = fl_context_buffer_limit(context, context->limits.body_buffer);
    if (exchange->state == FL_EXCHANGE_SERVED && limit < BODY_READ_SIZE)
        limit = BODY_READ_SIZE; /* who serves it reads it, however little is read ahead */
    if (exchange->request.whole || exchange->request.failed)
        return;
    if (exchange->request.body.length >= limit) {
        if (exchange->state == FL_EXCHANGE_BODY)
            fl_exchange_body_came(exchange); /* less is kept than when it came */
        return;
    }
    size_t most = limit - exchange->request.body.length;
    if (most > BODY_READ_SIZE)
        most = BODY_READ_SIZE;
    if (!exchange->request.chunked && most > exchange->request.expected - exchange->request.received)
        most = (size_t) (exchange->request.expected - exchange->request.received);
    ssize_t count = fl_connection_read(connection, &exchange->request.body, most);
    if (connection->state == FL_CONNECTION_CLOSED)
        return;
    if (count < 0) {
        if (exchange->state == FL_EXCHANGE_SERVED) {
            exchange->request.failed = true;
            fl_exchange_wake(exchange);
        } else {
            fl_connection_close(connection);
        }
        return;
    }
    if (count == 0)
        return;
    char *bytes = fl_buffer_room(&exchange->request.body);
    ssize_t used = accept_body(exchange, bytes, (size_t) count, true);
    if (used < 0)
        return;
    if (used < count) { /* the next request; `bytes` are still where they were read */
        if (fl_buffer_append(&context->slab, &connection->in, bytes + used, (size_t) (count - used)) != FL_OK) {
            fl_connection_close(connection);
            return;
        }
    }
    fl_exchange_body_came(exchange);
}

static void head_is_complete(fl_connection *connection, fl_exchange *exchange) {
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    fl_context *context = connection->context;
    fl_head *head = exchange->request.head;
    fl_http1_part(exchange)->minor = head->minor;
    exchange->request.head_method = head->head_method;
    exchange->request.connect_method = head->form == FL_TARGET_AUTHORITY;
    exchange->request.chunked = head->chunked;
    exchange->request.expected = head->has_length ? head->content_length : 0;
    exchange->request.whole = !head->chunked && exchange->request.expected == 0;
    /* Bytes behind a CONNECT may be meant for a tunnel: they are never the next request. */
    fl_http1_of(connection)->keep_alive = head->keep_alive && !exchange->request.connect_method;
    exchange->state = FL_EXCHANGE_BODY;
    if (head->chunked)
        fl_http1_part(exchange)->chunks = (fl_chunks) {0};
    if (exchange->request.whole) {
        fl_exchange_is_ready(exchange);
        return;
    }
    if (exchange->request.expected > context->limits.body_size) {
        fl_exchange_reject(exchange, FL_BODY_TOO_LARGE);
        return;
    }
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
    fl_exchange_body_came(exchange);
}

/* It has begun to ask: what has come is more than empty lines. */
static bool has_begun(const fl_connection *connection, const fl_head *head) {
    return head->started || head->line < connection->in.length;
}

static void read_request(fl_connection *connection) {
    fl_context *context = connection->context;
    fl_exchange *exchange = connection->exchanges;
    if (exchange == NULL) {
        exchange = fl_exchange_new(context, connection);
        if (exchange == NULL) {
            fl_http1_reject_connection(connection, FL_NO_MEMORY);
            return;
        }
        fl_http1_part(exchange)->minor = 0;
    }
    fl_head_limits limits = context->limits.head;
    limits.head = fl_context_buffer_limit(context, limits.head);
    fl_status status = fl_http1_parse(exchange->request.head, fl_buffer_at(&connection->in), connection->in.length, &limits);
    if (status == FL_OK) {
        head_is_complete(connection, exchange);
    } else if (status != FL_AGAIN) {
        fl_exchange_reject(exchange, status);
    } else {
        exchange->state = has_begun(connection, exchange->request.head) ? FL_EXCHANGE_HEAD : FL_EXCHANGE_NEW;
        if (connection->deadline.kind != FL_DEADLINE_HEAD && connection->deadline.kind != FL_DEADLINE_WRITE)
            fl_connection_set_deadline(connection, FL_DEADLINE_HEAD);
    }
}

void fl_http1_read_requests(fl_connection *connection) {
    if (connection->in.length > 0)
        read_request(connection);
    while (connection->state == FL_CONNECTION_OPEN && connection->exchanges == NULL && connection->in.length > 0)
        read_request(connection); /* the one before was answered by us */
}

static void receive_head(fl_connection *connection) {
    ssize_t count = fl_connection_read(connection, &connection->in, READ_SIZE);
    if (count < 0) {
        if (connection->out.length > 0) /* it has asked, and ended its side: it may still read */
            fl_connection_end(connection);
        else
            fl_connection_close(connection);
    }
    if (count <= 0)
        return;
    fl_buffer_added(&connection->in, (size_t) count);
    fl_http1_read_requests(connection);
}

void fl_http1_receive(fl_connection *connection) {
    fl_exchange *exchange = connection->exchanges;
    if (exchange == NULL || exchange->state < FL_EXCHANGE_BODY)
        receive_head(connection);
    else if (exchange->state != FL_EXCHANGE_QUEUED) /* that one has its turn before anything else is read */
        receive_body(connection, exchange);
}
