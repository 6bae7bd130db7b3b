/* Where the time of one request goes. At each moment the request either runs in one of its fibers, or waits: then for what its fibers wait
 * for, or for its turn if none of them waits. An account is kept in its fiber's fl_run, so it is never freed; after the request it stays
 * as it is until the next one begins. Nothing is allocated, nothing fails. The GVL guards accounts; a thread's own clock is written by
 * hooks without it. Times are microseconds of fl_clock. */
#ifndef FL_TIME_ACCOUNT_H
#define FL_TIME_ACCOUNT_H

#include "request_times.h"

/* What a thread has lost since its start, whatever it ran. */
typedef struct fl_thread_clock {
    _Atomic uint64_t gvl;      /* microseconds that it has waited for the GVL, */
    _Atomic uint64_t blocked;  /* and that it was away without it */
    _Atomic bool looks;        /* for events: no serving fiber has run since it began to */
    _Atomic uint64_t ready_at; /* when it last came back from that and wanted the GVL, */
    _Atomic uint64_t held_at;  /* and when it got it */
    uint64_t polled_at[2];     /* when a reactor last began to look for events, and the time before */
} fl_thread_clock;

/* The thread has come back, after it was away since then, and wants the GVL. */
static inline void fl_thread_wants_gvl(fl_thread_clock *clock, uint64_t since, uint64_t now) {
    uint64_t blocked = atomic_load_explicit(&clock->blocked, memory_order_relaxed);
    atomic_store_explicit(&clock->blocked, blocked + (now - since), memory_order_relaxed);
    if (atomic_load_explicit(&clock->looks, memory_order_relaxed))
        atomic_store_explicit(&clock->ready_at, now, memory_order_relaxed);
}

static inline void fl_thread_got_gvl(fl_thread_clock *clock, uint64_t waited) {
    uint64_t gvl = atomic_load_explicit(&clock->gvl, memory_order_relaxed);
    uint64_t wanted = atomic_load_explicit(&clock->ready_at, memory_order_relaxed);
    atomic_store_explicit(&clock->gvl, gvl + waited, memory_order_relaxed);
    if (atomic_load_explicit(&clock->looks, memory_order_relaxed))
        atomic_store_explicit(&clock->held_at, wanted + waited, memory_order_relaxed);
}

/* A reactor begins to look for events. */
static inline void fl_thread_polls(fl_thread_clock *clock, uint64_t now) {
    clock->polled_at[1] = clock->polled_at[0];
    clock->polled_at[0] = now;
    atomic_store_explicit(&clock->looks, true, memory_order_relaxed);
}

/* Microseconds that the garbage collector has run. */
extern _Atomic uint64_t fl_collected;

typedef struct fl_time_account {
    uint64_t id; /* of the exchange; 0: none yet */
    uint64_t kinds[FL_KINDS];
    uint64_t since;                   /* the time before is in `kinds` */
    uint64_t due;                     /* when the present sleep ends; 0: none */
    uint64_t waited;                  /* how long the last wait took */
    const fl_thread_clock *clock;     /* of the thread that runs it; NULL: it waits */
    uint64_t gvl, blocked, collected; /* of the clock, at `since` */
    uint16_t waits[FL_KINDS];         /* how many of its fibers wait, by kind */
    uint8_t waits_for;                /* fl_kind, while it waits */
    bool ended;
} fl_time_account;

void fl_account_begin(fl_time_account *account, uint64_t id, fl_thread_clock *clock, uint64_t now);

/* One of its fibers is about to wait. Call it before the fiber is switched; `due`: when a sleep ends, else 0. */
static inline void fl_account_wait(fl_time_account *account, fl_kind kind, uint64_t due) {
    account->waits[kind]++;
    account->due = due;
    account->waited = 0;
}

/* That wait has ended. */
static inline void fl_account_waited(fl_time_account *account, fl_kind kind) {
    if (account->waits[kind] > 0)
        account->waits[kind]--;
}

/* The thread goes on with another request, or with none. */
void fl_account_leave(fl_time_account *account, uint64_t now);

/* The thread goes on with this request. */
void fl_account_resume(fl_time_account *account, fl_thread_clock *clock, uint64_t now);

/* Enters the time until now. */
void fl_account_settle(fl_time_account *account, uint64_t now);

#endif
