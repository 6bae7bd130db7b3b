/* What all connections of a worker share: the poll, memory, limits, the clock, deadlines and counts, and the functions by which they
 * call the loop, which lies in a higher folder.
 * The loop embeds the context, opens and closes it. The caller of every function holds `lock`. Opening can fail, with errno. */
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
    FL_MUCH_BUFFERED = 64 << 20,   /* bytes, of all connections of a loop: from then on each has less */
    FL_LITTLE_BUFFERED = 32 << 10, /* bytes, of one */
};

typedef struct fl_limits {
    fl_head_limits head;
    uint64_t body_size;       /* bytes */
    uint32_t body_buffer;     /* bytes of a request body that are read before the request is queued */
    uint32_t response_buffer; /* bytes of a response that are buffered for a slow client */
    uint32_t in_flight, streams;
    uint64_t queue_timeout;                    /* microseconds */
    uint64_t queue_target;                     /* microseconds; 0: no load is shed */
    uint64_t request_timeout;                  /* microseconds; 0: none */
    uint64_t deadlines[FL_DEADLINE_KINDS];     /* microseconds, by kind */
    bool cancel_abandoned;                     /* a request whose client goes expires */
    char health_path[FL_MOST_HEALTH_PATH + 1]; /* answered by the core; empty: none */
    bool note_rejections;                      /* rejections are kept for the log */
} fl_limits;

typedef struct fl_listener {
    fl_source source;
    int descriptor;
    bool unix_socket;
    bool watched;
    struct fl_listener *next;
    int index; /* in the order in which they were added */
    const fl_transport_kind *transport;
    void *configuration;                 /* of the transport */
    const fl_protocol *const *protocols; /* ended by NULL; the first is the default */
    struct sockaddr_storage address;     /* that of accepted sockets, too */
    socklen_t address_size;
} fl_listener;

typedef struct fl_counts {
    uint32_t in_flight, streams, connections;
    uint32_t fresh; /* connections that have had no request yet */
    uint64_t requests, errors, refused, turned_away, timed_out, handed, received;
    uint64_t lane_requests, lane_waited;
} fl_counts;

/* Of a request that a sibling has handed over. */
typedef struct fl_handed {
    uint64_t arrived;
    int hand_overs;
} fl_handed;

struct fl_context;

/* What connections and exchanges call in the loop. */
typedef struct fl_context_calls {
    bool (*enqueue)(struct fl_exchange *exchange);       /* a request is ready; returns whether others are before it */
    void (*dequeue)(struct fl_exchange *exchange);       /* a queued request is given up */
    void (*ended)(struct fl_exchange *exchange);         /* a request that was taken is over */
    void (*answered)(struct fl_context *context);        /* a response is complete, and sent or staged */
    void (*stream_began)(struct fl_context *context);    /* one request less is in flight */
    void (*time_limited)(struct fl_context *context);    /* a request has got a time limit */
    void (*counted)(struct fl_context *context);         /* connections have come or gone, or had their first request */
    bool (*gathers)(const struct fl_context *context);   /* complete responses are staged and sent together */
    bool (*is_ending)(const struct fl_context *context); /* connections end after their present response */
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
    fl_slab staging; /* of what exchanges stage: guarded by the GVL, not by the lock */
    fl_connection *connections, *closed;
    fl_connection *dirty;
    _Atomic uint64_t staged_at;                /* fl_clock since when a connection is dirty; 0: none is */
    fl_deadlines deadlines[FL_DEADLINE_KINDS]; /* in order of time */
    struct fl_exchange *served;
    struct {
        struct fl_exchange *first, *last;
    } woken;
    struct fl_exchange *first_timed; /* the root of a heap, see time_limit.c */
    struct {
        struct fl_exchange *first, *last;
    } expired;
    _Atomic(struct fl_exchange *) abandoned; /* given up by their owners without the lock */
    struct fl_exchange *free_exchanges;
    uint32_t free_exchange_count;
    fl_head *free_heads;
    uint32_t free_head_count;
    fl_rejections rejections;
    uint64_t now;         /* fl_clock at the last turn or later */
    uint64_t wall_offset; /* to add to fl_clock for microseconds since 1970 */
    bool timer_stale;     /* a deadline has been set since the poll's timer was */
    uint64_t last_id;
    int64_t date_second;
    char date[FL_DATE_SIZE];
    bool draining;
    bool handing_over;
    bool forgotten; /* this process is a child of the server */
    fl_counts counts;
    fl_handed handed; /* while a connection that was handed over is opened */
} fl_context;

int fl_context_open(fl_context *context, const fl_limits *limits, const fl_context_calls *calls);
/* Call it after the last connection is closed. Exchanges that are still served are disowned; their owners free them. */
void fl_context_close(fl_context *context);

/* Frees closed connections, except those still on the list of dirty ones. */
void fl_context_free_closed(fl_context *context);

/* Abandons the exchanges that their owners gave up without the lock. */
void fl_context_end_abandoned(fl_context *context);

void fl_context_update_clock(fl_context *context);

/* The date line of HTTP for the present second. */
const char *fl_context_date(fl_context *context);

/* Bytes in buffers; approximate while a response is being staged. */
static inline int64_t fl_context_buffered(const fl_context *context) {
    return (int64_t) (atomic_load_explicit(&context->slab.borrowed, memory_order_relaxed) +
                      atomic_load_explicit(&context->staging.borrowed, memory_order_relaxed));
}

/* How many bytes of a head, a body or a response may be buffered: `most`, or less while much is buffered for all together, so that
 * many slow clients cannot take all memory. */
static inline uint32_t fl_context_buffer_limit(const fl_context *context, uint32_t most) {
    bool crowded = fl_context_buffered(context) > FL_MUCH_BUFFERED;
    return crowded && most > FL_LITTLE_BUFFERED ? FL_LITTLE_BUFFERED : most;
}

/* Sends what is staged. `only_complete`: not on connections with a request that is still served, since that takes the GVL. */
void fl_context_send_staged(fl_context *context, bool only_complete);
static inline void fl_context_flush(fl_context *context) {
    if (context->dirty != NULL)
        fl_context_send_staged(context, false);
}

/* The id of the next exchange that has been woken, or 0. */
uint64_t fl_context_next_woken(fl_context *context);

/* The id of the next exchange that has expired, or 0. Its client has been answered; its owner has to be told. */
uint64_t fl_context_next_expired(fl_context *context);

/* Expires the exchanges whose time limit is due, at most `most`. */
void fl_context_expire(fl_context *context, int most);

/* Expires all exchanges that are served. */
void fl_context_expire_all(fl_context *context);

#endif
