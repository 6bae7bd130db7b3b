#include "watch.h"
#include "balance.h"
#include "lanes.h"
#include "report.h"

#include <signal.h>
#include <stdlib.h>

enum {
    CALM = 1000000,          /* microseconds without a stall or a request, after which the thread sleeps */
    RELIEF_AFTER = 20000,    /* microseconds: starting a process, for example, holds the GVL for some, and ends by itself */
    RELIEF_AHEAD = 40000,    /* likewise, while nobody waits yet: the next request should not wait for a process to start */
    RELIEF_LATE = 500000,    /* likewise, of C code that computes: ordinary work, mostly */
    RELIEF_AGAIN = 30000,    /* microseconds between two calls for help */
    LOSS_AGAIN = 1000000,    /* likewise, for a successor */
    ASLEEP_IN_A_ROW = 5,     /* looks that find the holder of the GVL asleep, until it counts as that */
    SIGN_WITHIN = 60000,     /* of its own clock, until a thread that gives no sign of itself counts as C code: a busy machine
                          * may keep it from running */
    SAMPLE = 4000,           /* microseconds over which a thread's clock is watched */
    ORDINARY_MOST = 1000000, /* microseconds: who computes for longer does so for long, whatever is ordinary */
    ORDINARY_TIMES = 3,      /* who computes for so many times what a request ordinarily takes does so for long */
    ORDINARY_OVER = 8,       /* requests, about, over which that is learnt */
};

_Atomic(fl_thread *) fl_gvl_holder;
_Atomic uint64_t fl_gvl_turns;
_Atomic uint64_t fl_collecting_since, fl_collected;

/* Its CPU clock stands still, and the kernel reports that it sleeps. */
bool fl_stays_asleep(fl_sample *sample, const fl_thread *thread, uint64_t now) {
    uint64_t clock = fl_task_clock(&thread->task);
    if (sample->thread != thread) {
        *sample = (fl_sample) {.thread = thread, .at = now, .clock = clock};
    } else if (now - sample->at >= SAMPLE) {
        sample->asleep = (clock - sample->clock) * 10 < now - sample->at && fl_task_sleeps(&thread->task);
        sample->at = now;
        sample->clock = clock;
    }
    return sample->asleep;
}

/* Asks a thread that has held the GVL for long to answer, at each tick: Ruby code does so at once, C code does not. */
static void watch_gvl(fl_watch *watch, uint64_t now) {
    const fl_thread *holder = atomic_load(&fl_gvl_holder);
    uint64_t turns = atomic_load(&fl_gvl_turns);
    bool collects = atomic_load(&fl_collecting_since) != 0;
    if (turns != watch->turns_seen || holder == NULL)
        watch->held_since = now;
    if (collects || watch->held_since == now)
        watch->asked_at = 0;
    watch->turns_seen = turns;
    watch->kept = false;
    if (collects || watch->press == NULL || now < watch->held_since + watch->limits.computing)
        return;
    uint64_t clock = fl_task_clock(&holder->task);
    if (watch->asked_at == 0)
        watch->asked_at = clock;
    watch->press();
    watch->kept = clock > watch->asked_at + SIGN_WITHIN;
}

/* `away`: microseconds since it left its loop, or, in its loop, since it wants the GVL for its work. */
static fl_stall judge(fl_watch *watch, const fl_reactor *reactor, uint64_t now, uint64_t *away) {
    if (atomic_load(&reactor->gone)) { /* it left while it was given the lead */
        *away = 0;
        return FL_STALL_BLOCKED;
    }
    const fl_thread *thread = reactor->thread;
    int gvl = atomic_load(&thread->gvl);
    bool in_loop = atomic_load_explicit(&reactor->in_loop, memory_order_acquire);
    uint64_t stamp = atomic_load_explicit(&reactor->stamp, memory_order_relaxed);
    uint64_t since = atomic_load(&thread->gvl_since);
    uint64_t from = in_loop ? since : stamp;
    *away = now > from ? now - from : 0;
    /* In its loop it only waits for work, unless it has work and does not get the GVL. */
    if (in_loop && (gvl != FL_GVL_WANTED || now < since + watch->limits.blocked)) {
        watch->sample.thread = NULL;
        return FL_STALL_NONE;
    }
    if (!in_loop && *away < watch->limits.blocked) {
        watch->sample.thread = NULL;
        return FL_STALL_NONE;
    }
    /* Many short calls are as bad as a long one. */
    if (gvl == FL_GVL_RELEASED)
        return now > since + watch->limits.blocked || *away > watch->limits.computing ? FL_STALL_BLOCKED : FL_STALL_NONE;
    const fl_thread *holder = atomic_load(&fl_gvl_holder);
    if (holder == NULL)
        return FL_STALL_NONE;
    if (fl_stays_asleep(&watch->sample, holder, now) ? *away > watch->limits.stuck : watch->kept)
        return FL_STALL_STUCK;
    return FL_STALL_COMPUTING;
}

