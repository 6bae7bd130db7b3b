/* What the watch thread does about a stall: it passes the lead, hands over requests, asks for a relief worker, or has the worker
 * replaced. The contract is in internal.h. */
#include "balance.h"
#include "internal.h"
#include "report.h"

enum {
    RELIEF_AFTER = 20000,   /* microseconds: starting a process holds the GVL for this long, and ends by itself */
    RELIEF_AHEAD = 40000,   /* while no request waits: the next one should not have to wait for a process to start */
    RELIEF_LATE = 500000,   /* for C code that computes, which is mostly ordinary work */
    ASLEEP_FOR = 12000,     /* at least this long the holder of the GVL has slept without a break */
    RELIEF_AGAIN = 30000,   /* between two requests for a relief worker */
    LOSS_AGAIN = 1000000,   /* between two requests for a replacement */
    ORDINARY_MAX = 1000000, /* microseconds: computing for longer is never ordinary */
    ORDINARY_TIMES = 3,     /* computing for this many times the average of a request is not ordinary */
    ORDINARY_OVER = 8,      /* requests, approximately, over which the average is taken */
    ASLEEP_IN_A_ROW = 5,    /* ticks that find the holder of the GVL asleep, until it counts as stuck */
};

/* Passes the lead to a reactor that waits in its loop; `to_any`: also to one that runs requests of a lane. Returns whether it still waits
 * there. The caller holds the lock: a leader that has returned meanwhile and waits for the loop keeps the lead, since only one reactor may
 * wait there. */
static bool pass_lead(fl_watch *watch, int from, bool to_any) {
    int count = atomic_load(&watch->loop->driver.waiting) ? 0 : atomic_load(&watch->count);
    for (int i = 1; i < count; i++) {
        int candidate = (from + i) % count;
        fl_reactor *reactor = &watch->reactors[candidate];
        if (!fl_watch_is_idle(watch, candidate) || (!to_any && atomic_load(&watch->loop->lanes.running[candidate]) > 0))
            continue;
        atomic_store(&reactor->lane, false);
        atomic_store_explicit(&reactor->stamp, fl_clock(), memory_order_relaxed); /* it is away from now on */
        atomic_store(&watch->leader, candidate);
        fl_notifier_notify(&reactor->lead);
        /* The candidate has just left its loop, and finds the notification when it returns; or it is retiring: then either it sees that
         * it leads, or the next tick sees that it has retired. */
        if (atomic_load(&reactor->in_loop))
            return true;
    }
    return false;
}

static void count_standby(fl_watch *watch, int from) {
    fl_stall_standby(watch, from);
    if (watch->loop->siblings.slot != NULL)
        atomic_fetch_add(&watch->loop->siblings.slot->fields[FL_SLOT_standbys], 1);
}

static bool pass_lead_locking(fl_watch *watch, int from) {
    pthread_mutex_lock(&watch->loop->context.lock);
    bool passed = pass_lead(watch, from, false) || pass_lead(watch, from, true);
    if (!fl_watch_leads(watch, from)) /* also if the last candidate had just left its loop */
        count_standby(watch, from);
    pthread_mutex_unlock(&watch->loop->context.lock);
    return passed;
}

static void request_relief(fl_watch *watch, int leader, uint64_t now) {
    if (watch->supervisor < 0 || now < watch->relief_at + RELIEF_AGAIN)
        return;
    watch->relief_at = now;
    atomic_store(&watch->stalls[leader].relief, true);
    fl_report(watch, watch->relief_request);
}

