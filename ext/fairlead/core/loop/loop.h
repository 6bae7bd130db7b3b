/* The loop: every listener and connection of a worker, the FIFO of ready requests, deadlines and counts.
 * fl_loop_open allocates it, fl_loop_close frees it with all that it holds; exchanges still taken are told and freed by
 * their owners later. It belongs to the holder of its lock: whoever calls anything that touches it, but
 * fl_loop_wait, fl_loop_wake and what says otherwise, holds it, never for longer than a turn, and calls no Ruby
 * meanwhile. What can fail: opening and listening, with FL_SYSTEM and errno. */
#ifndef FL_LOOP_H
#define FL_LOOP_H

#include "connection/context.h"
#include "connection/exchange.h"
#include "load_shedding.h"
#include "siblings/siblings.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { FL_MOST_REACTORS = 16 };

/* Requests that wait, in the order in which they came. */
typedef struct fl_fifo {
    fl_exchange *first, *last;
    fl_exchange *inserted; /* where one from a sibling was last put between ours: the next one is not far; NULL: anywhere */
    _Atomic uint32_t count; /* that wait; written with the lock */
    _Atomic uint32_t running; /* of a lane: taken from here */
} fl_fifo;

/* Who is let in. */
typedef struct fl_accepting {
    fl_listener *listeners;
    uint32_t most;     /* connections, so that some descriptors are left for the app; 0: not known yet */
    int reserve;       /* a descriptor that is given up for one that is to be passed on; -1: there is none */
    uint64_t again_at; /* when listeners are watched again after the descriptors ran out; 0: they are */
    bool paused;       /* listeners are left to the siblings */
} fl_accepting;

typedef struct fl_turns {
    uint64_t turned_at;
    uint64_t timer; /* when the poll's timer fires; 0: not set */
    uint32_t takes; /* since the last turn */
} fl_turns;

/* The reactor that leads. */
typedef struct fl_driver {
    bool turned_by_watch;  /* the watch thread has heard what was meant for it */
    _Atomic bool resting;  /* it waits in fl_loop_wait or fl_loop_spin; set with the lock */
    _Atomic bool wanted;   /* it has something to do that is not a request */
    uint32_t spins_in_vain;      /* times in a row, or nearly, that fl_loop_spin has waited so */
    _Atomic int outside;   /* threads that ask the kernel without the lock: what they are told of is not freed */
} fl_driver;

/* How fast requests are taken while others wait: what is kept to be sent together, and given to siblings, goes by it. */
typedef struct fl_pace {
    uint64_t taken_at;    /* of fl_clock, at the last take */
    bool others_waited;   /* at the last take */
    int64_t interval;     /* microseconds from one take to the next, on the average */
    int64_t deviation;    /* from that, on the average */
    uint64_t computation; /* microseconds for which a request computes, as seen by the watch thread, on the average of all: 0
                           * where none does so for long */
} fl_pace;

/* Requests of routes that are known to stall run apart from the others. */
typedef struct fl_lanes {
    bool dedicated;             /* this is a lane worker */
    bool used;                  /* something has waited in a lane */
    _Atomic int routes_version; /* up to which the queues have been sorted */
    /* Called with the lock when something has come for a lane; NULL: nobody serves them, and all wait in one queue. */
    void (*serve)(void *watch);
    void *watch;
    _Atomic int running[FL_MOST_REACTORS]; /* requests of a lane that each reactor has taken */
    int holder; /* the reactor that runs those which hold the GVL: one, so that they do not fight for it */
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
    bool watched; /* somebody sends what is staged if nobody else does */
} fl_loop;

static inline fl_loop *fl_loop_of(const fl_context *context) {
    return (fl_loop *) context;
}

fl_loop *fl_loop_open(const fl_limits *limits);
void fl_loop_close(fl_loop *loop);

/* In the child of a fork, in the handler that the C library calls for it (pthread_atfork): closes the sockets of clients and
 * listeners without a word to anybody. Takes no lock, and reads nothing that another thread may have been writing as the
 * process was copied: the kernel knows which sockets there are. After it, nothing may be called for the loop but
 * fl_exchange_disown, before anything else is done with an exchange of its. */
