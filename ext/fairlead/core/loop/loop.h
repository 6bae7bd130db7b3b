/* The loop: the listeners and connections of a worker, the queues of ready requests, deadlines and counts.
 *
 * fl_loop_open allocates the loop. fl_loop_close frees it with everything in it; exchanges that are still served are disowned, and
 * their owners free them. The caller of every function holds context.lock, unless the function says otherwise. Its holder
 * keeps it for at most a turn, and calls no Ruby meanwhile. Opening and listening can fail, with FL_SYSTEM and errno. */
#ifndef FL_LOOP_H
#define FL_LOOP_H

#include "connection/context.h"
#include "connection/exchange.h"
#include "load_shedding.h"
#include "siblings/siblings.h"
#include "tls/tls.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { FL_MAX_REACTORS = 16 };

/* A queue of ready requests, the oldest first. */
typedef struct fl_fifo {
    fl_exchange *first, *last;
    fl_exchange *inserted;    /* the last request that was inserted in the middle: the search for the next place begins here */
    _Atomic uint32_t count;   /* written with the lock */
    _Atomic uint32_t running; /* requests that were taken from here and still run; of lanes only */
} fl_fifo;

/* Which connections are accepted. */
typedef struct fl_accepting {
    fl_listener *listeners;
    uint32_t most;          /* connections at once, so that the app has some descriptors left; 0: not known yet */
    int reserve;            /* a spare descriptor, see internal.h; -1: none */
    uint64_t again_at;      /* when the poll watches the listeners again, after the descriptors ran out; 0: it watches them */
    bool paused;            /* the siblings accept instead */
    bool ended;             /* nothing is received from siblings any more */
    bool handshakes_paused; /* listeners with handshakes are not watched, see handshakes.c */
} fl_accepting;

typedef struct fl_turns {
    uint64_t turned_at;
    uint64_t handshakes_again_at; /* when their break ends */
    uint32_t takes;               /* since the last turn */
} fl_turns;

/* The leading reactor, which drives the loop. */
typedef struct fl_driver {
    bool turned_by_watch;  /* the watch thread has turned the loop, and received events meant for the reactor */
    _Atomic bool waiting;  /* it is in fl_loop_wait or fl_loop_spin; set with the lock */
    _Atomic bool notified; /* it has something to do that is not a request */
    uint32_t failed_spins; /* how often in a row fl_loop_spin found nothing */
    _Atomic int polling;   /* threads in the poll without the lock: connections that their events name must not be freed */
} fl_driver;

/* How fast requests are taken while others wait. Batching responses and balancing between workers use it. */
typedef struct fl_pace {
    uint64_t taken_at;  /* fl_clock at the last take */
    bool others_waited; /* at the last take */
    int64_t interval;   /* moving average of the time between two takes, in microseconds */
    int64_t deviation;  /* moving average of the deviation from it */
    /* Moving average of the time that a request computes, in microseconds, as the watch thread sees it; 0: too short to see. */
    uint64_t computation;
} fl_pace;

/* Lanes: requests of routes that are known to stall run apart from the others. */
typedef struct fl_lanes {
    bool dedicated;             /* this worker is a lane worker */
    bool used;                  /* a request has waited in a lane */
    _Atomic int routes_version; /* the version of the table of routes by which the queues are sorted */
    /* Called with the lock when a request has entered a lane. NULL: no reactor serves lanes, and all requests wait in one queue. */
    void (*serve)(void *watch);
    void *watch;
    _Atomic int running[FL_MAX_REACTORS]; /* requests of a lane that each reactor runs */
    int holder; /* the one reactor that runs requests which hold the GVL, so that these do not compete for it */
} fl_lanes;

typedef struct fl_loop {
    fl_context context; /* first: see fl_loop_of */
    union {
        fl_fifo ready;
        fl_fifo queues[FL_LANES];
    };
    fl_lanes lanes;
    fl_load_shedding shedding;
    fl_pace pace;
    fl_turns turns;
    fl_driver driver;
    fl_accepting accepting;
    fl_siblings siblings;
    bool watched; /* the watch thread sends responses that stay staged for too long */
} fl_loop;

static inline fl_loop *fl_loop_of(const fl_context *context) {
    return (fl_loop *) context;
}

fl_loop *fl_loop_open(const fl_limits *limits);
void fl_loop_close(fl_loop *loop);

/* Closes the sockets of clients and listeners in the child of a fork, without shutting them down. Runs in the child's
 * pthread_atfork handler, without the lock. It asks the kernel for the sockets, since another thread may have been changing the
 * lists when the process was copied. Afterwards only fl_exchange_disown may be called for the loop's exchanges. */
void fl_loop_forget(fl_loop *loop);

fl_status fl_loop_listen(fl_loop *loop, int descriptor, bool unix_socket);

/* Makes this worker one of several: it publishes its counts in its slot of the page, and can hand over connections. `receiving` is
 * its end of a socket pair (-1: none), `sending` has `count` ends, one for each slot. All ends stay the caller's. */
