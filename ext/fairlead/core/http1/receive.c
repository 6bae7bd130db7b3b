/* Reads HTTP/1 requests: heads, and bodies as far as the buffer limits allow. */
#include "internal.h"

#include <string.h>

enum {
    READ_SIZE = 4096, /* most heads fit, and the block is small */
    BODY_READ_SIZE = 65536,
};

/* The first bytes of a client that knows that the server speaks HTTP/2 (RFC 9113, 3.3 and 3.4). */
static const char PREFACE[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
enum { PREFACE_SIZE = sizeof PREFACE - 1 };

/* Decodes `size` received bytes and appends them to the request's body. `in_place`: they lie in the room of its buffer already. Returns how
 * many belong to the request, or -1 if it has rejected the request. */
static ssize_t accept_body(fl_exchange *exchange, char *bytes, size_t size, bool in_place) {
    fl_request *request = &exchange->request;
    fl_connection *connection = exchange->connection;
    fl_context *context = connection->context;
    size_t used, decoded;
    if (request->chunked) {
        fl_chunks *chunks = &fl_http1_exchange_state(exchange)->request_chunks;
        fl_status status = fl_chunks_decode(chunks, bytes, size, &used, &decoded);
        if (status != FL_OK && status != FL_AGAIN) {
            fl_exchange_reject(exchange, status);
            return -1;
        }
        request->complete = status == FL_OK;
        size_t trailers = chunks->trailers;
        bool none = request->complete && request->trailers.length == 0 && used - trailers <= 2;
        if (used > trailers && !none &&
            fl_buffer_append(&context->slab, &request->trailers, bytes + trailers, used - trailers) != FL_OK) {
            fl_exchange_reject(exchange, FL_NO_MEMORY);
            return -1;
        }
    } else {
        uint64_t left = request->content_length - request->received;
        used = decoded = size < left ? size : (size_t) left;
        request->complete = decoded == left;
    }
    request->received += decoded;
    if (request->received > context->limits.body_size) {
        fl_exchange_reject(exchange, FL_BODY_TOO_LARGE);
        return -1;
    }
    if (in_place) {
        fl_buffer_added(&request->body, decoded);
    } else if (fl_buffer_append(&context->slab, &request->body, bytes, decoded) != FL_OK) {
        fl_exchange_reject(exchange, FL_NO_MEMORY);
        return -1;
    }
    return (ssize_t) used;
}

static void receive_body(fl_connection *connection, fl_exchange *exchange) {
    fl_request *request = &exchange->request;
    fl_context *context = connection->context;
    uint32_t limit = fl_context_buffer_limit(context, context->limits.body_buffer);
    if (exchange->state == FL_EXCHANGE_SERVED && limit < BODY_READ_SIZE)
        limit = BODY_READ_SIZE; /* a small read-ahead buffer must not slow down the owner */
    if (request->complete || request->failed)
        return;
    if (request->body.length >= limit) {
        if (exchange->state == FL_EXCHANGE_BODY)
            fl_exchange_body_received(exchange); /* the limit has been reduced meanwhile */
        return;
    }
    size_t most = limit - request->body.length;
    if (most > BODY_READ_SIZE)
        most = BODY_READ_SIZE;
    if (!request->chunked && most > request->content_length - request->received)
        most = (size_t) (request->content_length - request->received);
    ssize_t count = fl_connection_read(connection, &request->body, most);
    if (connection->state == FL_CONNECTION_CLOSED)
        return;
    if (count < 0) {
        if (exchange->state == FL_EXCHANGE_SERVED) {
            request->failed = true;
            fl_exchange_wake(exchange);
        } else {
            fl_connection_close(connection);
        }
        return;
    }
    if (count == 0)
        return;
    char *bytes = fl_buffer_room(&request->body);
    ssize_t used = accept_body(exchange, bytes, (size_t) count, true);
    if (used < 0)
        return;
    if (used < count) { /* the next request */
        if (fl_buffer_append(&context->slab, &connection->in, bytes + used, (size_t) (count - used)) != FL_OK) {
            fl_connection_close(connection);
            return;
        }
    }
    fl_exchange_body_received(exchange);
    if (connection->state == FL_CONNECTION_OPEN && connection->exchanges == NULL)
        fl_http1_read_requests(connection); /* the core has answered it */
}

static void head_is_complete(fl_connection *connection, fl_exchange *exchange) {
    fl_request *request = &exchange->request;
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
    fl_context *context = connection->context;
    fl_head *head = request->head;
    fl_http1_exchange_state(exchange)->minor = head->minor;
    request->head_method = head->head_method;
    request->connect_method = head->form == FL_TARGET_AUTHORITY;
    request->chunked = head->chunked;
    request->content_length = head->has_length ? head->content_length : 0;
    request->complete = !head->chunked && request->content_length == 0;
    /* Bytes after a CONNECT may belong to the tunnel: they are never the next request. */
    fl_http1_connection_state(connection)->keep_alive = head->keep_alive && !request->connect_method;
    exchange->state = FL_EXCHANGE_BODY;
    if (head->chunked)
        fl_http1_exchange_state(exchange)->request_chunks = (fl_chunks) {0};
    if (request->complete) {
        fl_exchange_submit(exchange);
        return;
    }
    if (request->content_length > context->limits.body_size) {
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
        if (fl_buffer_append(&context->slab, &connection->out, interim, sizeof interim - 1) == FL_OK)
            fl_connection_send(connection, NULL);
        if (connection->state == FL_CONNECTION_CLOSED)
            return;
    }
    fl_exchange_body_received(exchange);
}

/* A request of a session that another worker owns goes there, with its connection. */
static void head_is_parsed(fl_connection *connection, fl_exchange *exchange) {
    fl_head *head = exchange->request.head;
    bool names_session = head->session.size > 0 || head->query.size > 0;
    fl_owner owner = names_session ? connection->context->calls->find_owner(exchange) : FL_OWNER_HERE;
    if (owner == FL_OWNER_HERE) {
        head_is_complete(connection, exchange);
    } else if (owner == FL_OWNER_AWAITED) {
        fl_head_clear(head); /* to be parsed again */
        exchange->state = FL_EXCHANGE_HEAD;
        connection->state = FL_CONNECTION_SENDING;
    }
}

/* The protocol that the first bytes of the connection belong to, as far as they tell; NULL: HTTP/1. */
static const fl_protocol *other_protocol(const fl_connection *connection) {
    size_t size = connection->in.length < PREFACE_SIZE ? connection->in.length : PREFACE_SIZE;
    bool matches = connection->fresh && memcmp(fl_buffer_at(&connection->in), PREFACE, size) == 0;
    return matches ? fl_connection_find_protocol(connection, "h2") : NULL;
}

/* Whether more than empty lines has been received. */
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
        fl_http1_exchange_state(exchange)->minor = 0;
    }
    fl_head_limits limits = context->limits.head;
    limits.head = fl_context_buffer_limit(context, limits.head);
    fl_status status = fl_http1_parse(exchange->request.head, fl_buffer_at(&connection->in), connection->in.length, &limits);
    const fl_protocol *other = status == FL_UNKNOWN_VERSION ? other_protocol(connection) : NULL;
    if (other != NULL && connection->in.length >= PREFACE_SIZE) {
        fl_connection_switch_protocol(connection, other);
        return;
    }
    if (other != NULL) {
        fl_head_clear(exchange->request.head);
        status = FL_AGAIN;
    }
    if (status == FL_OK) {
        head_is_parsed(connection, exchange);
    } else if (status != FL_AGAIN) {
        fl_exchange_reject(exchange, status);
    } else {
        exchange->state = has_begun(connection, exchange->request.head) ? FL_EXCHANGE_HEAD : FL_EXCHANGE_NEW;
        fl_exchange_count_unfinished(exchange, 0);
        fl_connection_update_deadline(connection);
    }
}

void fl_http1_read_requests(fl_connection *connection) {
    if (connection->in.length > 0)
        read_request(connection);
    while (connection->state == FL_CONNECTION_OPEN && connection->exchanges == NULL && connection->in.length > 0)
        read_request(connection); /* the core has answered the previous one */
}

static void receive_head(fl_connection *connection) {
    ssize_t count = fl_connection_read(connection, &connection->in, READ_SIZE);
    if (count < 0) {
        if (connection->out.length > 0) /* the client may still read its responses */
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
    else if (exchange->state != FL_EXCHANGE_QUEUED)
        receive_body(connection, exchange);
}