/* Passes the lead to a reactor that waits in its loop; `to_any`: also to one that runs requests of a lane. With the lock: if the
 * leader has come back meanwhile and waits for the loop, it keeps the lead, since only one reactor may wait there. */
static bool pass_lead(fl_watch *watch, int from, bool to_any) {
    int count = atomic_load(&watch->loop->driver.resting) ? 0 : atomic_load(&watch->count);
    for (int i = 1; i < count; i++) {
        int candidate = (from + i) % count;
        fl_reactor *reactor = &watch->reactors[candidate];
        if (!fl_watch_at_rest(watch, candidate) || (!to_any && atomic_load(&watch->loop->lanes.running[candidate]) > 0))
            continue;
        atomic_store(&reactor->lane, false);
        atomic_store_explicit(&reactor->stamp, fl_clock(), memory_order_relaxed); /* it is away from now on */
        atomic_store(&watch->leader, candidate);
        fl_notifier_notify(&reactor->lead);
        /* It goes out just now, and hears that it leads when it is back; or it leaves: it sees that it leads, or we see
         * that it has gone. */
        if (!atomic_load(&reactor->in_loop))
            continue;
        fl_stall_standby(watch, from);
        if (watch->loop->siblings.slot != NULL)
            atomic_fetch_add(&watch->loop->siblings.slot->fields[FL_SLOT_standbys], 1);
        return true;
    }
    return false;
}

static bool give_lead(fl_watch *watch, int from) {
    pthread_mutex_lock(&watch->loop->context.lock);
    bool given = pass_lead(watch, from, false) || pass_lead(watch, from, true);
    pthread_mutex_unlock(&watch->loop->context.lock);
    return given;
}

static void ask_for_relief(fl_watch *watch, int leader, uint64_t now) {
    if (watch->relief < 0 || now < watch->relief_at + RELIEF_AGAIN)
        return;
    watch->relief_at = now;
    fl_stall_relief(watch, leader);
    fl_report(watch, watch->request);
}

/* The longest time that one of the reactors has been away. */
static uint64_t longest_away(fl_watch *watch, uint64_t now, int *which) {
    uint64_t longest = 0;
    for (int i = 0; i < atomic_load(&watch->count); i++) {
        uint64_t since = fl_watch_away_since(watch, i);
        if (since == 0 || now < since + longest)
            continue;
        longest = now - since;
        *which = i;
    }
    return longest;
}

/* A reactor that has been away for `lost` may never come back: has the worker replaced. */
static void report_loss(fl_watch *watch, uint64_t now) {
    int reactor = 0;
    uint64_t away = longest_away(watch, now, &reactor);
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
    if (now >= watch->loss_told_at + LOSS_AGAIN) {
        watch->loss_told_at = now;
        fl_report_lost(watch, reactor, stall);
        if (!ruby_runs && fl_stall_goes_on(watch, reactor))
            fl_report_lasting(watch, reactor);
    }
    if (ruby_runs)
        return; /* and does as it is told */
    fl_loop *loop = watch->loop;
    pthread_mutex_lock(&loop->context.lock);
    fl_loop_hand_over_idle(loop);
    if (away > watch->limits.lost + watch->limits.drain)
        fl_context_expire_all(&loop->context); /* before this process is killed */
    pthread_mutex_unlock(&loop->context.lock);
}

/* The leader may have come back to its loop meanwhile, and not have seen what the watch thread has received. If it comes back later, it
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

/* Whether requests wait for a worker that is stuck, or would if they came. */
static bool needs_relief(const fl_watch *watch, uint32_t waiting, uint64_t away) {
    if (watch->kept)
        return waiting > 0 && away > RELIEF_LATE;
    if (waiting > 0)
        return away > RELIEF_AFTER;
    const fl_siblings *siblings = &watch->loop->siblings;
    return away > RELIEF_AHEAD && siblings->slot != NULL && fl_siblings_choose(siblings) < 0;
}

