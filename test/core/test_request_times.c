/* Counters of the shared page: histograms, routes, and what stays of workers that have ended. */
#include "base/shared_page.h"
#include "peer.h"

static fl_request_times times;

static fl_route route_number(int number) {
    fl_route route;
    char text[32];
    int size = snprintf(text, sizeof text, "things#%c%c", 'a' + number / 26, 'a' + number % 26);
    CHECK(fl_route_from_pattern(&route, text, (size_t) size));
    return route;
}

static void a_time_counts_in_the_bucket_of_its_bound(void) {
    memset(&times, 0, sizeof times);
    uint64_t kinds[FL_KINDS] = {[FL_KIND_cpu] = 900, [FL_KIND_sleep] = 100};
    fl_request_times_add(&times, 3, 200, 0, 1000, kinds);
    fl_request_times_add(&times, 3, 503, 1001, 30000001, NULL);
    fl_request_times_add(&times, 3, 0, 2500, 2501, NULL);
    const fl_route_times *route = &times.routes[3];
    CHECK_NUMBER(1, route->service.counts[0]);
    CHECK_NUMBER(1, route->service.counts[2]);
    CHECK_NUMBER(1, route->service.counts[FL_BUCKETS - 1]);
    CHECK_NUMBER(1000 + 30000001 + 2501, route->service.sum);
    CHECK_NUMBER(1, times.queue.counts[0]);
    CHECK_NUMBER(2, times.queue.counts[1]);
    CHECK_NUMBER(900, route->kinds[FL_KIND_cpu]);
    CHECK_NUMBER(100, route->kinds[FL_KIND_sleep]);
    CHECK_NUMBER(1, route->errors);
    CHECK_NUMBER(1, times.codes[1]);
    CHECK_NUMBER(1, times.codes[4]);
}

static void a_route_keeps_its_number_and_the_hundred_first_is_other(void) {
    static fl_timed_routes routes;
    for (int i = 0; i < FL_TIMED_ROUTES; i++) {
        fl_route route = route_number(i);
        CHECK_NUMBER(i, fl_timed_routes_number(&routes, &route));
    }
    fl_route one = route_number(42), another = route_number(FL_TIMED_ROUTES);
    CHECK_NUMBER(42, fl_timed_routes_number(&routes, &one));
    CHECK_NUMBER(FL_TIMED_ROUTES, fl_timed_routes_number(&routes, &another));
    char text[FL_ROUTE_SIZE];
    CHECK(fl_timed_routes_text(&routes, 42, text));
    CHECK(strcmp(text, one.text) == 0);
}

static void counters_of_a_worker_that_has_ended_stay(void) {
    fl_shared_page *page = fl_shared_page_open(2);
    fl_slot_set(&page->slots[1], FL_SLOT_requests, 7);
    fl_slot_set(&page->slots[1], FL_SLOT_in_flight, 3);
    fl_slot_set(&page->slots[0], FL_SLOT_requests, 2);
    fl_request_times_add(&page->slots[1].times, FL_TIMED_ROUTES, 200, 10, 20, NULL);
    fl_request_times_add(&page->slots[0].times, FL_TIMED_ROUTES, 200, 10, 20, NULL);
    fl_shared_page_retire(page, 1);
    fl_shared_page_retire(page, 1);
    int64_t counters[FL_SLOT_FIELDS];
    fl_shared_page_counters(page, counters);
    CHECK_NUMBER(9, counters[FL_SLOT_requests]);
    CHECK_NUMBER(0, counters[FL_SLOT_in_flight]);
    CHECK_NUMBER(0, fl_slot_get(&page->slots[1], FL_SLOT_requests));
    fl_shared_page_times(page, -1, &times);
    CHECK_NUMBER(2, times.codes[1]);
    CHECK_NUMBER(40, times.routes[FL_TIMED_ROUTES].service.sum);
    fl_shared_page_times(page, 1, &times);
    CHECK_NUMBER(0, times.codes[1]);
    fl_shared_page_close(page);
}

static int64_t observations(const fl_histogram *histogram) {
    int64_t sum = 0;
    for (int i = 0; i < FL_BUCKETS; i++)
        sum += histogram->counts[i];
    return sum;
}

/* The first request is answered, the second rejected, and the third has a path that the app does not know. */
static void each_answer_counts_once(void) {
    peer_server server = server_start();
    fl_shared_page *page = fl_shared_page_open(1);
    int nobody[] = {-1};
    CHECK_NUMBER(FL_OK, fl_loop_join(server.loop, page, 0, -1, nobody, 1));
    const char *const requests[] = {"GET /orders/4711 HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/9\r\n\r\n",
                                    "GET /wp-admin HTTP/1.1\r\nHost: a\r\n\r\n"};
    const int codes[] = {200, 0, 404};
    for (int i = 0; i < 3; i++) {
        int socket = client(&server);
        send_text(socket, requests[i]);
        if (codes[i] == 0) {
            TURN_UNTIL(server.loop, server.loop->context.counts.refused == 1);
        } else {
            TURN_UNTIL(server.loop, server.loop->ready.count == 1);
            fl_exchange *exchange = fl_loop_take(server.loop);
            CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, codes[i]));
            CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, 0));
            if (i == 0)
                fl_exchange_mark_long_lived(exchange);
            fl_exchange_finish(exchange);
        }
        close(socket);
    }
    const fl_request_times *counted = &page->slots[0].times;
    CHECK_NUMBER(1, counted->codes[1]);
    CHECK_NUMBER(2, counted->codes[3] + counted->codes[4]);
    char text[FL_ROUTE_SIZE];
    CHECK(fl_timed_routes_text(&page->timed_routes, 0, text));
    CHECK(strcmp(text, "GET /orders/:id") == 0);
    CHECK(!fl_timed_routes_text(&page->timed_routes, 1, text));
    CHECK_NUMBER(1, observations(&counted->routes[0].service));
    CHECK_NUMBER(1, observations(&counted->routes[FL_TIMED_ROUTES].service));
    server_stop(&server);
    fl_shared_page_close(page);
}

int main(void) {
    TEST(a_time_counts_in_the_bucket_of_its_bound);
    TEST(a_route_keeps_its_number_and_the_hundred_first_is_other);
    TEST(counters_of_a_worker_that_has_ended_stay);
    TEST(each_answer_counts_once);
    return test_summary();
}
