#include "loop.h"
#include "balance.h"
#include "platform.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum {
    GATHERED_BELOW = 2000,    /* microseconds from one request to the next */
    GATHERED = 4,             /* requests that run meanwhile, as far as they take */
    LEAST_GATHERED = 200,     /* microseconds, */
    MOST_GATHERED = 1000,     /* between which that is */
    ACCEPTS_BEFORE_LEAVING = 1024,
    ACCEPTS_A_TURN = 8,       /* of one listener: the siblings shall have some too */
    MOST_UNSENT = 2 << 20,    /* bytes that the kernel keeps for a client who does not take them; by itself it keeps 4 MB */
    LISTEN_AGAIN = 100000,    /* microseconds, after the descriptors ran out */
    LONG_SILENT = 1000000,    /* microseconds, after which an idle connection may be closed for want of descriptors */
    MOST_SPARE = 128,         /* descriptors that are left to the app */
    HAND_OVER_AGAIN = 10000,  /* microseconds, after siblings could not take what we have to give */
    LINGER = 20,              /* microseconds: about what falling asleep and being woken cost */
    VAIN_IN_A_ROW = 8,        /* after so many times without success, */
    VAIN_TRIES = 64,          /* it is tried before each so many-th wait only */
};

fl_loop *fl_loop_open(const fl_limits *limits) {
    fl_loop *loop = calloc(1, sizeof *loop);
    if (loop == NULL)
        return NULL;
    pthread_mutex_init(&loop->lock, NULL);
    loop->limits = *limits;
    loop->date_second = -1;
    loop->siblings.source = FL_SOURCE_CHANNEL;
    loop->siblings.receiving = -1;
    if (fl_poll_open(&loop->poll) < 0) {
        free(loop);
        return NULL;
    }
    loop->now = fl_clock();
    loop->wall_offset = fl_wall_clock() - loop->now;
    return loop;
}

static void bury(fl_loop *loop, int outside) {
    if (atomic_load(&loop->outside) > outside)
        return; /* somebody may have been told of one of them, and wait for the lock */
    fl_connection **link = &loop->graveyard;
    while (*link != NULL) {
        fl_connection *connection = *link;
        if (connection->dirty) { /* the list of those to flush still has it */
            link = &connection->next;
            continue;
        }
        *link = connection->next;
        free(connection);
    }
}

/* What their owners gave up without the lock. */
static void bury_abandoned(fl_loop *loop) {
    if (atomic_load_explicit(&loop->abandoned, memory_order_relaxed) == NULL)
        return;
    fl_exchange *exchange = atomic_exchange(&loop->abandoned, NULL);
    while (exchange != NULL) {
        fl_exchange *next = exchange->abandoned_next;
        fl_exchange_abandon(exchange);
        exchange = next;
    }
}

/* Those who serve free them, and find the client gone. */
static void disown_served(fl_loop *loop, bool free_buffers) {
    for (fl_exchange *exchange = loop->served; exchange != NULL;) {
        fl_exchange *next = exchange->next;
        if (free_buffers) {
            fl_buffer_free(&loop->slab, &exchange->head_bytes);
            fl_buffer_free(&loop->slab, &exchange->body);
            fl_buffer_free(&loop->slab, &exchange->trailers);
            fl_buffer_free(&loop->slab, &exchange->out);
            fl_buffer_free(&loop->slab, &exchange->held);
        }
        exchange->loop = NULL;
        exchange->connection = NULL;
        exchange->body_failed = true;
        exchange->body_done = false;
        exchange->next = exchange->previous = exchange->timed_before = exchange->timed_after = NULL;
        exchange->timed = exchange->overdue = false;
        exchange = next;
    }
}

static void free_all(fl_loop *loop) {
    for (; loop->dirty != NULL; loop->dirty = loop->dirty->dirty_next)
        loop->dirty->dirty = false;
    bury(loop, 0);
    bury_abandoned(loop);
    disown_served(loop, true);
    while (loop->free_exchanges != NULL) {
        fl_exchange *exchange = loop->free_exchanges;
        loop->free_exchanges = exchange->next;
        free(exchange);
    }
    for (fl_refusal *refusal; (refusal = fl_refusal_take(&loop->refusals)) != NULL;)
        free(refusal);
    while (loop->free_heads != NULL) {
        fl_http1_head *head = loop->free_heads;
        memcpy(&loop->free_heads, head, sizeof(void *));
        free(head);
    }
    while (loop->listeners != NULL) {
        fl_listener *listener = loop->listeners;
        loop->listeners = listener->next;
        free(listener);
    }
    fl_poll_close(&loop->poll);
    fl_slab_close(&loop->slab);
    fl_slab_close(&loop->staging);
    pthread_mutex_destroy(&loop->lock);
    free(loop);
}