/* Learns how long a request usually keeps the lead: the time of turns that are long enough to be seen here, divided by all requests that
 * ended meanwhile. With the lock. */
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
    if (limit > ORDINARY_MOST)
        limit = ORDINARY_MOST;
    return limit > watch->limits.computing ? limit : watch->limits.computing;
}

/* Does what cannot wait until the reactor comes back. */
static void stand_in(fl_watch *watch, fl_stall stall, uint64_t away, uint64_t now) {
    fl_loop *loop = watch->loop;
    int leader = atomic_load(&watch->leader);
    uint64_t stamp = atomic_load_explicit(&watch->reactors[leader].stamp, memory_order_relaxed);
    uint64_t computing = without_collecting(watch, stamp, away, now);
    /* Another leader would have to wait for the GVL behind it. */
    bool waits_for_gvl = atomic_load(&watch->reactors[leader].in_loop);
    if (stall == FL_STALL_BLOCKED && give_lead(watch, leader))
        return;
    pthread_mutex_lock(&loop->context.lock);
    if (loop->siblings.slot != NULL && !atomic_load(&loop->driver.resting) && !fl_watch_at_rest(watch, leader))
        fl_slot_set(loop->siblings.slot, FL_SLOT_idle, 0); /* it has not come back meanwhile and set this */
    fl_balance_listen(loop, stall == FL_STALL_STUCK);
    fl_loop_turn_for_reactor(loop);
    uint64_t handed = loop->context.counts.handed;
    uint32_t waiting = fl_balance(loop, stall == FL_STALL_STUCK, away);
    fl_stall_handed(watch, leader, loop->context.counts.handed - handed, loop->siblings.receiver);
    bool wanted = waiting > 0 || loop->context.expired.first != NULL || atomic_load(&loop->driver.wanted);
    if (stall == FL_STALL_COMPUTING)
        learn_ordinary(watch, stamp, computing);
    wake_leader(watch);
    pthread_mutex_unlock(&loop->context.lock);
    if (loop->lanes.dedicated) /* requests in a lane wait for their lane worker */
        return;
    if (stall == FL_STALL_STUCK && needs_relief(watch, waiting, away))
        ask_for_relief(watch, leader, now);
    else if (stall == FL_STALL_COMPUTING && wanted && computing > long_computation(watch) && !waits_for_gvl)
        give_lead(watch, leader);
}

/* If the leader has work and a computing reactor holds the GVL, makes that reactor yield before the end of its time slice. */
static void press(fl_watch *watch, uint64_t now) {
    int leader = atomic_load(&watch->leader);
    const fl_thread *wants = atomic_load(&watch->reactors[leader].thread), *holder = atomic_load(&fl_gvl_holder);
    if (watch->press == NULL || holder == NULL || holder == wants || atomic_load(&wants->gvl) != FL_GVL_WANTED ||
        now < atomic_load(&wants->gvl_since) + watch->limits.blocked)
        return;
    const fl_reactor *reactor = fl_watch_reactor_of(watch, holder);
    if (reactor != NULL && now > atomic_load(&reactor->stamp) + watch->limits.computing)
        watch->press();
}

