#include "loop.h"
#include "connection/event_stream.h"
#include "connection/file_body.h"
#include "files/public_files.h"
#include "internal.h"
#include "siblings/handoff.h"
#include "connection/tunnel.h"
#include "siblings/relay.h"

#include <stdlib.h>
#include <string.h>

enum {
    ACCEPTS_A_TURN = 8,   /* of one listener, so that siblings get some too */
    SPIN = 20,            /* microseconds: about the cost of falling asleep and waking */
    MAX_FAILED_SPINS = 8, /* after as many in a row, the loop spins only */
    SPIN_EVERY = 64,      /* before every 64th wait */
};

/* Published at once: siblings use it when many connections come together. */
static void publish_connections(fl_context *context) {
    fl_loop *loop = fl_loop_of(context);
    fl_slot *slot = loop->siblings.slot;
    if (slot == NULL)
        return;
    fl_slot_set(slot, FL_SLOT_connections, context->counts.connections);
    fl_slot_set(slot, FL_SLOT_fresh, context->counts.fresh);
    fl_slot_set(slot, FL_SLOT_room, fl_loop_room(loop));
}

/* Nothing else would wake the driver. */
static void wake_for_waiting(fl_context *context) {
    if (fl_loop_of(context)->ready.count > 0)
        fl_poll_wake(&context->poll);
}

/* The leader waits already, and the reactor that runs this request may not return in time. */
static void set_timer_while_waiting(fl_context *context) {
    if (atomic_load(&fl_loop_of(context)->driver.waiting))
        fl_loop_set_timer(fl_loop_of(context));
}

/* Whether the server drains, and no sibling would take a connection. */
static bool is_ending(const fl_context *context) {
    const fl_siblings *siblings = &fl_loop_of(context)->siblings;
    return context->draining && (!context->handing_over || siblings->slot == NULL || fl_siblings_choose(siblings) < 0);
}

static const fl_context_calls calls = {
    .enqueue = fl_loop_enqueue,
    .dequeue = fl_loop_dequeue,
    .relay_notified = fl_relay_notify,
    .request_ended = fl_loop_ended,
    .response_finished = fl_loop_flush_late,
    .stream_began = wake_for_waiting,
    .time_limit_set = set_timer_while_waiting,
    .connections_changed = publish_connections,
    .batches_responses = fl_loop_batches_responses,
    .is_ending = is_ending,
    .serve_file = fl_public_files_serve,
    .find_owner = fl_loop_find_owner,
    .session_began = fl_loop_session_began,
};

fl_loop *fl_loop_open(const fl_limits *limits) {
    fl_loop *loop = calloc(1, sizeof *loop);
    if (loop == NULL)
        return NULL;
    loop->siblings.source = FL_SOURCE_CHANNEL;
    loop->siblings.receiving = -1;
    loop->accepting.reserve = -1;
    if (fl_context_open(&loop->context, limits, &calls) < 0) {
        free(loop);
        return NULL;
    }
    return loop;
}

void fl_loop_close(fl_loop *loop) {
    while (loop->context.connections != NULL) fl_connection_close(loop->context.connections);
    fl_relays_continue(&loop->context);
    fl_relays_free_ended(&loop->context);
    while (loop->accepting.listeners != NULL) {
        fl_listener *listener = loop->accepting.listeners;
        loop->accepting.listeners = listener->next;
        free(listener);
    }
    fl_loop_close_reserve(loop);
    fl_public_files_close(loop->context.public_files);
    fl_context_close(&loop->context);
    free(loop);
}

fl_status fl_loop_join(fl_loop *loop, fl_shared_page *page, int slot, int receiving, const int *sending, int count) {
    fl_siblings *siblings = &loop->siblings;
    siblings->page = page;
    siblings->slot = &page->slots[slot];
    siblings->own = slot;
    loop->context.times.page = &siblings->slot->times;
    loop->context.times.routes = &page->timed_routes;
    siblings->receiving = receiving;
    siblings->count = count < FL_MAX_SIBLINGS ? count : FL_MAX_SIBLINGS;
    memcpy(siblings->sending, sending, sizeof(int) * (size_t) siblings->count);
    loop->lanes.dedicated = fl_slot_get(siblings->slot, FL_SLOT_lane) == 1;
    if (loop->lanes.dedicated)
        fl_loop_watch_listeners(loop, false); /* siblings hand over what it serves */
    if (receiving >= 0 && fl_poll_add_reader(&loop->context.poll, receiving, siblings) < 0)
        return FL_SYSTEM;
    fl_loop_open_reserve(loop);
    fl_slot_set(siblings->slot, FL_SLOT_room, fl_loop_room(loop));
    return FL_OK;
}