void fl_loop_close(fl_loop *loop) {
    while (loop->connections != NULL)
        fl_connection_close(loop->connections);
    free_all(loop);
}

void fl_loop_forget(fl_loop *loop) {
    for (fl_connection *connection = loop->connections; connection != NULL; connection = connection->next) {
        close(connection->transport.descriptor);
        connection->transport.descriptor = -1; /* its number may soon mean another file */
    }
    for (fl_listener *listener = loop->listeners; listener != NULL && !loop->draining; listener = listener->next)
        close(listener->descriptor); /* while we drain, its owner has closed it already */
    disown_served(loop, false);
    fl_poll_forget(&loop->poll);
    loop->siblings.slot = NULL;
}

fl_status fl_loop_listen(fl_loop *loop, int descriptor, bool unix_socket) {
    fl_listener *listener = calloc(1, sizeof *listener);
    if (listener == NULL)
        return FL_NO_MEMORY;
    listener->source = FL_SOURCE_LISTENER;
    listener->descriptor = descriptor;
    listener->unix_socket = unix_socket;
    listener->watched = true;
    int one = 1, unsent = MOST_UNSENT;
    if (!unix_socket) { /* accepted connections inherit it */
        setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        setsockopt(descriptor, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
    }
    if (fl_close_on_exec_nonblocking(descriptor) < 0 ||
        fl_poll_add_listener(&loop->poll, descriptor, listener) < 0) {
        free(listener);
        return FL_SYSTEM;
    }
    listener->index = loop->listeners == NULL ? 0 : loop->listeners->index + 1;
    listener->next = loop->listeners;
    loop->listeners = listener;
    return FL_OK;
}

static void watch_listeners(fl_loop *loop, bool watch) {
    for (fl_listener *listener = loop->listeners; listener != NULL; listener = listener->next) {
        if (listener->watched == watch)
            continue;
        if (watch)
            fl_poll_add_listener(&loop->poll, listener->descriptor, listener);
        else
            fl_poll_remove(&loop->poll, listener->descriptor);
        listener->watched = watch;
    }
}

fl_status fl_loop_join(fl_loop *loop, fl_shared_page *page, int slot, int receiving, const int *sending, int count) {
    fl_siblings *siblings = &loop->siblings;
    siblings->page = page;
    siblings->slot = &page->slots[slot];
    siblings->own = slot;
    siblings->receiving = receiving;
    siblings->count = count < FL_MOST_SIBLINGS ? count : FL_MOST_SIBLINGS;
    memcpy(siblings->sending, sending, sizeof(int) * (size_t) siblings->count);
    loop->dedicated = fl_slot_get(siblings->slot, FL_SLOT_lane) == 1;
    if (loop->dedicated)
        watch_listeners(loop, false); /* what it serves is handed to it */
    if (receiving >= 0 && fl_poll_add_reader(&loop->poll, receiving, siblings) < 0)
        return FL_SYSTEM;
    return FL_OK;
}

/* Deadlines */

void fl_loop_look_at_clock(fl_loop *loop) {
    loop->now = fl_clock();
}

void fl_loop_set_deadline(fl_connection *connection, fl_deadline_kind kind) {
    fl_loop *loop = connection->loop;
    fl_deadline_kind before = connection->deadline_kind;
    if (before != FL_DEADLINE_NONE) {
        if (connection->deadline_before != NULL)
            connection->deadline_before->deadline_after = connection->deadline_after;
        else
            loop->deadlines[before].first = connection->deadline_after;
        if (connection->deadline_after != NULL)
            connection->deadline_after->deadline_before = connection->deadline_before;
        else
            loop->deadlines[before].last = connection->deadline_before;
    }
    connection->deadline_kind = (uint8_t) kind;
    if (kind == FL_DEADLINE_NONE)
        return;
    connection->deadline = loop->now + loop->limits.deadlines[kind];
    loop->timer_stale = true;
    connection->progress_at_deadline = connection->progress;
    connection->deadline_after = NULL;
    connection->deadline_before = loop->deadlines[kind].last;
    if (connection->deadline_before != NULL)
        connection->deadline_before->deadline_after = connection;
    else
        loop->deadlines[kind].first = connection;
    loop->deadlines[kind].last = connection;
}

static void see_to_deadlines(fl_loop *loop) {
    for (int kind = FL_DEADLINE_NONE + 1; kind < FL_DEADLINE_KINDS; kind++)
        for (fl_connection *connection; (connection = loop->deadlines[kind].first) != NULL;) {
            if (connection->deadline > loop->now)
                break;
            fl_connection_deadline(connection);
        }
    for (int queue = 0; queue < (loop->lanes_used ? FL_LANES : 1); queue++)
        for (fl_exchange *exchange; (exchange = loop->lanes[queue].first) != NULL;) {
            if (exchange->ready_at + loop->limits.queue_timeout > loop->now)
                break;
            fl_connection_refuse(exchange->connection, FL_QUEUE_TIMEOUT);
        }
    if (loop->timed.first != NULL)
        fl_loop_see_to_time(loop);
}

static void set_timer(fl_loop *loop) {
    uint64_t earliest = UINT64_MAX;
    loop->timer_stale = false;
    for (int kind = FL_DEADLINE_NONE + 1; kind < FL_DEADLINE_KINDS; kind++)
        if (loop->deadlines[kind].first != NULL && loop->deadlines[kind].first->deadline < earliest)
            earliest = loop->deadlines[kind].first->deadline;
    for (int queue = 0; queue < (loop->lanes_used ? FL_LANES : 1); queue++) {
        fl_exchange *oldest = loop->lanes[queue].first;
        if (oldest != NULL && oldest->ready_at + loop->limits.queue_timeout < earliest)
            earliest = oldest->ready_at + loop->limits.queue_timeout;
    }
    if (loop->timed.first != NULL && loop->timed.first->time_ends_at < earliest)
        earliest = loop->timed.first->time_ends_at;
    if (loop->listen_again != 0 && loop->listen_again < earliest)
        earliest = loop->listen_again;
    if (loop->handing_over && loop->connections != NULL && loop->now + HAND_OVER_AGAIN < earliest)
        earliest = loop->now + HAND_OVER_AGAIN;
    /* A timer that fires too early costs one turn; setting it anew costs a system call each time. */
    if (earliest != UINT64_MAX && (loop->timer <= loop->now || earliest < loop->timer)) {
        loop->timer = earliest;
        fl_poll_set_timer(&loop->poll, earliest);
    }
}

const char *fl_loop_date(fl_loop *loop) {
    int64_t second = (int64_t) ((loop->now + loop->wall_offset) / 1000000);
    if (second != loop->date_second) {
        loop->wall_offset = fl_wall_clock() - fl_clock(); /* the wall clock may have been set */
        loop->date_second = second;
        fl_http1_date(loop->date, second);
    }
    return loop->date;
}

/* Turning */

void fl_loop_add_dirty(fl_connection *connection) {
    fl_loop *loop = connection->loop;
    if (atomic_load_explicit(&loop->staged_at, memory_order_relaxed) == 0)
        atomic_store_explicit(&loop->staged_at, loop->now, memory_order_relaxed);
    if (connection->dirty)
        return;
    connection->dirty = true;
    connection->dirty_next = loop->dirty;
    loop->dirty = connection;
}

bool fl_loop_gathers(const fl_loop *loop) {
    bool more = loop->ready.first != NULL || loop->counts.in_flight > 1;
    return more && loop->watched && !loop->draining && loop->usual < GATHERED_BELOW;
}

void fl_loop_send_late(fl_loop *loop) {
    uint64_t since = atomic_load_explicit(&loop->staged_at, memory_order_relaxed);
    int64_t most = GATHERED * loop->usual;
    most = most < LEAST_GATHERED ? LEAST_GATHERED : most > MOST_GATHERED ? MOST_GATHERED : most;
    if (since != 0 && loop->now > since + (uint64_t) most)
        fl_loop_flush(loop);
}

void fl_loop_send_gathered(fl_loop *loop, uint64_t microseconds) {
    uint64_t since = atomic_load_explicit(&loop->staged_at, memory_order_relaxed);
    if (since == 0 || fl_clock() < since + microseconds || pthread_mutex_trylock(&loop->lock) != 0)
        return;
    /* What a request is still at is left to it. */
    for (fl_connection *connection = loop->dirty; connection != NULL; connection = connection->dirty_next)
        if (connection->state != FL_CONNECTION_SERVED && connection->state != FL_CONNECTION_CLOSED &&
            connection->out.length > 0)
            fl_connection_send(connection, NULL);
    atomic_store_explicit(&loop->staged_at, 0, memory_order_relaxed);
    pthread_mutex_unlock(&loop->lock);
}

void fl_loop_flush(fl_loop *loop) {
    fl_connection *connection = loop->dirty;
    if (connection == NULL)
        return;
    loop->dirty = NULL;
    atomic_store_explicit(&loop->staged_at, 0, memory_order_relaxed);
    while (connection != NULL) {
        fl_connection *next = connection->dirty_next;
        connection->dirty = false;
        if (connection->state == FL_CONNECTION_SERVED)
            fl_exchange_flush(connection->exchange);
        if (connection->state != FL_CONNECTION_CLOSED && connection->out.length > 0)
            fl_connection_send(connection, NULL);
        connection = next;
    }
}

/* Who accepts gets the lowest number that is free: so many are in use already. The app needs some of the others. */
static void count_descriptors(fl_loop *loop, int first) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur > UINT32_MAX)
        limit.rlim_cur = UINT32_MAX;
    rlim_t left = limit.rlim_cur > (rlim_t) first ? limit.rlim_cur - (rlim_t) first : 0;
    rlim_t spare = left / 8 < MOST_SPARE ? left / 8 : MOST_SPARE;
    loop->most_connections = left > spare + 1 ? (uint32_t) (left - spare) : 1;
}

