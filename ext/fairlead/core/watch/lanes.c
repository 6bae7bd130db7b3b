#include "lanes.h"
#include "balance.h"
#include "internal.h"
#include "report.h"

#include <string.h>

/* Microseconds after which a route is recorded. Shorter stalls do little harm, and may be the machine's. */
enum {
    BLOCKED = 30000,            /* in one call without the GVL */
    STUCK = 50000,              /* asleep with the GVL: starting a process takes as long on a busy machine */
    COMPUTING = 500000,         /* with the GVL, without a pause, */
    COMPUTING_ON_CPU = 400000,  /* of which on a CPU */
    LANE_WORKER_AGAIN = 50000,  /* between two requests for a lane worker */
    LANE_WORKER_WAITS = 500000, /* in the queue of a lane worker, after which another lane worker would help */

    MAX_THREADS = 8, /* reactors in the lane: the others remain for the lead */
    TIMES = 2,       /* stalls by computing or the disk before a route is recorded: its first request may load much */
};

/* Whether a thread sleeps and holds the GVL meanwhile, also after it was looked at: a busy machine may stop this thread between two looks
 * for as long as several calls take. */
static bool sleeps_with_gvl(fl_sample *sample, const fl_thread *thread, uint64_t since, uint64_t now) {
    return atomic_load(&fl_gvl_holder) == thread && fl_stays_asleep(sample, thread, now) &&
           atomic_load(&thread->gvl) == FL_GVL_HELD && atomic_load(&thread->gvl_since) == since;
}

/* The lane for what the absent reactor does, and `needed`: after how many such stalls its route gets that lane. */
static fl_lane lane_for(fl_reactor *reactor, uint64_t now, uint64_t away, int *needed) {
    const fl_thread *thread = atomic_load(&reactor->thread);
    uint64_t computed = fl_task_clock(&thread->task) - reactor->seen_clock;
    uint64_t since = atomic_load(&thread->gvl_since);
    if (reactor->sample.at < since) /* of an earlier call: the thread may have slept without the GVL */
        reactor->sample.thread = NULL;
    *needed = 1;
    if (atomic_load(&thread->gvl) == FL_GVL_RELEASED) {
        /* A busy machine can delay a thread for as long: then the thread neither sleeps nor computes. */
        bool busy = fl_stays_asleep(&reactor->sample, thread, now) || computed > BLOCKED;
        return busy && now > since + BLOCKED ? FL_LANE_THREADS : FL_LANE_NONE;
    }
    bool asleep = sleeps_with_gvl(&reactor->sample, thread, since, now);
    if (asleep ? away <= STUCK : away <= COMPUTING || computed <= COMPUTING_ON_CPU)
        return FL_LANE_NONE;
    if (!asleep || fl_task_is_uninterruptible(&thread->task))
        *needed = TIMES;
    return FL_LANE_PROCESS;
}

static void record_stall(fl_watch *watch, fl_reactor *reactor, fl_lane lane, int needed, uint64_t now, uint64_t away) {
    fl_loop *loop = watch->loop;
    fl_routes *routes = &loop->siblings.page->routes;
    pthread_mutex_lock(&loop->context.lock);
    fl_run *run = atomic_load(&reactor->run);
    uint64_t id = run == NULL ? 0 : run->id;
    fl_route route;
    if (id != 0) {
        fl_routes_find(routes, &route, run->method, run->method_size, run->path, run->path_size);
        atomic_store(&run->stall_recorded, true);
    }
    pthread_mutex_unlock(&loop->context.lock);
    if (id == 0)
        return;
    if (reactor->recorded_id != id)
        fl_routes_stall_began(routes, &route, lane, needed, now);
    reactor->recorded_id = id;
    fl_routes_stall_continues(routes, route.key, away, now);
}

static bool record_stalls(fl_watch *watch, uint64_t now) {
    bool any = false;
    for (int i = 0; i < atomic_load(&watch->count); i++) {
        fl_reactor *reactor = &watch->reactors[i];
        if (atomic_load(&reactor->retired) || atomic_load(&reactor->in_loop))
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
            record_stall(watch, reactor, lane, needed, now, away);
    }
    return any;
}

