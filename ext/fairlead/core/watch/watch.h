/* The watch thread notices within milliseconds that the leading reactor has not returned to its loop, finds out why, and works around
 * it. It needs no Ruby: it turns the loop itself, passes the lead to a standby reactor, hands requests to a sibling worker, or asks the
 * supervisor for a relief worker.
 *
 * fl_watch_open allocates it, fl_watch_start starts the thread (in the worker, after the fork), fl_watch_close joins the thread and
 * frees everything. Ruby threads register themselves and stamp their own entries; all other fields are atomic and may be read by any
 * thread. Opening can fail: NULL with errno. */
#ifndef FL_WATCH_H
#define FL_WATCH_H

#include "loop/loop.h"
#include "base/platform.h"
#include "base/run.h"
#include "stalls.h"
#include <stdatomic.h>
#include <stdbool.h>

typedef enum fl_gvl { FL_GVL_RELEASED, FL_GVL_WANTED, FL_GVL_HELD } fl_gvl;

/* A Ruby thread, as the events of its GVL describe it. */
typedef struct fl_thread {
    _Atomic int gvl;
    _Atomic uint64_t gvl_since;       /* fl_clock when it last released or requested the GVL */
    _Atomic(struct fl_watch *) watch; /* NULL: the thread is no reactor */
    fl_thread_clock clock;
    fl_task task;
} fl_thread;

/* The request of this exchange, which has just been taken, runs. The caller holds the loop's lock, as whoever reads the run. */
void fl_run_begin(fl_run *run, const fl_exchange *exchange);

/* The last observation of a thread, to tell whether it computes or sleeps. */
typedef struct fl_sample {
    const fl_thread *thread;
    uint64_t at, clock;
    uint64_t asleep_since; /* 0: it is awake */
} fl_sample;

/* A Ruby thread that serves requests. */
typedef struct fl_reactor {
    _Atomic(fl_thread *) thread;
    _Atomic uint64_t stamp; /* fl_clock at its last take or fiber switch */
    _Atomic bool in_loop;   /* its scheduler runs or waits, and no fiber runs */
    _Atomic(fl_run *) run;  /* of the running fiber; NULL: none */
    _Atomic bool lane;      /* it serves the lane of threads and does not lead */
    _Atomic bool retired;   /* it serves no more requests */
    _Atomic bool reusable;  /* its thread has let go of this entry, so another reactor may have it */
    fl_notifier lead;       /* notified when it may have got the lead, or a lane has a request for it */

    /* of the watch thread alone */
    fl_sample sample;
    uint64_t seen_stamp, seen_clock; /* its stamp and CPU clock when the stamp last changed */
    uint64_t recorded_id;            /* of the request whose stall was recorded */
} fl_reactor;

/* The thread that holds the GVL; NULL: none, or an unknown one. */
extern _Atomic(fl_thread *) fl_gvl_holder;

/* How often a thread has acquired the GVL or answered request_yield. Increased before fl_gvl_holder is set. */
extern _Atomic uint64_t fl_gvl_progress;

/* fl_clock since when Ruby's garbage collector runs; 0: it does not. Before, it ran for fl_collected microseconds. */
extern _Atomic uint64_t fl_collecting_since;

typedef struct fl_watch_limits {
    uint64_t tick;          /* least microseconds between two checks; at most twice `blocked` */
    uint64_t blocked;       /* a reactor without the GVL for longer than this loses the lead to a standby */
    uint64_t stuck;         /* requests are handed over if the reactor sleeps with the GVL for longer than this */
    uint64_t computing;     /* a standby shares the GVL if the reactor computes for longer than this, and than is usual */
    uint64_t reported;      /* a stall of more than this is reported (see stalls.h); 0: none is */
    uint64_t lost;          /* a worker with a reactor that is away for longer than this is replaced; 0: never */
    uint64_t drain;         /* how long such a worker then has to drain, */
    uint64_t drain_streams; /* and for its long-lived responses */
} fl_watch_limits;