/* A client that has long been silent makes room for a new one. */
static bool make_room(fl_loop *loop) {
    fl_connection *silent = loop->deadlines[FL_DEADLINE_IDLE].first;
    uint64_t timeout = loop->limits.deadlines[FL_DEADLINE_IDLE];
    if (silent == NULL || !fl_connection_is_idle(silent) || loop->now + timeout < silent->deadline + LONG_SILENT)
        return false;
    fl_connection_close(silent);
    return true;
}

/* The listener stays readable: look away for a while instead of spinning. */
static void look_away(fl_loop *loop) {
    watch_listeners(loop, false);
    loop->listen_again = loop->now + LISTEN_AGAIN;
}

static void accept_some(fl_loop *loop, fl_listener *listener, int most) {
    for (int i = 0; i < most; i++) {
        if (loop->most_connections != 0 && loop->counts.connections >= loop->most_connections && !make_room(loop)) {
            look_away(loop);
            return;
        }
        int descriptor = fl_accept(listener->descriptor, NULL, NULL);
        if (descriptor >= 0) {
            if (loop->most_connections == 0)
                count_descriptors(loop, descriptor);
            if (!fl_handoff_pass_on(loop, listener, descriptor))
                fl_connection_open(loop, listener, descriptor, "", 0);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            if (!make_room(loop)) {
                look_away(loop);
                return;
            }
        } else if (errno != ECONNABORTED && errno != EINTR) {
            return;
        }
    }
}

