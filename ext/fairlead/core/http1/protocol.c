/* HTTP/1 connections: keep-alive, canned responses, clients that have disconnected, handing over and hijacking. */
#include "protocol.h"
#include "base/descriptors.h"
#include "base/platform.h"
#include "connection/event_stream.h"
#include "connection/tunnel.h"
#include "connection/error_page.h"
#include "internal.h"

#include <stdio.h>
#include <string.h>

enum {
    MAX_UNSENT_BEFORE_NEXT = 65536,
    MAX_CANNED_RESPONSES = 200, /* in a row, so that one connection cannot occupy the loop */
    RESPONSE_HEAD = 1024,       /* bytes: most heads of responses fit */
    PROBE_AFTER = 5000,         /* microseconds in the queue */
};

static void next_request(fl_connection *connection) {
    connection->state = FL_CONNECTION_OPEN;
    fl_http1_read_requests(connection);
    fl_connection_update_deadline(connection);
    fl_connection_receive(connection); /* the poll has reported this input already */
}

static void sent(fl_connection *connection) {
    if (connection->state == FL_CONNECTION_SENDING)
        next_request(connection);
}

static fl_deadline_kind awaits(const fl_connection *connection) {
    const fl_exchange *exchange = connection->exchanges;
    if (exchange == NULL)
        return FL_DEADLINE_IDLE;
    return exchange->state < FL_EXCHANGE_BODY ? FL_DEADLINE_HEAD : FL_DEADLINE_NONE;
}

static void finished(fl_connection *connection) {
    if (!fl_http1_connection_state(connection)->keep_alive)
        fl_connection_end(connection);
    else if (connection->out.length > MAX_UNSENT_BEFORE_NEXT)
        connection->state = FL_CONNECTION_SENDING;
    else
        next_request(connection);
}

static void drain(fl_connection *connection) {
    if (!fl_connection_is_idle(connection))
        return;
    connection->readable = true; /* the poll may not have reported a new request yet */
    fl_connection_receive(connection);
    if (fl_connection_is_idle(connection))
        fl_connection_close(connection);
}

/* A client that has ended its side may still read, or may have gone: TCP does not tell. If it has gone, its kernel answers any data with a
 * reset. A server may send interim responses at any time (RFC 9110, 15.2). */
static void probe_client(fl_connection *connection) {
    static const char processing[] = "HTTP/1.1 102 Processing\r\n\r\n";
    fl_http1_connection_state(connection)->probed = true;
    if (fl_buffer_append(&connection->context->slab, &connection->out, processing, sizeof processing - 1) == FL_OK)
        fl_connection_send(connection, NULL);
}

/* HTTP/1.0 has no interim responses: such a client counts as reading. */
static void half_closed(fl_connection *connection) {
    fl_exchange *exchange = connection->exchanges;
    if (exchange != NULL && exchange->state == FL_EXCHANGE_RELAYED) {
        connection->context->calls->relay_notified(exchange); /* the sibling probes */
        return;
    }
    if (exchange != NULL && exchange->response.events.is_one && !fl_http1_connection_state(connection)->probed) {
        fl_http1_connection_state(connection)->probed = true;
        fl_event_stream_probe(exchange);
        return;
    }
    if (fl_http1_connection_state(connection)->probed || exchange == NULL || fl_http1_exchange_state(exchange)->minor == 0)
        return;
    bool cancellable = exchange->state == FL_EXCHANGE_SERVED && connection->context->limits.cancel_abandoned &&
                       exchange->request.complete && !exchange->response.committed && !exchange->response.switches_protocol;
    if (cancellable || exchange->state == FL_EXCHANGE_QUEUED)
        probe_client(connection);
}

static bool client_reads(fl_exchange *exchange) {
    fl_connection *connection = exchange->connection;
    if (!fl_http1_connection_state(connection)->probed && fl_http1_exchange_state(exchange)->minor >= 1 &&
        connection->context->now - exchange->queueing.ready_at > PROBE_AFTER)
        probe_client(connection);
    if (connection->state != FL_CONNECTION_CLOSED && fl_socket_is_broken(connection->transport.descriptor))
        fl_connection_close(connection);
    return connection->state != FL_CONNECTION_CLOSED;
}