void fl_loop_forget(fl_loop *loop);

fl_status fl_loop_listen(fl_loop *loop, int descriptor, bool unix_socket);

/* This worker is one of several: its counts are shown in its slot of the page, and connections can be handed over.
 * `receiving` is its own end (-1: none), `sending` holds `count` ends, one for each slot; both stay the caller's. */
fl_status fl_loop_join(fl_loop *loop, fl_shared_page *page, int slot, int receiving, const int *sending, int count);

/* Flushes, takes in what the kernel has, and sees to deadlines. Answers how many requests can be taken. */
uint32_t fl_loop_turn(fl_loop *loop);

/* A turn of who stands in for the reactor: what the reactor's fibers have staged is left to it. */
void fl_loop_turn_for_reactor(fl_loop *loop);

/* Leaves new connections to the siblings, once those that are there have been taken; or takes them again. */
void fl_loop_pause_accepting(fl_loop *loop, bool aside);

/* To be called before nobody turns the loop for a while: sends what is staged, sets the timer, shows the counts. */
void fl_loop_settle(fl_loop *loop);

/* Sets the timer, if a deadline has been set since. */
void fl_loop_keep_timer(fl_loop *loop);

/* Likewise, by the reactor that leads, after it has come home: nobody else listens for it from now on. What somebody
 * who stood in for it has left it wakes it at once. */
void fl_loop_rest(fl_loop *loop);

/* Blocks until something happens, `microseconds` have passed (negative: for ever), or somebody wakes it; then takes in
 * what the kernel has, and sees to deadlines. To be called without the lock, which it takes itself, and without the
 * GVL, by one thread alone: what wakes it is not for another one. Answers whether anything happened. */
bool fl_loop_wait(fl_loop *loop, int64_t microseconds);

/* The same for the few microseconds that falling asleep and being woken cost, but awake: a lone client's next request
 * often comes within them. fl_loop_may_spin tells whether that is worth while: it has been lately. */
bool fl_loop_may_spin(fl_loop *loop);
bool fl_loop_spin(fl_loop *loop);
void fl_loop_wake(fl_loop *loop);

/* Likewise, and somebody shall take the lead if the reactor that has it does not come back. */
void fl_loop_want(fl_loop *loop);

/* The oldest ready request, or NULL if there is none or as many are in flight as may be. */
fl_exchange *fl_loop_take(fl_loop *loop);
uint32_t fl_loop_takeable(const fl_loop *loop);

/* Likewise, of the requests in lanes, for a reactor that serves nothing else now; with `may_hold` also of those that hold
 * the GVL, as long as nobody else wants it. */
fl_exchange *fl_loop_take_from_lane(fl_loop *loop, int reactor, bool may_hold);

/* Whether the next request that holds the GVL shall run here: nobody else would take it. */
bool fl_loop_runs_process_lane(const fl_loop *loop);

/* The reactor that alone may take it; negative: any. */
static inline int fl_loop_holder(const fl_loop *loop) {
    return atomic_load(&loop->queues[FL_LANE_PROCESS].running) > 0 ? loop->lanes.holder : -1;
}

/* Routes have got or lost a lane: what waits is sorted anew. */
void fl_loop_sort(fl_loop *loop);

/* Idle connections go to siblings, as many as can. */
void fl_loop_hand_over_idle(fl_loop *loop);

/* No new connections and no further requests on those that there are; what has been received is answered.
 * With `hand_over`, idle connections go to siblings, or get one more answer. */
void fl_loop_drain(fl_loop *loop, bool hand_over);
bool fl_loop_is_drained(const fl_loop *loop);

/* After that, when there is no more time: all that is being served has taken too long, and what waits for its turn, or has
 * not come whole, is refused; what waits goes to a sibling, if idle connections do. */
void fl_loop_give_up(fl_loop *loop);

/* Sends what is complete and has been staged for so many microseconds, for whoever watches: any thread, without the lock,
 * which it takes itself, and without the GVL. What requests are still at is left to them. */
void fl_loop_flush_complete(fl_loop *loop, uint64_t microseconds);

/* Whether a request has waited for its turn for longer than it may. */
bool fl_loop_is_too_late(const fl_exchange *exchange);

#endif
