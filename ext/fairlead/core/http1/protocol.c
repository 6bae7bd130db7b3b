/* HTTP/1's life of a connection: from one request to the next, what is answered without an app, and the end. */
#include "protocol.h"
#include "base/descriptors.h"
#include "base/platform.h"
#include "protocol_parts.h"

#include <stdio.h>
#include <string.h>

enum {
    MOST_UNSENT_BEFORE_NEXT = 65536,
    MOST_ANSWERS = 200, /* of ours at once, in a row on one connection: nobody keeps the loop to himself */
    MOST_HANDED_BYTES = 65536,
    RESPONSE_HEAD = 1024, /* bytes that most heads of a response fit into */
    HAS_WAITED = 5000,    /* microseconds, for its turn: not at once */
};

static void next_request(fl_connection *connection) {
    connection->state = FL_CONNECTION_OPEN;
    if (connection->out.length == 0 || connection->dirty)
        fl_connection_set_deadline(connection, FL_DEADLINE_IDLE);
    fl_http1_read_requests(connection);
    fl_connection_receive(connection); /* what came while it was busy is no event any more */
    if (connection->context->draining && !connection->context->handing_over && fl_connection_is_idle(connection))
        fl_connection_close(connection);
}

static void sent(fl_connection *connection) {
    const fl_exchange *exchange = connection->exchanges;
    if (connection->state == FL_CONNECTION_SENDING)
        next_request(connection);
    else if (exchange == NULL)
        fl_connection_set_deadline(connection, FL_DEADLINE_IDLE);
    else if (exchange->state < FL_EXCHANGE_BODY)
        fl_connection_set_deadline(connection, FL_DEADLINE_HEAD);
}

static void finished(fl_connection *connection) {
    if (!fl_http1_of(connection)->keep_alive)
        fl_connection_end(connection);
    else if (connection->out.length > MOST_UNSENT_BEFORE_NEXT)
        connection->state = FL_CONNECTION_SENDING;
    else
        next_request(connection);
}

static void drain(fl_connection *connection) {
    if (!fl_connection_is_idle(connection))
        return;
    connection->readable = true; /* a request may have come that no event has told of yet */
    fl_connection_receive(connection);
    if (fl_connection_is_idle(connection))
        fl_connection_close(connection);
}

/* TCP does not tell a client that has said all and still reads from one that has gone: both have ended their side. But
 * the system of one that has gone answers whatever is sent to it with a reset. An interim response is something that may
 * be sent (RFC 9110, 15.2). */
static void ask_whether_it_reads(fl_connection *connection) {
    static const char processing[] = "HTTP/1.1 102 Processing\r\n\r\n";
    fl_http1_of(connection)->asked = true;
    if (fl_buffer_append(&connection->context->slab, &connection->out, processing, sizeof processing - 1) == FL_OK)
        fl_connection_send(connection, NULL);
}

/* If it has gone nobody shall go on for it. A client of HTTP/1.0 cannot be asked: it may read. */
static void half_closed(fl_connection *connection) {
    const fl_exchange *exchange = connection->exchanges;
    if (fl_http1_of(connection)->asked || exchange == NULL || fl_http1_part(exchange)->minor == 0)
        return;
    bool spins_in_vain = exchange->state == FL_EXCHANGE_SERVED && connection->context->limits.cancel_abandoned &&
                         exchange->request.whole && !exchange->response.committed && !exchange->response.takes_over;
    if (spins_in_vain || exchange->state == FL_EXCHANGE_QUEUED)
        ask_whether_it_reads(connection);
}

static bool is_read(fl_exchange *exchange) {
    fl_connection *connection = exchange->connection;
    if (!fl_http1_of(connection)->asked && fl_http1_part(exchange)->minor >= 1 &&
        connection->context->now - exchange->queueing.ready_at > HAS_WAITED)
        ask_whether_it_reads(connection);
    if (connection->state != FL_CONNECTION_CLOSED && fl_socket_is_broken(connection->transport.descriptor))
        fl_connection_close(connection);
    return connection->state != FL_CONNECTION_CLOSED;
}

/* The head is its own from now on; what follows stays the connection's. */
static void taken(fl_exchange *exchange) {
    fl_connection *connection = exchange->connection;
    fl_slab *slab = &exchange->context->slab;
    fl_buffer *bytes = &exchange->request.head_bytes;
    *bytes = connection->in;
    connection->in = (fl_buffer) {0};
    uint32_t size = exchange->request.head->size;
    fl_http1_of(connection)->answers = 0;
    if ((bytes->length > size &&
         fl_buffer_append(slab, &connection->in, fl_buffer_at(bytes) + size, bytes->length - size) != FL_OK) ||
        fl_buffer_reserve(slab, &exchange->response.out, RESPONSE_HEAD) != FL_OK)
        fl_http1_of(connection)->keep_alive = false;
    bytes->length = size;
}

static void read_body(fl_exchange *exchange) {
    fl_connection_receive(exchange->connection);
}

/* Of what has not been parsed the first bytes tell: the answer to HEAD has no body (RFC 9110, 9.3.2). */
static bool asks_with_head(const fl_exchange *exchange) {
    const fl_head *head = exchange->request.head;
    const fl_buffer *in = &exchange->connection->in;
    if (exchange->state >= FL_EXCHANGE_BODY || head->started)
        return exchange->request.head_method || (head != NULL && head->head_method);
    return in->length >= head->line + 5 && memcmp(fl_buffer_at(in) + head->line, "HEAD ", 5) == 0;
}