/* The exchange gets the head; following input stays in the connection. */
static void taken(fl_exchange *exchange) {
    fl_connection *connection = exchange->connection;
    fl_slab *slab = &exchange->context->slab;
    fl_buffer *bytes = &exchange->request.head_bytes;
    *bytes = connection->in;
    connection->in = (fl_buffer) {0};
    uint32_t size = exchange->request.head->size;
    fl_http1_connection_state(connection)->canned_responses = 0;
    if ((bytes->length > size &&
         fl_buffer_append(slab, &connection->in, fl_buffer_at(bytes) + size, bytes->length - size) != FL_OK) ||
        fl_buffer_reserve(slab, &exchange->response.out, RESPONSE_HEAD) != FL_OK)
        fl_http1_connection_state(connection)->keep_alive = false;
    bytes->length = size;
}

static void read_body(fl_exchange *exchange) {
    fl_connection_receive(exchange->connection);
}

/* Responses to HEAD have no body (RFC 9110, 9.3.2), even if the request line is malformed or incomplete. */
static bool is_head_request(const fl_exchange *exchange) {
    const fl_head *head = exchange->request.head;
    const fl_buffer *in = &exchange->connection->in;
    if (exchange->state >= FL_EXCHANGE_BODY || head->started)
        return exchange->request.head_method || (head != NULL && head->head_method);
    return in->length >= head->line + 5 && memcmp(fl_buffer_at(in) + head->line, "HEAD ", 5) == 0;
}

static bool stage_canned_response(fl_connection *connection, int code, fl_canned_body body, bool with_body, bool close) {
    fl_context *context = connection->context;
    fl_slab *slab = &context->slab;
    const fl_buffer *lines = context->canned_lines;
    char response[512];
    int size = snprintf(response, sizeof response, "HTTP/1.1 %d %s\r\n%.*s%s%s%scontent-length: %zu\r\n", code, fl_reason(code),
                        FL_DATE_SIZE, fl_context_date(context), close ? "connection: close\r\n" : "",
                        code == 503 ? "retry-after: 1\r\n" : "", body.fields, body.size);
    fl_status status = fl_buffer_append(slab, &connection->out, response, (size_t) size);
    if (status == FL_OK && lines != NULL)
        status = fl_buffer_append(slab, &connection->out, fl_buffer_at(lines), lines->length);
    if (status == FL_OK)
        status = fl_buffer_append(slab, &connection->out, "\r\n", 2);
    if (status == FL_OK && with_body)
        status = fl_buffer_append(slab, &connection->out, body.text, body.text_size);
    return status == FL_OK && (!with_body || fl_buffer_append(slab, &connection->out, body.end, strlen(body.end)) == FL_OK);
}

static void keep_open_after_canned_response(fl_connection *connection) {
    fl_connection_send(connection, NULL);
    if (connection->state == FL_CONNECTION_OPEN && connection->out.length > MAX_UNSENT_BEFORE_NEXT)
        connection->state = FL_CONNECTION_SENDING;
    fl_connection_update_deadline(connection);
}

static void end(fl_connection *connection) {
    connection->readable = true; /* lingers, so that the client reads the response before it sees a reset */
    fl_connection_end(connection);
}

static bool can_keep_alive(const fl_exchange *exchange) {
    fl_connection *connection = exchange->connection;
    fl_http1_connection *own = fl_http1_connection_state(connection);
    if (!own->keep_alive || fl_http1_exchange_state(exchange)->minor == 0 || !exchange->request.complete ||
        fl_http1_is_ending(connection))
        return false;
    if (exchange->state == FL_EXCHANGE_QUEUED) /* only if no pipelined request follows */
        return connection->in.length == exchange->request.head->size && !connection->half_closed;
    return own->canned_responses++ < MAX_CANNED_RESPONSES;
}