fl_status fl_loop_join(fl_loop *loop, fl_shared_page *page, int slot, int receiving, const int *sending, int count);

/* The listener that was added last carries TLS. `tls` stays the caller's. */
void fl_loop_serve_tls(fl_loop *loop, fl_tls *tls);

/* Goes on with handshakes that have heard from their clients (context.handshakes), for some milliseconds, unless they have a break. Call
 * it without the GVL. */
void fl_loop_shake_hands(fl_loop *loop);

/* Whether there are such handshakes, and they have no break: while requests are ready, they get at most half of the time. */
bool fl_loop_may_shake_hands(const fl_loop *loop);

/* Sends staged responses, processes events and due deadlines. Leaves handshakes to the next wait, or fl_loop_shake_hands. Returns how many
 * requests can be taken. */
uint32_t fl_loop_turn(fl_loop *loop);

/* The watch thread turns the loop while the reactor is away. It does not send what the reactor's fibers have staged. */
void fl_loop_turn_for_reactor(fl_loop *loop);

/* Leaves new connections to the siblings, after accepting those in the backlog; or accepts again. */
void fl_loop_pause_accepting(fl_loop *loop, bool pause);

/* A reactor calls it before it waits: sends staged responses, sets the timer, publishes the counts. If the watch thread has turned the
 * loop meanwhile, the wait of the leading reactor (`leads`) will end at once. `busy`: it has streams to run, so that its siblings should
 * not take it for idle. */
void fl_loop_prepare_wait(fl_loop *loop, bool leads, bool busy);

/* Sets the timer if a deadline has been set since. */
void fl_loop_update_timer(fl_loop *loop);

/* Waits for an event, for `microseconds` (negative: no limit), or for fl_loop_wake; then processes events and deadlines. Call it without
 * the lock, which it takes itself, without the GVL, and from one thread at a time. Returns whether anything happened. */
bool fl_loop_wait(fl_loop *loop, int64_t microseconds);

/* Polls for the few microseconds that falling asleep and waking would cost: the next request of a lone client often comes within
 * them. fl_loop_may_spin returns whether that has paid lately. */
bool fl_loop_may_spin(fl_loop *loop);
bool fl_loop_spin(fl_loop *loop);

/* Ends a wait. Needs no lock. */
void fl_loop_wake(fl_loop *loop);

/* The same, and has a standby take the lead if the leading reactor computes for long. */
void fl_loop_notify_driver(fl_loop *loop);

/* Takes the oldest ready request. NULL: there is none, or as many are in flight as may be. */
fl_exchange *fl_loop_take(fl_loop *loop);
uint32_t fl_loop_takeable(const fl_loop *loop);

/* The same from a lane, for a reactor that serves nothing else now. `may_hold`: also requests that hold the GVL. */
fl_exchange *fl_loop_take_from_lane(fl_loop *loop, int reactor, bool may_hold);

/* Whether the next request that holds the GVL runs in this worker, because no lane worker takes it. */
bool fl_loop_runs_process_lane(const fl_loop *loop);

/* The only reactor that may take it; negative: any. */
static inline int fl_loop_holder(const fl_loop *loop) {
    return atomic_load(&loop->queues[FL_LANE_PROCESS].running) > 0 ? loop->lanes.holder : -1;
}

/* Moves requests between queues if routes have got or lost a lane. */
void fl_loop_sort(fl_loop *loop);

/* Hands as many connections without a request to siblings as they have room for, and ends those that cannot go; without siblings, all.
 * A client that has just connected has a second for its first request. Tunnels end once nothing else is left. It searches only the lists
 * of deadlines where such connections are: a draining loop calls it at each turn, beside any number of streams. */
void fl_loop_release_idle(fl_loop *loop);

/* Accepts no further connections and requests, and answers those that have been received. `hand_over`: idle connections go to
 * siblings, or get one more answer; else they end. */
void fl_loop_drain(fl_loop *loop, bool hand_over);
bool fl_loop_is_drained(const fl_loop *loop);

/* Ends a loop that is drained; false: it is not. A connection that a sibling sends from now on stays in the channel, for the next worker
 * that receives from it. */
bool fl_loop_end(fl_loop *loop);

/* Ends requests now, when a drain has run out of time: running ones expire, waiting ones go to a sibling if it is handing over. The
 * others, and incomplete ones, are rejected. Without `streams`, long-lived and relayed ones run on. */
void fl_loop_stop(fl_loop *loop, bool streams);

/* Sends complete responses that have been staged for so many microseconds. The watch thread calls it without the lock, which it takes
 * itself. Responses that are still being written stay. */
void fl_loop_flush_complete(fl_loop *loop, uint64_t microseconds);

/* Whether a request has waited for longer than queue_timeout. */
bool fl_loop_is_too_late(const fl_exchange *exchange);

#endif
