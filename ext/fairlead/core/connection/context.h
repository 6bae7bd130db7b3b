/* What all connections of a worker share: the poll, memory, limits, the clock, deadlines, counts, and the functions of the loop that they
 * call. The loop, in a higher folder, embeds the context, opens and closes it. The caller of every function holds `lock`. Opening can
 * fail, with errno. */
#ifndef FL_CONTEXT_H
#define FL_CONTEXT_H

#include "base/poll.h"
#include "connection.h"
#include "base/head.h"
#include "base/networks.h"
#include "base/http_date.h"
#include "base/request_times.h"
#include "rejection.h"
#include <pthread.h>

enum {
    FL_MAX_HEALTH_PATH = 255,
    FL_MAX_HSTS = 127,
    FL_ERROR_PAGES = 3,                  /* for 502, 503 and 504, */
    FL_MAX_ERROR_PAGE = 64 << 10,        /* of at most so many bytes: one is copied for each client that gets it */
    FL_MEMORY_PRESSURE = 64 << 20,       /* bytes buffered for all connections, above which */
    FL_BUFFER_UNDER_PRESSURE = 32 << 10, /* a connection may buffer this many */
    /* Bytes of requests of which only a part has come: some 3,000 as large as they may be under pressure, or 16,000 that have just begun,
     * as many as may run. */
    FL_MAX_UNFINISHED = 2 * FL_MEMORY_PRESSURE,
};

typedef struct fl_limits {
    fl_head_limits head;
    uint64_t body_size;       /* bytes */
    uint32_t body_buffer;     /* bytes of a request body that are read ahead */
    uint32_t response_buffer; /* bytes of a response that are buffered for a slow client */
    uint32_t in_flight, streams;
    uint64_t queue_timeout;                   /* microseconds */
    uint64_t queue_target;                    /* microseconds; 0: no load shedding */
    uint64_t request_timeout;                 /* microseconds; 0: none */
    uint64_t deadlines[FL_DEADLINE_KINDS];    /* microseconds, by kind */
    bool cancel_abandoned;                    /* a request expires when its client disconnects, */
    bool cancel_streams;                      /* or at least a long-lived one does */
    char health_path[FL_MAX_HEALTH_PATH + 1]; /* empty: none */
    bool record_rejections;                   /* for the access log */
    bool redirect_to_https;                   /* see https.h */
    uint16_t https_port;                      /* of the first https:// address; 0: there is none */
    char hsts[FL_MAX_HSTS + 1];               /* the value of Strict-Transport-Security; empty: none */
    fl_networks trusted_proxies;              /* see base/forwarded.h; on the heap, the context frees it */
} fl_limits;

typedef struct fl_listener {
    fl_source source;
    int descriptor;
    bool unix_socket;
    bool proxied; /* connections begin with a PROXY header */
    bool watched;
    struct fl_listener *next;
    int index; /* the same in all workers */
    const fl_transport_kind *transport;
    void *configuration;                 /* for the transport */
    const fl_protocol *const *protocols; /* ended by NULL; the first is the default */
    struct sockaddr_storage address;     /* the local address of accepted sockets too */
    socklen_t address_size;
} fl_listener;

typedef struct fl_counts {
    uint32_t in_flight, streams, connections;
    uint32_t fresh; /* connections without a request so far */
    uint64_t requests, errors, refused, turned_away, timed_out, handed, received;
    uint64_t lane_requests, lane_waited;
} fl_counts;

/* Origin of a connection that a sibling has handed over, and of its request. */
typedef struct fl_handed {
    uint64_t arrived;
    int hand_overs;
    fl_client client; /* family 0: the sibling has not looked at the connection */
    bool relayed;     /* the connection is one end of a relay (siblings/relay.h) */
    fl_identity *identity;
} fl_handed;

struct fl_context;

/* What becomes of a request that names a session. */
typedef enum fl_owner {
    FL_OWNER_HERE,    /* or unknown, or out of reach: it is served here */
    FL_OWNER_HAS_IT,  /* the connection has gone to the owner, or the request has been rejected */
    FL_OWNER_AWAITED, /* it can go once the output of its connection has been sent: then ask again */
} fl_owner;

/* Functions of the loop that connections and exchanges call. */
typedef struct fl_context_calls {
    bool (*enqueue)(struct fl_exchange *exchange); /* queues a ready request; returns whether it has to wait for others */
    void (*dequeue)(struct fl_exchange *exchange); /* removes a request that will not be served here */
    void (*relay_notified)(struct fl_exchange *exchange);  /* there is room for a relayed response, or the client has gone */
    void (*request_ended)(struct fl_exchange *exchange);   /* a served request has ended */
    void (*response_finished)(struct fl_context *context); /* a response is complete, and sent or staged */
    void (*stream_began)(struct fl_context *context);      /* a request in flight has become long-lived */
    void (*time_limit_set)(struct fl_context *context);
    void (*connections_changed)(struct fl_context *context); /* in the counts */
    bool (*batches_responses)(
        const struct fl_context *context);               /* whether complete responses are staged, to be sent together */
    bool (*is_ending)(const struct fl_context *context); /* whether connections close after their current response */
    /* A request is complete; returns whether it was for a public file, which is sent. */
    bool (*serve_file)(struct fl_exchange *exchange);
    /* The head of a request may name a session, which another worker owns. */
    fl_owner (*find_owner)(struct fl_exchange *exchange);
    /* The head of a response names a session of this worker. Called without the lock. */
    void (*session_began)(struct fl_context *context, const char *id, size_t size);
} fl_context_calls;

typedef struct fl_deadlines {
    fl_deadline *first, *last;
} fl_deadlines;

