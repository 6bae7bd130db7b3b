/* The order of waiting requests: by their arrival, here or at the sibling that handed them over. */
#include "loop/internal.h"
#include "peer.h"

#include <time.h>

enum { OURS = 20000, GIVEN = 10000 };

static fl_connection nobody; /* shared by all: nothing reads it */

static void enqueue(fl_loop *loop, uint64_t at) {
    fl_exchange *exchange = fl_exchange_new(&loop->context, &nobody);
    exchange->queueing.ready_at = at;
    fl_loop_enqueue(exchange);
}

static void drop(fl_exchange *exchange) {
    fl_loop_dequeue(exchange);
    fl_exchange_free(exchange);
}

static uint64_t cpu_time(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t) time.tv_sec * 1000000 + (uint64_t) time.tv_nsec / 1000;
}

/* Inserts GIVEN requests. The oldest leaves the queue after every `taken_every`. */
static uint64_t cpu_time_of_given(fl_loop *loop, uint64_t first, uint64_t step, int taken_every) {
    uint64_t began = cpu_time();
    for (int i = 0; i < GIVEN; i++) {
        enqueue(loop, first + step * (uint64_t) i);
        if (i % taken_every == 0)
            drop(loop->ready.first);
    }
    return cpu_time() - began;
}

static void check_order(fl_loop *loop) {
    bool in_order = true;
    for (fl_exchange *exchange = loop->ready.first; exchange->next != NULL; exchange = exchange->next)
        in_order &= exchange->queueing.ready_at <= exchange->next->queueing.ready_at && exchange->next->previous == exchange;
    CHECK(in_order);
}

static void inserting_requests_of_a_sibling_costs_the_same_however_many_wait(void) {
    peer_server server = server_start();
    fl_loop *loop = server.loop;
    uint64_t at_end = cpu_time_of_given(loop, 1, 1, 3);
    for (int i = 0; i < OURS; i++) enqueue(loop, 1000000 + (uint64_t) i * 1000);
    struct { uint64_t first, step; int taken_every; } cases[] = {
        {100000, 1, 3}, {1000000, 700, 3}, {900000, 1, 1}, {5000000, 1, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t between = cpu_time_of_given(loop, cases[i].first, cases[i].step, cases[i].taken_every);
        if (between > 6 * at_end)
            test_fail(__FILE__, __LINE__, "case %zu: %lu us among others, %lu at the end", i, (unsigned long) between,
                      (unsigned long) at_end);
        check_order(loop);
    }
    while (loop->ready.first != NULL) drop(loop->ready.first);
    CHECK(loop->ready.inserted == NULL && loop->ready.last == NULL);

    server_stop(&server);
}

static void requests_stay_in_order_whatever_comes_and_goes(void) {
    peer_server server = server_start();
    srand(1);
    for (int i = 0; i < 5000; i++) {
        enqueue(server.loop, (uint64_t) (1 + rand() % 1000));
        fl_exchange *exchange = server.loop->ready.first;
        for (int steps = rand() % 5; steps > 0 && exchange->next != NULL; steps--) exchange = exchange->next;
        if (rand() % 3 == 0)
            drop(rand() % 2 == 0 ? exchange : server.loop->ready.last);
        if (server.loop->ready.first != NULL && i % 50 == 0)
            check_order(server.loop);
    }
    while (server.loop->ready.first != NULL) drop(server.loop->ready.last);
    CHECK(server.loop->ready.inserted == NULL && server.loop->ready.first == NULL);
    server_stop(&server);
}

int main(void) {
    TEST(inserting_requests_of_a_sibling_costs_the_same_however_many_wait);
    TEST(requests_stay_in_order_whatever_comes_and_goes);
    return test_summary();
}