typedef struct fl_watch {
    fl_loop *loop;
    fl_watch_limits limits;
    fl_reactor reactors[FL_MAX_REACTORS];
    _Atomic int count;
    _Atomic int leader;
    _Atomic int stall; /* fl_stall of the leader, now */
    _Atomic int stopping;
    fl_stall_record stalls[FL_MAX_REACTORS];
    fl_notifier reporter;            /* notified when a stall can be reported */
    void (*request_backtrace)(void); /* makes the holder of the GVL take its backtrace as soon as it can */
    void (*request_yield)(void);     /* makes the holder increase fl_gvl_progress, and yield the GVL if it does not lead;
                                      * NULL: not possible */
    _Atomic int asleep;              /* the watch thread sleeps, since nothing has been going on */
    int supervisor;                  /* the socket for reports and the two requests; -1: none */
    char relief_request[64], lane_request[64];
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t wake;

    /* of the watch thread alone */
    fl_sample sample;
    uint64_t relief_at, loss_reported_at, lane_asked_at;
    uint64_t stamp_seen, collected_before;
    uint64_t progress_seen, held_since; /* since when one thread holds the GVL without increasing fl_gvl_progress */
    uint64_t asked_at;                  /* the holder's CPU clock when it was first asked to yield; 0: it was not */
    bool unresponsive;                  /* C code computes with the GVL, and does not answer */
    bool shows_busy;                    /* it has shown the leader as busy, and not as idle since */
    unsigned asleep_in_a_row;
    uint64_t turn, turn_took;           /* the last turn that was seen to compute: its stamp, its microseconds */
    uint64_t turns_took, requests_seen; /* the turns before it, since the last request ended */
} fl_watch;

fl_watch *fl_watch_open(fl_loop *loop, const fl_watch_limits *limits);

/* Call it once a reactor has registered. Returns 0 or an errno. */
int fl_watch_start(fl_watch *watch);
void fl_watch_close(fl_watch *watch);

/* fl_clock since when a reactor has been away from its loop; 0: it is not. A leader in its loop counts as away if it has work and waits
 * for the GVL. */
uint64_t fl_watch_away_since(const fl_watch *watch, int reactor);

/* Whether a reactor waits for something to do: it is in its loop, and does not want the GVL. */
bool fl_watch_is_idle(const fl_watch *watch, int reactor);

/* Registers the calling thread as a reactor. Returns its number, or -1 if there are too many. */
int fl_watch_register(fl_watch *watch, fl_thread *thread);

/* The calling thread stops serving as that reactor. Returns false if it leads or runs a request of a lane: then it goes on. */
bool fl_watch_retire(fl_watch *watch, int reactor);

/* Makes the entry of a retired reactor free for another. Its own thread uses the entry no more. */
void fl_watch_unregister(fl_watch *watch, int reactor);

static inline bool fl_watch_leads(const fl_watch *watch, int reactor) {
    return atomic_load_explicit(&watch->leader, memory_order_acquire) == reactor;
}

/* Whether the leader has work, and waits for the GVL. */
static inline bool fl_watch_leader_wants_gvl(const fl_watch *watch) {
    return atomic_load(&watch->reactors[atomic_load(&watch->leader)].thread->gvl) == FL_GVL_WANTED;
}

/* Whether a reactor serves the lane of threads now. */
static inline bool fl_watch_in_lane(const fl_watch *watch, int reactor) {
    return atomic_load_explicit(&watch->reactors[reactor].lane, memory_order_acquire) && !fl_watch_leads(watch, reactor);
}

/* The reactor's own thread calls these when it switches to a fiber, and when it returns to its scheduler. */
static inline void fl_reactor_enters_app(fl_reactor *reactor, uint64_t now) {
    atomic_store_explicit(&reactor->stamp, now, memory_order_relaxed);
    atomic_store_explicit(&reactor->in_loop, false, memory_order_release);
}
static inline void fl_reactor_leaves_app(fl_reactor *reactor) {
    atomic_store_explicit(&reactor->in_loop, true, memory_order_release);
}

/* Wakes the watch thread, because a reactor is about to run a fiber. The reactor's fields are set before, so at least one of the two
 * threads sees what the other has written. */
void fl_watch_wake_thread(fl_watch *watch);
static inline void fl_watch_wake(fl_watch *watch) {
    if (atomic_load(&watch->asleep))
        fl_watch_wake_thread(watch);
}

#endif
