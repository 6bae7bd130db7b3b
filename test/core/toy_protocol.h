/* A small protocol with concurrent requests on a connection, each identified by a digit:
 *   client  "1 /path" a request without a body   "2 +/path" one with a body   "2 bytes" a part of it   "2 ." its end
 *   server  "1 200" the head   "1 bytes" a part of the body   "1 ." its end   "1 !503" a canned response   "1 x" truncated */
#ifndef FL_TEST_TOY_PROTOCOL_H
#define FL_TEST_TOY_PROTOCOL_H

#include "connection/connection.h"
#include "connection/context.h"
#include "connection/exchange.h"

#include <stdio.h>
#include <string.h>

static fl_status toy_put(fl_exchange *exchange, fl_buffer *out, const char *text, size_t size) {
    char line[2] = {(char) exchange->protocol_state[0], ' '};
    fl_slab *slab = &exchange->context->slab;
    fl_status status = fl_buffer_append(slab, out, line, 2);
    status = status != FL_OK ? status : fl_buffer_append(slab, out, text, size);
    return status != FL_OK ? status : fl_buffer_append(slab, out, "\n", 1);
}

static void toy_begin_request(fl_connection *connection, char number, const char *path, size_t size, bool has_body) {
    fl_exchange *exchange = fl_exchange_new(connection->context, connection);
    exchange->protocol_state[0] = (unsigned char) number;
    fl_buffer_append(&connection->context->slab, &exchange->request.head_bytes, path, size);
    exchange->request.head->path = (fl_span){0, (uint32_t) size};
    exchange->state = FL_EXCHANGE_BODY;
    exchange->request.complete = !has_body;
    fl_exchange_body_received(exchange);
}

static void toy_line(fl_connection *connection, const char *line, size_t size) {
    fl_exchange *exchange = connection->exchanges;
    while (exchange != NULL && exchange->protocol_state[0] != (unsigned char) line[0]) exchange = exchange->stream_next;
    if (exchange == NULL) {
        bool has_body = line[2] == '+';
        toy_begin_request(connection, line[0], line + 2 + has_body, size - 2 - has_body, has_body);
        return;
    }
    exchange->request.complete = size == 3 && line[2] == '.';
    exchange->request.received += size;
    if (!exchange->request.complete)
        fl_buffer_append(&connection->context->slab, &exchange->request.body, line + 2, size - 2);
    fl_exchange_body_received(exchange);
}

static void toy_end_if_over(fl_connection *connection) {
    if (connection->exchanges == NULL && (connection->half_closed || connection->context->draining))
        fl_connection_end(connection);
}

static void toy_receive(fl_connection *connection) {
    fl_buffer *in = &connection->in;
    ssize_t count = fl_connection_read(connection, in, 4096);
    if (count < 0)
        toy_end_if_over(connection);
    if (count <= 0)
        return;
    fl_buffer_added(in, (size_t) count);
    for (const char *at, *end; in->length > 0 && (end = memchr(at = fl_buffer_at(in), '\n', in->length)) != NULL;) {
        toy_line(connection, at, (size_t) (end - at));
        fl_buffer_consume(&connection->context->slab, in, (size_t) (end - at) + 1);
    }
}

static void toy_sent(fl_connection *connection) {
    toy_end_if_over(connection);
}

static void toy_read(fl_exchange *exchange) {
    fl_connection_receive(exchange->connection);
}

static void toy_answer(fl_exchange *exchange, int code, const char *text, bool may_go_on) {
    fl_connection *connection = exchange->connection;
    char line[8];
    (void) text, (void) may_go_on;
    toy_put(exchange, &connection->out, line, (size_t) snprintf(line, sizeof line, "!%d", code));
    fl_exchange_detach(exchange);
    fl_connection_send(connection, NULL);
}

static fl_status toy_begin(fl_exchange *exchange) {
    char line[8];
    return toy_put(exchange, &exchange->response.out, line, (size_t) snprintf(line, sizeof line, "%d", exchange->response.code));
}

static fl_status toy_header(fl_exchange *exchange, const char *name, size_t name_size, const char *value, size_t value_size) {
    (void) exchange, (void) name, (void) name_size, (void) value, (void) value_size;
    return FL_OK;
}

static fl_status toy_head(fl_exchange *exchange, int64_t length) {
    (void) length;
    exchange->response.framing = FL_FRAMING_CHUNKED;
    return FL_OK;
}

static fl_status toy_body(fl_exchange *exchange, const char *bytes, size_t size) {
    return toy_put(exchange, &exchange->response.out, bytes, size);
}

static void toy_flush(fl_exchange *exchange) {
    fl_connection_send(exchange->connection, &exchange->response.out);
}

static bool toy_finish(fl_exchange *exchange) {
    if (toy_put(exchange, &exchange->response.out, ".", 1) != FL_OK)
        return false;
    fl_connection_send(exchange->connection, &exchange->response.out);
    return true;
}

static void toy_reset(fl_exchange *exchange) {
    toy_put(exchange, &exchange->connection->out, "x", 1);
    fl_connection_send(exchange->connection, NULL);
}

static const fl_protocol toy_protocol = {
    .name = "toy", .receive = toy_receive, .sent = toy_sent, .drain = toy_end_if_over, .read = toy_read, .canned_response = toy_answer,
    .begin = toy_begin, .header = toy_header, .head = toy_head, .body = toy_body, .flush = toy_flush, .finish = toy_finish,
    .finished = toy_end_if_over, .reset = toy_reset,
};

#endif
