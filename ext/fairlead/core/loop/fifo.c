/* The queues of ready requests. Part of the loop: their contract is in loop.h. */
#include "base/list.h"
#include "base/platform.h"
#include "loop.h"
#include "internal.h"

#include <stdlib.h>
#include <string.h>

enum {
    TAKES_A_TURN = FL_POLL_EVENTS, /* at most, before the loop turns again: as many as a turn may bring */
    TAKES_LAST = 5000,             /* microseconds, likewise */
    COMPACT_FROM = 256,            /* waiting requests, from which on further ones are compacted */
    LANE_PATIENCE = 2000000,       /* microseconds that a request waits for a lane worker, while there is none */
};

/* Makes room in the lane of the request, and records whether its route ran without a stall. */
void fl_loop_ended(fl_exchange *exchange) {
    fl_loop *loop = fl_loop_of(exchange->context);
    if (exchange->queueing.lane == FL_LANE_NONE)
        return;
    if (loop->siblings.page != NULL)
        fl_routes_completed(&loop->siblings.page->routes, exchange->queueing.route, exchange->queueing.route_stalls);
    if (exchange->queueing.reactor < 0)
        return;
    atomic_fetch_sub(&loop->lanes.running[exchange->queueing.reactor], 1);
    atomic_fetch_sub(&loop->queues[exchange->queueing.queue].running, 1);
}

static void count(fl_fifo *fifo, int change) {
    uint32_t before = atomic_load_explicit(&fifo->count, memory_order_relaxed);
    atomic_store_explicit(&fifo->count, before + (uint32_t) change, memory_order_relaxed);
}

/* The request that it belongs behind; NULL: it is the oldest. A request from a sibling may be older than those here. Siblings hand over
 * in order, so the search begins where the last one was inserted. */
static fl_exchange *place_of(fl_fifo *fifo, const fl_exchange *exchange) {
    fl_exchange *place = fifo->last;
    if (place == NULL || place->queueing.ready_at <= exchange->queueing.ready_at)
        return place;
    if (fifo->inserted != NULL)
        place = fifo->inserted;
    while (place != NULL && place->queueing.ready_at > exchange->queueing.ready_at) place = place->previous;
    while (place != NULL && place->next->queueing.ready_at <= exchange->queueing.ready_at) place = place->next;
    return place;
}

static void insert(fl_exchange *exchange) {
    fl_loop *loop = fl_loop_of(exchange->context);
    fl_fifo *fifo = &loop->queues[exchange->queueing.queue];
    fl_exchange *before = place_of(fifo, exchange);
    if (before != fifo->last)
        fifo->inserted = exchange;
    exchange->previous = before;
    exchange->next = before != NULL ? before->next : fifo->first;
    if (exchange->next != NULL)
        exchange->next->previous = exchange;
    else
        fifo->last = exchange;
    if (before != NULL)
        before->next = exchange;
    else
        fifo->first = exchange;
    if (before == NULL)
        fl_context_note_due(exchange->context, exchange->queueing.ready_at + exchange->context->limits.queue_timeout);
    count(fifo, 1);
}

/* Sets the lane that the request runs in, and the queue that it waits in. */
static void find_lane(fl_exchange *exchange) {
    fl_loop *loop = fl_loop_of(exchange->context);
    fl_shared_page *page = loop->siblings.page;
    exchange->queueing.lane = exchange->queueing.queue = FL_LANE_NONE;
    if (page == NULL || atomic_load_explicit(&page->routes.laned, memory_order_relaxed) <= 0)
        return;
    const fl_head *head = exchange->request.head;
    const char *bytes = fl_exchange_head_bytes(exchange);
    fl_route route;
    fl_routes_find(&page->routes, &route, bytes + head->method.at, head->method.size, bytes + head->path.at, head->path.size);
    exchange->queueing.route = route.key;
    exchange->queueing.lane = (int8_t) fl_routes_lane(&page->routes, route.key, loop->context.now);
    if (loop->lanes.serve != NULL && !loop->lanes.dedicated)
        exchange->queueing.queue = exchange->queueing.lane;
    loop->lanes.used |= exchange->queueing.lane != FL_LANE_NONE;
}

