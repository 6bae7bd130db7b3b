#include "context.h"
#include "base/list.h"
#include "base/platform.h"
#include "exchange.h"
#include "error_page.h"
#include "file_body.h"
#include "internal.h"
#include "tunnel.h"

#include <stdlib.h>
#include <string.h>

int fl_context_open(fl_context *context, const fl_limits *limits, const fl_context_calls *calls) {
    if (fl_poll_open(&context->poll) < 0)
        return -1;
    pthread_mutex_init(&context->lock, NULL);
    context->calls = calls;
    context->limits = *limits;
    context->date_second = -1;
    context->now = fl_clock();
    context->wall_offset = fl_wall_clock() - context->now;
    return 0;
}

void fl_context_free_closed(fl_context *context) {
    fl_connection **link = &context->closed;
    while (*link != NULL) {
        fl_connection *connection = *link;
        if (connection->dirty || connection->shakes) {
            link = &connection->next;
            continue;
        }
        *link = connection->next;
        if (connection->tunneled)
            fl_tunnel_free(connection);
        free(connection);
    }
}

void fl_context_free_abandoned(fl_context *context) {
    if (atomic_load_explicit(&context->abandoned, memory_order_relaxed) == NULL)
        return;
    fl_exchange *exchange = atomic_exchange(&context->abandoned, NULL);
    while (exchange != NULL) {
        fl_exchange *next = exchange->abandoned_next;
        fl_exchange_abandon(exchange);
        exchange = next;
    }
}

static void disown_served(fl_context *context) {
    for (fl_exchange *exchange = context->served; exchange != NULL;) {
        fl_exchange *next = exchange->next;
        fl_exchange_free_buffers(exchange);
        fl_exchange_disown(exchange);
        exchange = next;
    }
}

void fl_context_close(fl_context *context) {
    for (; context->dirty != NULL; context->dirty = context->dirty->dirty_next) context->dirty->dirty = false;
    while (fl_context_next_handshake(context) != NULL) continue;
    fl_context_free_closed(context);
    fl_context_free_abandoned(context);
    fl_file_bodies_close(context);
    fl_error_pages_free(context);
    disown_served(context);
    while (context->free_exchanges != NULL) {
        fl_exchange *exchange = context->free_exchanges;
        context->free_exchanges = exchange->next;
        free(exchange);
    }
    for (fl_rejection *rejection; (rejection = fl_rejection_take(&context->rejections)) != NULL;) free(rejection);
    while (context->free_heads != NULL) {
        fl_head *head = context->free_heads;
        memcpy(&context->free_heads, head, sizeof(void *));
        free(head);
    }
    fl_poll_close(&context->poll);
    fl_slab_close(&context->slab);
    fl_slab_close(&context->staging);
    free(context->limits.trusted_proxies.list);
    pthread_mutex_destroy(&context->lock);
}

void fl_context_update_clock(fl_context *context) {
    context->now = fl_clock();
}

const char *fl_context_date(fl_context *context) {
    int64_t second = (int64_t) ((context->now + context->wall_offset) / 1000000);
    if (second != context->date_second) {
        context->wall_offset = fl_wall_clock() - fl_clock(); /* the wall clock may have been adjusted */
        context->date_second = second;
        fl_http_date(context->date, second);
    }
    return context->date;
}

void fl_deadline_set(fl_context *context, fl_deadline *deadline, fl_deadline_kind kind, uint64_t progress) {
    if (deadline->kind != FL_DEADLINE_NONE) {
        fl_deadlines *others = &context->deadlines[deadline->kind];
        FL_LIST_REMOVE(others, deadline, before, after);
    }
    deadline->kind = (uint8_t) kind;
    if (kind == FL_DEADLINE_NONE)
        return;
    fl_deadlines *others = &context->deadlines[kind];
    deadline->at = context->now + context->limits.deadlines[kind];
    fl_context_note_due(context, deadline->at);
    deadline->progress = progress;
    FL_LIST_APPEND(others, deadline, before, after);
}

void fl_connection_mark_dirty(fl_connection *connection) {
    fl_context *context = connection->context;
    if (atomic_load_explicit(&context->staged_at, memory_order_relaxed) == 0)
        atomic_store_explicit(&context->staged_at, context->now, memory_order_relaxed);
    if (connection->dirty)
        return;
    connection->dirty = true;
    connection->dirty_next = context->dirty;
    context->dirty = connection;
}

static bool has_served_exchange(const fl_connection *connection) {
    for (const fl_exchange *exchange = connection->exchanges; exchange != NULL; exchange = exchange->stream_next)
        if (exchange->state == FL_EXCHANGE_SERVED)
            return true;
    return false;
}

/* Sends what its exchanges have left in the connection, and reads on if its last turn ended before all was read. */
static void go_on(fl_connection *connection) {
    if (connection->state == FL_CONNECTION_OPEN && connection->protocol->send_staged != NULL)
        connection->protocol->send_staged(connection);
    else if (connection->state != FL_CONNECTION_CLOSED && connection->out.length > 0)
        fl_connection_send(connection, NULL);
    if (connection->readable)
        fl_connection_receive(connection);
}

void fl_context_send_staged(fl_context *context, bool only_complete) {
    fl_connection *connection = context->dirty, *next;
    context->dirty = NULL;
    atomic_store_explicit(&context->staged_at, 0, memory_order_relaxed);
    for (; connection != NULL; connection = next) {
        next = connection->dirty_next;
        if (only_complete && has_served_exchange(connection)) {
            connection->dirty_next = context->dirty;
            context->dirty = connection;
            if (connection->protocol->send_staged != NULL)
                go_on(connection); /* with what its other exchanges have staged */
            continue;
        }
        connection->dirty = false;
        connection->flushing = true;
        for (fl_exchange *exchange = connection->exchanges, *other; exchange != NULL; exchange = other) {
            other = exchange->stream_next;
            if (exchange->state >= FL_EXCHANGE_SERVED)
                fl_exchange_flush(exchange);
            if (connection->state == FL_CONNECTION_CLOSED)
                break;
        }
        connection->flushing = false;
        go_on(connection);
    }
}
