/* The loop: every listener and connection of a worker, the FIFO of ready requests, deadlines and counts.
 * fl_loop_open allocates it, fl_loop_close frees it with all that it holds; exchanges still taken are told and freed by
 * their owners later. It belongs to the holder of its lock: whoever calls anything that touches it, but
 * fl_loop_wait, fl_loop_wake and what says otherwise, holds it, never for longer than a turn, and calls no Ruby
 * meanwhile. What can fail: opening and listening, with FL_SYSTEM and errno. */
#ifndef FL_LOOP_H
#define FL_LOOP_H

#include "connection.h"
#include "exchange.h"
#include "handoff.h"
#include "http1.h"
#include "line.h"
#include "poll.h"
#include "refusal.h"
#include "shared_page.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    FL_MOST_HEALTH_PATH = 255,
    FL_MUCH_KEPT = 64 << 20,  /* bytes, of all connections of a loop */
    FL_LITTLE_KEPT = 32 << 10,/* bytes, of one */
};

typedef struct fl_limits {
    fl_http1_limits http1;
    uint64_t body_size;       /* bytes */
    uint32_t body_buffer;     /* bytes of a body that are read before a fiber is taken */
    uint32_t response_buffer; /* bytes of a response that are kept for a slow client */
    uint32_t in_flight, streams;
    uint64_t queue_timeout;                    /* microseconds */
    uint64_t queue_target;                     /* likewise; 0: nobody is turned away for the length of the line */
    uint64_t request_timeout;                  /* likewise; 0: none */
    uint64_t deadlines[FL_DEADLINE_KINDS];     /* microseconds, by kind */
    bool cancel_abandoned; /* whether the owner of a request is told, as if its time were up, that its client has gone */
    char health_path[FL_MOST_HEALTH_PATH + 1]; /* answered by the core itself; empty: none is */
    bool note_refusals;                        /* somebody takes them, for a log */
} fl_limits;

typedef struct fl_listener {
    fl_source source;
    int descriptor;
    bool unix_socket;
    bool watched;
    struct fl_listener *next;
    int index; /* in the order in which they were added */
    struct sockaddr_storage address; /* where it listens; so are the sockets that it accepts */
    socklen_t address_size;
} fl_listener;

typedef struct fl_counts {
    uint32_t in_flight, streams, connections;
    uint32_t fresh; /* of the connections: have had no request yet */
    uint64_t requests, errors, refused, turned_away, timed_out, handed, received;
    uint64_t lane_requests, lane_waited;
} fl_counts;

enum { FL_MOST_REACTORS = 16 };

/* Requests that wait, in the order in which they came. */
typedef struct fl_fifo {
    fl_exchange *first, *last;
    fl_exchange *inserted; /* where one from a sibling was last put between ours: the next one is not far; NULL: anywhere */
    _Atomic uint32_t count; /* that wait; written with the lock */
    _Atomic uint32_t running; /* of a lane: taken from here */
} fl_fifo;

/* Of a request that a sibling has handed to us. */
typedef struct fl_handed {
    uint64_t arrived;
    int hand_overs;
} fl_handed;

