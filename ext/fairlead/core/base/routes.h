/* The table of routes that have stalled their reactor, and of the lanes in which their requests run. It is part of the shared page, for
 * all workers. Nothing is allocated, nothing fails: a route that does not fit into the table has no lane. Everything is atomic; any
 * thread of any process may call. Concurrent writers may lose a count, nothing else. */
#ifndef FL_ROUTES_H
#define FL_ROUTES_H

#include "route.h"
#include <stdatomic.h>
#include <stdbool.h>

/* Where the requests of a route run, so that they do not delay others. */
typedef enum fl_lane {
    FL_LANE_NONE,
    FL_LANE_THREADS, /* the route blocks without the GVL: reactors of the same worker */
    FL_LANE_PROCESS, /* the route holds the GVL: a lane worker */
    FL_LANES,
} fl_lane;

enum { FL_MAX_ROUTES = 64, FL_MAX_PATTERNS = 128 };

typedef struct fl_route_record {
    _Atomic uint64_t key; /* 0: free */
    _Atomic int lane;
    _Atomic int strikes;     /* stalls that count towards a lane */
    _Atomic int good_runs;   /* in a row, without a stall */
    _Atomic int times_laned; /* how often it has got a lane */
    _Atomic int64_t stalls;
    _Atomic int64_t longest;     /* microseconds of its longest stall */
    _Atomic uint64_t stalled_at; /* of fl_clock */
    _Atomic uint64_t text[FL_ROUTE_SIZE / 8];
} fl_route_record;

/* A pattern of the app's router, like "GET /articles/:slug", with its name. Written once. */
typedef struct fl_route_pattern {
    _Atomic int state; /* 0: free; 1: being written; 2: complete */
    fl_route route;
    char name[FL_ROUTE_SIZE]; /* "articles#show", ended by NUL */
} fl_route_pattern;

typedef struct fl_routes {
    _Atomic int laned;         /* the number of routes with a lane: without any, lookups return at once */
    _Atomic int version;       /* changes when a route gets or loses its lane, or with a new pattern */
    _Atomic uint64_t swept_at; /* of fl_clock, when old routes were last forgotten */
    fl_route_record records[FL_MAX_ROUTES];
    _Atomic int pattern_count; /* without any, lookups do not search for one */
    fl_route_pattern patterns[FL_MAX_PATTERNS];
} fl_routes;

/* The route of a request: the app's pattern, else the one of fl_route_from_path. */
void fl_routes_find(const fl_routes *routes, fl_route *route, const char *method, size_t method_size, const char *path,
                    size_t path_size);

/* Adds a pattern of the app. Returns false if it is too long or the table is full. */
bool fl_routes_add_pattern(fl_routes *routes, const char *pattern, size_t size, const char *name, size_t name_size);

/* Moves the record of this path's fl_route_from_path route to the pattern that matches the path. */
void fl_routes_merge_into_pattern(fl_routes *routes, const char *method, size_t method_size, const char *path,
                                  size_t path_size);

/* The app's name for a pattern; NULL if it has none. */
const char *fl_routes_name(const fl_routes *routes, const char *text);

/* The lane of a route. Also forgets all routes that have not stalled for a minute. */
fl_lane fl_routes_lane(fl_routes *routes, uint64_t key, uint64_t now);

/* A request of this route has begun to stall. The route gets the lane after `needed` stalls. */
void fl_routes_stall_began(fl_routes *routes, const fl_route *route, fl_lane lane, int needed, uint64_t now);

/* The stall has lasted for `away` microseconds so far. */
void fl_routes_stall_continues(fl_routes *routes, uint64_t key, uint64_t away, uint64_t now);

/* How often the route has stalled so far, for fl_routes_completed. */
int64_t fl_routes_stall_count(const fl_routes *routes, uint64_t key);

/* A request has run in a lane. After enough runs in a row without a stall the route loses its lane: five runs the first time, and twice
 * as many each time that it gets a lane again. */
void fl_routes_completed(fl_routes *routes, uint64_t key, int64_t stalls_before);

/* Forgets the routes that have stalled since this time of fl_clock: the routes did not cause those stalls. */
void fl_routes_forget_since(fl_routes *routes, uint64_t since);

/* The text of a record, ended by NUL. Returns false if the record is free. */
bool fl_routes_text(const fl_route_record *record, char text[FL_ROUTE_SIZE]);

#endif
