/* Where the time of requests went: counters in the shared page, a row per worker and route. Only the worker's loop writes its counters,
 * under its lock; any process may read them at any time. Nothing is allocated, nothing fails: the requests of a route that does not fit
 * into the table count for the route "other". */
#ifndef FL_REQUEST_TIMES_H
#define FL_REQUEST_TIMES_H

#include "route.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What a request's time is spent on: X(name) */
#define FL_KIND_MAP(X)                                                                                                         \
    X(turn)       /* it could go on, and waits for its turn */                                                                 \
    X(cpu)        /* it computes */                                                                                            \
    X(gvl)        /* it waits for Ruby's lock */                                                                               \
    X(connection) /* it waits for a connection of a pool */                                                                    \
    X(database)   /* it waits for a database */                                                                                \
    X(socket)     /* it waits for another socket or pipe */                                                                    \
    X(sleep)                                                                                                                   \
    X(lock)    /* it waits for a lock, a queue or a thread */                                                                  \
    X(blocked) /* a call in C keeps its thread without Ruby's lock, or its work is done in another thread */                   \
    X(gc)      /* the garbage collector runs */                                                                                \
    X(write)   /* it waits for its client */                                                                                   \
    X(other)

typedef enum fl_kind {
#define X(name) FL_KIND_##name,
    FL_KIND_MAP(X)
#undef X
        FL_KINDS,
} fl_kind;

enum {
    FL_BUCKETS = 15,      /* the last one has no bound */
    FL_CODE_CLASSES = 5,  /* 1xx to 5xx */
    FL_TIMED_ROUTES = 100 /* and one more for all others */
};

/* Microseconds, ascending: the upper bounds of all buckets but the last. */
extern const uint64_t fl_bucket_bounds[FL_BUCKETS - 1];

typedef struct fl_histogram {
    _Atomic int64_t counts[FL_BUCKETS]; /* of each bucket alone */
    _Atomic int64_t sum;                /* microseconds */
} fl_histogram;

typedef struct fl_route_times {
    fl_histogram service;            /* from the take to the end of the response, or until the response became a stream */
    _Atomic int64_t errors;          /* answered with 5xx */
    _Atomic int64_t kinds[FL_KINDS]; /* microseconds */
} fl_route_times;

typedef struct fl_request_times {
    fl_histogram queue; /* from the first byte to the take */
    _Atomic int64_t codes[FL_CODE_CLASSES];
    fl_route_times routes[FL_TIMED_ROUTES + 1]; /* by number; the last one is "other" */
} fl_request_times;

/* Which route has which number, the same in all workers. A route keeps its number for good. */
enum { FL_ROUTE_CELLS = 128 };
typedef struct fl_timed_routes {
    _Atomic int count;
    struct {
        _Atomic uint64_t key; /* 0: free */
        _Atomic int number;   /* 1 and more; 0: being written, -1: there was no number left */
    } cells[FL_ROUTE_CELLS];
    _Atomic uint64_t texts[FL_TIMED_ROUTES][FL_ROUTE_SIZE / 8];
} fl_timed_routes;

/* The number of a route, which gets one if there is one left; otherwise FL_TIMED_ROUTES. */
int fl_timed_routes_number(fl_timed_routes *routes, const fl_route *route);

/* The text of the route with this number, ended by NUL. Returns false if the number is free. */
bool fl_timed_routes_text(fl_timed_routes *routes, int number, char text[FL_ROUTE_SIZE]);

/* A request has ended: microseconds that it was queued and served, and on what (FL_KINDS numbers; NULL: unknown). */
void fl_request_times_add(fl_request_times *times, int route, int code, uint64_t queued, uint64_t served,
                          const uint64_t *kinds);

/* A response with this code, of which nothing else counts. Codes below 100 are ignored. */
void fl_request_times_add_code(fl_request_times *times, int code);

/* Adds counters to `sum`. */
void fl_route_times_sum(fl_route_times *sum, const fl_route_times *counters);
void fl_request_times_sum(fl_request_times *sum, const fl_request_times *counters);
/* The same, and clears them: their worker has ended. */
void fl_request_times_move(fl_request_times *sum, fl_request_times *from);

#endif