void fl_loop_return_connections(fl_loop *loop) {
    for (fl_connection *connection = loop->context.connections, *next; connection != NULL; connection = next) {
        next = connection->next;
        const fl_exchange *exchange = connection->exchanges;
        bool waits = exchange != NULL && exchange->state == FL_EXCHANGE_QUEUED && exchange->queueing.lane != FL_LANE_PROCESS;
        if (!(waits || fl_connection_is_idle(connection)) || !fl_handoff_possible(connection))
            continue;
        if (!fl_handoff_give_to_least_loaded(&loop->siblings, connection))
            return;
    }
}

/* All requests of a lane worker count as in a lane. */
static void publish_lanes(const fl_loop *loop, fl_slot *slot) {
    uint32_t waiting = loop->lanes.dedicated ? loop->ready.count : 0,
             running = loop->lanes.dedicated ? loop->context.counts.in_flight : 0;
    for (int lane = FL_LANE_NONE + 1; lane < FL_LANES; lane++) {
        waiting += atomic_load(&loop->queues[lane].count);
        running += atomic_load(&loop->queues[lane].running);
    }
    fl_slot_set(slot, FL_SLOT_lane_waiting, waiting);
    fl_slot_set(slot, FL_SLOT_lane_running, running);
    if (running > fl_slot_get(slot, FL_SLOT_lane_max))
        fl_slot_set(slot, FL_SLOT_lane_max, running);
    fl_slot_set(slot, FL_SLOT_lane_requests, (int64_t) loop->context.counts.lane_requests);
    fl_slot_set(slot, FL_SLOT_lane_waited_us, (int64_t) loop->context.counts.lane_waited);
}

static void publish(fl_loop *loop) {
    fl_slot *slot = loop->siblings.slot;
    if (slot == NULL)
        return;
    fl_slot_set(slot, FL_SLOT_in_flight, loop->context.counts.in_flight);
    fl_slot_set(slot, FL_SLOT_streams, loop->context.counts.streams);
    fl_slot_set(slot, FL_SLOT_queued, loop->ready.count);
    fl_slot_set(slot, FL_SLOT_requests, (int64_t) loop->context.counts.requests);
    fl_slot_set(slot, FL_SLOT_errors, (int64_t) loop->context.counts.errors);
    fl_slot_set(slot, FL_SLOT_refused, (int64_t) loop->context.counts.refused);
    fl_slot_set(slot, FL_SLOT_turned_away, (int64_t) loop->context.counts.turned_away);
    fl_slot_set(slot, FL_SLOT_timed_out, (int64_t) loop->context.counts.timed_out);
    fl_slot_set(slot, FL_SLOT_handed, (int64_t) loop->context.counts.handed);
    fl_slot_set(slot, FL_SLOT_received, (int64_t) loop->context.counts.received);
    if (loop->lanes.used)
        publish_lanes(loop, slot);
    fl_slot_set(slot, FL_SLOT_oldest_us, loop->ready.first == NULL ? 0 : (int64_t) loop->ready.first->queueing.ready_at);
    fl_slot_set(slot, FL_SLOT_heartbeat_ms, (int64_t) (loop->context.now / 1000));
}

/* Processes events, then due deadlines. `polling`: 1 if the calling thread has polled without the lock. */
static void process(fl_loop *loop, fl_event *events, int count, int polling, bool without_gvl) {
    loop->driver.turned_by_watch = false;
    fl_context *context = &loop->context;
    uint64_t now = context->now = loop->turns.turned_at = fl_clock();
    bool due = context->timer_stale || context->timer <= now; /* otherwise no deadline comes before the timer */
    for (int i = 0; i < count; i++) {
        switch (*(fl_source *) events[i].data) {
        case FL_SOURCE_LISTENER:
            fl_loop_accept(loop, events[i].data, ACCEPTS_A_TURN);
            break;
        case FL_SOURCE_CONNECTION:
            fl_connection_event(events[i].data, events[i].ready);
            break;
        case FL_SOURCE_CHANNEL:
            fl_loop_receive(loop);
            break;
        case FL_SOURCE_RELAY:
            fl_relay_event(events[i].data, events[i].ready);
            break;
        case FL_SOURCE_TUNNEL:
            fl_tunnel_event(events[i].data, events[i].ready);
            break;
        }
    }
    if (context->relays.notified != NULL)
        fl_relays_continue(context);
    if (context->unfinished.bytes > FL_MAX_UNFINISHED)
        fl_context_shed_unfinished(context, FL_POLL_EVENTS);
    if (context->handshakes.first != NULL)
        fl_loop_process_handshakes(loop, without_gvl);
    if (due)
        fl_loop_process_deadlines(loop);
    if (loop->siblings.page != NULL)
        fl_loop_sort(loop);
    if (loop->shedding.most != 0)
        fl_load_shedding_cut(loop);
    if (loop->lanes.dedicated)
        fl_loop_return_connections(loop);
    if (loop->accepting.again_at != 0)
        fl_loop_listen_again(loop);
    if (context->files.first != NULL && fl_file_bodies_turn(context))
        fl_loop_wake(loop);
    if (context->draining)
        fl_loop_release_idle(loop);
    if (context->timer_stale || context->timer <= now || context->draining)
        fl_loop_set_timer(loop);
    publish(loop);
    if (atomic_load(&loop->driver.polling) <= polling) { /* otherwise another thread may have an event of a closed connection */
        fl_context_free_closed(&loop->context);
        if (context->relays.ended != NULL)
            fl_relays_free_ended(context);
    }
}