static bool put_answer(fl_connection *connection, int code, const char *text, bool with_body, bool close) {
    fl_context *context = connection->context;
    char answer[512];
    int size =
        snprintf(answer, sizeof answer, "HTTP/1.1 %d %s\r\n%.*s%s%scontent-type: text/plain\r\ncontent-length: %zu\r\n\r\n%s\n",
                 code, fl_reason(code), FL_DATE_SIZE, fl_context_date(context), close ? "connection: close\r\n" : "",
                 code == 503 ? "retry-after: 1\r\n" : "", strlen(text) + 1, text);
    if (!with_body)
        size -= (int) strlen(text) + 1;
    return fl_buffer_append(&context->slab, &connection->out, answer, (size_t) size) == FL_OK;
}

/* It has been answered by us, and may ask again: once it has taken most of what there is for it. */
static void stay_open(fl_connection *connection) {
    fl_connection_send(connection, NULL);
    if (connection->state == FL_CONNECTION_OPEN && connection->out.length > MOST_UNSENT_BEFORE_NEXT)
        connection->state = FL_CONNECTION_SENDING;
    if (connection->state == FL_CONNECTION_OPEN && connection->out.length == 0)
        fl_connection_set_deadline(connection, FL_DEADLINE_IDLE);
}

static void end(fl_connection *connection) {
    connection->readable = true; /* there may be more: let the client read the answer before it sees a reset */
    fl_connection_end(connection);
}

static bool can_stay(const fl_exchange *exchange) {
    const fl_context *context = exchange->context;
    fl_connection *connection = exchange->connection;
    fl_http1_connection *own = fl_http1_of(connection);
    if (!own->keep_alive || fl_http1_part(exchange)->minor == 0 || !exchange->request.whole ||
        context->calls->is_ending(context))
        return false;
    if (exchange->state == FL_EXCHANGE_QUEUED) /* and nothing follows it */
        return connection->in.length == exchange->request.head->size && !connection->half_closed;
    return own->answers++ < MOST_ANSWERS;
}

static void answer(fl_exchange *exchange, int code, const char *text, bool may_go_on) {
    fl_connection *connection = exchange->connection;
    bool stays = may_go_on && can_stay(exchange), with_body = !asks_with_head(exchange);
    uint32_t size = stays ? exchange->request.head->size : 0;
    fl_exchange_detach(exchange);
    if (!put_answer(connection, code, text, with_body, !stays)) {
        fl_connection_close(connection);
        return;
    }
    if (stays) {
        fl_buffer_consume(&connection->context->slab, &connection->in, size);
        stay_open(connection);
    } else {
        end(connection);
    }
}

void fl_http1_reject_connection(fl_connection *connection, fl_status status) {
    connection->context->counts.refused++;
    connection->context->counts.turned_away += fl_status_http(status) == 503;
    if (put_answer(connection, fl_status_http(status), fl_status_text(status), true, true))
        end(connection);
    else
        fl_connection_close(connection);
}

static size_t raw(const fl_exchange *exchange, struct iovec parts[3]) {
    const fl_buffer *in = &exchange->connection->in, *body = &exchange->request.body;
    if (exchange->request.chunked || !exchange->request.whole || in->length + body->length > MOST_HANDED_BYTES)
        return 0;
    char *bytes = fl_buffer_at(in);
    uint32_t head = exchange->request.head->size;
    size_t count = 0;
    parts[count++] = (struct iovec) {bytes, head};
    if (body->length > 0)
        parts[count++] = (struct iovec) {fl_buffer_at(body), body->length};
    if (in->length > head)
        parts[count++] = (struct iovec) {bytes + head, in->length - head};
    return count;
}

static int hijack(fl_exchange *exchange, fl_buffer *unsent, fl_buffer *ahead) {
    fl_connection *connection = exchange->connection;
    fl_slab *slab = &exchange->context->slab;
    if (exchange->request.chunked && !exchange->request.whole)
        return -1;
    fl_exchange_flush(exchange);
    if (exchange->connection == NULL)
        return -1;
    *unsent = connection->out;
    connection->out = (fl_buffer) {0};
    *ahead = exchange->request.body;
    exchange->request.body = (fl_buffer) {0};
    if (ahead->length == 0) {
        fl_buffer_free(slab, ahead);
        *ahead = connection->in;
        connection->in = (fl_buffer) {0};
    } else if (connection->in.length > 0 &&
               fl_buffer_append(slab, ahead, fl_buffer_at(&connection->in), connection->in.length) != FL_OK) {
        fl_connection_close(connection);
        return -1;
    }
    exchange->response.committed = true;
    fl_exchange_limit_time(exchange, 0);
    int descriptor = fl_connection_give_away(connection);
    fl_descriptor_gives_away(descriptor);
    return descriptor;
}

const fl_protocol fl_http1_protocol = {
    .name = "http/1.1",
    .open = next_request,
    .receive = fl_http1_receive,
    .sent = sent,
    .half_closed = half_closed,
    .drain = drain,
    .taken = taken,
    .read = read_body,
    .is_read = is_read,
    .answer = answer,
    .raw = raw,
    .begin = fl_http1_begin,
    .header = fl_http1_header,
    .head = fl_http1_end_head,
    .is_sound = fl_http1_is_sound,
    .body = fl_http1_body,
    .body_directly = fl_http1_body_directly,
    .trailer = fl_http1_trailer,
    .flush = fl_http1_flush,
    .finish = fl_http1_finish,
    .finished = finished,
    .reset = fl_http1_reset,
    .inform = fl_http1_inform,
    .hijack = hijack,
};