void fl_watch_report_loss(fl_watch *watch, uint64_t now) {
    int reactor = 0;
    uint64_t away = watch->limits.lost == 0 ? 0 : fl_watch_longest_away(watch, now, &reactor);
    if (away <= watch->limits.lost)
        return;
    const fl_thread *holder = atomic_load(&fl_gvl_holder);
    watch->asleep_in_a_row = holder != NULL && fl_task_sleeps(&holder->task) ? watch->asleep_in_a_row + 1 : 0;
    fl_stall stall = FL_STALL_COMPUTING;
    if (atomic_load(&watch->reactors[reactor].thread->gvl) == FL_GVL_RELEASED)
        stall = FL_STALL_BLOCKED;
    else if (watch->asleep_in_a_row >= ASLEEP_IN_A_ROW)
        stall = FL_STALL_STUCK;
    else if (watch->asleep_in_a_row > 0)
        return;
    bool ruby_runs = now < watch->held_since + watch->limits.lost;
    if (now >= watch->loss_reported_at + LOSS_AGAIN) {
        watch->loss_reported_at = now;
        fl_report_lost(watch, reactor, stall);
        if (!ruby_runs && fl_stall_goes_on(watch, reactor))
            fl_report_lasting(watch, reactor);
    }
    if (ruby_runs) /* the worker drains by itself when the supervisor says so */
        return;
    fl_loop *loop = watch->loop;
    pthread_mutex_lock(&loop->context.lock);
    fl_context_update_clock(&loop->context);
    fl_loop_release_idle(loop);
    if (loop->ready.count > 0) /* a client that is to be released has sent a request */
        fl_loop_wake(loop);
    if (away > watch->limits.lost + watch->limits.drain) /* the supervisor kills this process next */
        fl_context_stop_all(&loop->context, away > watch->limits.lost + watch->limits.drain_streams);
    pthread_mutex_unlock(&loop->context.lock);
}

/* The leader may have returned to its loop meanwhile, and not have seen what the watch thread has received. If it returns later, it
 * takes the lock before it waits, and sees it. */
static void wake_leader(fl_watch *watch) {
    fl_loop *loop = watch->loop;
    bool in_loop = atomic_load(&watch->reactors[atomic_load(&watch->leader)].in_loop);
    if (in_loop && loop->driver.turned_by_watch)
        fl_loop_wake(loop);
}

/* `away` without the time that the garbage collector has run since this stamp: no other reactor could run beside it. */
static uint64_t without_collecting(fl_watch *watch, uint64_t stamp, uint64_t away, uint64_t now) {
    uint64_t since = atomic_load(&fl_collecting_since);
    uint64_t collected = atomic_load(&fl_collected) + (since != 0 && since < now ? now - since : 0);
    if (watch->stamp_seen != stamp) {
        watch->stamp_seen = stamp;
        watch->collected_before = collected;
    }
    collected -= watch->collected_before;
    return away > collected ? away - collected : 0;
}

static bool has_usable_sibling(const fl_loop *loop) {
    return loop->siblings.slot != NULL && fl_siblings_choose(&loop->siblings) >= 0;
}

/* Whether requests wait for a worker that is stuck, or would if they came. On a busy machine a thread may have been away for long, and
 * sleep for a moment: it waits for a lock whose owner waits for a processor. */
static bool needs_relief(const fl_watch *watch, uint32_t waiting, uint64_t away, uint64_t now) {
    uint64_t since = watch->sample.asleep_since;
    if (watch->unresponsive && since == 0)
        return waiting > 0 && away > RELIEF_LATE;
    if (since == 0 || now - since < ASLEEP_FOR)
        return false;
    if (waiting > 0)
        return away > RELIEF_AFTER;
    return away > RELIEF_AHEAD && watch->loop->siblings.slot != NULL && !has_usable_sibling(watch->loop);
}

/* Learns how long a request usually keeps the lead: the time of turns that are long enough to be seen here, divided by all requests that
 * ended meanwhile. The caller holds the lock. */
static void learn_ordinary(fl_watch *watch, uint64_t stamp, uint64_t computing) {
    if (stamp != watch->turn)
        watch->turns_took += watch->turn_took;
    watch->turn = stamp;
    watch->turn_took = computing;
    fl_loop *loop = watch->loop;
    uint64_t requests = loop->context.counts.requests - watch->requests_seen;
    if (requests == 0)
        return;
    uint64_t before = loop->pace.computation * (ORDINARY_OVER - 1);
    loop->pace.computation = (before + watch->turns_took) / (ORDINARY_OVER - 1 + requests);
    watch->turns_took = 0;
    watch->requests_seen += requests;
}

/* If all requests compute for long, passing the lead does not help: they run in order. */
static uint64_t long_computation(const fl_watch *watch) {
    uint64_t limit = watch->loop->pace.computation * ORDINARY_TIMES;
    if (limit > ORDINARY_MAX)
        limit = ORDINARY_MAX;
    return limit > watch->limits.computing ? limit : watch->limits.computing;
}

/* Unless the leader has returned: then it has set this itself, or will. The caller holds the lock. */
static void show_busy(fl_watch *watch, int leader) {
    const fl_loop *loop = watch->loop;
    bool away = fl_watch_away_since(watch, leader) != 0 || atomic_load(&watch->reactors[leader].retired);
    if (loop->siblings.slot == NULL || atomic_load(&loop->driver.waiting) || !away)
        return;
    fl_slot_set(loop->siblings.slot, FL_SLOT_idle, 0);
    watch->shows_busy = true;
}

