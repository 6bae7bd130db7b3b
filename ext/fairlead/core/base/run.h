/* The request that a fiber runs. It lies in memory that the supervisor shares, so that a worker that was killed leaves behind what was in
 * flight. Never freed while the worker lives, since any thread may still read it. */
#ifndef FL_RUN_H
#define FL_RUN_H

#include "route.h"
#include "time_account.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct fl_run {
    fl_time_account account;      /* the first member: see fl_run_of_account */
    uint64_t id;                  /* of its exchange; 0: none */
    _Atomic uint64_t since;       /* fl_clock when the request was taken; 0: it has been answered */
    _Atomic uint64_t switched_at; /* fl_clock when its fiber last began to run */
    _Atomic bool stall_recorded;  /* its route was recorded as stalling */
    uint16_t method_size, path_size;
    char method[16], path[FL_ROUTE_PATH];
    struct fl_run *next; /* of the binding's spare ones */
} fl_run;

static inline fl_run *fl_run_of_account(fl_time_account *account) {
    return (fl_run *) account;
}

#endif