typedef struct fl_exchange_list {
    struct fl_exchange *first, *last;
} fl_exchange_list;

/* See error_page.h. */
typedef struct fl_error_page {
    char *bytes; /* NULL: none */
    size_t size;
} fl_error_page;

typedef struct fl_context {
    const fl_context_calls *calls;
    pthread_mutex_t lock;
    fl_poll poll;
    fl_limits limits;
    fl_slab slab;
    fl_slab staging; /* for responses: guarded by the GVL, not by the lock */
    fl_connection *connections, *closed;
    fl_connection *dirty;
    struct {
        fl_connection *first, *last;
        uint32_t count;
    } handshakes;                              /* that can go on */
    _Atomic uint64_t staged_at;                /* fl_clock since when a connection is dirty; 0: none is */
    fl_deadlines deadlines[FL_DEADLINE_KINDS]; /* ordered by time */
    struct fl_exchange *served;
    uint32_t tunnels; /* connections that are one */
    struct {
        struct fl_relay *open, *notified, *ended;
        uint32_t count; /* of open ones */
    } relays;
    struct {
        struct fl_exchange *first, *last;
        uint64_t bytes; /* that they take */
    } unfinished;       /* requests of which only a part has come, the oldest first */
    fl_exchange_list woken;
    fl_exchange_list files;          /* whose file can be sent on, see file_body.h */
    uint64_t file_bytes;             /* sent from files so far */
    struct fl_exchange *time_limits; /* the root of the heap in time_limit.c */
    fl_exchange_list expired;
    _Atomic(struct fl_exchange *) abandoned; /* see fl_exchange_abandon_later */
    struct fl_exchange *free_exchanges;
    uint32_t free_exchange_count;
    fl_head *free_heads;
    uint32_t free_head_count;
    fl_rejections rejections;
    uint64_t now;         /* fl_clock at the last turn or later */
    uint64_t wall_offset; /* fl_wall_clock minus fl_clock */
    bool timer_stale;     /* the poll's timer does not come before each deadline */
    uint64_t timer;       /* when it fires, or has fired: of fl_clock; 0: not set */
    uint64_t last_id;
    struct fl_public_files *public_files; /* NULL: none are served */
    int64_t date_second;
    char date[FL_DATE_SIZE];
    fl_error_page error_pages[FL_ERROR_PAGES];
    const fl_buffer *canned_lines; /* further header lines, while a canned response is made; NULL: none */
    bool draining;
    bool handing_over;
    bool forgotten; /* this process is a forked child */
    fl_counts counts;
    struct {
        fl_request_times *page; /* of this worker in the shared page; NULL: nothing is recorded */
        fl_timed_routes *routes;
    } times;
    fl_handed handed; /* set while a connection from a sibling is opened */
} fl_context;

int fl_context_open(fl_context *context, const fl_limits *limits, const fl_context_calls *calls);
/* Call it after the last connection is closed. Disowns exchanges that are still served; their owners free them. */
void fl_context_close(fl_context *context);

/* Frees closed connections, except for those on another list. */
void fl_context_free_closed(fl_context *context);

/* Abandons the exchanges of fl_exchange_abandon_later. */
void fl_context_free_abandoned(fl_context *context);

/* Goes on with handshakes that have heard from their clients, for about so many microseconds. They compute for long: call it without the
 * GVL. */
void fl_context_shake_hands(fl_context *context, uint64_t microseconds);

void fl_context_update_clock(fl_context *context);

/* Something is due at that time of fl_clock: the timer has to be set unless it fires before, and is still to fire. */
static inline void fl_context_note_due(fl_context *context, uint64_t at) {
    if (at < context->timer || context->timer <= context->now)
        context->timer_stale = true;
}

/* The Date header for the current second. */
const char *fl_context_date(fl_context *context);

/* Counts a response of the core's own. */
void fl_context_record_code(fl_context *context, int code);

/* Bytes in buffers; approximate while another thread stages a response. */
static inline int64_t fl_context_buffered(const fl_context *context) {
    return (int64_t) (atomic_load_explicit(&context->slab.in_use, memory_order_relaxed) +
                      atomic_load_explicit(&context->staging.in_use, memory_order_relaxed));
}

/* How many bytes of a head, a body or a response may be buffered: `most`, or fewer under memory pressure, so that many slow clients
 * cannot exhaust memory. */
static inline uint32_t fl_context_buffer_limit(const fl_context *context, uint32_t most) {
    bool pressure = fl_context_buffered(context) > FL_MEMORY_PRESSURE;
    return pressure && most > FL_BUFFER_UNDER_PRESSURE ? FL_BUFFER_UNDER_PRESSURE : most;
}

/* Flushes dirty connections. `only_complete`: skips connections with a served request, since flushing those takes the GVL. */
void fl_context_send_staged(fl_context *context, bool only_complete);
static inline void fl_context_flush(fl_context *context) {
    if (context->dirty != NULL)
        fl_context_send_staged(context, false);
}

/* Removes the next woken exchange and returns its id; 0: none. The caller wakes all who read or write for its owner. */
uint64_t fl_context_next_woken(fl_context *context);

/* Removes the next expired exchange and returns its id; 0: none. The caller informs its owner. */
uint64_t fl_context_next_expired(fl_context *context);

/* While unfinished requests take more than FL_MAX_UNFINISHED, turns away the oldest, at most `most`: their clients are the slowest. */
void fl_context_shed_unfinished(fl_context *context, int most);

/* Expires exchanges whose time limit is due, at most `most`. */
void fl_context_expire(fl_context *context, int most);

/* Ends all served exchanges, since the server stops: their owners see timing.stopped. Without `streams`, but those that live long. */
void fl_context_stop_all(fl_context *context, bool streams);

#endif
