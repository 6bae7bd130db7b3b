/* The FIFO of ready requests, and what they are made of: exchanges and heads, kept for the next ones. Part of the loop:
 * its contract is in loop.h. */
#include "loop.h"
#include "platform.h"

#include <stdlib.h>
#include <string.h>

enum {
    TAKES_A_TURN = FL_POLL_EVENTS, /* at most, before the kernel is asked again: as many as a turn may bring */
    TAKES_LAST = 5000,             /* microseconds, likewise */
    GATHERED_FOR = 200,            /* microseconds for which complete responses are kept, beside the present request */
    CROWD = 256,                   /* waiting requests, from which on the next ones are made small */
    MOST_FREE_HEADS = 512,         /* that are kept: a burst must not cost memory for ever */
    RESPONSE_HEAD = 1024,          /* bytes that most heads of a response fit into */
};

fl_exchange *fl_loop_new_exchange(fl_loop *loop, fl_connection *connection) {
    fl_exchange *exchange = loop->free_exchanges;
    if (exchange != NULL)
        loop->free_exchanges = exchange->next;
    else if ((exchange = malloc(sizeof *exchange)) == NULL)
        return NULL;
    fl_http1_head *head = loop->free_heads;
    if (head != NULL) {
        memcpy(&loop->free_heads, head, sizeof(void *));
        loop->free_head_count--;
    } else if ((head = malloc(sizeof *head)) == NULL) {
        exchange->next = loop->free_exchanges;
        loop->free_exchanges = exchange;
        return NULL;
    }
    memset(exchange, 0, sizeof *exchange);
    fl_http1_head_clear(head);
    exchange->head = head;
    exchange->loop = loop;
    exchange->connection = connection;
    exchange->id = ++loop->last_id;
    exchange->first_byte_at = loop->handed.arrived != 0 ? loop->handed.arrived : loop->now;
    exchange->hand_overs = loop->handed.hand_overs;
    return exchange;
}

void fl_loop_free_head(fl_loop *loop, fl_exchange *exchange) {
    if (exchange->head == NULL)
        return;
    if (exchange->compact || loop->free_head_count >= MOST_FREE_HEADS) {
        free(exchange->head);
        exchange->head = NULL;
        return;
    }
    loop->free_head_count++;
    memcpy(exchange->head, &loop->free_heads, sizeof(void *)); /* the list runs through their first bytes */
    loop->free_heads = exchange->head;
    exchange->head = NULL;
}

void fl_loop_free_exchange(fl_loop *loop, fl_exchange *exchange) {
    if (exchange->woken) {
        fl_exchange **link = &loop->first_woken, *before = NULL;
        while (*link != exchange) {
            before = *link;
            link = &before->woken_next;
        }
        *link = exchange->woken_next;
        if (loop->last_woken == exchange)
            loop->last_woken = before;
    }
    if (exchange->timed || exchange->overdue)
        fl_loop_stop_time(exchange);
    if (exchange->taken) {
        if (exchange->previous != NULL)
            exchange->previous->next = exchange->next;
        else
            loop->served = exchange->next;
        if (exchange->next != NULL)
            exchange->next->previous = exchange->previous;
    }
    fl_exchange_head_used(exchange);
    fl_buffer_free(&loop->slab, &exchange->body);
    fl_buffer_free(&loop->slab, &exchange->trailers);
    fl_buffer_free(&loop->slab, &exchange->out);
    fl_buffer_free(&loop->slab, &exchange->held);
    exchange->next = loop->free_exchanges;
    loop->free_exchanges = exchange;
}

/* Many wait: each shall hold no more memory than what it says. */
static void compact(fl_exchange *exchange) {
    fl_loop *loop = exchange->loop;
    fl_http1_head *head = exchange->head;
    size_t size = offsetof(fl_http1_head, headers) + head->count * sizeof *head->headers;
    fl_http1_head *small = malloc(size);
    if (small == NULL)
        return;
    memcpy(small, head, size);
    fl_loop_free_head(loop, exchange);
    exchange->head = small;
    exchange->compact = true;
    fl_buffer *in = &exchange->connection->in, bytes = {0};
    if (in->capacity <= FL_SLAB_SMALLEST || in->length > FL_SLAB_SMALLEST ||
        fl_buffer_append(&loop->slab, &bytes, fl_buffer_at(in), in->length) != FL_OK)
        return;
    fl_buffer_free(&loop->slab, in);
    *in = bytes;
}

