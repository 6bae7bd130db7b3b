/* Requests: queueing, health checks, rejections, and what their owner reads of the body. */
#include "base/platform.h"
#include "context.h"
#include "error_page.h"
#include "exchange.h"
#include "https.h"
#include "internal.h"

#include <stdlib.h>
#include <string.h>

/* The core answers health checks itself: they must not wait for the app. */
static bool is_health_check(const fl_exchange *exchange) {
    const fl_request *request = &exchange->request;
    const fl_head *head = request->head;
    const char *path = exchange->context->limits.health_path, *bytes = fl_exchange_head_bytes(exchange);
    if (path[0] == '\0' || request->chunked || request->content_length > 0 || head->path.size != strlen(path) ||
        memcmp(bytes + head->path.at, path, head->path.size) != 0)
        return false;
    return head->head_method || (head->method.size == 3 && memcmp(bytes + head->method.at, "GET", 3) == 0);
}

void fl_exchange_submit(fl_exchange *exchange) {
    fl_connection *connection = exchange->connection;
    fl_context *context = exchange->context;
    fl_exchange_stop_deadline(exchange);
    fl_connection_update_deadline(connection);
    fl_exchange_forget_unfinished(exchange);
    if (is_health_check(exchange)) {
        bool ends = context->draining && !context->handing_over;
        exchange->protocol->canned_response(exchange, ends ? 503 : 200, ends ? "ending" : "ok", true);
        fl_exchange_free(exchange);
        return;
    }
    if (exchange->request.head->noted)
        fl_exchange_note_head(exchange);
    if ((context->limits.redirect_to_https || context->limits.hsts[0] != '\0') && fl_https_redirect(exchange))
        return;
    if (connection->fresh)
        fl_connection_count(connection, 0, -1);
    connection->fresh = false;
    if (context->public_files != NULL && context->calls->serve_file(exchange))
        return;
    exchange->state = FL_EXCHANGE_QUEUED;
    exchange->queueing.queued_at = context->now;
    exchange->queueing.ready_at = context->handed.arrived != 0 ? context->handed.arrived : context->now;
    bool waits = context->calls->enqueue(exchange);
    if (waits && connection->half_closed && exchange->protocol->half_closed != NULL)
        exchange->protocol->half_closed(
            connection); /* the protocol may find out that the client has gone before the request's turn */
}

static void await_body(fl_exchange *exchange) {
    fl_request *request = &exchange->request;
    fl_connection_update_deadline(exchange->connection);
    fl_deadline_set(exchange->context, &request->deadline, FL_DEADLINE_BODY, request->received);
}

void fl_exchange_body_received(fl_exchange *exchange) {
    fl_request *request = &exchange->request;
    fl_context *context = exchange->context;
    if (exchange->state == FL_EXCHANGE_SERVED) {
        fl_exchange_wake(exchange);
        request->awaited = false; /* the client has delivered: its deadline must not expire before the app reads */
    } else if (exchange->state >= FL_EXCHANGE_QUEUED) {
        return; /* whoever takes it finds what has come */
    } else if (request->complete || request->body.length >= fl_context_buffer_limit(context, context->limits.body_buffer)) {
        fl_exchange_submit(exchange);
    } else {
        fl_exchange_count_unfinished(exchange, 0);
        if (request->deadline.kind == FL_DEADLINE_NONE)
            await_body(exchange);
    }
}

static void count_rejection(fl_context *context, fl_status status) {
    context->counts.refused++;
    if (fl_status_http(status) == 503)
        context->counts.turned_away++;
}

static void reject_waiting(fl_exchange *exchange, fl_status status, bool may_keep_alive) {
    count_rejection(exchange->context, status);
    fl_context_record_code(exchange->context, fl_status_http(status));
    fl_rejection_record(exchange, status);
    if (exchange->state == FL_EXCHANGE_QUEUED)
        exchange->context->calls->dequeue(exchange);
    exchange->protocol->canned_response(exchange, fl_status_http(status), fl_status_text(status), may_keep_alive);
    fl_exchange_free(exchange);
}