uint32_t fl_loop_turn(fl_loop *loop) {
    fl_event events[FL_POLL_EVENTS];
    bool woken;
    loop->turns.takes = 0;
    fl_context_flush(&loop->context);
    fl_context_free_abandoned(&loop->context);
    fl_loop_pause_accepting(loop, false);
    process(loop, events, fl_poll_wait(&loop->context.poll, events, 0, &woken), 0, false);
    return fl_loop_takeable(loop);
}

void fl_loop_turn_for_reactor(fl_loop *loop) {
    fl_event events[FL_POLL_EVENTS];
    bool woken;
    bool before = loop->driver.turned_by_watch;
    process(loop, events, fl_poll_wait(&loop->context.poll, events, 0, &woken), 0, true);
    loop->driver.turned_by_watch = before || woken || loop->context.expired.first != NULL;
}

void fl_loop_update_timer(fl_loop *loop) {
    if (loop->context.timer_stale)
        fl_loop_set_timer(loop);
}

void fl_loop_prepare_wait(fl_loop *loop, bool leads, bool busy) {
    loop->context.now = fl_clock();
    uint32_t ready = loop->ready.count;
    fl_context_flush(&loop->context);
    fl_context_free_abandoned(&loop->context);
    if (loop->context.draining) /* a client that sends one request after the other is idle only now, or has sent the next */
        fl_loop_release_idle(loop);
    bool more = loop->context.files.first != NULL || loop->context.dirty != NULL; /* the next turn sends more */
    /* A connection that has flushed may go on reading. */
    if (more || loop->ready.count > ready || loop->context.woken.first != NULL || loop->context.expired.first != NULL)
        fl_loop_wake(loop);
    fl_loop_update_timer(loop);
    publish(loop);
    if (!leads)
        return;
    if (loop->lanes.dedicated)
        fl_loop_return_connections(loop);
    fl_loop_pause_accepting(loop, false);
    if (loop->driver.turned_by_watch) {
        loop->driver.turned_by_watch = false;
        fl_loop_wake(loop);
    }
    fl_slot *slot = loop->siblings.slot;
    if (slot == NULL)
        return;
    /* A sibling that was killed while it sent something left its count behind. */
    if (fl_slot_get(slot, FL_SLOT_incoming_requests) != 0)
        fl_slot_set(slot, FL_SLOT_incoming_requests, 0);
    if (fl_slot_get(slot, FL_SLOT_incoming_connections) != 0)
        fl_slot_set(slot, FL_SLOT_incoming_connections, 0);
    fl_slot_set(slot, FL_SLOT_idle, loop->ready.first == NULL && !busy);
}

static bool poll_unlocked(fl_loop *loop, int64_t microseconds, bool without_gvl) {
    fl_event events[FL_POLL_EVENTS];
    bool woken;
    atomic_fetch_add(&loop->driver.polling, 1);
    int count = fl_poll_wait(&loop->context.poll, events, microseconds, &woken);
    if (woken) {
        pthread_mutex_lock(&loop->context.lock);
        process(loop, events, count, 1, without_gvl);
        pthread_mutex_unlock(&loop->context.lock);
    }
    atomic_fetch_sub(&loop->driver.polling, 1);
    return woken;
}

bool fl_loop_wait(fl_loop *loop, int64_t microseconds) {
    bool woken = poll_unlocked(loop, microseconds, true);
    atomic_store(&loop->driver.waiting, false);
    return woken;
}

bool fl_loop_may_spin(fl_loop *loop) {
    if (loop->context.handshakes.first != NULL)
        return false;
    return loop->driver.failed_spins < MAX_FAILED_SPINS || ++loop->driver.failed_spins % SPIN_EVERY == 0;
}

bool fl_loop_spin(fl_loop *loop) {
    uint64_t until = fl_clock() + SPIN;
    bool woken;
    do woken = poll_unlocked(loop, 0, false);
    while (!woken && fl_clock() < until);
    loop->driver.failed_spins = woken ? 0 : loop->driver.failed_spins + 1;
    atomic_store(&loop->driver.waiting, false);
    return woken;
}

void fl_loop_wake(fl_loop *loop) {
    fl_poll_wake(&loop->context.poll);
}

void fl_loop_notify_driver(fl_loop *loop) {
    atomic_store(&loop->driver.notified, true);
    fl_loop_wake(loop);
}