/* The reactor for the next request of the lane: the idlest one in the lane, else a standby; -1: none. */
static int choose_reactor(fl_watch *watch, int busy) {
    int best = -1, least = 0;
    for (int i = 0; i < atomic_load(&watch->count); i++) {
        int running = atomic_load(&watch->loop->lanes.running[i]);
        if (i == atomic_load(&watch->leader) || !fl_watch_is_idle(watch, i) || (running == 0 && busy >= MAX_THREADS))
            continue;
        int load = 2 * running + !atomic_load(&watch->reactors[i].lane);
        if (best < 0 || load < least) {
            best = i;
            least = load;
        }
    }
    return best;
}

/* A reactor in the lane that does not rest runs a request, is on its way to one, or is about to rest: then a request that still waits
 * gets a reactor at the next tick. One that was retiring when it was notified does not come. */
static bool is_busy(fl_watch *watch, int number) {
    const fl_reactor *reactor = &watch->reactors[number];
    bool runs = atomic_load(&watch->loop->lanes.running[number]) > 0;
    return runs || (atomic_load(&reactor->lane) && !atomic_load(&reactor->retired) && !fl_watch_is_idle(watch, number));
}

void fl_lanes_serve(void *data) {
    fl_watch *watch = data;
    fl_loop *loop = watch->loop;
    uint32_t waiting = atomic_load(&loop->queues[FL_LANE_THREADS].count);
    if (fl_loop_runs_process_lane(loop)) {
        int holder = fl_loop_holder(loop);
        if (holder < 0)
            waiting++;
        else if (fl_watch_is_idle(watch, holder))
            fl_notifier_notify(&watch->reactors[holder].lead);
    }
    int busy = 0;
    for (int i = 0; waiting > 0 && i < atomic_load(&watch->count); i++) {
        bool is = is_busy(watch, i);
        busy += is;
        waiting -= is && atomic_load(&watch->loop->lanes.running[i]) == 0; /* it is on its way to a request */
    }
    for (; waiting > 0; waiting--, busy++) {
        int chosen = choose_reactor(watch, busy);
        if (chosen < 0)
            return;
        fl_reactor *reactor = &watch->reactors[chosen];
        atomic_store(&reactor->lane, true);
        fl_reactor_enters_app(reactor, loop->context.now); /* it counts as busy until it comes */
        fl_notifier_notify(&reactor->lead);
    }
}

/* Whether a lane worker is missing, or the existing ones are too slow. */
static bool wants_lane_worker(const fl_loop *loop, uint64_t now) {
    if (atomic_load(&loop->siblings.page->max_lanes) == 0)
        return false;
    const fl_exchange *oldest = loop->lanes.dedicated ? loop->ready.first : loop->queues[FL_LANE_PROCESS].first;
    if (oldest == NULL || oldest->queueing.pinned)
        return false;
    return now > oldest->queueing.ready_at + LANE_WORKER_WAITS ||
           (!loop->lanes.dedicated && fl_siblings_choose_lane(&loop->siblings) < 0);
}

static void request_lane_worker(fl_watch *watch, uint64_t now) {
    if (watch->supervisor < 0 || now < watch->lane_asked_at + LANE_WORKER_AGAIN)
        return;
    watch->lane_asked_at = now;
    fl_report(watch, watch->lane_request);
}

bool fl_lanes_update(fl_watch *watch, uint64_t now) {
    fl_loop *loop = watch->loop;
    if (loop->siblings.page == NULL)
        return false;
    bool stalls = record_stalls(watch, now);
    bool waits = atomic_load(&loop->queues[FL_LANE_THREADS].count) > 0 || atomic_load(&loop->queues[FL_LANE_PROCESS].count) > 0;
    bool sort = atomic_load(&loop->siblings.page->routes.version) != atomic_load(&loop->lanes.routes_version);
    if (!waits && !sort && !loop->lanes.dedicated)
        return stalls;
    pthread_mutex_lock(&loop->context.lock);
    loop->context.now = now;
    fl_loop_sort(loop);
    fl_balance_lanes(loop);
    fl_lanes_serve(watch);
    bool wanted = wants_lane_worker(loop, now);
    pthread_mutex_unlock(&loop->context.lock);
    if (wanted)
        request_lane_worker(watch, now);
    return stalls || waits;
}