void fl_exchange_reject(fl_exchange *exchange, fl_status status) {
    if (exchange->state == FL_EXCHANGE_FILE) {
        fl_exchange_abandon(exchange);
        return;
    }
    if (exchange->state != FL_EXCHANGE_SERVED) {
        reject_waiting(exchange, status, false);
        return;
    }
    exchange->request.failed = true; /* the owner sees it when it reads the body */
    exchange->response.close = true;
    exchange->request.rejection = (uint8_t) status;
    fl_exchange_wake(exchange);
}

void fl_context_shed_unfinished(fl_context *context, int most) {
    for (int i = 0; i < most && context->unfinished.bytes > FL_MAX_UNFINISHED && context->unfinished.first != NULL; i++)
        fl_exchange_reject(context->unfinished.first, FL_OVERLOADED);
}

void fl_exchange_turn_away(fl_exchange *exchange, fl_status status) {
    fl_connection *connection = exchange->connection;
    reject_waiting(exchange, status, true); /* a new connection would cost more than the response */
    if (connection->state == FL_CONNECTION_OPEN)
        connection->protocol->finished(connection);
}

void fl_exchange_reject_served(fl_exchange *exchange) {
    fl_status status = (fl_status) exchange->request.rejection;
    count_rejection(exchange->context, status);
    exchange->response.code = fl_status_http(status);
    exchange->protocol->canned_response(exchange, fl_status_http(status), fl_status_text(status), false);
}

void fl_exchange_time_out(fl_exchange *exchange) {
    if (exchange->response.committed) {
        exchange->protocol->reset(exchange);
        if (exchange->connection == NULL)
            return;
        fl_exchange_detach(exchange);
    } else {
        fl_status status = fl_exchange_timeout(exchange);
        exchange->request.rejection = status;
        exchange->protocol->canned_response(exchange, fl_status_http(status), fl_status_text(status), false);
    }
    fl_exchange_connection_lost(exchange, false);
}

void fl_exchange_compact(fl_exchange *exchange) {
    fl_request *request = &exchange->request;
    fl_slab *slab = &exchange->context->slab;
    fl_head *head = request->head;
    size_t size = offsetof(fl_head, headers) + head->count * sizeof *head->headers;
    fl_head *small = malloc(size);
    if (small == NULL)
        return;
    memcpy(small, head, size);
    fl_exchange_free_head(exchange);
    request->head = small;
    request->compact = true;
    fl_buffer *in = &exchange->connection->in, bytes = {0};
    if (request->head_bytes.length > 0) /* `in` is the protocol's, which may be parsing it in place */
        return;
    if (in->capacity <= FL_SLAB_SMALLEST || in->length > FL_SLAB_SMALLEST ||
        fl_buffer_append(slab, &bytes, fl_buffer_at(in), in->length) != FL_OK)
        return;
    fl_buffer_free(slab, in);
    *in = bytes;
}

fl_status fl_exchange_body(fl_exchange *exchange, const char **bytes, size_t *size) {
    fl_request *request = &exchange->request;
    fl_connection *connection = exchange->connection;
    if (request->body.length == 0 && !request->complete && connection != NULL) {
        exchange->protocol->read(exchange);
        connection = exchange->connection;
    }
    *bytes = request->body.length > 0 ? fl_buffer_at(&request->body) : "";
    *size = request->body.length;
    if (request->body.length > 0 || request->complete) {
        if (exchange->timing.running)
            fl_exchange_restart_time_limit(exchange);
        return FL_OK;
    }
    if (request->failed || connection == NULL)
        return FL_CLOSED;
    request->awaited = true;
    if (request->deadline.kind == FL_DEADLINE_NONE) {
        fl_context_update_clock(exchange->context);
        fl_deadline_set(exchange->context, &request->deadline, FL_DEADLINE_BODY, request->received);
    }
    return FL_AGAIN;
}

void fl_exchange_consume_body(fl_exchange *exchange, size_t size) {
    if (exchange->context == NULL)
        return;
    fl_buffer_consume(&exchange->context->slab, &exchange->request.body, size);
    if (size > 0 && exchange->connection != NULL && exchange->protocol->consumed != NULL)
        exchange->protocol->consumed(exchange);
}