typedef struct fl_loop {
    pthread_mutex_t lock;
    fl_poll poll;
    fl_limits limits;
    fl_slab slab;
    fl_slab staging; /* of what exchanges stage: touched by who has the GVL, whoever holds the lock */
    fl_listener *listeners;
    fl_connection *connections, *graveyard;
    fl_connection *dirty;
    _Atomic uint64_t staged_at; /* of fl_clock, since when any of them is; 0: there is none */
    bool watched;               /* somebody sends what is staged if nobody else does */
    struct { fl_connection *first, *last; } deadlines[FL_DEADLINE_KINDS];
    union { /* those of routes that are known to stall wait apart from the others */
        fl_fifo ready;
        fl_fifo lanes[FL_LANES];
    };
    fl_line line;
    fl_exchange *served;
    fl_refusals refusals;
    fl_exchange *first_woken, *last_woken;
    fl_exchange *first_timed; /* the root of a heap, see timing.c */
    struct { fl_exchange *first, *last; } overdue;
    _Atomic(fl_exchange *) abandoned; /* by their owners, without the lock */
    fl_exchange *free_exchanges;
    uint32_t free_exchange_count;
    fl_http1_head *free_heads;
    uint32_t free_head_count;
    uint64_t now;         /* of fl_clock, at the last turn or later */
    uint64_t turned_at;
    uint64_t wall_offset; /* what to add to get microseconds since 1970 */
    uint64_t timer;       /* when the poll's timer fires; 0: not set */
    bool timer_stale;     /* a deadline has been set since */
    uint32_t most_connections; /* so that some descriptors are left for the app; 0: not known yet */
    int reserve;          /* a descriptor that is given up for one that is to be passed on; -1: there is none */
    uint64_t listen_again;/* when listeners are watched again after the descriptors ran out; 0: they are */
    uint64_t last_id;
    int64_t date_second;
    char date[FL_DATE_SIZE];
    uint32_t takes;       /* since the last turn */
    bool draining;
    bool handing_over;
    fl_counts counts;
    fl_siblings siblings;
    fl_handed handed; /* while such a connection is opened */
    bool aside;       /* listeners are left to the siblings */
    bool stood_in;    /* somebody has heard what was meant for the reactor */
    _Atomic bool resting; /* who leads waits in fl_loop_wait or fl_loop_linger; set with the lock */
    uint32_t in_vain;     /* times in a row, or nearly, that fl_loop_linger has waited so */
    _Atomic bool wanted; /* whoever leads has something to do that is not a request */
    _Atomic int outside; /* threads that ask the kernel without the lock: what they are told of is not freed */
    uint64_t taken_at;/* of fl_clock, at the last take */
    bool others_waited; /* at the last take */
    int64_t take_interval;  /* microseconds from one take to the next while requests wait, on the average */
    int64_t take_deviation; /* from that, on the average */
    uint64_t ordinary_computation; /* microseconds for which a request computes, as seen by the watch thread, on the
                                    * average of all: 0 where none does so for long */
    _Atomic int routes_version; /* up to which the FIFO has been sorted */
    /* Called with the lock when something has come for a lane; NULL: nobody serves them, and all wait in one FIFO. */
    void (*serve_lanes)(void *watch);
    void *lanes_watch;
    bool dedicated;     /* this is a lane worker */
    bool forgotten;     /* this process is a child of the one that serves */
    bool lanes_used;    /* something has waited in one */
    _Atomic int lane_running[FL_MOST_REACTORS]; /* requests of a lane that each reactor has taken */
    int holder; /* the reactor that runs those which hold the GVL: one, so that they do not fight for it */
} fl_loop;

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
void fl_loop_stand_in(fl_loop *loop);

/* For how many more connections there are descriptors, as far as is known. */
int64_t fl_loop_room(const fl_loop *loop);

/* The first connection has got this one: the lowest that is free, so many are in use already. */
void fl_loop_count_descriptors(fl_loop *loop, int first);

/* One descriptor is kept for when there is no other. It is given up before a connection is received that may have to be
 * passed on; who then finds none to keep takes in no more for a while. */
void fl_loop_give_up_reserve(fl_loop *loop);
void fl_loop_keep_reserve(fl_loop *loop);

/* Leaves new connections to the siblings, once those that are there have been taken; or takes them again. */
void fl_loop_step_aside(fl_loop *loop, bool aside);

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
 * often comes within them. fl_loop_lingers tells whether that is worth while: it has been lately. */
bool fl_loop_lingers(fl_loop *loop);
bool fl_loop_linger(fl_loop *loop);
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
    return atomic_load(&loop->lanes[FL_LANE_PROCESS].running) > 0 ? loop->holder : -1;
}

