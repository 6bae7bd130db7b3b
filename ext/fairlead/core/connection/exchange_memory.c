/* Exchanges and heads are kept for the next requests. */
#include "context.h"
#include "exchange.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_FREE = 512 }; /* heads and exchanges that are kept: a burst must not cost memory for ever */

static void keep(fl_context *context, fl_exchange *exchange) {
    if (!FL_REUSES || context->free_exchange_count >= MOST_FREE) {
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
    fl_http1_head *head = context->free_heads;
    if (head != NULL) {
        memcpy(&context->free_heads, head, sizeof(void *));
        context->free_head_count--;
    } else if ((head = malloc(sizeof *head)) == NULL) {
        keep(context, exchange);
        return NULL;
    }
    memset(exchange, 0, sizeof *exchange);
    fl_http1_head_clear(head);
    exchange->head = head;
    exchange->context = context;
    exchange->connection = connection;
    exchange->id = ++context->last_id;
    exchange->first_byte_at = context->handed.arrived != 0 ? context->handed.arrived : context->now;
    exchange->hand_overs = context->handed.hand_overs;
    exchange->reactor = -1;
    return exchange;
}

void fl_exchange_free_head(fl_exchange *exchange) {
    fl_context *context = exchange->context;
    if (exchange->head == NULL)
        return;
    if (exchange->compact || !FL_REUSES || context->free_head_count >= MOST_FREE) {
        free(exchange->head);
        exchange->head = NULL;
        return;
    }
    context->free_head_count++;
    memcpy(exchange->head, &context->free_heads, sizeof(void *)); /* the list runs through their first bytes */
    context->free_heads = exchange->head;
    exchange->head = NULL;
}

void fl_exchange_free_buffers(fl_exchange *exchange) {
    fl_slab *slab = &exchange->context->slab;
    fl_buffer_free(slab, &exchange->head_bytes);
    fl_buffer_free(slab, &exchange->body);
    fl_buffer_free(slab, &exchange->trailers);
    fl_buffer_free(slab, &exchange->out);
    fl_buffer_free(slab, &exchange->held);
}

void fl_exchange_free(fl_exchange *exchange) {
    fl_context *context = exchange->context;
    if (exchange->woken)
        fl_exchange_stop_waking(exchange);
    if (exchange->timed || exchange->overdue)
        fl_exchange_stop_time(exchange);
    if (exchange->taken) {
        context->calls->ended(exchange);
        if (exchange->previous != NULL)
            exchange->previous->next = exchange->next;
        else
            context->served = exchange->next;
        if (exchange->next != NULL)
            exchange->next->previous = exchange->previous;
    }
    fl_exchange_free_head(exchange);
    fl_exchange_free_buffers(exchange);
    keep(context, exchange);
}
