/* Which routes have stalled their reactor, and in which lane their requests run therefore: a small table in the shared
 * page, for all workers.
 * Nothing is allocated, nothing fails: what has no place in the table has no lane. Everything is atomic; any thread of any
 * process may call at any time. Two that write at once may each lose a count, never more. */
#ifndef FL_ROUTES_H
#define FL_ROUTES_H

#include "route.h"
#include <stdatomic.h>
#include <stdbool.h>

/* Where the requests of a route run, so that they hold up no others. */
typedef enum fl_lane {
    FL_LANE_NONE,
    FL_LANE_THREADS, /* it blocks without the GVL: some of the worker's reactors */
    FL_LANE_PROCESS, /* it holds the GVL: a worker that serves nothing else */
    FL_LANES,
} fl_lane;

enum { FL_MOST_ROUTES = 64, FL_MOST_PATTERNS = 128 };

typedef struct fl_route_record {
    _Atomic uint64_t key; /* 0: free */
    _Atomic int lane;
    _Atomic int strikes; /* stalls since it was last forgotten, or has had no lane yet */
    _Atomic int good;    /* runs without a stall since the last one */
    _Atomic int learnt;  /* how often it has got a lane */
    _Atomic int64_t stalls;
    _Atomic int64_t longest;     /* microseconds that a stall has taken */
    _Atomic uint64_t stalled_at; /* of fl_clock */
    _Atomic uint64_t text[FL_ROUTE_SIZE / 8];
} fl_route_record;

/* A pattern that the app's router knows, as of "GET /articles/:slug", and what it calls it. Written once. */
typedef struct fl_route_pattern {
    _Atomic int state; /* 0: free; 1: being written; 2: there */
    fl_route route;
    char name[FL_ROUTE_SIZE]; /* "articles#show", ended by NUL */
} fl_route_pattern;

typedef struct fl_routes {
    _Atomic int learnt;         /* how many have a lane: with none, nobody looks any further */
    _Atomic int version;        /* changes whenever one gets or loses its lane */
    _Atomic uint64_t looked_at; /* of fl_clock, when all were last looked at for what is to be forgotten */
    fl_route_record records[FL_MOST_ROUTES];
    _Atomic int known; /* patterns that are there: with none, nobody looks for any */
    fl_route_pattern patterns[FL_MOST_PATTERNS];
} fl_routes;

/* The route of a request: the pattern that the app knows for it, else what its path looks like (see fl_route_make). */
void fl_routes_find(const fl_routes *routes, fl_route *route, const char *method, size_t method_size, const char *path,
                    size_t path_size);

/* An app has such a pattern. Answers false if there is no place for it. */
bool fl_routes_know(fl_routes *routes, const char *pattern, size_t size, const char *name, size_t name_size);

/* What has been learnt by the looks of this path is from now on of the pattern that is known for it. */
void fl_routes_rename(fl_routes *routes, const char *method, size_t method_size, const char *path, size_t path_size);

/* What the app calls a route; NULL if that is not known. */
const char *fl_routes_name(const fl_routes *routes, const char *text);

/* The lane of a route. Those that have not stalled for a minute are forgotten, whichever is asked for. */
fl_lane fl_routes_lane(fl_routes *routes, uint64_t key, uint64_t now);

/* A request of this route has begun to stall. It gets the lane once it has done so `needed` times. */
void fl_routes_stalled(fl_routes *routes, const fl_route *route, fl_lane lane, int needed, uint64_t now);

/* The stall goes on, for so many microseconds now. */
void fl_routes_stalls_on(fl_routes *routes, uint64_t key, uint64_t away, uint64_t now);

/* How often it has stalled so far: what fl_routes_ran compares with. */
int64_t fl_routes_stalls(const fl_routes *routes, uint64_t key);

/* A request has run in a lane. With enough good runs in a row the route is forgotten: five the first time, twice as many
 * each time that it has to be learnt again. */
void fl_routes_ran(fl_routes *routes, uint64_t key, int64_t stalls_before);

/* What has stalled since then (of fl_clock) did so for a reason of no route. */
void fl_routes_forget(fl_routes *routes, uint64_t since);

/* Its text, ended by NUL; answers false for a place that is free. */
bool fl_routes_text(const fl_route_record *record, char text[FL_ROUTE_SIZE]);

#endif
