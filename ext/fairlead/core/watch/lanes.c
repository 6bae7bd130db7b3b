#include "lanes.h"
#include "balance.h"
#include "report.h"

#include <string.h>

/* When a route is remembered; microseconds. What is shorter hurts nobody much, and may be a bad moment of the machine. */
enum {
    BLOCKED = 30000,       /* in one call without the GVL */
    STUCK = 50000,         /* holding it, asleep; it takes as long to start a process on a busy machine */
    HOG = 500000,          /* holding it without a pause, */
    HOG_COMPUTED = 400000, /* computing for so much of it, */
    TIMES = 2,             /* so often, as also holding it for the disk: the first request of a kind may have a lot to load */

    MOST_THREADS = 8,          /* reactors in the lane: others remain for the lead */
    LANE_WORKER_AGAIN = 50000, /* between two calls for a lane worker */
    LANE_WAITS = 500000,       /* in a lane worker, from which on another one would help */
};

/* How a reactor that is out stalls, as far as it is to be remembered, and after how often. */
static fl_lane lane_for(fl_reactor *reactor, uint64_t now, uint64_t away, int *needed) {
    const fl_thread *thread = atomic_load(&reactor->thread);
    uint64_t computed = fl_task_clock(&thread->task) - reactor->seen_clock;
    *needed = 1;
    if (atomic_load(&thread->gvl) == FL_GVL_RELEASED) {
        /* A busy machine can keep a thread from running for as long: then it neither sleeps nor computes. */
        bool busy = fl_stays_asleep(&reactor->sample, thread, now) || computed > BLOCKED;
        return busy && now > atomic_load(&thread->gvl_since) + BLOCKED ? FL_LANE_THREADS : FL_LANE_NONE;
    }
    bool asleep = atomic_load(&fl_gvl_holder) == thread && fl_stays_asleep(&reactor->sample, thread, now);
    if (asleep ? away <= STUCK : away <= HOG || computed <= HOG_COMPUTED)
        return FL_LANE_NONE;
    if (!asleep || fl_task_is_uninterruptible(&thread->task))
        *needed = TIMES;
    return FL_LANE_PROCESS;
}

static void note(fl_watch *watch, fl_reactor *reactor, fl_lane lane, int needed, uint64_t now, uint64_t away) {
    fl_loop *loop = watch->loop;
    fl_routes *routes = &loop->siblings.page->routes;
    pthread_mutex_lock(&loop->context.lock);
    fl_run *run = atomic_load(&reactor->run);
    bool known = run != NULL && run->id != 0;
    uint64_t id = known ? run->id : 0;
    fl_route route;
    if (known) {
        fl_routes_find(routes, &route, run->method, run->method_size, run->path, run->path_size);
        atomic_store(&run->noted, true);
    }
    pthread_mutex_unlock(&loop->context.lock);
    if (!known)
        return;
    if (reactor->noted != id)
        fl_routes_stall_began(routes, &route, lane, needed, now);
    reactor->noted = id;
    fl_routes_stall_continues(routes, route.key, away, now);
}

static bool note_stalls(fl_watch *watch, uint64_t now) {
    bool any = false;
    for (int i = 0; i < atomic_load(&watch->count); i++) {
        fl_reactor *reactor = &watch->reactors[i];
        if (atomic_load(&reactor->gone) || atomic_load(&reactor->in_loop))
            continue;
        uint64_t stamp = atomic_load_explicit(&reactor->stamp, memory_order_relaxed);
        uint64_t away = now > stamp ? now - stamp : 0;
        if (stamp != reactor->seen_stamp) {
            reactor->seen_stamp = stamp;
            reactor->seen_clock = fl_task_clock(&atomic_load(&reactor->thread)->task);
            reactor->sample.thread = NULL;
        }
        if (away < watch->limits.blocked)
            continue;
        any = true;
        int needed;
        fl_lane lane = lane_for(reactor, now, away, &needed);
        if (lane != FL_LANE_NONE)
            note(watch, reactor, lane, needed, now, away);
    }
    return any;
}

