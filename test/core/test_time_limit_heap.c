/* The heap of time limits: its order and its cost. */
#include "peer.h"

static int by_expiry(const void *one, const void *other) {
    const fl_exchange *a = *(fl_exchange *const *) one, *b = *(fl_exchange *const *) other;
    return a->timing.expires_at != b->timing.expires_at ? (a->timing.expires_at < b->timing.expires_at ? -1 : 1) : a->id < b->id ? -1 : 1;
}

static void limits_expire_in_order_after_any_changes(void) {
    enum { MANY = 2000, STAY = 1000 };
    peer_server server = server_start();
    static fl_exchange *exchanges[MANY];
    srand(1);
    for (int i = 0; i < MANY; i++) {
        exchanges[i] = fl_exchange_new(&server.loop->context, NULL);
        fl_exchange_set_time_limit(exchanges[i], SECOND + (uint64_t) (rand() % 500) * MILLISECOND);
        fl_exchange_set_time_limit(exchanges[rand() % (i + 1)], SECOND + (uint64_t) (rand() % 500) * MILLISECOND);
    }
    for (int i = STAY; i < MANY; i++) {
        if (i % 2 == 0)
            fl_exchange_set_time_limit(exchanges[i], 0);
        fl_exchange_free(exchanges[i]);
    }
    qsort(exchanges, STAY, sizeof *exchanges, by_expiry);
    for (int i = 0; i < STAY; i++) {
        CHECK(server.loop->context.time_limits == exchanges[i]);
        fl_exchange_free(exchanges[i]);
    }
    CHECK(server.loop->context.time_limits == NULL);
    server_stop(&server);
}

static uint64_t cpu_time_of_limits(fl_loop *loop) {
    enum { TIMES = 3000 };
    uint64_t least = UINT64_MAX;
    for (int round = 0; round < 3; round++) {
        struct timespec from, to;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
        for (int i = 0; i < TIMES; i++) {
            fl_exchange *exchange = fl_exchange_new(&loop->context, NULL);
            fl_exchange_set_time_limit(exchange, SECOND);
            fl_exchange_restart_time_limit(exchange);
            fl_exchange_free(exchange);
        }
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
        uint64_t took = (uint64_t) ((to.tv_sec - from.tv_sec) * 1000000 + (to.tv_nsec - from.tv_nsec) / 1000);
        least = took < least ? took : least;
    }
    return least;
}

static void the_cost_of_a_limit_does_not_depend_on_other_limits(void) {
    enum { OTHERS = 10000 };
    peer_server server = server_start();
    uint64_t alone = cpu_time_of_limits(server.loop);
    static fl_exchange *others[OTHERS];
    for (int i = 0; i < OTHERS; i++) {
        others[i] = fl_exchange_new(&server.loop->context, NULL);
        fl_exchange_free_head(others[i]);
        fl_exchange_set_time_limit(others[i], (uint64_t) (i % 2 == 0 ? 600 : 300) * SECOND);
    }
    uint64_t beside = cpu_time_of_limits(server.loop);
    if (beside > 4 * alone)
        test_fail(__FILE__, __LINE__, "%lu us beside others, %lu alone", (unsigned long) beside, (unsigned long) alone);
    for (int i = 0; i < OTHERS; i++) fl_exchange_free(others[i]);
    server_stop(&server);
}

int main(void) {
    TEST(limits_expire_in_order_after_any_changes);
    TEST(the_cost_of_a_limit_does_not_depend_on_other_limits);
    return test_summary();
}