/* A leader that was about to wait for events when another thread took the GVL waits for them as soon as it has it again. */
void fl_watch_show_idle(fl_watch *watch) {
    fl_loop *loop = watch->loop;
    if (!watch->shows_busy || pthread_mutex_trylock(&loop->context.lock) != 0)
        return;
    if (fl_watch_is_idle(watch, atomic_load(&watch->leader))) {
        fl_slot_set(loop->siblings.slot, FL_SLOT_idle, loop->ready.first == NULL);
        watch->shows_busy = false;
    }
    pthread_mutex_unlock(&loop->context.lock);
}

void fl_watch_relieve(fl_watch *watch, fl_stall stall, uint64_t away, uint64_t now) {
    fl_loop *loop = watch->loop;
    int leader = atomic_load(&watch->leader);
    uint64_t stamp = atomic_load_explicit(&watch->reactors[leader].stamp, memory_order_relaxed);
    uint64_t computing = without_collecting(watch, stamp, away, now);
    /* Another leader would have to wait for the GVL behind this one. */
    bool waits_for_gvl = atomic_load(&watch->reactors[leader].in_loop);
    if (stall == FL_STALL_BLOCKED && pass_lead_locking(watch, leader))
        return;
    pthread_mutex_lock(&loop->context.lock);
    show_busy(watch, leader);
    fl_loop_pause_accepting(loop, stall == FL_STALL_STUCK && has_usable_sibling(loop));
    fl_loop_turn_for_reactor(loop);
    uint64_t handed = loop->context.counts.handed;
    uint32_t waiting = fl_balance(loop, stall == FL_STALL_STUCK, away);
    fl_stall_handed(watch, leader, loop->context.counts.handed - handed, loop->siblings.receiver);
    bool wanted = waiting > 0 || loop->context.expired.first != NULL || atomic_load(&loop->driver.notified);
    if (stall == FL_STALL_COMPUTING)
        learn_ordinary(watch, stamp, computing);
    wake_leader(watch);
    pthread_mutex_unlock(&loop->context.lock);
    if (loop->lanes.dedicated) /* requests in a lane wait for their lane worker */
        return;
    if (stall == FL_STALL_STUCK && needs_relief(watch, waiting, away, now))
        request_relief(watch, leader, now);
    else if (stall == FL_STALL_COMPUTING && wanted && computing > long_computation(watch) && !waits_for_gvl)
        pass_lead_locking(watch, leader);
}

static const fl_reactor *reactor_of(const fl_watch *watch, const fl_thread *thread) {
    for (int i = 0; i < atomic_load(&watch->count); i++)
        if (atomic_load(&watch->reactors[i].thread) == thread && !atomic_load(&watch->reactors[i].retired))
            return &watch->reactors[i];
    return NULL;
}

void fl_watch_yield_to_leader(fl_watch *watch, uint64_t now) {
    const fl_thread *leader = atomic_load(&watch->reactors[atomic_load(&watch->leader)].thread);
    const fl_thread *holder = atomic_load(&fl_gvl_holder);
    if (watch->request_yield == NULL || holder == NULL || holder == leader || atomic_load(&leader->gvl) != FL_GVL_WANTED ||
        now < atomic_load(&leader->gvl_since) + watch->limits.blocked)
        return;
    const fl_reactor *reactor = reactor_of(watch, holder);
    if (reactor != NULL && now > atomic_load(&reactor->stamp) + watch->limits.computing)
        watch->request_yield();
}

void fl_watch_even_out(fl_watch *watch, uint64_t now) {
    fl_loop *loop = watch->loop;
    fl_slot *slot = loop->siblings.slot;
    int64_t oldest = slot == NULL ? 0 : fl_slot_get(slot, FL_SLOT_oldest_us);
    if (oldest == 0 || now < (uint64_t) oldest + watch->limits.blocked || fl_siblings_choose(&loop->siblings) < 0 ||
        pthread_mutex_trylock(&loop->context.lock) != 0)
        return;
    fl_loop_turn_for_reactor(loop);
    fl_balance(loop, false, 0);
    wake_leader(watch);
    pthread_mutex_unlock(&loop->context.lock);
}