static void canned_response(fl_exchange *exchange, int code, const char *text, bool may_keep_alive) {
    fl_connection *connection = exchange->connection;
    bool complete = exchange->request.complete, keep_alive = may_keep_alive && can_keep_alive(exchange);
    bool with_body = !is_head_request(exchange);
    uint32_t size = complete && exchange->state < FL_EXCHANGE_SERVED ? exchange->request.head->size : 0;
    fl_canned_body body = fl_canned_body_of(exchange, code, text);
    fl_exchange_detach(exchange);
    if (!stage_canned_response(connection, code, body, with_body, !keep_alive)) {
        fl_connection_close(connection);
        return;
    }
    fl_buffer_consume(&connection->context->slab, &connection->in, size);
    if (keep_alive)
        keep_open_after_canned_response(connection);
    else if (complete) /* nothing of it is unread */
        fl_connection_end(connection);
    else
        end(connection);
}

void fl_http1_reject_connection(fl_connection *connection, fl_status status) {
    connection->context->counts.refused++;
    connection->context->counts.turned_away += fl_status_http(status) == 503;
    fl_context_record_code(connection->context, fl_status_http(status));
    fl_canned_body body = fl_canned_body_of(NULL, fl_status_http(status), fl_status_text(status));
    if (stage_canned_response(connection, fl_status_http(status), body, true, true))
        end(connection);
    else
        fl_connection_close(connection);
}

static size_t serialize(const fl_exchange *exchange, struct iovec parts[3]) {
    const fl_request *request = &exchange->request;
    const fl_buffer *in = &exchange->connection->in, *body = &request->body;
    if (request->chunked || !request->complete || in->length + body->length > FL_MAX_SERIALIZED)
        return 0;
    char *bytes = fl_buffer_at(in);
    uint32_t head = request->head->size;
    size_t count = 0;
    parts[count++] = (struct iovec) {bytes, head};
    if (body->length > 0)
        parts[count++] = (struct iovec) {fl_buffer_at(body), body->length};
    if (in->length > head)
        parts[count++] = (struct iovec) {bytes + head, in->length - head};
    return count;
}

static int hijack(fl_exchange *exchange, fl_buffer *unsent, fl_buffer *ahead) {
    fl_request *request = &exchange->request;
    fl_connection *connection = exchange->connection;
    fl_slab *slab = &exchange->context->slab;
    if (request->chunked && !request->complete)
        return -1;
    fl_exchange_flush(exchange);
    if (exchange->connection == NULL)
        return -1;
    bool raw = connection->transport.kind->raw;
    if (raw) {
        *unsent = connection->out;
        connection->out = (fl_buffer) {0};
    }
    *ahead = request->body;
    request->body = (fl_buffer) {0};
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
    fl_exchange_set_time_limit(exchange, 0);
    if (!raw) {
        fl_exchange_detach(exchange);
        fl_exchange_connection_lost(exchange, false);
        int end = fl_tunnel_begin(connection);
        if (end < 0)
            fl_connection_close(connection);
        return end;
    }
    int descriptor = fl_connection_release_socket(connection);
    fl_descriptor_mark_hijacked(descriptor);
    return descriptor;
}

const fl_protocol fl_http1_protocol = {
    .name = "http/1.1",
    .moves = true,
    .open = next_request,
    .receive = fl_http1_receive,
    .sent = sent,
    .awaits = awaits,
    .half_closed = half_closed,
    .drain = drain,
    .taken = taken,
    .read = read_body,
    .client_reads = client_reads,
    .canned_response = canned_response,
    .serialize = serialize,
    .begin = fl_http1_begin,
    .header = fl_http1_header,
    .head = fl_http1_end_head,
    .is_well_formed = fl_http1_is_well_formed,
    .body = fl_http1_body,
    .body_directly = fl_http1_body_directly,
    .trailer = fl_http1_trailer,
    .flush = fl_http1_flush,
    .finish = fl_http1_finish,
    .finished = finished,
    .reset = fl_http1_reset,
    .send_interim = fl_http1_send_interim,
    .hijack = hijack,
};