/* Nothing stalls, but the queue may be longer here than in other workers. */
static void even_out_queue(fl_watch *watch, uint64_t now) {
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

/* Microseconds until the next tick. While the leader waits, or holds the GVL, nothing can be found before `blocked` is over. Each tick
 * takes time from a computing thread, so there are fewer while no sibling would take requests, and half as many again once the leader
 * is known to compute in this turn (`known`). */
static uint64_t until_next_look(const fl_watch *watch, fl_stall stall, uint64_t away, bool known) {
    const fl_reactor *reactor = &watch->reactors[atomic_load(&watch->leader)];
    uint64_t tick = watch->limits.tick, most = watch->limits.blocked;
    int gvl = atomic_load(&reactor->thread->gvl);
    if (gvl == FL_GVL_WANTED)
        return tick;
    if (atomic_load(&reactor->in_loop))
        return most;
    if (gvl != FL_GVL_HELD)
        return tick;
    if (stall == FL_STALL_NONE)
        return away + tick < most ? most - away : tick;
    if (stall != FL_STALL_COMPUTING || fl_balance_would_be_taken(watch->loop))
        return tick;
    return known ? 2 * most : most;
}

static uint64_t look(fl_watch *watch, uint64_t *busy_at) {
    uint64_t now = fl_clock();
    fl_reactor *reactor = &watch->reactors[atomic_load(&watch->leader)];
    uint64_t away;
    watch_gvl(watch, now);
    fl_stalls_update(watch, now);
    fl_stall stall = judge(watch, reactor, now, &away);
    if (fl_lanes_update(watch, now))
        *busy_at = now;
    uint64_t stamp = atomic_load_explicit(&reactor->stamp, memory_order_relaxed);
    if (stamp > *busy_at)
        *busy_at = stamp;
    fl_slot *slot = watch->loop->siblings.slot;
    bool changes = atomic_exchange(&watch->stall, stall) != (int) stall;
    if (changes && slot != NULL)
        fl_slot_set(slot, FL_SLOT_stall, stall);
    if ((changes || stall != FL_STALL_NONE) && slot != NULL)
        fl_slot_set(slot, FL_SLOT_away_us, stall == FL_STALL_NONE ? 0 : (int64_t) (now - away));
    if (watch->limits.lost != 0)
        report_loss(watch, now);
    press(watch, now);
    fl_loop_flush_complete(watch->loop, watch->limits.tick);
    bool known = watch->turn == stamp;
    if (stall == FL_STALL_NONE) {
        even_out_queue(watch, now);
    } else {
        *busy_at = now;
        stand_in(watch, stall, away, now);
    }
    return until_next_look(watch, stall, away, known);
}

/* Whether the leader waits in its loop. Before it does anything else it asks for the GVL, and then checks whether the watch thread
 * sleeps. The watch thread sets `asleep` first and checks this then, so one of both sees the other. */
static bool leader_is_idle(fl_watch *watch) {
    const fl_reactor *reactor = &watch->reactors[atomic_load(&watch->leader)];
    int away;
    return atomic_load(&reactor->thread->gvl) == FL_GVL_RELEASED && atomic_load(&reactor->in_loop) &&
           (watch->limits.lost == 0 || longest_away(watch, fl_clock(), &away) == 0);
}

static void sleep_until_woken(fl_watch *watch) {
    pthread_mutex_lock(&watch->lock);
    atomic_store(&watch->asleep, 1);
    if (!leader_is_idle(watch))
        atomic_store(&watch->asleep, 0);
    while (atomic_load(&watch->asleep) && !atomic_load(&watch->ends)) pthread_cond_wait(&watch->wake, &watch->lock);
    atomic_store(&watch->asleep, 0);
    pthread_mutex_unlock(&watch->lock);
}

static void *run(void *data) {
    fl_watch *watch = data;
    uint64_t busy_at = fl_clock(), pause = watch->limits.tick;
    while (!atomic_load(&watch->ends)) {
        if (fl_clock() > busy_at + CALM && !fl_stalls_open(watch)) {
            sleep_until_woken(watch);
            busy_at = fl_clock();
        }
        struct timespec time = {.tv_sec = 0, .tv_nsec = (long) pause * 1000};
        nanosleep(&time, NULL);
        pause = look(watch, &busy_at);
    }
    return NULL;
}

void fl_watch_wake(fl_watch *watch) {
    pthread_mutex_lock(&watch->lock);
    atomic_store(&watch->asleep, 0);
    pthread_cond_signal(&watch->wake);
    pthread_mutex_unlock(&watch->lock);
}

fl_watch *fl_watch_open(fl_loop *loop, const fl_watch_limits *limits) {
    fl_watch *watch = calloc(1, sizeof *watch);
    if (watch == NULL)
        return NULL;
    watch->loop = loop;
    watch->limits = *limits;
    watch->relief = -1;
    watch->reporter = (fl_notifier) {-1, -1};
    loop->lanes.watch = watch;
    loop->lanes.serve = fl_lanes_serve;
    pthread_mutex_init(&watch->lock, NULL);
    pthread_cond_init(&watch->wake, NULL);
    return watch;
}

/* Blocks all signals in the watch thread: they are for Ruby's threads. */
int fl_watch_start(fl_watch *watch) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&watch->thread, NULL, run, watch);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        watch->started = watch->loop->watched = true;
    return error;
}

void fl_watch_close(fl_watch *watch) {
    if (watch->started) {
        pthread_mutex_lock(&watch->lock);
        atomic_store(&watch->ends, 1);
        pthread_cond_signal(&watch->wake);
        pthread_mutex_unlock(&watch->lock);
        pthread_join(watch->thread, NULL);
    }
    watch->loop->lanes.serve = NULL;
    for (int i = 0; i < atomic_load(&watch->count); i++) fl_notifier_close(&watch->reactors[i].lead);
    fl_notifier_close(&watch->reporter);
    pthread_mutex_destroy(&watch->lock);
    pthread_cond_destroy(&watch->wake);
    free(watch);
}
