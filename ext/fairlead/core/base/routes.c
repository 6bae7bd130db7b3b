#include "routes.h"

#include <string.h>

enum {
    PROBES = 8,
    GOOD_RUNS = 5,
    MAX_DOUBLINGS = 6,
};
enum { FREE, WRITING, COMPLETE }; /* fl_route_pattern.state */

static const uint64_t RETENTION = 60000000, SWEEP_INTERVAL = 1000000; /* microseconds */

static fl_route_record *record_at(const fl_routes *routes, uint64_t key, int probe) {
    return (fl_route_record *) &routes->records[(key + (uint64_t) probe) % FL_MAX_ROUTES];
}

static fl_route_record *find(const fl_routes *routes, uint64_t key) {
    for (int i = 0; i < PROBES; i++) {
        fl_route_record *record = record_at(routes, key, i);
        if (atomic_load_explicit(&record->key, memory_order_acquire) == key)
            return record;
    }
    return NULL;
}

static void set_lane(fl_routes *routes, fl_route_record *record, fl_lane lane) {
    int before = atomic_exchange(&record->lane, lane);
    if (before == (int) lane)
        return;
    if (before == FL_LANE_NONE || lane == FL_LANE_NONE)
        atomic_fetch_add(&routes->laned, lane == FL_LANE_NONE ? -1 : 1);
    if (before == FL_LANE_NONE)
        atomic_fetch_add(&record->times_laned, 1);
    atomic_fetch_add(&routes->version, 1);
}

static void forget(fl_routes *routes, fl_route_record *record) {
    set_lane(routes, record, FL_LANE_NONE);
    atomic_store(&record->strikes, 0);
    atomic_store(&record->good_runs, 0);
}

static bool claim(fl_route_record *record, uint64_t before, const fl_route *route) {
    if (!atomic_compare_exchange_strong(&record->key, &before, route->key))
        return before == route->key; /* another process has just added the same route */
    atomic_store(&record->strikes, 0);
    atomic_store(&record->good_runs, 0);
    atomic_store(&record->times_laned, 0);
    atomic_store(&record->stalls, 0);
    atomic_store(&record->longest, 0);
    uint64_t words[FL_ROUTE_SIZE / 8];
    memcpy(words, route->text, sizeof words);
    for (size_t i = 0; i < FL_ROUTE_SIZE / 8; i++) atomic_store_explicit(&record->text[i], words[i], memory_order_relaxed);
    return true;
}

/* Adds a record if there is none. If no record is free, it replaces the route without a lane that has not stalled for the longest time.
 * NULL: all routes have lanes. */
static fl_route_record *find_or_add(fl_routes *routes, const fl_route *route) {
    fl_route_record *found = find(routes, route->key), *oldest = NULL;
    for (int i = 0; i < PROBES && found == NULL; i++) {
        fl_route_record *record = record_at(routes, route->key, i);
        uint64_t key = atomic_load(&record->key);
        if (key == route->key || (key == 0 && claim(record, 0, route)))
            found = record;
        else if (atomic_load(&record->lane) == FL_LANE_NONE &&
                 (oldest == NULL || atomic_load(&record->stalled_at) < atomic_load(&oldest->stalled_at)))
            oldest = record;
    }
    if (found != NULL || oldest == NULL)
        return found;
    return claim(oldest, atomic_load(&oldest->key), route) ? oldest : NULL;
}

static void forget_old(fl_routes *routes, uint64_t now) {
    uint64_t before = atomic_load_explicit(&routes->swept_at, memory_order_relaxed);
    if (now < before + SWEEP_INTERVAL || !atomic_compare_exchange_strong(&routes->swept_at, &before, now))
        return;
    for (int i = 0; i < FL_MAX_ROUTES; i++) {
        fl_route_record *record = &routes->records[i];
        if (atomic_load(&record->lane) != FL_LANE_NONE && now > atomic_load(&record->stalled_at) + RETENTION)
            forget(routes, record);
    }
}

fl_lane fl_routes_lane(fl_routes *routes, uint64_t key, uint64_t now) {
    if (atomic_load_explicit(&routes->laned, memory_order_relaxed) <= 0)
        return FL_LANE_NONE;
    forget_old(routes, now);
    fl_route_record *record = find(routes, key);
    return record == NULL ? FL_LANE_NONE : (fl_lane) atomic_load(&record->lane);
}

void fl_routes_stall_began(fl_routes *routes, const fl_route *route, fl_lane lane, int needed, uint64_t now) {
    fl_route_record *record = find_or_add(routes, route);
    if (record == NULL)
        return;
    if (now > atomic_load(&record->stalled_at) + RETENTION)
        atomic_store(&record->strikes, 0);
    atomic_store(&record->stalled_at, now);
    atomic_store(&record->good_runs, 0);
    atomic_fetch_add(&record->stalls, 1);
    int strikes = atomic_fetch_add(&record->strikes, 1) + 1;
    /* A lane only rises: a route that sometimes holds the GVL does not go back to the lane of threads. */
    if (strikes >= needed && (int) lane > atomic_load(&record->lane))
        set_lane(routes, record, lane);
}

void fl_routes_stall_continues(fl_routes *routes, uint64_t key, uint64_t away, uint64_t now) {
    fl_route_record *record = find(routes, key);
    if (record == NULL)
        return;
    atomic_store(&record->stalled_at, now);
    if ((int64_t) away > atomic_load(&record->longest))
        atomic_store(&record->longest, (int64_t) away);
}