void fl_loop_hand_over_idle(fl_loop *loop) {
    if (loop->siblings.slot == NULL)
        return;
    for (fl_connection *connection = loop->connections, *next; connection != NULL; connection = next) {
        next = connection->next;
        int sibling;
        if (fl_connection_is_idle(connection) &&
            ((sibling = fl_siblings_choose(&loop->siblings)) < 0 || !fl_handoff_give(connection, sibling)))
            return;
    }
}

/* A lane worker is a lane as a whole. */
static void show_lanes(const fl_loop *loop, fl_slot *slot) {
    uint32_t waiting = loop->dedicated ? loop->ready.count : 0, running = loop->dedicated ? loop->counts.in_flight : 0;
    for (int lane = FL_LANE_NONE + 1; lane < FL_LANES; lane++) {
        waiting += atomic_load(&loop->lanes[lane].count);
        running += atomic_load(&loop->lanes[lane].running);
    }
    fl_slot_set(slot, FL_SLOT_lane_waiting, waiting);
    fl_slot_set(slot, FL_SLOT_lane_running, running);
    if (running > fl_slot_get(slot, FL_SLOT_lane_most))
        fl_slot_set(slot, FL_SLOT_lane_most, running);
    fl_slot_set(slot, FL_SLOT_lane_requests, (int64_t) loop->counts.lane_requests);
    fl_slot_set(slot, FL_SLOT_lane_waited_us, (int64_t) loop->counts.lane_waited);
}