void fl_loop_enqueue(fl_exchange *exchange) {
    fl_loop *loop = exchange->loop;
    if (loop->counts.queued >= CROWD)
        compact(exchange);
    fl_exchange *before = loop->last_ready; /* one from a sibling may be older than ours */
    while (before != NULL && before->ready_at > exchange->ready_at)
        before = before->previous;
    exchange->previous = before;
    exchange->next = before != NULL ? before->next : loop->first_ready;
    if (exchange->next != NULL)
        exchange->next->previous = exchange;
    else
        loop->last_ready = exchange;
    if (before != NULL)
        before->next = exchange;
    else
        loop->first_ready = exchange;
    loop->counts.queued++;
}

void fl_loop_dequeue(fl_exchange *exchange) {
    fl_loop *loop = exchange->loop;
    if (exchange->previous != NULL)
        exchange->previous->next = exchange->next;
    else
        loop->first_ready = exchange->next;
    if (exchange->next != NULL)
        exchange->next->previous = exchange->previous;
    else
        loop->last_ready = exchange->previous;
    exchange->next = exchange->previous = NULL;
    loop->counts.queued--;
}

uint32_t fl_loop_takeable(const fl_loop *loop) {
    uint32_t room =
        loop->counts.in_flight < loop->limits.in_flight ? loop->limits.in_flight - loop->counts.in_flight : 0;
    return loop->counts.queued < room ? loop->counts.queued : room;
}

fl_exchange *fl_loop_take(fl_loop *loop) {
    bool long_ago = loop->now - loop->turned_at > TAKES_LAST;
    if ((loop->takes++ >= TAKES_A_TURN || long_ago) && loop->first_ready != NULL) {
        /* Pipelined requests may follow each other without end, and those that wait may be too late, or have nobody
         * waiting for them any more: look around. */
        fl_loop_turn(loop);
        loop->stood_in = true; /* whoever takes need not be the driver */
        if (loop->first_woken != NULL || loop->overdue.first != NULL)
            fl_poll_wake(&loop->poll);
    }
    fl_exchange *exchange = loop->first_ready;
    while (exchange != NULL && exchange->connection->half_closed && !fl_connection_is_read(exchange->connection))
        exchange = loop->first_ready;
    if (exchange == NULL || loop->counts.in_flight >= loop->limits.in_flight)
        return NULL;
    fl_loop_dequeue(exchange);
    exchange->taken = true;
    exchange->next = loop->served;
    if (loop->served != NULL)
        loop->served->previous = exchange;
    loop->served = exchange;
    uint64_t now = fl_clock();
    if (loop->others_waited) /* else the time before it was idle */
        loop->usual += ((int64_t) (now - loop->taken_at) - loop->usual) / 8;
    loop->others_waited = loop->first_ready != NULL;
    exchange->started_at = loop->now = loop->taken_at = now;
    uint64_t staged_at = atomic_load_explicit(&loop->staged_at, memory_order_relaxed);
    if (staged_at != 0 && now > staged_at + GATHERED_FOR)
        fl_loop_flush(loop);
    if (loop->siblings.slot != NULL) {
        fl_slot_set(loop->siblings.slot, FL_SLOT_idle, 0);
        fl_slot_set(loop->siblings.slot, FL_SLOT_oldest_us,
                    loop->first_ready == NULL ? 0 : (int64_t) loop->first_ready->ready_at);
    }
    loop->counts.in_flight++;
    if (loop->limits.request_timeout != 0)
        fl_exchange_limit_time(exchange, loop->limits.request_timeout);
    fl_connection *connection = exchange->connection;
    connection->state = FL_CONNECTION_SERVED;
    exchange->client = connection->client;
    exchange->listener = connection->listener->index;
    /* The head is its own from now on; what follows stays the connection's. */
    fl_buffer *bytes = &exchange->head_bytes;
    *bytes = connection->in;
    connection->in = (fl_buffer){0};
    uint32_t size = exchange->head->size;
    if ((bytes->length > size && fl_buffer_append(&loop->slab, &connection->in, fl_buffer_at(bytes) + size,
                                                  bytes->length - size) != FL_OK) ||
        fl_buffer_reserve(&loop->slab, &exchange->out, RESPONSE_HEAD) != FL_OK)
        connection->keep_alive = false;
    bytes->length = size;
    return exchange;
}

uint64_t fl_loop_woken(fl_loop *loop) {
    fl_exchange *exchange = loop->first_woken;
    if (exchange == NULL)
        return 0;
    loop->first_woken = exchange->woken_next;
    if (loop->first_woken == NULL)
        loop->last_woken = NULL;
    exchange->woken = false;
    return exchange->id;
}