int64_t fl_routes_stall_count(const fl_routes *routes, uint64_t key) {
    fl_route_record *record = find(routes, key);
    return record == NULL ? 0 : atomic_load(&record->stalls);
}

void fl_routes_completed(fl_routes *routes, uint64_t key, int64_t stalls_before) {
    fl_route_record *record = find(routes, key);
    if (record == NULL || atomic_load(&record->stalls) != stalls_before || atomic_load(&record->lane) == FL_LANE_NONE)
        return;
    int doublings = atomic_load(&record->times_laned) - 1;
    if (doublings < 0)
        doublings = 0;
    if (doublings > MAX_DOUBLINGS)
        doublings = MAX_DOUBLINGS;
    if (atomic_fetch_add(&record->good_runs, 1) + 1 >= GOOD_RUNS << doublings)
        forget(routes, record);
}

void fl_routes_forget_since(fl_routes *routes, uint64_t since) {
    for (int i = 0; i < FL_MAX_ROUTES; i++) {
        fl_route_record *record = &routes->records[i];
        if (atomic_load(&record->key) == 0 || atomic_load(&record->stalled_at) < since)
            continue;
        forget(routes, record);
        atomic_store(&record->key, 0);
    }
}

/* The matching pattern with the greatest rank; NULL: none matches. */
static const fl_route_pattern *best_match(const fl_routes *routes, const char *method, size_t method_size, const char *path,
                                          size_t path_size) {
    const fl_route_pattern *best = NULL;
    uint64_t highest = 0;
    if (atomic_load_explicit(&routes->pattern_count, memory_order_relaxed) == 0)
        return NULL;
    for (int i = 0; i < FL_MAX_PATTERNS; i++) {
        const fl_route_pattern *pattern = &routes->patterns[i];
        int state = atomic_load_explicit(&pattern->state, memory_order_acquire);
        if (state == FREE)
            break;
        if (state == WRITING) /* for ever, if the process was killed meanwhile */
            continue;
        uint64_t rank = fl_route_matches(pattern->route.text, method, method_size, path, path_size);
        if (rank > highest) {
            highest = rank;
            best = pattern;
        }
    }
    return best;
}

void fl_routes_find(const fl_routes *routes, fl_route *route, const char *method, size_t method_size, const char *path,
                    size_t path_size) {
    const fl_route_pattern *pattern = best_match(routes, method, method_size, path, path_size);
    if (pattern != NULL)
        *route = pattern->route;
    else
        fl_route_from_path(route, method, method_size, path, path_size);
}

bool fl_routes_add_pattern(fl_routes *routes, const char *text, size_t size, const char *name, size_t name_size) {
    fl_route route;
    if (!fl_route_from_pattern(&route, text, size) || name_size >= FL_ROUTE_SIZE)
        return false;
    for (int i = 0; i < FL_MAX_PATTERNS; i++) {
        fl_route_pattern *pattern = &routes->patterns[i];
        int state = FREE;
        if (atomic_compare_exchange_strong(&pattern->state, &state, WRITING)) {
            pattern->route = route;
            memcpy(pattern->name, name, name_size);
            atomic_store_explicit(&pattern->state, COMPLETE, memory_order_release);
            atomic_fetch_add(&routes->pattern_count, 1);
            atomic_fetch_add(&routes->version, 1);
            return true;
        }
        if (state == COMPLETE && strcmp(pattern->route.text, route.text) == 0)
            return true;
    }
    return false;
}

void fl_routes_merge_into_pattern(fl_routes *routes, const char *method, size_t method_size, const char *path,
                                  size_t path_size) {
    fl_route by_path;
    const fl_route_pattern *pattern = best_match(routes, method, method_size, path, path_size);
    fl_route_from_path(&by_path, method, method_size, path, path_size);
    if (pattern == NULL || pattern->route.key == by_path.key)
        return;
    fl_route_record *from = find(routes, by_path.key), *to = from == NULL ? NULL : find_or_add(routes, &pattern->route);
    if (from == NULL || to == NULL)
        return;
    uint64_t at = atomic_load(&from->stalled_at);
    if (at > atomic_load(&to->stalled_at))
        atomic_store(&to->stalled_at, at);
    atomic_fetch_add(&to->stalls, atomic_load(&from->stalls));
    atomic_fetch_add(&to->strikes, atomic_load(&from->strikes));
    if (atomic_load(&from->longest) > atomic_load(&to->longest))
        atomic_store(&to->longest, atomic_load(&from->longest));
    if (atomic_load(&from->lane) > atomic_load(&to->lane))
        set_lane(routes, to, (fl_lane) atomic_load(&from->lane));
    forget(routes, from);
    atomic_store(&from->key, 0);
}

const char *fl_routes_name(const fl_routes *routes, const char *text) {
    for (int i = 0; i < FL_MAX_PATTERNS; i++) {
        const fl_route_pattern *pattern = &routes->patterns[i];
        int state = atomic_load_explicit(&pattern->state, memory_order_acquire);
        if (state == FREE)
            break;
        if (state == COMPLETE && strcmp(pattern->route.text, text) == 0)
            return pattern->name;
    }
    return NULL;
}

bool fl_routes_text(const fl_route_record *record, char text[FL_ROUTE_SIZE]) {
    uint64_t words[FL_ROUTE_SIZE / 8];
    for (size_t i = 0; i < FL_ROUTE_SIZE / 8; i++) words[i] = atomic_load_explicit(&record->text[i], memory_order_relaxed);
    memcpy(text, words, sizeof words);
    text[FL_ROUTE_SIZE - 1] = '\0';
    return atomic_load(&record->key) != 0;
}