static void publish(fl_loop *loop) {
    fl_slot *slot = loop->siblings.slot;
    if (slot == NULL)
        return;
    fl_slot_set(slot, FL_SLOT_in_flight, loop->counts.in_flight);
    fl_slot_set(slot, FL_SLOT_streams, loop->counts.streams);
    fl_slot_set(slot, FL_SLOT_queued, loop->ready.count);
    fl_slot_set(slot, FL_SLOT_connections, loop->counts.connections);
    fl_slot_set(slot, FL_SLOT_requests, (int64_t) loop->counts.requests);
    fl_slot_set(slot, FL_SLOT_errors, (int64_t) loop->counts.errors);
    fl_slot_set(slot, FL_SLOT_refused, (int64_t) loop->counts.refused);
    fl_slot_set(slot, FL_SLOT_timed_out, (int64_t) loop->counts.timed_out);
    fl_slot_set(slot, FL_SLOT_handed, (int64_t) loop->counts.handed);
    fl_slot_set(slot, FL_SLOT_received, (int64_t) loop->counts.received);
    if (loop->lanes_used)
        show_lanes(loop, slot);
    fl_slot_set(slot, FL_SLOT_oldest_us, loop->ready.first == NULL ? 0 : (int64_t) loop->ready.first->ready_at);
    fl_slot_set(slot, FL_SLOT_heartbeat_ms, (int64_t) (loop->now / 1000));
}

/* What the poll has told of, then what has fallen due. */
static void take_in(fl_loop *loop, fl_event *events, int count, int outside) {
    loop->stood_in = false;
    loop->now = loop->turned_at = fl_clock();
    for (int i = 0; i < count; i++) {
        switch (*(fl_source *) events[i].data) {
        case FL_SOURCE_LISTENER:
            accept_some(loop, events[i].data, ACCEPTS_A_TURN);
            break;
        case FL_SOURCE_CONNECTION:
            fl_connection_event(events[i].data, events[i].ready);
            break;
        case FL_SOURCE_CHANNEL:
            fl_handoff_receive(loop);
            break;
        }
    }
    see_to_deadlines(loop);
    fl_loop_sort(loop);
    fl_line_cut(loop);
    if (loop->dedicated)
        fl_balance_give_back(loop);
    if (loop->listen_again != 0 && loop->listen_again <= loop->now && !loop->draining) {
        loop->listen_again = 0;
        watch_listeners(loop, true);
    }
    if (loop->handing_over)
        fl_loop_hand_over_idle(loop);
    set_timer(loop);
    publish(loop);
    bury(loop, outside);
}

void fl_loop_abandon_later(fl_exchange *exchange) {
    fl_loop *loop = exchange->loop;
    exchange->abandoned_next = atomic_load(&loop->abandoned);
    while (!atomic_compare_exchange_weak(&loop->abandoned, &exchange->abandoned_next, exchange))
        continue;
}

uint32_t fl_loop_turn(fl_loop *loop) {
    fl_event events[FL_POLL_EVENTS];
    bool woken;
    loop->takes = 0;
    fl_loop_flush(loop);
    bury_abandoned(loop);
    fl_loop_step_aside(loop, false);
    take_in(loop, events, fl_poll_wait(&loop->poll, events, 0, &woken), 0);
    return fl_loop_takeable(loop);
}

void fl_loop_stand_in(fl_loop *loop) {
    fl_event events[FL_POLL_EVENTS];
    bool woken;
    bool before = loop->stood_in;
    take_in(loop, events, fl_poll_wait(&loop->poll, events, 0, &woken), 0);
    loop->stood_in = before || woken || loop->overdue.first != NULL;
}