/* Routes have got or lost a lane: what waits is sorted anew. */
void fl_loop_sort(fl_loop *loop);

/* The next exchange that waits and has been woken: its id, or 0. */
uint64_t fl_loop_woken(fl_loop *loop);

/* The next exchange whose time has run out: its client has been answered, and its owner is to be told: its id, or 0. */
uint64_t fl_loop_overdue(fl_loop *loop);

/* All that is being served has taken too long. */
void fl_loop_time_all_out(fl_loop *loop);

/* Idle connections go to siblings, as many as can. */
void fl_loop_hand_over_idle(fl_loop *loop);

/* Gives an exchange up without the lock, from a finaliser for example; the loop ends it at its next turn. */
void fl_loop_abandon_later(fl_exchange *exchange);

/* No new connections and no further requests on those that there are; what has been received is answered.
 * With `hand_over`, idle connections go to siblings, or get one more answer. */
void fl_loop_drain(fl_loop *loop, bool hand_over);
bool fl_loop_is_drained(const fl_loop *loop);

/* After that, when there is no more time: all that is being served has taken too long, and what waits for its turn, or has
 * not come whole, is refused; what waits goes to a sibling, if idle connections do. */
void fl_loop_give_up(fl_loop *loop);

/* A connection cannot go on after its present response: we drain, and no sibling would take it over. */
bool fl_loop_is_ending(const fl_loop *loop);

/* Of connections and exchanges */

/* Bytes in buffers; about so many, while something is being staged. */
static inline int64_t fl_loop_kept(const fl_loop *loop) {
    return (int64_t) (atomic_load_explicit(&loop->slab.borrowed, memory_order_relaxed) +
                      atomic_load_explicit(&loop->staging.borrowed, memory_order_relaxed));
}

/* How much of a head, a body or a response is kept where so much may be: less while much is kept for all together, so
 * that many slow clients cannot take all memory. */
static inline uint32_t fl_loop_keeps(const fl_loop *loop, uint32_t most) {
    bool crowded = fl_loop_kept(loop) > FL_MUCH_KEPT;
    return crowded && most > FL_LITTLE_KEPT ? FL_LITTLE_KEPT : most;
}

void fl_loop_look_at_clock(fl_loop *loop);
void fl_loop_set_deadline(fl_connection *connection, fl_deadline_kind kind);

/* What is staged is sent at the loop's next turn, or before. */
void fl_loop_add_dirty(fl_connection *connection);
void fl_loop_flush(fl_loop *loop);

/* Whether responses that are complete are kept until some can be sent together: while requests are so short that to wake
 * the client for each would cost more than it waits, there are others, several unless they are very short, and somebody
 * watches. */
bool fl_loop_gathers(const fl_loop *loop);

/* Sends what is staged, if that has been kept for long by now. */
void fl_loop_flush_late(fl_loop *loop);

/* Likewise after so many microseconds, for whoever watches: any thread, without the lock, which it takes itself, and
 * without the GVL. What requests are still at is left to them. */
void fl_loop_flush_complete(fl_loop *loop, uint64_t microseconds);

void fl_loop_enqueue(fl_exchange *exchange);
void fl_loop_dequeue(fl_exchange *exchange);
fl_exchange *fl_loop_new_exchange(fl_loop *loop, fl_connection *connection);
void fl_loop_free_exchange(fl_loop *loop, fl_exchange *exchange);
void fl_loop_free_head(fl_loop *loop, fl_exchange *exchange);
const char *fl_loop_date(fl_loop *loop);
void fl_loop_stop_time(fl_exchange *exchange);
/* Its client has gone. */
void fl_loop_abandon_exchange(fl_exchange *exchange);
/* Whether it has waited for its turn for longer than it may. */
bool fl_loop_is_too_late(const fl_exchange *exchange);
/* Of so many at most, those whose time is up first. */
void fl_loop_see_to_time(fl_loop *loop, int most);

#endif
