#include "request_times.h"

#include <stddef.h>
#include <string.h>

const uint64_t fl_bucket_bounds[FL_BUCKETS - 1] = {1000,   2500,   5000,    10000,   25000,   50000,    100000,
                                                   250000, 500000, 1000000, 2500000, 5000000, 10000000, 30000000};

/* There is one writer, so no other thread's addition can be lost. */
static void add(_Atomic int64_t *counter, uint64_t amount) {
    int64_t before = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, before + (int64_t) amount, memory_order_relaxed);
}

static void add_to_histogram(fl_histogram *histogram, uint64_t microseconds) {
    int bucket = 0;
    while (bucket < FL_BUCKETS - 1 && microseconds > fl_bucket_bounds[bucket]) bucket++;
    add(&histogram->counts[bucket], 1);
    add(&histogram->sum, microseconds);
}

void fl_request_times_add_code(fl_request_times *times, int code) {
    if (code >= 100 && code < 100 * (FL_CODE_CLASSES + 1))
        add(&times->codes[code / 100 - 1], 1);
}

void fl_request_times_add(fl_request_times *times, int route, int code, uint64_t queued, uint64_t served,
                          const uint64_t *kinds) {
    fl_route_times *row = &times->routes[route];
    fl_request_times_add_code(times, code);
    add_to_histogram(&times->queue, queued);
    add_to_histogram(&row->service, served);
    if (code >= 500)
        add(&row->errors, 1);
    for (int kind = 0; kinds != NULL && kind < FL_KINDS; kind++)
        if (kinds[kind] != 0)
            add(&row->kinds[kind], kinds[kind]);
}

_Static_assert(sizeof(fl_request_times) % sizeof(int64_t) == 0, "the counters are an array of numbers");

enum { COUNTERS = sizeof(fl_request_times) / sizeof(int64_t) };

static void add_all(void *sum, const void *counters, size_t size) {
    _Atomic int64_t *to = sum;
    const _Atomic int64_t *from = counters;
    for (size_t i = 0; i < size / sizeof *to; i++) add(&to[i], (uint64_t) atomic_load_explicit(&from[i], memory_order_relaxed));
}

void fl_route_times_sum(fl_route_times *sum, const fl_route_times *counters) {
    add_all(sum, counters, sizeof *sum);
}

/* Most slots have never served: their memory stays untouched. */
static bool is_empty(const fl_request_times *times) {
    bool empty = true;
    for (int i = 0; i < FL_CODE_CLASSES; i++) empty &= atomic_load_explicit(&times->codes[i], memory_order_relaxed) == 0;
    for (int i = 0; i < FL_BUCKETS; i++) empty &= atomic_load_explicit(&times->queue.counts[i], memory_order_relaxed) == 0;
    return empty;
}

void fl_request_times_sum(fl_request_times *sum, const fl_request_times *counters) {
    if (is_empty(counters))
        return;
    add_all(sum, counters, sizeof *sum);
}

void fl_request_times_move(fl_request_times *sum, fl_request_times *from) {
    if (is_empty(from))
        return;
    fl_request_times_sum(sum, from);
    for (size_t i = 0; i < COUNTERS; i++) atomic_store_explicit(&((_Atomic int64_t *) from)[i], 0, memory_order_relaxed);
}

/* The number for a key that has just got this cell. */
static int give_number(fl_timed_routes *routes, int cell, const fl_route *route) {
    int number = atomic_load(&routes->count);
    while (number < FL_TIMED_ROUTES && !atomic_compare_exchange_weak(&routes->count, &number, number + 1)) continue;
    if (number < FL_TIMED_ROUTES) {
        uint64_t words[FL_ROUTE_SIZE / 8];
        memcpy(words, route->text, sizeof words);
        for (size_t i = 0; i < FL_ROUTE_SIZE / 8; i++)
            atomic_store_explicit(&routes->texts[number][i], words[i], memory_order_relaxed);
    }
    atomic_store_explicit(&routes->cells[cell].number, number < FL_TIMED_ROUTES ? number + 1 : -1, memory_order_release);
    return number;
}

int fl_timed_routes_number(fl_timed_routes *routes, const fl_route *route) {
    uint64_t key = route->key;
    for (int probe = 0; probe < FL_ROUTE_CELLS; probe++) {
        int cell = (int) ((key + (uint64_t) probe) % FL_ROUTE_CELLS);
        uint64_t there = atomic_load_explicit(&routes->cells[cell].key, memory_order_relaxed);
        if (there == 0) {
            if (atomic_load_explicit(&routes->count, memory_order_relaxed) >= FL_TIMED_ROUTES)
                return FL_TIMED_ROUTES;
            if (atomic_compare_exchange_strong(&routes->cells[cell].key, &there, key))
                return give_number(routes, cell, route);
        }
        if (there == key) {
            int number = atomic_load_explicit(&routes->cells[cell].number, memory_order_acquire);
            return number > 0 ? number - 1 : FL_TIMED_ROUTES;
        }
    }
    return FL_TIMED_ROUTES;
}

bool fl_timed_routes_text(fl_timed_routes *routes, int number, char text[FL_ROUTE_SIZE]) {
    uint64_t words[FL_ROUTE_SIZE / 8];
    if (number >= atomic_load(&routes->count))
        return false;
    for (size_t i = 0; i < FL_ROUTE_SIZE / 8; i++)
        words[i] = atomic_load_explicit(&routes->texts[number][i], memory_order_relaxed);
    memcpy(text, words, sizeof words);
    text[FL_ROUTE_SIZE - 1] = '\0';
    return text[0] != '\0';
}