bool fl_loop_enqueue(fl_exchange *exchange) {
    fl_loop *loop = fl_loop_of(exchange->context);
    find_lane(exchange);
    if (loop->ready.count >= COMPACT_FROM)
        fl_exchange_compact(exchange);
    insert(exchange);
    if (exchange->queueing.queue != FL_LANE_NONE)
        loop->lanes.serve(loop->lanes.watch);
    return loop->ready.count > 1 || loop->context.counts.in_flight >= loop->context.limits.in_flight;
}

void fl_loop_dequeue(fl_exchange *exchange) {
    fl_fifo *fifo = &fl_loop_of(exchange->context)->queues[exchange->queueing.queue];
    if (fifo->inserted == exchange)
        fifo->inserted = exchange->previous != NULL ? exchange->previous : exchange->next;
    FL_LIST_REMOVE(fifo, exchange, previous, next);
    count(fifo, -1);
}

static void sort(fl_loop *loop, int version) {
    loop->lanes.routes_version = version;
    for (int queue = 0; queue < FL_LANES; queue++)
        for (fl_exchange *exchange = loop->queues[queue].first, *next; exchange != NULL; exchange = next) {
            next = exchange->next;
            find_lane(exchange);
            int8_t wanted = exchange->queueing.queue;
            exchange->queueing.queue = (int8_t) queue;
            if (wanted == queue)
                continue;
            fl_loop_dequeue(exchange);
            exchange->queueing.queue = wanted;
            insert(exchange);
        }
}

void fl_loop_sort(fl_loop *loop) {
    const fl_shared_page *page = loop->siblings.page;
    if (page != NULL && atomic_load(&page->routes.version) != loop->lanes.routes_version)
        sort(loop, atomic_load(&page->routes.version));
}

uint32_t fl_loop_takeable(const fl_loop *loop) {
    uint32_t in_flight = loop->context.counts.in_flight, most = loop->context.limits.in_flight;
    uint32_t room = in_flight < most ? most - in_flight : 0;
    return loop->ready.count < room ? loop->ready.count : room;
}

/* Sends responses that have been staged for long, before a request is chosen: sending may find that the client of a waiting request
 * has gone, and free that request. */
static void flush_late(fl_loop *loop) {
    loop->context.now = fl_clock();
    fl_loop_flush_late(&loop->context);
}

/* The head is freed before the request ends. */
static void note_route(fl_exchange *exchange) {
    const fl_head *head = exchange->request.head;
    const char *bytes = fl_exchange_head_bytes(exchange);
    fl_route_from_path(&exchange->queueing.timed_route, bytes + head->method.at, head->method.size, bytes + head->path.at,
                       head->path.size);
}

/* Moves the request from its queue to those that are served. */
static fl_exchange *begin(fl_exchange *exchange) {
    fl_loop *loop = fl_loop_of(exchange->context);
    fl_loop_dequeue(exchange);
    exchange->state = FL_EXCHANGE_SERVED;
    FL_LIST_PUSH(loop->context.served, exchange, previous, next);
    uint64_t now = exchange->queueing.started_at = loop->context.now;
    if (exchange->queueing.lane != FL_LANE_NONE)
        exchange->queueing.route_stalls = fl_routes_stall_count(&loop->siblings.page->routes, exchange->queueing.route);
    if (exchange->queueing.queue == FL_LANE_NONE) {
        if (loop->pace.others_waited) { /* otherwise the reactor was idle before this request */
            int64_t difference = (int64_t) (now - loop->pace.taken_at) - loop->pace.interval;
            loop->pace.interval += difference / 8;
            loop->pace.deviation += ((difference < 0 ? -difference : difference) - loop->pace.deviation) / 8;
        }
        loop->pace.others_waited = loop->ready.first != NULL;
        loop->pace.taken_at = now;
        if (!loop->lanes.dedicated)
            fl_load_shedding_taken(loop, now - exchange->queueing.ready_at, now);
    }
    if (exchange->queueing.queue != FL_LANE_NONE || loop->lanes.dedicated) {
        loop->context.counts.lane_requests++;
        loop->context.counts.lane_waited += now - exchange->queueing.ready_at;
    }
    if (loop->siblings.slot != NULL &&
        exchange->queueing.queue != FL_LANE_THREADS) { /* requests of that lane delay no others */
        fl_slot_set(loop->siblings.slot, FL_SLOT_idle, 0);
        fl_slot_set(loop->siblings.slot, FL_SLOT_oldest_us,
                    loop->ready.first == NULL ? 0 : (int64_t) loop->ready.first->queueing.ready_at);
    }
    exchange->queueing.route_named = exchange->queueing.recorded = false;
    exchange->queueing.account = NULL;
    if (loop->context.times.page != NULL)
        note_route(exchange);
    loop->context.counts.in_flight++;
    if (loop->context.limits.request_timeout != 0)
        fl_exchange_set_time_limit(exchange, loop->context.limits.request_timeout);
    fl_connection *connection = exchange->connection;
    exchange->client = connection->client;
    if (connection->transport.identity != NULL)
        exchange->identity = fl_identity_retain(connection->transport.identity);
    exchange->listener = connection->listener->index;
    if (exchange->protocol->taken != NULL)
        exchange->protocol->taken(exchange);
    return exchange;
}

