/* Two workers in one process, without Ruby, for which one processor is left: they pass it to each other as requests come,
 * and as nothing is left to do, and a thread of each looks for one now and then, as its watch thread does. Made to run under
 * ThreadSanitizer: make tsan. FL_SECONDS=… prolongs a run. */
#include "processors.h"
#include "siblings.h"

#include <pthread.h>
#include <sys/poll.h>

enum { WORKERS = 2, CONNECTIONS = 3, COMPUTES = 5 * MILLISECOND, PAUSE_MOST = 12 * MILLISECOND };

typedef struct worker {
    fl_loop *loop;
    int clients[CONNECTIONS];
    pthread_t driver, looker, asker;
    unsigned asked, answered, stepped_back, went_on;
} worker;

static worker workers[WORKERS];
static _Atomic bool asks, over;

static void pause_for(uint64_t microseconds) {
    struct timespec time = {.tv_nsec = (long) microseconds * 1000};
    nanosleep(&time, NULL);
}

static void compute(void) {
    for (uint64_t end = fl_clock() + COMPUTES; fl_clock() < end;) {}
}

static void *drives(void *data) {
    worker *worker = data;
    fl_loop *loop = worker->loop;
    while (!atomic_load(&over)) {
        pthread_mutex_lock(&loop->lock);
        fl_loop_turn(loop);
        bool waited = atomic_load(&loop->claim) == FL_CLAIM_WAITS;
        fl_exchange *exchange = fl_loop_take(loop);
        bool waits = atomic_load(&loop->claim) == FL_CLAIM_WAITS;
        worker->stepped_back += !waited && waits;
        worker->went_on += waited && exchange != NULL;
        if (exchange == NULL)
            fl_loop_rest(loop);
        pthread_mutex_unlock(&loop->lock);
        if (exchange == NULL) {
            fl_loop_wait(loop, SECOND);
            continue;
        }
        compute();
        pthread_mutex_lock(&loop->lock);
        answer(exchange, 200, "");
        pthread_mutex_unlock(&loop->lock);
    }
    return NULL;
}

/* What the watch thread does about it. */
static void *looks(void *data) {
    fl_loop *loop = ((worker *) data)->loop;
    while (!atomic_load(&over)) {
        pause_for(2 * MILLISECOND);
        if (atomic_load(&loop->claim) != FL_CLAIM_WAITS || pthread_mutex_trylock(&loop->lock) != 0)
            continue;
        fl_processors_look(loop);
        pthread_mutex_unlock(&loop->lock);
    }
    return NULL;
}

static bool is_answered(int client) {
    char bytes[512];
    struct pollfd readable = {.fd = client, .events = POLLIN};
    return poll(&readable, 1, 10000) == 1 && recv(client, bytes, sizeof bytes, 0) > 0;
}

static void *asks_again(void *data) {
    worker *worker = data;
    unsigned state = 7 + (unsigned) (worker - workers);
    while (atomic_load(&asks)) {
        for (int i = 0; i < CONNECTIONS; i++) say(worker->clients[i], "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        worker->asked += CONNECTIONS;
        for (int i = 0; i < CONNECTIONS; i++) worker->answered += is_answered(worker->clients[i]);
        state = state * 1103515245 + 12345;
        pause_for((state >> 8) % PAUSE_MOST); /* so that each has nothing to do at times */
    }
    return NULL;
}

/* As many siblings as take the other processors, of which nothing is there but their figures. */
static void open_workers(fl_shared_page *page, int count, int ends[][2], peer_server servers[WORKERS]) {
    int sending[FL_MOST_SIBLINGS];
    for (int i = 0; i < count; i++) {
        if (socketpair(AF_UNIX, FL_PACKETS, 0, ends[i]) < 0)
            abort();
        sending[i] = client_socket(ends[i][1]);
        client_socket(ends[i][0]);
        fl_slot_set(&page->slots[i], FL_SLOT_state, FL_WORKER_SERVING);
        if (i >= WORKERS)
            fl_slot_set(&page->slots[i], FL_SLOT_heartbeat_ms, INT64_MAX / 2000);
    }
    for (int i = 0; i < WORKERS; i++) {
        servers[i] = server_start();
        worker *worker = &workers[i];
        worker->loop = servers[i].loop;
        CHECK_NUMBER(FL_OK, fl_loop_join(worker->loop, page, i, ends[i][0], sending, count));
        worker->loop->ordinary_computation = worker->loop->take_interval = COMPUTES;
        for (int k = 0; k < CONNECTIONS; k++) worker->clients[k] = narrow_client(&servers[i]);
    }
}

static void two_pass_one_processor_to_each_other(void) {
    const char *seconds = getenv("FL_SECONDS");
    int count = more_than_processors(), ends[FL_MOST_SIBLINGS][2];
    peer_server servers[WORKERS];
    fl_shared_page *page = fl_shared_page_open((size_t) count);
    open_workers(page, count, ends, servers);
    atomic_store(&asks, true);
    for (int i = 0; i < WORKERS; i++) {
        worker *worker = &workers[i];
        pthread_create(&worker->driver, NULL, drives, worker);
        pthread_create(&worker->looker, NULL, looks, worker);
        pthread_create(&worker->asker, NULL, asks_again, worker);
    }
    struct timespec time = {.tv_sec = seconds == NULL ? 2 : atoi(seconds)};
    nanosleep(&time, NULL);
    atomic_store(&asks, false);
    for (int i = 0; i < WORKERS; i++) pthread_join(workers[i].asker, NULL);
    atomic_store(&over, true);
    for (int i = 0; i < WORKERS; i++) {
        worker *worker = &workers[i];
        fl_loop_wake(worker->loop);
        pthread_join(worker->driver, NULL);
        pthread_join(worker->looker, NULL);
        CHECK(worker->asked > 20);
        CHECK_NUMBER(worker->asked, worker->answered);
        CHECK(worker->stepped_back > 0);
        CHECK(worker->went_on > 0);
        printf("%u requests, stepped back %u times\n", worker->asked, worker->stepped_back);
        for (int k = 0; k < CONNECTIONS; k++) close(worker->clients[k]);
        server_stop(&servers[i]);
    }
    for (int i = 0; i < count; i++) {
        close(ends[i][0]);
        close(ends[i][1]);
    }
    fl_shared_page_close(page);
}

int main(void) {
    TEST(two_pass_one_processor_to_each_other);
    return test_summary();
}
