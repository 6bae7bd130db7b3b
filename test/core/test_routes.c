#include "base/routes.h"
#include "test.h"

#include <pthread.h>

static const uint64_t SECOND = 1000000;
static fl_routes routes;

static fl_route route_number(int number) {
    fl_route route = {0};
    char path[32];
    int size = snprintf(path, sizeof path, "/%c%c", 'a' + number / 26, 'a' + number % 26);
    fl_route_from_path(&route, "GET", 3, path, (size_t) size);
    return route;
}

static void begin(void) { memset(&routes, 0, sizeof routes); }

static void a_route_gets_a_lane_when_it_stalls(void) {
    begin();
    fl_route route = route_number(0), other = route_number(1);
    CHECK_NUMBER(FL_LANE_NONE, fl_routes_lane(&routes, route.key, SECOND));
    fl_routes_stall_began(&routes, &route, FL_LANE_THREADS, 1, SECOND);
    CHECK_NUMBER(FL_LANE_THREADS, fl_routes_lane(&routes, route.key, SECOND));
    CHECK_NUMBER(FL_LANE_NONE, fl_routes_lane(&routes, other.key, SECOND));
    CHECK_NUMBER(1, routes.laned);
}

static void routes_that_stalled_since_a_time_can_be_forgotten(void) {
    begin();
    fl_route before = route_number(0), after = route_number(1);
    fl_routes_stall_began(&routes, &before, FL_LANE_THREADS, 1, SECOND);
    fl_routes_stall_began(&routes, &after, FL_LANE_THREADS, 1, 3 * SECOND);
    fl_routes_forget_since(&routes, 2 * SECOND);
    CHECK_NUMBER(FL_LANE_THREADS, fl_routes_lane(&routes, before.key, 3 * SECOND));
    CHECK_NUMBER(FL_LANE_NONE, fl_routes_lane(&routes, after.key, 3 * SECOND));
    CHECK_NUMBER(0, fl_routes_stall_count(&routes, after.key));
    CHECK_NUMBER(1, routes.laned);
}

static void strikes_within_a_minute_count_towards_a_lane(void) {
    begin();
    fl_route route = route_number(0);
    fl_routes_stall_began(&routes, &route, FL_LANE_PROCESS, 2, SECOND);
    CHECK_NUMBER(FL_LANE_NONE, fl_routes_lane(&routes, route.key, SECOND));
    fl_routes_stall_began(&routes, &route, FL_LANE_PROCESS, 2, 100 * SECOND); /* the first strike is too old */
    CHECK_NUMBER(FL_LANE_NONE, fl_routes_lane(&routes, route.key, 100 * SECOND));
    fl_routes_stall_began(&routes, &route, FL_LANE_PROCESS, 2, 101 * SECOND);
    CHECK_NUMBER(FL_LANE_PROCESS, fl_routes_lane(&routes, route.key, 101 * SECOND));
}

static void a_route_that_holds_the_gvl_stays_in_the_process_lane(void) {
    begin();
    fl_route route = route_number(0);
    fl_routes_stall_began(&routes, &route, FL_LANE_THREADS, 1, SECOND);
    fl_routes_stall_began(&routes, &route, FL_LANE_PROCESS, 1, SECOND);
    fl_routes_stall_began(&routes, &route, FL_LANE_THREADS, 1, SECOND);
    CHECK_NUMBER(FL_LANE_PROCESS, fl_routes_lane(&routes, route.key, SECOND));
    CHECK_NUMBER(1, routes.laned);
}

static int good_runs_needed(const fl_route *route) {
    for (int runs = 1; runs < 10000; runs++) {
        fl_routes_completed(&routes, route->key, fl_routes_stall_count(&routes, route->key));
        if (fl_routes_lane(&routes, route->key, SECOND) == FL_LANE_NONE)
            return runs;
    }
    return -1;
}

static void good_runs_remove_the_lane_and_more_are_needed_each_time(void) {
    begin();
    fl_route route = route_number(0);
    for (int expected = 5; expected <= 320; expected *= 2) {
        fl_routes_stall_began(&routes, &route, FL_LANE_THREADS, 1, SECOND);
        CHECK_NUMBER(expected, good_runs_needed(&route));
        CHECK_NUMBER(0, routes.laned);
    }
    fl_routes_stall_began(&routes, &route, FL_LANE_THREADS, 1, SECOND);
    CHECK_NUMBER(320, good_runs_needed(&route));
}

