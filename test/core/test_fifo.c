/* The order of requests that wait: by when they came, here or in the sibling that gave them. */
#include "loop/parts.h"
#include "peer.h"

#include <time.h>

enum { OURS = 20000, GIVEN = 10000 };

static fl_connection nobody; /* of all of them: nothing is read of it */

static void come(fl_loop *loop, uint64_t at) {
    fl_exchange *exchange = fl_exchange_new(&loop->context, &nobody);
    exchange->queueing.ready_at = at;
    fl_loop_enqueue(exchange);
}

static void leave(fl_exchange *exchange) {
    fl_loop_dequeue(exchange);
    fl_exchange_free(exchange);
}

static uint64_t cpu_time(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t) time.tv_sec * 1000000 + (uint64_t) time.tv_nsec / 1000;
}

/* Each time at the end the oldest is given to somebody else. */
static uint64_t cpu_time_of_given(fl_loop *loop, uint64_t first, uint64_t step, int taken_in) {
    uint64_t began = cpu_time();
    for (int i = 0; i < GIVEN; i++) {
        come(loop, first + step * (uint64_t) i);
        if (i % taken_in == 0)
            leave(loop->ready.first);
    }
    return cpu_time() - began;
}

static void check_order(fl_loop *loop) {
    bool in_order = true;
    for (fl_exchange *exchange = loop->ready.first; exchange->next != NULL; exchange = exchange->next)
        in_order &= exchange->queueing.ready_at <= exchange->next->queueing.ready_at && exchange->next->previous == exchange;
    CHECK(in_order);
}

static void those_of_a_sibling_cost_the_same_however_many_wait(void) {
    peer_server server = server_start();
    fl_loop *loop = server.loop;
    uint64_t at_end = cpu_time_of_given(loop, 1, 1, 3);
    for (int i = 0; i < OURS; i++) come(loop, 1000000 + (uint64_t) i * 1000);
    struct { uint64_t first, step; int taken_in; } cases[] = {
        {100000, 1, 3}, {1000000, 700, 3}, {900000, 1, 1}, {5000000, 1, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t between = cpu_time_of_given(loop, cases[i].first, cases[i].step, cases[i].taken_in);
        if (between > 6 * at_end)
            test_fail(__FILE__, __LINE__, "case %zu: %lu us among others, %lu at the end", i, (unsigned long) between,
                      (unsigned long) at_end);
        check_order(loop);
    }
    while (loop->ready.first != NULL) leave(loop->ready.first);
    CHECK(loop->ready.inserted == NULL && loop->ready.last == NULL);

    server_stop(&server);
}

static void any_order_of_coming_and_going_leaves_them_in_order(void) {
    peer_server server = server_start();
    srand(1);
    for (int i = 0; i < 5000; i++) {
        come(server.loop, (uint64_t) (1 + rand() % 1000));
        fl_exchange *exchange = server.loop->ready.first;
        for (int steps = rand() % 5; steps > 0 && exchange->next != NULL; steps--) exchange = exchange->next;
        if (rand() % 3 == 0)
            leave(rand() % 2 == 0 ? exchange : server.loop->ready.last);
        if (server.loop->ready.first != NULL && i % 50 == 0)
            check_order(server.loop);
    }
    while (server.loop->ready.first != NULL) leave(server.loop->ready.last);
    CHECK(server.loop->ready.inserted == NULL && server.loop->ready.first == NULL);
    server_stop(&server);
}

int main(void) {
    TEST(those_of_a_sibling_cost_the_same_however_many_wait);
    TEST(any_order_of_coming_and_going_leaves_them_in_order);
    return test_summary();
}
