/* Memory that the supervisor and its workers share, with a slot for each worker. Each slot has its own cache lines.
 * fl_shared_page_open maps it before the first fork; fl_shared_page_close unmaps it in this process. Every field is one atomic number.
 * Only its worker writes a slot, except for the fields that say otherwise; the supervisor writes a slot that has no worker. Any process
 * may read at any time. All processes write the tables of routes, sessions and databases. Mapping can fail: NULL with errno. */
#ifndef FL_SHARED_PAGE_H
#define FL_SHARED_PAGE_H

#include "request_times.h"
#include "routes.h"
#include "run.h"
#include "sessions.h"
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* X(field) */
#define FL_SLOT_MAP(X)                                                                                        \
    X(pid)                                                                                                    \
    X(state)                   /* FL_WORKER_… */                                                              \
    X(in_flight)               /* requests that have a fiber, without streams */                              \
    X(streams)                 /* long-lived responses */                                                     \
    X(queued)                  /* requests in the queue */                                                    \
    X(connections)             /* open */                                                                     \
    X(fresh)                   /* connections without a request so far */                                     \
    X(room)                    /* further connections that it has descriptors for */                          \
    X(requests)                /* answered since the worker's start */                                        \
    X(errors)                  /* requests that ended with an exception of the app */                         \
    X(refused)                 /* requests that the core rejected */                                          \
    X(turned_away)             /* of them with 503: too many, or waited too long */                           \
    X(timed_out)               /* requests that exceeded their time limit */                                  \
    X(restarts)                /* of this slot */                                                             \
    X(heartbeat_ms)            /* fl_clock in milliseconds when the loop last turned */                       \
    X(idle)                    /* 1: it waits in its loop with an empty queue */                              \
    X(oldest_us)               /* fl_clock when its oldest queued request was ready; 0: none */               \
    X(stall)                   /* fl_stall of the leading reactor */                                          \
    X(away_us)                 /* fl_clock since when that reactor is away; 0: it is not */                   \
    X(incoming_requests)       /* handed over, not received yet (increased by the sender) */                  \
    X(incoming_connections)    /* the same, of connections without a request */                               \
    X(standbys)                /* how often the lead went to a standby reactor */                             \
    X(handed)                  /* requests that it handed to siblings */                                      \
    X(received)                /* requests that siblings handed to it */                                      \
    X(database_open)           /* its share of the connection budget, used or not */                          \
    X(database_taken)          /* connections of database_granted that it has used */                         \
    X(database_waiting)        /* requests that wait for a larger share */                                    \
    X(database_since_us)       /* fl_clock since when the first of them waits */                              \
    X(database_granted)        /* connections granted in all (by the supervisor) */                           \
    X(database_recalled)       /* of them, recalled in all (by the supervisor) */                             \
    X(lane)                    /* 1: a lane worker, which serves only routes that hold the GVL */             \
    X(lane_waiting)            /* requests that wait for a lane */                                            \
    X(lane_running)            /* requests that run in a lane */                                              \
    X(lane_max)                /* the maximum of lane_running */                                              \
    X(lane_requests)           /* taken from a lane since the worker's start */                               \
    X(lane_waited_us)          /* the sum of their waiting times */                                           \
    X(index)                   /* its number among workers of its kind (by the supervisor) */                 \
    X(relief)                  /* 1: a relief worker (by the supervisor) */                                   \
    X(began_us)                /* fl_clock when it was forked (by the supervisor) */                          \
    X(stalls)                  /* reported stalls */                                                          \
    X(stalls_blocked)          /* of them, by kind, in the order of fl_stall */                               \
    X(stalls_stuck)                                                                                           \
    X(stalls_computing)                                                                                       \
    X(failures)                /* 1: it ended unexpectedly (by the supervisor) */                             \
    X(gc_runs)                 /* of the garbage collector, as last reported */                               \
    X(gc_us)                   /* and their time */                                                           \
    X(stalled_us)              /* fl_clock when its oldest current stall began; 0: none */                    \
    X(stalled_kind)            /* fl_stall of that stall */                                                  \
    X(runs)                    /* of its runs in the page, so many have been used */

typedef enum fl_slot_field {
#define X(field) FL_SLOT_##field,
    FL_SLOT_MAP(X)
#undef X
    FL_SLOT_FIELDS,
} fl_slot_field;