static void a_run_with_a_stall_is_not_a_good_run(void) {
    begin();
    fl_route route = route_number(0);
    fl_routes_stall_began(&routes, &route, FL_LANE_THREADS, 1, SECOND);
    for (int i = 0; i < 20; i++) {
        for (int k = 0; k < 4; k++) fl_routes_completed(&routes, route.key, fl_routes_stall_count(&routes, route.key));
        int64_t before = fl_routes_stall_count(&routes, route.key);
        fl_routes_stall_began(&routes, &route, FL_LANE_THREADS, 1, SECOND);
        fl_routes_completed(&routes, route.key, before);
    }
    CHECK_NUMBER(FL_LANE_THREADS, fl_routes_lane(&routes, route.key, SECOND));
}

static void a_route_is_forgotten_after_a_minute_without_a_stall(void) {
    begin();
    fl_route route = route_number(0);
    fl_routes_stall_began(&routes, &route, FL_LANE_THREADS, 1, SECOND);
    fl_routes_stall_continues(&routes, route.key, 30 * SECOND, 31 * SECOND);
    CHECK_NUMBER(FL_LANE_THREADS, fl_routes_lane(&routes, route.key, 90 * SECOND));
    CHECK_NUMBER(FL_LANE_NONE, fl_routes_lane(&routes, route.key, 92 * SECOND));
    CHECK_NUMBER(0, routes.laned);
    CHECK_NUMBER(30 * SECOND, routes.records[route.key % FL_MAX_ROUTES].longest);
}

static void a_full_table_replaces_routes_without_a_lane_first(void) {
    begin();
    fl_route kept = route_number(0);
    fl_routes_stall_began(&routes, &kept, FL_LANE_PROCESS, 1, SECOND);
    for (int i = 1; i < 600; i++) {
        fl_route route = route_number(i);
        fl_routes_stall_began(&routes, &route, FL_LANE_PROCESS, 2, 2 * SECOND + (uint64_t) i);
        CHECK_NUMBER(1, fl_routes_stall_count(&routes, route.key));
    }
    CHECK_NUMBER(FL_LANE_PROCESS, fl_routes_lane(&routes, kept.key, 3 * SECOND));
    for (int i = 0; i < 600; i++) {
        fl_route route = route_number(i);
        fl_routes_stall_began(&routes, &route, FL_LANE_PROCESS, 1, 3 * SECOND);
    }
    CHECK(routes.laned <= FL_MAX_ROUTES);
    char text[FL_ROUTE_SIZE];
    CHECK(fl_routes_text(&routes.records[kept.key % FL_MAX_ROUTES], text));
    CHECK_TEXT("GET /aa", text);
}

static void old_routes_are_forgotten_and_make_room(void) {
    begin();
    for (int i = 0; i < 600; i++) {
        fl_route route = route_number(i);
        fl_routes_stall_began(&routes, &route, FL_LANE_PROCESS, 1, SECOND);
    }
    CHECK_NUMBER(FL_MAX_ROUTES, routes.laned);
    fl_route other = route_number(601), another = route_number(602);
    CHECK_NUMBER(FL_LANE_NONE, fl_routes_lane(&routes, other.key, 60 * SECOND));
    CHECK_NUMBER(FL_MAX_ROUTES, routes.laned);
    CHECK_NUMBER(FL_LANE_NONE, fl_routes_lane(&routes, other.key, 62 * SECOND));
    CHECK_NUMBER(0, routes.laned);
    fl_routes_stall_began(&routes, &another, FL_LANE_THREADS, 1, 62 * SECOND);
    CHECK_NUMBER(FL_LANE_THREADS, fl_routes_lane(&routes, another.key, 62 * SECOND));
    CHECK_NUMBER(1, routes.laned);
}

static void *write_many(void *seed) {
    for (int i = 0; i < 400; i++) {
        fl_route route = route_number((int) (((uintptr_t) seed + (uintptr_t) i) % 100));
        fl_routes_stall_began(&routes, &route, (fl_lane) (1 + i % 2), 1, SECOND);
        fl_routes_completed(&routes, route.key, fl_routes_stall_count(&routes, route.key));
        fl_routes_lane(&routes, route.key, SECOND);
        for (int k = 0; k < 3; k++) fl_routes_completed(&routes, route.key, fl_routes_stall_count(&routes, route.key));
    }
    return NULL;
}