/* The reactor for the next request of the lane: one that is in it already, the idlest first; else one that stands by. */
static int choose_reactor(fl_watch *watch, int busy) {
    int best = -1, least = 0;
    for (int i = 0; i < atomic_load(&watch->count); i++) {
        int running = atomic_load(&watch->loop->lanes.running[i]);
        if (i == atomic_load(&watch->leader) || !fl_watch_at_rest(watch, i) || (running == 0 && busy >= MOST_THREADS))
            continue;
        int load = 2 * running + !atomic_load(&watch->reactors[i].lane);
        if (best < 0 || load < least) {
            best = i;
            least = load;
        }
    }
    return best;
}

/* Who was about to leave as it was called does not come. */
static bool is_busy(fl_watch *watch, int number) {
    const fl_reactor *reactor = &watch->reactors[number];
    bool runs = atomic_load(&watch->loop->lanes.running[number]) > 0;
    return runs || (atomic_load(&reactor->lane) && !atomic_load(&reactor->in_loop) && !atomic_load(&reactor->gone));
}

void fl_lanes_serve(void *data) {
    fl_watch *watch = data;
    fl_loop *loop = watch->loop;
    uint32_t waiting = atomic_load(&loop->queues[FL_LANE_THREADS].count);
    if (fl_loop_runs_process_lane(loop)) {
        int holder = fl_loop_holder(loop);
        if (holder < 0)
            waiting++;
        else if (fl_watch_at_rest(watch, holder))
            fl_notifier_notify(&watch->reactors[holder].lead);
    }
    int busy = 0;
    for (int i = 0; waiting > 0 && i < atomic_load(&watch->count); i++) {
        bool is = is_busy(watch, i);
        busy += is;
        waiting -= is && atomic_load(&watch->loop->lanes.running[i]) == 0; /* on its way to one of them */
    }
    for (; waiting > 0; waiting--, busy++) {
        int chosen = choose_reactor(watch, busy);
        if (chosen < 0)
            return;
        fl_reactor *reactor = &watch->reactors[chosen];
        atomic_store(&reactor->lane, true);
        fl_reactor_enters_app(reactor, loop->context.now); /* it is on its way */
        fl_notifier_notify(&reactor->lead);
    }
}

/* A lane worker is missing, or those that are there do not get along. */
static bool wants_lane_worker(const fl_loop *loop, uint64_t now) {
    if (atomic_load(&loop->siblings.page->most_lanes) == 0)
        return false;
    const fl_exchange *oldest = loop->lanes.dedicated ? loop->ready.first : loop->queues[FL_LANE_PROCESS].first;
    if (oldest == NULL || oldest->queueing.pinned)
        return false;
    return now > oldest->queueing.ready_at + LANE_WAITS ||
           (!loop->lanes.dedicated && fl_siblings_choose_lane(&loop->siblings) < 0);
}

static void ask_for_lane_worker(fl_watch *watch, uint64_t now) {
    if (watch->relief < 0 || now < watch->lane_asked_at + LANE_WORKER_AGAIN)
        return;
    watch->lane_asked_at = now;
    fl_report(watch, watch->lane_request);
}

bool fl_lanes_update(fl_watch *watch, uint64_t now) {
    fl_loop *loop = watch->loop;
    if (loop->siblings.page == NULL)
        return false;
    bool stalls = note_stalls(watch, now);
    bool waits = atomic_load(&loop->queues[FL_LANE_THREADS].count) > 0 || atomic_load(&loop->queues[FL_LANE_PROCESS].count) > 0;
    bool sort = atomic_load(&loop->siblings.page->routes.version) != atomic_load(&loop->lanes.routes_version);
    if (!waits && !sort && !loop->lanes.dedicated)
        return stalls;
    pthread_mutex_lock(&loop->context.lock);
    loop->context.now = now;
    fl_loop_sort(loop);
    fl_balance_lanes(loop);
    fl_lanes_serve(watch);
    bool ask = wants_lane_worker(loop, now);
    pthread_mutex_unlock(&loop->context.lock);
    if (ask)
        ask_for_lane_worker(watch, now);
    return stalls || waits;
}
