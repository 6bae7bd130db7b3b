/* The watch thread: sees within milliseconds that the reactor which leads has not come back to its loop, tells why, and
 * works around it. It needs no Ruby: it drives the loop itself meanwhile, gives the lead to a standby reactor, hands
 * requests to a sibling worker, or asks the supervisor for a relief worker.
 * fl_watch_open allocates it, fl_watch_start starts the thread, in the worker, after its fork; fl_watch_close joins it
 * and frees all.
 * Reactors and threads are entered and stamped by their own Ruby threads; all else is atomic and may be read by anyone.
 * Opening can fail: NULL with errno. */
#ifndef FL_WATCH_H
#define FL_WATCH_H

#include "loop/loop.h"
#include "base/platform.h"
#include "stalls.h"
#include <stdatomic.h>
#include <stdbool.h>

typedef enum fl_gvl { FL_GVL_RELEASED, FL_GVL_WANTED, FL_GVL_HELD } fl_gvl;

/* A Ruby thread, as its own events tell of it. */
typedef struct fl_thread {
    _Atomic int gvl;
    _Atomic uint64_t gvl_since; /* of fl_clock */
    _Atomic(struct fl_watch *) watch; /* of a reactor: NULL otherwise */
    fl_task task;
} fl_thread;

/* The request that a fiber runs. Never freed, as anybody may still look; written and read with the loop's lock. */
typedef struct fl_run {
    uint64_t id; /* of its exchange; 0: none */
    _Atomic bool noted; /* it has stalled for so long that its route is remembered */
    uint16_t method_size, path_size;
    char method[16], path[FL_ROUTE_PATH];
} fl_run;

/* The fiber has taken this one. */
void fl_run_begins(fl_run *run, const fl_exchange *exchange);

/* What was last seen of a thread, to tell whether it computes or sleeps. */
typedef struct fl_sample {
    const fl_thread *thread;
    uint64_t at, clock;
    bool asleep;
} fl_sample;

/* A Ruby thread that serves. */
typedef struct fl_reactor {
    _Atomic(fl_thread *) thread;
    _Atomic uint64_t stamp; /* of fl_clock, at its last take, answer and fiber switch */
    _Atomic bool in_loop;      /* its scheduler runs, or waits, and no fiber */
    _Atomic(fl_run *) run;  /* of the fiber that runs; NULL: it has none */
    _Atomic bool lane;      /* it serves the lane of threads, and does not lead */
    _Atomic bool gone;      /* it serves no more */
    _Atomic bool vacant;    /* its thread does not look here any more either: the place is free */
    fl_notifier lead;           /* it may have become the leader, or shall look into the lane */

    /* of the watch thread alone */
    fl_sample sample;
    uint64_t seen_stamp, seen_clock; /* where its CPU clock stood when it was last seen to have moved */
    uint64_t noted;                  /* the request whose stall has been noted */
} fl_reactor;

/* Who holds the GVL of this process; NULL: nobody, or a thread that is not known. */
extern _Atomic(fl_thread *) fl_gvl_holder;

/* How often it has been given to a thread, which counts that before it is known as the holder, or that has given a sign of
 * itself. */
extern _Atomic uint64_t fl_gvl_turns;

/* Of Ruby's garbage collector: since when it runs (of fl_clock; 0: it does not), and for how long it has run before. */
extern _Atomic uint64_t fl_collecting_since, fl_collected;

typedef struct fl_watch_limits {
    uint64_t tick;      /* microseconds between two looks, at least; at most twice `blocked` */
    uint64_t blocked;   /* without the GVL for longer than this: a standby leads */
    uint64_t stuck;     /* holding it and asleep for longer than this: requests are handed over */
    uint64_t computing; /* holding it and computing for longer than this, and than is ordinary: a standby shares the GVL */
    uint64_t reported;      /* away for longer than this: a stall that is told of (see stalls.h); 0: none is */
    uint64_t lost;      /* away for longer than this: the worker is to be replaced; 0: never */
    uint64_t drain;     /* how long it then has for all else */
} fl_watch_limits;