bool fl_loop_is_too_late(const fl_exchange *exchange) {
    return exchange->queueing.ready_at + exchange->context->limits.queue_timeout <= exchange->context->now;
}

/* The oldest request of a queue whose client still reads, and whose queue timeout is not over. NULL also after TAKES_A_TURN others: the
 * next take goes on. */
static fl_exchange *oldest_wanted(fl_loop *loop, int queue) {
    for (int dropped = 0; dropped < TAKES_A_TURN; dropped++) {
        fl_exchange *exchange = loop->queues[queue].first;
        if (exchange == NULL)
            return NULL;
        if (!fl_exchange_client_reads(exchange))
            continue;
        if (!fl_loop_is_too_late(exchange))
            return exchange;
        fl_exchange_reject(exchange, FL_QUEUE_TIMEOUT);
    }
    return NULL;
}

fl_exchange *fl_loop_take(fl_loop *loop) {
    bool long_ago = loop->context.now - loop->turns.turned_at > TAKES_LAST;
    if ((loop->turns.takes++ >= TAKES_A_TURN || long_ago) && loop->ready.first != NULL) {
        /* Pipelined requests may follow each other without end: process events and deadlines in between. */
        fl_loop_turn(loop);
        loop->driver.turned_by_watch = true; /* the caller may not be the driver */
        if (loop->context.woken.first != NULL || loop->context.expired.first != NULL)
            fl_poll_wake(&loop->context.poll);
    }
    /* The driver first resumes requests that have begun, and does what it was notified of. */
    if (loop->ready.first == NULL || loop->context.woken.first != NULL || atomic_load(&loop->driver.notified))
        return NULL;
    flush_late(loop);
    fl_exchange *exchange = oldest_wanted(loop, FL_LANE_NONE);
    if (exchange == NULL || loop->context.counts.in_flight >= loop->context.limits.in_flight)
        return NULL;
    return begin(exchange);
}

fl_exchange *fl_loop_take_from_lane(fl_loop *loop, int reactor, bool may_hold) {
    flush_late(loop);
    fl_exchange *exchange = oldest_wanted(loop, FL_LANE_THREADS);
    int holder = fl_loop_holder(loop);
    if (exchange == NULL && may_hold && (holder < 0 || holder == reactor) && fl_loop_runs_process_lane(loop))
        exchange = oldest_wanted(loop, FL_LANE_PROCESS);
    if (exchange == NULL || loop->context.counts.in_flight >= loop->context.limits.in_flight)
        return NULL;
    exchange->queueing.reactor = (int8_t) reactor;
    if (exchange->queueing.queue == FL_LANE_PROCESS)
        loop->lanes.holder = reactor;
    atomic_fetch_add(&loop->lanes.running[reactor], 1);
    atomic_fetch_add(&loop->queues[exchange->queueing.queue].running, 1);
    return begin(exchange);
}

bool fl_loop_runs_process_lane(const fl_loop *loop) {
    const fl_fifo *lane = &loop->queues[FL_LANE_PROCESS];
    if (lane->first == NULL)
        return false;
    return lane->first->queueing.pinned || atomic_load(&loop->siblings.page->max_lanes) == 0 ||
           (loop->context.now > lane->first->queueing.ready_at + LANE_PATIENCE && fl_siblings_choose_lane(&loop->siblings) < 0);
}