/* X(constant, name). One that is leaving is to drain, and takes connections until it does. */
#define FL_WORKER_STATE_MAP(X) \
    X(EMPTY, "empty") X(BOOTING, "booting") X(SERVING, "serving") X(DRAINING, "draining") X(LEAVING, "leaving")

typedef enum fl_worker_state {
#define X(constant, name) FL_WORKER_##constant,
    FL_WORKER_STATE_MAP(X)
#undef X
} fl_worker_state;

/* Why a reactor is away: X(constant, name) */
#define FL_STALL_MAP(X) X(NONE, "") X(BLOCKED, "blocked") X(STUCK, "stuck") X(COMPUTING, "computing")

typedef enum fl_stall {
#define X(constant, name) FL_STALL_##constant,
    FL_STALL_MAP(X)
#undef X
} fl_stall;

static inline const char *fl_stall_name(fl_stall stall) {
#define X(constant, name) name,
    static const char *const names[] = {FL_STALL_MAP(X)};
#undef X
    return names[stall];
}

/* Fields that count since the worker's start: X(field) */
#define FL_SLOT_COUNTER_MAP(X)                                                                                                 \
    X(requests)                                                                                                                \
    X(errors)                                                                                                                  \
    X(refused)                                                                                                                 \
    X(turned_away)                                                                                                             \
    X(timed_out)                                                                                                               \
    X(standbys)                                                                                                                \
    X(handed)                                                                                                                  \
    X(received)                                                                                                                \
    X(lane_requests)                                                                                                           \
    X(lane_waited_us)                                                                                                          \
    X(stalls)                                                                                                                  \
    X(stalls_blocked)                                                                                                          \
    X(stalls_stuck)                                                                                                            \
    X(stalls_computing)                                                                                                        \
    X(failures)                                                                                                                \
    X(gc_runs)                                                                                                                 \
    X(gc_us)

typedef struct fl_slot {
    _Alignas(128) _Atomic int64_t fields[FL_SLOT_FIELDS];
    _Alignas(128) fl_request_times times;
} fl_slot;

enum { FL_MAX_DATABASES = 4, FL_MAX_RUNS = 256 };

typedef struct fl_shared_page {
    size_t count;
    _Atomic uint64_t databases[FL_MAX_DATABASES]; /* the keys of the known database servers */
    _Atomic int max_lanes; /* the limit of lane workers */
    fl_routes routes;
    fl_sessions sessions;
    fl_timed_routes timed_routes;
    fl_run *runs;           /* FL_MAX_RUNS for each slot; mapped at the same address in all processes */
    _Atomic bool runs_kept; /* some have been used: they stay when the page is closed */
    /* Odd while the supervisor moves counters from one slot to another, so that readers take neither both nor none. */
    _Atomic uint64_t retirements;
    fl_slot slots[]; /* `count`, and one more for the counters of workers that have ended */
} fl_shared_page;

fl_shared_page *fl_shared_page_open(size_t slots);
void fl_shared_page_close(fl_shared_page *page);

/* Memory for one more run of the worker in this slot, which stays the worker's until it ends. NULL: there is no room. */
fl_run *fl_shared_page_add_run(fl_shared_page *page, size_t slot);

/* Empties the slot of a worker that has ended; its counters move to the last slot. The supervisor calls it. */
void fl_shared_page_retire(fl_shared_page *page, size_t slot);

/* Copies the sum of all workers' counters, also of those that have ended. `slot`: only those of this slot; -1: all. */
void fl_shared_page_times(fl_shared_page *page, int slot, fl_request_times *sum);
/* The same for the fields of FL_SLOT_COUNTER_MAP; the other fields of `sum` are 0. */
void fl_shared_page_counters(fl_shared_page *page, int64_t sum[FL_SLOT_FIELDS]);

/* The number of a database server, the same in all processes. Servers beyond FL_MAX_DATABASES share the last one. */
int fl_shared_page_database(fl_shared_page *page, uint64_t key);

static inline void fl_slot_set(fl_slot *slot, fl_slot_field field, int64_t value) {
    atomic_store_explicit(&slot->fields[field], value, memory_order_relaxed);
}
static inline int64_t fl_slot_get(const fl_slot *slot, fl_slot_field field) {
    return atomic_load_explicit(&slot->fields[field], memory_order_relaxed);
}

#endif
