/* The watch thread itself: its ticks, and its sleep while nothing goes on. The contract is in watch.h. */
#include "balance.h"
#include "lanes.h"
#include "internal.h"

#include <signal.h>
#include <stdlib.h>

enum { CALM = 1000000 }; /* microseconds without a stall or a request, after which the thread sleeps */

/* Microseconds until the next tick. While the leader waits, or holds the GVL, a tick can find nothing before `blocked` is over. Each
 * tick takes time from a computing thread, so ticks are rarer while no sibling is idle, and half as frequent once the leader is
 * known to compute in this turn (`known`). */
static uint64_t until_next_tick(const fl_watch *watch, fl_stall stall, uint64_t away, bool known) {
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
    if (stall != FL_STALL_COMPUTING || fl_balance_finds_idle_sibling(watch->loop))
        return tick;
    return known ? 2 * most : most;
}

static uint64_t tick(fl_watch *watch, uint64_t *busy_at) {
    uint64_t now = fl_clock();
    fl_reactor *reactor = &watch->reactors[atomic_load(&watch->leader)];
    uint64_t away;
    fl_watch_check_gvl(watch, now);
    fl_stalls_update(watch, now);
    fl_stall stall = fl_watch_classify(watch, reactor, now, &away);
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
    fl_stalls_show_leader(watch, stall, away, now);
    fl_watch_report_loss(watch, now);
    fl_watch_yield_to_leader(watch, now);
    fl_loop_flush_complete(watch->loop, watch->limits.tick);
    bool known = watch->turn == stamp;
    if (stall == FL_STALL_NONE) {
        fl_watch_show_idle(watch);
        fl_watch_even_out(watch, now);
    } else {
        *busy_at = now;
        fl_watch_relieve(watch, stall, away, now);
    }
    return until_next_tick(watch, stall, away, known);
}

/* Whether the leader waits in its loop. Before it does anything else it requests the GVL, and then checks whether the watch thread
 * sleeps. The watch thread sets `asleep` before it checks this, so at least one of the two sees what the other has written. */
static bool leader_is_idle(fl_watch *watch) {
    const fl_reactor *reactor = &watch->reactors[atomic_load(&watch->leader)];
    int which;
    return atomic_load(&reactor->thread->gvl) == FL_GVL_RELEASED && atomic_load(&reactor->in_loop) &&
           (watch->limits.lost == 0 || fl_watch_longest_away(watch, fl_clock(), &which) == 0);
}

static void sleep_until_woken(fl_watch *watch) {
    pthread_mutex_lock(&watch->lock);
    atomic_store(&watch->asleep, 1);
    if (!leader_is_idle(watch))
        atomic_store(&watch->asleep, 0);
    while (atomic_load(&watch->asleep) && !atomic_load(&watch->stopping)) pthread_cond_wait(&watch->wake, &watch->lock);
    atomic_store(&watch->asleep, 0);
    pthread_mutex_unlock(&watch->lock);
}

static void *run(void *data) {
    fl_watch *watch = data;
    uint64_t busy_at = fl_clock(), pause = watch->limits.tick;
    while (!atomic_load(&watch->stopping)) {
        if (fl_clock() > busy_at + CALM && !fl_stalls_open(watch)) {
            sleep_until_woken(watch);
            busy_at = fl_clock();
        }
        struct timespec time = {.tv_sec = 0, .tv_nsec = (long) pause * 1000};
        nanosleep(&time, NULL);
        pause = tick(watch, &busy_at);
    }
    return NULL;
}

void fl_watch_wake_thread(fl_watch *watch) {
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
    watch->supervisor = -1;
    watch->reporter = (fl_notifier) {-1, -1};
    loop->lanes.watch = watch;
    loop->lanes.serve = fl_lanes_serve;
    pthread_mutex_init(&watch->lock, NULL);
    pthread_cond_init(&watch->wake, NULL);
    return watch;
}

/* The watch thread blocks all signals: they are for Ruby's threads. */
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
        atomic_store(&watch->stopping, 1);
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