void fl_loop_step_aside(fl_loop *loop, bool aside) {
    if (loop->aside == aside || loop->draining || loop->dedicated || loop->listen_again != 0)
        return;
    loop->aside = aside;
    /* A wake-up meant for all may have come to us alone: take what is there before looking away. */
    for (fl_listener *listener = loop->listeners; aside && listener != NULL; listener = listener->next)
        accept_some(loop, listener, ACCEPTS_BEFORE_LEAVING);
    watch_listeners(loop, !aside);
}

void fl_loop_settle(fl_loop *loop) {
    loop->now = fl_clock();
    fl_loop_flush(loop);
    bury_abandoned(loop);
    if (loop->timer_stale)
        set_timer(loop);
    publish(loop);
}

void fl_loop_rest(fl_loop *loop) {
    fl_loop_settle(loop);
    if (loop->dedicated)
        fl_balance_give_back(loop);
    fl_loop_step_aside(loop, false);
    if (loop->stood_in) {
        loop->stood_in = false;
        fl_loop_wake(loop);
    }
    fl_slot *slot = loop->siblings.slot;
    if (slot == NULL)
        return;
    /* Whoever was killed while it sent something cannot take its promise back. */
    if (fl_slot_get(slot, FL_SLOT_coming) != 0)
        fl_slot_set(slot, FL_SLOT_coming, 0);
    if (fl_slot_get(slot, FL_SLOT_arriving) != 0)
        fl_slot_set(slot, FL_SLOT_arriving, 0);
    fl_slot_set(slot, FL_SLOT_idle, loop->ready.first == NULL);
}

static bool look(fl_loop *loop, int64_t microseconds) {
    fl_event events[FL_POLL_EVENTS];
    bool woken;
    atomic_fetch_add(&loop->outside, 1);
    int count = fl_poll_wait(&loop->poll, events, microseconds, &woken);
    if (woken) {
        pthread_mutex_lock(&loop->lock);
        take_in(loop, events, count, 1);
        pthread_mutex_unlock(&loop->lock);
    }
    atomic_fetch_sub(&loop->outside, 1);
    return woken;
}

bool fl_loop_wait(fl_loop *loop, int64_t microseconds) {
    bool woken = look(loop, microseconds);
    atomic_store(&loop->resting, false);
    return woken;
}

bool fl_loop_lingers(fl_loop *loop) {
    return loop->in_vain < VAIN_IN_A_ROW || ++loop->in_vain % VAIN_TRIES == 0;
}

bool fl_loop_linger(fl_loop *loop) {
    uint64_t until = fl_clock() + LINGER;
    bool woken;
    do
        woken = look(loop, 0);
    while (!woken && fl_clock() < until);
    loop->in_vain = woken ? 0 : loop->in_vain + 1;
    atomic_store(&loop->resting, false);
    return woken;
}

void fl_loop_wake(fl_loop *loop) {
    fl_poll_wake(&loop->poll);
}

void fl_loop_want(fl_loop *loop) {
    atomic_store(&loop->wanted, true);
    fl_loop_wake(loop);
}

static void close_idle(fl_loop *loop) {
    for (fl_connection *connection = loop->connections, *next; connection != NULL; connection = next) {
        next = connection->next;
        if (!fl_connection_is_idle(connection))
            continue;
        connection->readable = true; /* a request may have come that no event has told of yet */
        fl_connection_receive(connection);
        if (fl_connection_is_idle(connection))
            fl_connection_close(connection);
    }
}

void fl_loop_drain(fl_loop *loop, bool handing_over) {
    if (!loop->draining) {
        /* A wake-up meant for all may have come to us alone: take what is there before looking away. */
        for (fl_listener *listener = loop->listeners; listener != NULL && !loop->dedicated; listener = listener->next)
            accept_some(loop, listener, ACCEPTS_BEFORE_LEAVING);
        watch_listeners(loop, false);
        loop->listen_again = 0;
    }
    loop->draining = true;
    loop->handing_over = handing_over;
    if (handing_over)
        fl_loop_hand_over_idle(loop);
    else
        close_idle(loop);
    fl_loop_wake(loop);
}

bool fl_loop_is_ending(const fl_loop *loop) {
    return loop->draining && (!loop->handing_over || loop->siblings.slot == NULL || fl_siblings_choose(&loop->siblings) < 0);
}

bool fl_loop_is_drained(const fl_loop *loop) {
    return loop->draining && loop->connections == NULL && loop->served == NULL;
}
