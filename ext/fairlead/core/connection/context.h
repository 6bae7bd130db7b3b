/* What all connections of a worker share: the poll, memory, limits, the clock, deadlines, and counts; and the calls by which
 * they reach the loop that runs them, which lies above.
 * The loop embeds one, opens and closes it. It belongs to the holder of `lock`: every function here needs the lock, but for
 * fl_exchange_abandon_later. Opening can fail, with errno. */
#ifndef FL_CONTEXT_H
#define FL_CONTEXT_H

#include "base/poll.h"
#include "connection.h"
#include "base/head.h"
#include "base/http_date.h"
#include "rejection.h"
#include <pthread.h>

enum {
    FL_MOST_HEALTH_PATH = 255,
    FL_MUCH_BUFFERED = 64 << 20,  /* bytes, of all connections of a loop */
    FL_LITTLE_BUFFERED = 32 << 10,/* bytes, of one */
};

typedef struct fl_limits {
    fl_head_limits head;
    uint64_t body_size;       /* bytes */
    uint32_t body_buffer;     /* bytes of a body that are read before a fiber is taken */
    uint32_t response_buffer; /* bytes of a response that are kept for a slow client */
    uint32_t in_flight, streams;
    uint64_t queue_timeout;                    /* microseconds */
    uint64_t queue_target;                     /* likewise; 0: nobody is turned away for the length of the queue */
    uint64_t request_timeout;                  /* likewise; 0: none */
    uint64_t deadlines[FL_DEADLINE_KINDS];     /* microseconds, by kind */
    bool cancel_abandoned; /* the owner of a request is told, as if its time were up, that its client has gone */
    char health_path[FL_MOST_HEALTH_PATH + 1]; /* answered by the core itself; empty: none is */
    bool note_rejections;                        /* somebody takes them, for a log */
} fl_limits;

typedef struct fl_listener {
    fl_source source;
    int descriptor;
    bool unix_socket;
    bool watched;
    struct fl_listener *next;
    int index; /* in the order in which they were added */
    const fl_transport_kind *transport;
    void *configuration;                  /* of the transport */
    const fl_protocol *const *protocols;  /* that its connections may have, ended by NULL: the first, if none is agreed on */
    struct sockaddr_storage address; /* where it listens; so are the sockets that it accepts */
    socklen_t address_size;
} fl_listener;

typedef struct fl_counts {
    uint32_t in_flight, streams, connections;
    uint32_t fresh; /* of the connections: have had no request yet */
    uint64_t requests, errors, refused, turned_away, timed_out, handed, received;
    uint64_t lane_requests, lane_waited;
} fl_counts;

/* Of a request that a sibling has handed to us. */
typedef struct fl_handed {
    uint64_t arrived;
    int hand_overs;
} fl_handed;

struct fl_context;

/* What connections and exchanges ask of the loop. None of these closes the connection that it is called for. */
typedef struct fl_context_calls {
    bool (*enqueue)(struct fl_exchange *exchange); /* a request is ready; answers whether it has to wait for others */
    void (*dequeue)(struct fl_exchange *exchange); /* it is given up before it was taken */
    void (*ended)(struct fl_exchange *exchange);   /* one that was taken is over */
    void (*answered)(struct fl_context *context);  /* a response is complete, and sent or staged */
    void (*stream_began)(struct fl_context *context); /* there is room for one more request */
    void (*time_limited)(struct fl_context *context); /* a request may be the next whose time runs out */
    void (*counted)(struct fl_context *context);   /* connections have come or gone, or had their first request */
    bool (*gathers)(const struct fl_context *context);   /* complete responses are staged, to be sent together */
    bool (*is_ending)(const struct fl_context *context); /* no connection can go on after its present response */
} fl_context_calls;

typedef struct fl_deadlines {
    fl_deadline *first, *last;
} fl_deadlines;

typedef struct fl_context {
    const fl_context_calls *calls;
    pthread_mutex_t lock;
    fl_poll poll;
    fl_limits limits;
    fl_slab slab;
    fl_slab staging; /* of what exchanges stage: touched by who has the GVL, whoever holds the lock */
    fl_connection *connections, *closed;
    fl_connection *dirty;
    _Atomic uint64_t staged_at; /* of fl_clock, since when any of them is; 0: there is none */
    fl_deadlines deadlines[FL_DEADLINE_KINDS]; /* in order of time */
    struct fl_exchange *served;
    struct fl_exchange *first_woken, *last_woken;
    struct fl_exchange *first_timed; /* the root of a heap, see time_limit.c */
    struct { struct fl_exchange *first, *last; } expired;
    _Atomic(struct fl_exchange *) abandoned; /* by their owners, without the lock */
    struct fl_exchange *free_exchanges;
    uint32_t free_exchange_count;
    fl_head *free_heads;
    uint32_t free_head_count;
    fl_rejections rejections;
    uint64_t now;         /* of fl_clock, at the last turn or later */
    uint64_t wall_offset; /* what to add to get microseconds since 1970 */
    bool timer_stale;     /* a deadline has been set since the poll's timer was */
    uint64_t last_id;
    int64_t date_second;
    char date[FL_DATE_SIZE];
    bool draining;
    bool handing_over;
    bool forgotten;       /* this process is a child of the one that serves */
    fl_counts counts;
    fl_handed handed; /* while such a connection is opened */
} fl_context;

int fl_context_open(fl_context *context, const fl_limits *limits, const fl_context_calls *calls);
/* After its last connection; exchanges that are still served are disowned, and freed by their owners later. */
void fl_context_close(fl_context *context);

/* Frees the connections that were closed, but for those that the list of the dirty still has. */
void fl_context_free_closed(fl_context *context);

/* Ends the exchanges that their owners gave up without the lock. */
void fl_context_end_abandoned(fl_context *context);

void fl_context_update_clock(fl_context *context);

/* The date line of HTTP, for now. */
const char *fl_context_date(fl_context *context);

/* Bytes in buffers; about so many, while something is being staged. */
static inline int64_t fl_context_buffered(const fl_context *context) {
    return (int64_t) (atomic_load_explicit(&context->slab.borrowed, memory_order_relaxed) +
                      atomic_load_explicit(&context->staging.borrowed, memory_order_relaxed));
}

/* How much of a head, a body or a response is kept where so much may be: less while much is kept for all together, so
 * that many slow clients cannot take all memory. */
static inline uint32_t fl_context_buffer_limit(const fl_context *context, uint32_t most) {
    bool crowded = fl_context_buffered(context) > FL_MUCH_BUFFERED;
    return crowded && most > FL_LITTLE_BUFFERED ? FL_LITTLE_BUFFERED : most;
}

/* Sends what is staged. With `only_complete`, the connections whose request is still being served stay on the list: those
 * take the GVL. */
void fl_context_send_staged(fl_context *context, bool only_complete);
static inline void fl_context_flush(fl_context *context) {
    if (context->dirty != NULL)
        fl_context_send_staged(context, false);
}

/* The next exchange that waits and has been woken: its id, or 0. */
uint64_t fl_context_next_woken(fl_context *context);

/* The next exchange whose time has run out: its client has been answered, and its owner is to be told: its id, or 0. */
uint64_t fl_context_next_expired(fl_context *context);

/* Of so many at most, those whose time is up first. */
void fl_context_expire(fl_context *context, int most);

/* All that is being served has taken too long. */
void fl_context_expire_all(fl_context *context);

#endif