static void write_from_several_threads(void) {
    begin();
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) pthread_create(&threads[i], NULL, write_many, (void *) i);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    int laned = 0, twice = 0;
    for (int i = 0; i < FL_MAX_ROUTES; i++) {
        laned += routes.records[i].lane != FL_LANE_NONE;
        for (int k = 0; k < i; k++)
            twice += routes.records[i].key != 0 && routes.records[i].key == routes.records[k].key;
    }
    CHECK_NUMBER(laned, routes.laned);
    CHECK_NUMBER(0, twice);
}

/* Many short rounds, since adding a route is the most fragile step. */
static void several_threads_may_write_at_once(void) {
    for (int i = 0; i < 50; i++) write_from_several_threads();
}

static fl_route found(const char *path) {
    fl_route route;
    fl_routes_find(&routes, &route, "GET", 3, path, strlen(path));
    return route;
}

static bool add_pattern(const char *pattern, const char *name) {
    return fl_routes_add_pattern(&routes, pattern, strlen(pattern), name, strlen(name));
}

static void a_new_pattern_takes_over_the_record_of_a_path(void) {
    begin();
    fl_route first = found("/articles/my-first-post");
    fl_routes_stall_began(&routes, &first, FL_LANE_PROCESS, 1, SECOND);
    CHECK_NUMBER(FL_LANE_NONE, fl_routes_lane(&routes, found("/articles/another").key, SECOND));
    CHECK(add_pattern("GET /articles/:slug", "articles#show"));
    fl_routes_merge_into_pattern(&routes, "GET", 3, "/articles/my-first-post", 23);
    CHECK_TEXT("GET /articles/:slug", found("/articles/another").text);
    CHECK_NUMBER(FL_LANE_PROCESS, fl_routes_lane(&routes, found("/articles/another").key, SECOND));
    CHECK_NUMBER(1, fl_routes_stall_count(&routes, found("/articles/another").key));
    CHECK_NUMBER(FL_LANE_NONE, fl_routes_lane(&routes, first.key, SECOND));
    CHECK_NUMBER(1, routes.laned);
    CHECK_TEXT("articles#show", fl_routes_name(&routes, "GET /articles/:slug"));
    CHECK(fl_routes_name(&routes, "GET /articles") == NULL);
}

static void a_literal_pattern_has_precedence(void) {
    begin();
    CHECK(add_pattern("GET /articles/:slug", "articles#show"));
    CHECK(add_pattern("GET /articles/new", "articles#new"));
    CHECK_TEXT("GET /articles/new", found("/articles/new").text);
    CHECK_TEXT("GET /articles/:slug", found("/articles/newer").text);
    CHECK_TEXT("GET /articles", found("/articles").text);
}

static void the_table_of_patterns_is_limited_and_has_no_duplicates(void) {
    begin();
    for (int i = 0; i < FL_MAX_PATTERNS; i++) {
        fl_route route = route_number(i);
        CHECK(add_pattern(route.text, ""));
        CHECK(add_pattern(route.text, ""));
    }
    CHECK_NUMBER(FL_MAX_PATTERNS, routes.pattern_count);
    CHECK(!add_pattern("GET /one/more", ""));
    CHECK_TEXT("GET /one/more", found("/one/more").text);
}

/* The process that wrote it was killed. */
static void an_incomplete_pattern_does_not_hide_others(void) {
    begin();
    atomic_store(&routes.patterns[0].state, 1);
    CHECK(add_pattern("GET /articles/:slug", "articles#show"));
    CHECK_TEXT("GET /articles/:slug", found("/articles/another").text);
    CHECK_TEXT("articles#show", fl_routes_name(&routes, "GET /articles/:slug"));
}

int main(void) {
    TEST(routes_that_stalled_since_a_time_can_be_forgotten);
    TEST(a_route_gets_a_lane_when_it_stalls);
    TEST(strikes_within_a_minute_count_towards_a_lane);
    TEST(a_route_that_holds_the_gvl_stays_in_the_process_lane);
    TEST(good_runs_remove_the_lane_and_more_are_needed_each_time);
    TEST(a_run_with_a_stall_is_not_a_good_run);
    TEST(a_route_is_forgotten_after_a_minute_without_a_stall);
    TEST(a_full_table_replaces_routes_without_a_lane_first);
    TEST(old_routes_are_forgotten_and_make_room);
    TEST(several_threads_may_write_at_once);
    TEST(a_new_pattern_takes_over_the_record_of_a_path);
    TEST(a_literal_pattern_has_precedence);
    TEST(the_table_of_patterns_is_limited_and_has_no_duplicates);
    TEST(an_incomplete_pattern_does_not_hide_others);
    return test_summary();
}
