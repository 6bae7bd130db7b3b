/* Allocates and frees exchanges and heads, and keeps free ones for the next requests. */
#include "base/list.h"
#include "context.h"
#include "event_stream.h"
#include "exchange.h"
#include "file_body.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_FREE = 512 }; /* of each kind: a burst must not take memory for ever */

static void keep(fl_context *context, fl_exchange *exchange) {
    if (!FL_REUSE_MEMORY || context->free_exchange_count >= MAX_FREE) {
        free(exchange);
        return;
    }
    context->free_exchange_count++;
    exchange->next = context->free_exchanges;
    context->free_exchanges = exchange;
}

fl_exchange *fl_exchange_new(fl_context *context, fl_connection *connection) {
    fl_exchange *exchange = context->free_exchanges;
    if (exchange != NULL) {
        context->free_exchanges = exchange->next;
        context->free_exchange_count--;
    } else if ((exchange = malloc(sizeof *exchange)) == NULL) {
        return NULL;
    }
    fl_head *head = context->free_heads;
    if (head != NULL) {
        memcpy(&context->free_heads, head, sizeof(void *));
        context->free_head_count--;
    } else if ((head = malloc(sizeof *head)) == NULL) {
        keep(context, exchange);
        return NULL;
    }
    memset(exchange, 0, offsetof(fl_exchange, queueing.ready_at));
    fl_head_clear(head);
    exchange->request.head = head;
    exchange->context = context;
    exchange->staging = &context->staging;
    exchange->connection = connection;
    if (connection != NULL) {
        exchange->protocol = connection->protocol;
        FL_LIST_PUSH(connection->exchanges, exchange, stream_previous, stream_next);
    }
    exchange->id = ++context->last_id;
    exchange->request.first_byte_at = context->handed.arrived != 0 ? context->handed.arrived : context->now;
    exchange->queueing.hand_overs = context->handed.hand_overs;
    exchange->queueing.reactor = -1;
    return exchange;
}

void fl_exchange_count_unfinished(fl_exchange *exchange, size_t more) {
    fl_context *context = exchange->context;
    fl_request *request = &exchange->request;
    const fl_buffer *head = request->head_bytes.length > 0 ? &request->head_bytes : &exchange->connection->in;
    if (request->unfinished == 0)
        FL_LIST_APPEND(&context->unfinished, exchange, previous, next);
    context->unfinished.bytes -= request->unfinished;
    request->unfinished = (uint32_t) (sizeof(fl_exchange) + sizeof(fl_head) + more) + head->capacity + request->body.capacity +
                          request->trailers.capacity;
    context->unfinished.bytes += request->unfinished;
}

void fl_exchange_forget_unfinished(fl_exchange *exchange) {
    fl_context *context = exchange->context;
    if (exchange->request.unfinished == 0)
        return;
    FL_LIST_REMOVE(&context->unfinished, exchange, previous, next);
    context->unfinished.bytes -= exchange->request.unfinished;
    exchange->request.unfinished = 0;
}

void fl_exchange_free_head(fl_exchange *exchange) {
    fl_request *request = &exchange->request;
    fl_context *context = exchange->context;
    if (request->head == NULL)
        return;
    if (request->compact || !FL_REUSE_MEMORY || context->free_head_count >= MAX_FREE) {
        free(request->head);
        request->head = NULL;
        return;
    }
    context->free_head_count++;
    memcpy(request->head, &context->free_heads, sizeof(void *)); /* the first bytes of a free head are the link */
    context->free_heads = request->head;
    request->head = NULL;
}

void fl_exchange_free_buffers(fl_exchange *exchange) {
    fl_request *request = &exchange->request;
    fl_slab *slab = &exchange->context->slab;
    fl_buffer_free(slab, &request->head_bytes);
    fl_buffer_free(slab, &request->body);
    fl_buffer_free(slab, &request->trailers);
    fl_buffer_free(slab, &exchange->response.out);
    fl_buffer_free(slab, &exchange->response.held);
    if (exchange->response.events.coding != NULL)
        fl_event_stream_free(&exchange->response.events);
    if (exchange->identity != NULL)
        fl_identity_release(exchange->identity);
    exchange->identity = NULL;
}

void fl_exchange_detach(fl_exchange *exchange) {
    fl_exchange_stop_deadline(exchange);
    FL_LIST_UNLINK(exchange->connection->exchanges, exchange, stream_previous, stream_next);
    exchange->connection = NULL;
}

void fl_exchange_free(fl_exchange *exchange) {
    fl_context *context = exchange->context;
    if (exchange->woken)
        fl_exchange_cancel_wake(exchange);
    if (exchange->timing.running || exchange->timing.expired)
        fl_exchange_clear_time_limit(exchange);
    fl_exchange_forget_unfinished(exchange);
    if (exchange->connection != NULL)
        fl_exchange_detach(exchange);
    if (exchange->protocol != NULL && exchange->protocol->exchange_freed != NULL)
        exchange->protocol->exchange_freed(exchange);
    if (exchange->file != NULL)
        fl_file_body_free(exchange->file);
    if (exchange->state == FL_EXCHANGE_SERVED) {
        context->calls->request_ended(exchange);
        FL_LIST_UNLINK(context->served, exchange, previous, next);
    }
    fl_exchange_free_head(exchange);
    fl_exchange_free_buffers(exchange);
    keep(context, exchange);
}

void fl_exchange_disown(fl_exchange *exchange) {
    exchange->context = NULL;
    exchange->connection = NULL;
    exchange->request.failed = true;
    exchange->request.complete = false;
    exchange->next = exchange->previous = NULL;
    exchange->timing.before = exchange->timing.after = exchange->timing.child = NULL;
    exchange->timing.running = exchange->timing.expired = false;
}

void fl_exchange_abandon_later(fl_exchange *exchange) {
    fl_context *context = exchange->context;
    exchange->abandoned_next = atomic_load(&context->abandoned);
    while (!atomic_compare_exchange_weak(&context->abandoned, &exchange->abandoned_next, exchange)) continue;
}