typedef struct fl_watch {
    fl_loop *loop;
    fl_watch_limits limits;
    fl_reactor reactors[FL_MOST_REACTORS];
    _Atomic int count;
    _Atomic int leader;
    _Atomic int stall;           /* fl_stall of the leader, now */
    _Atomic int ends;
    fl_stall_record stalls[FL_MOST_REACTORS];
    fl_notifier reporter;              /* there is something to tell */
    void (*interrupt)(void);     /* has whoever holds the GVL take its backtrace as soon as it can */
    void (*press)(void);         /* has it give a sign of itself (see fl_gvl_turns), and the GVL to those who wait, if it
                                  * does not lead; NULL: nobody can */
    _Atomic int asleep;          /* the thread itself: nothing has been going on */
    int relief;                  /* where a relief worker is asked for, with this message; -1: nobody is there to ask */
    char request[64];
    char lane_request[64]; /* likewise, for a lane worker */
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t wake;

    /* of the thread alone */
    fl_sample sample;
    uint64_t relief_at, loss_told_at, lane_asked_at;
    uint64_t stamp_seen, collected_before;
    uint64_t turns_seen, held_since; /* all that time one thread has had the GVL, and has given no sign of itself */
    uint64_t asked_at;               /* of its clock, when it was first asked for one; 0: it has not been */
    bool kept;                       /* it computes, and no Ruby runs beside it */
    unsigned asleep_in_a_row;
    uint64_t turn, turn_took;           /* the last that was seen to compute: its stamp, and for how long so far */
    uint64_t turns_took, requests_seen; /* those before it, since a request has ended */
} fl_watch;

fl_watch *fl_watch_open(fl_loop *loop, const fl_watch_limits *limits);

/* Once the reactors have entered. Answers 0 or an errno. */
int fl_watch_start(fl_watch *watch);
void fl_watch_close(fl_watch *watch);

/* Since when a reactor has been away; 0: it is not. At home it is when it leads, has work, and does not get the GVL for it. */
uint64_t fl_watch_away_since(const fl_watch *watch, int reactor);

/* NULL: the thread is none of them, or NULL. */
fl_reactor *fl_watch_reactor_of(fl_watch *watch, const fl_thread *thread);

/* Whether a reactor waits for something to do: it has come home, and does not want the GVL. */
bool fl_watch_at_rest(const fl_watch *watch, int reactor);

/* Enters the calling thread as a reactor; answers its number, or -1 when there are too many. */
int fl_watch_enter(fl_watch *watch, fl_thread *thread);

/* The calling thread stops being that reactor. Answers false, and it goes on, if it leads. */
bool fl_watch_leave(fl_watch *watch, int reactor);

/* After that, once the thread does not look at its place any more: another one may have it. */
void fl_watch_vacate(fl_watch *watch, int reactor);

static inline bool fl_watch_leads(const fl_watch *watch, int reactor) {
    return atomic_load_explicit(&watch->leader, memory_order_acquire) == reactor;
}

/* Whether the one that leads has something to do, and waits for the GVL. */
static inline bool fl_watch_leader_wants_gvl(const fl_watch *watch) {
    return atomic_load(&watch->reactors[atomic_load(&watch->leader)].thread->gvl) == FL_GVL_WANTED;
}

/* Whether a reactor is there for the lane of threads now. */
static inline bool fl_watch_in_lane(const fl_watch *watch, int reactor) {
    return atomic_load_explicit(&watch->reactors[reactor].lane, memory_order_acquire) && !fl_watch_leads(watch, reactor);
}

/* Of the reactor's own thread: something has moved. */
static inline void fl_reactor_enters_app(fl_reactor *reactor, uint64_t now) {
    atomic_store_explicit(&reactor->stamp, now, memory_order_relaxed);
    atomic_store_explicit(&reactor->in_loop, false, memory_order_release);
}
static inline void fl_reactor_leaves_app(fl_reactor *reactor) {
    atomic_store_explicit(&reactor->in_loop, true, memory_order_release);
}

/* A reactor is on its way to an app: the watch thread must be awake. What it goes by has been told before, and is seen by
 * all before this looks. */
void fl_watch_wake(fl_watch *watch);
static inline void fl_watch_attend(fl_watch *watch) {
    if (atomic_load(&watch->asleep))
        fl_watch_wake(watch);
}

/* Whether a thread sleeps for longer than a moment, with the GVL or without; asked again and again, with the same sample. */
bool fl_stays_asleep(fl_sample *sample, const fl_thread *thread, uint64_t now);

#endif
