/* Two workers and a lane worker in one process, without Ruby: each has a loop, a watch thread, and reactors that come and go, and that
 * stall at random in the three ways in which an app can. They hand over requests, and real clients get one response for each. The second
 * test has a short time limit: some requests get 504, or 503 when their worker is given up; in the third a worker drains. `make tsan` runs
 * them under ThreadSanitizer. FL_SECONDS=… and FL_SEED=… prolong or vary a run. */
#include "watch/balance.h"
#include "peer.h"
#include "watch/watch.h"

#include <sys/poll.h>

enum { WORKERS = 3, LANE_WORKER = 2, ROUTES = 8, REACTORS = 3, CLIENTS = 4, SOCKETS = 4, MAX_REQUESTS = 400000 };

/* `gvl` plays the GVL of the worker: one reactor runs at a time. */
typedef struct worker {
    fl_loop *loop;
    fl_watch *watch;
    pthread_mutex_t gvl;
    pthread_t threads[REACTORS], reporter;
    _Atomic int entered;
} worker;

typedef struct place {
    worker *worker;
    int index;
} place;

static worker workers[WORKERS];
static fl_shared_page *page;
static fl_run runs[WORKERS][FL_MAX_REACTORS]; /* a reactor has one fiber here */
static int workers_lane_running[WORKERS][FL_MAX_REACTORS];
static int port, supervisor[2];
static _Atomic bool over, quiet;
static _Atomic unsigned answered_times[MAX_REQUESTS];
static _Atomic unsigned asked, received, lost, wrong, reported, misreported, backtraces, too_long, left;
static fl_limits limits;
static fl_watch_limits watch_limits;
static uint64_t end_at, first_seed = 1;
static bool drains; /* the first worker, in the middle */

static unsigned dice(uint64_t *state, unsigned sides) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (unsigned) (*state >> 11) % sides;
}

static void acquire(worker *worker, fl_thread *thread) {
    atomic_store(&thread->gvl_since, fl_clock());
    atomic_store(&thread->gvl, FL_GVL_WANTED);
    fl_watch_wake(worker->watch);
    pthread_mutex_lock(&worker->gvl);
    atomic_store(&thread->gvl_since, fl_clock());
    atomic_store(&thread->gvl, FL_GVL_HELD);
    atomic_store(&fl_gvl_holder, thread);
}

static void release(worker *worker, fl_thread *thread) {
    fl_thread *expected = thread;
    atomic_store(&thread->gvl_since, fl_clock());
    atomic_store(&thread->gvl, FL_GVL_RELEASED);
    atomic_compare_exchange_strong(&fl_gvl_holder, &expected, NULL);
    pthread_mutex_unlock(&worker->gvl);
}

static void compute(unsigned microseconds) {
    for (uint64_t end = fl_clock() + microseconds; fl_clock() < end;) {}
}

static void pause_for(unsigned microseconds) {
    struct timespec time = {.tv_nsec = (long) microseconds * 1000};
    nanosleep(&time, NULL);
}

static void stall(worker *worker, fl_thread *thread, uint64_t *state) {
    switch (atomic_load(&quiet) ? 99 : dice(state, 40)) {
    case 0:
    case 1:
        release(worker, thread);
        pause_for(1000 + dice(state, 60000));
        acquire(worker, thread);
        break;
    case 2:
        pause_for(1000 + dice(state, 100000));
        break;
    case 3:
        compute(1000 + dice(state, 40000));
        break;
    default:
        compute(dice(state, 200));
    }
}

static void answer_one(fl_loop *loop, fl_exchange *exchange, unsigned number) {
    char body[32];
    size_t used, size = (size_t) snprintf(body, sizeof body, "%u", number);
    /* Stages the head with the GVL only, like the binding. */
    fl_status begun = fl_exchange_begin(exchange, 200);
    fl_exchange_header(exchange, "content-type", 12, "text/plain", 10);
    pthread_mutex_lock(&loop->context.lock);
    if (begun == FL_OK && fl_exchange_head_end(exchange, (int64_t) size) == FL_OK &&
        fl_exchange_write(exchange, body, size, &used) == FL_OK)
        fl_exchange_finish(exchange);
    else
        fl_exchange_abandon(exchange);
    pthread_mutex_unlock(&loop->context.lock);
}

static bool serve_one(worker *worker, fl_thread *thread, fl_reactor *reactor, int number, uint64_t *state) {
    fl_loop *loop = worker->loop;
    pthread_mutex_lock(&loop->context.lock);
    fl_exchange *exchange = NULL;
    if (fl_watch_leads(worker->watch, number))
        exchange = fl_loop_take(loop);
    else if (fl_watch_in_lane(worker->watch, number))
        exchange = fl_loop_take_from_lane(loop, number, !fl_watch_leader_wants_gvl(worker->watch));
    if (exchange != NULL)
        fl_run_begin(&runs[worker - workers][number], exchange);
    pthread_mutex_unlock(&loop->context.lock);
    if (exchange == NULL)
        return false;
    atomic_store(&reactor->run, &runs[worker - workers][number]);
    fl_reactor_enters_app(reactor, fl_clock());
    unsigned request = (unsigned) atoi(fl_exchange_head_bytes(exchange) + exchange->request.head->path.at + 1);
    pthread_mutex_lock(&loop->context.lock);
    fl_exchange_release_head(exchange);
    pthread_mutex_unlock(&loop->context.lock);
    atomic_fetch_add(&answered_times[request], 1);
    stall(worker, thread, state);
    answer_one(loop, exchange, request);
    return true;
}

/* Waits for something to do: the leader in the loop, others for the lead. */
static void wait_for_work(worker *worker, fl_thread *thread, fl_reactor *reactor, int number) {
    fl_loop *loop = worker->loop;
    bool leads = fl_watch_leads(worker->watch, number);
    uint32_t takeable = 0;
    if (leads) {
        pthread_mutex_lock(&loop->context.lock);
        takeable = fl_loop_turn(loop);
        while (fl_context_next_woken(&loop->context) != 0) {}
        while (fl_context_next_expired(&loop->context) != 0) {}
        pthread_mutex_unlock(&loop->context.lock);
    }
    if (takeable > 0)
        return;
    fl_reactor_leaves_app(reactor);
    pthread_mutex_lock(&loop->context.lock);
    leads = fl_watch_leads(worker->watch, number);
    fl_loop_prepare_wait(loop, leads, false);
    pthread_mutex_unlock(&loop->context.lock);
    release(worker, thread);
    if (leads) {
        fl_loop_wait(loop, 10 * SECOND);
    } else {
        struct pollfd lead = {.fd = reactor->lead.read_end, .events = POLLIN};
        uint64_t count;
        poll(&lead, 1, 200);
        (void) !read(reactor->lead.read_end, &count, sizeof count);
    }
    acquire(worker, thread);
    if (leads && !fl_watch_leads(worker->watch, number))
        fl_loop_wake(loop);
}

static void *reactor_runs(void *data) {
    place *place = data;
    worker *worker = place->worker;
    uint64_t state = first_seed * 77 + (uint64_t) (worker - workers) * 10 + (uint64_t) place->index + 1;
    fl_thread *thread = calloc(1, sizeof *thread);
    thread->task = fl_task_self();
    acquire(worker, thread);
    int number = fl_watch_register(worker->watch, thread);
    fl_reactor *reactor = &worker->watch->reactors[number];
    atomic_fetch_add(&worker->entered, 1);
    while (!atomic_load(&over)) {
        if (serve_one(worker, thread, reactor, number, &state))
            continue;
        wait_for_work(worker, thread, reactor, number);
        if (dice(&state, 20) == 0 && fl_watch_retire(worker->watch, number)) { /* and registers anew */
            fl_watch_unregister(worker->watch, number);
            number = fl_watch_register(worker->watch, thread);
            reactor = &worker->watch->reactors[number];
            atomic_fetch_add(&left, 1);
        }
    }
    fl_reactor_leaves_app(reactor);
    release(worker, thread);
    return thread;
}

/* Reads the records of stalls, like the binding's reporter. */
static void *reporter_runs(void *data) {
    fl_watch *watch = ((worker *) data)->watch;
    while (!atomic_load(&over)) {
        struct pollfd news = {.fd = watch->reporter.read_end, .events = POLLIN};
        uint64_t count;
        poll(&news, 1, 100);
        (void) !read(watch->reporter.read_end, &count, sizeof count);
        for (int i = 0; i < atomic_load(&watch->count); i++) {
            fl_stall_record *record = &watch->stalls[i];
            (void) fl_stall_goes_on(watch, i);
            if (atomic_load(&record->phase) != FL_STALL_OVER)
                continue;
            if (fl_stall_lasted(record) < watch->limits.reported || fl_stall_kind(record) == FL_STALL_NONE)
                atomic_fetch_add(&misreported, 1);
            atomic_fetch_add(&reported, 1);
            fl_stall_reported(record);
        }
    }
    return NULL;
}

static void request_backtrace(void) {
    atomic_fetch_add(&backtraces, 1);
}

/* A client: sends requests on several connections, and checks that each gets its own response. */

static bool read_answer(int socket, unsigned number) {
    char bytes[1024], expected[32];
    size_t size = 0;
    int end = snprintf(expected, sizeof expected, "\r\n\r\n%u", number);
    for (uint64_t deadline = fl_clock() + 20 * SECOND; fl_clock() < deadline;) {
        struct pollfd readable = {.fd = socket, .events = POLLIN};
        poll(&readable, 1, 1000);
        ssize_t count = recv(socket, bytes + size, sizeof bytes - 1 - size, MSG_DONTWAIT);
        if (count == 0)
            break;
        if (count < 0)
            continue;
        size += (size_t) count;
        bytes[size] = '\0';
        char *body = strstr(bytes, "\r\n\r\n");
        char *length = strstr(bytes, "content-length: ");
        if (body == NULL || length == NULL || strlen(body + 4) < (size_t) atoi(length + 16))
            continue;
        atomic_fetch_add(&received, 1);
        if (limits.request_timeout != 0 && (strstr(bytes, " 504 ") != NULL || strstr(bytes, " 503 ") != NULL)) {
            atomic_fetch_add(&too_long, 1);
            return false;
        }
        if ((int) strlen(body) != end || strcmp(body, expected) != 0)
            atomic_fetch_add(&wrong, 1);
        return !drains || strstr(bytes, "connection: close") == NULL; /* the other worker was stuck when this one drained */
    }
    atomic_fetch_add(&lost, 1);
    return false;
}

static bool ask(int socket, unsigned number, uint64_t *state) {
    static const char filling[3000] = {'x'};
    char head[128];
    unsigned size = dice(state, 4) == 0 ? dice(state, sizeof filling) : 0;
    int route = 'a' + (int) dice(state, ROUTES);
    int length = size == 0 ? snprintf(head, sizeof head, "GET /%u/%c HTTP/1.1\r\nHost: a\r\n\r\n", number, route)
                           : snprintf(head, sizeof head, "POST /%u/%c HTTP/1.1\r\nHost: a\r\nContent-Length: %u\r\n\r\n",
                                      number, route, size);
    return send(socket, head, (size_t) length, MSG_NOSIGNAL) == length &&
           (size == 0 || send(socket, filling, size, MSG_NOSIGNAL) == (ssize_t) size);
}

/* On a busy machine it takes longer until the lane worker has got a request. */
static bool goes_on(void) {
    uint64_t now = fl_clock();
    return now < end_at || (now < end_at + 40 * SECOND &&
                            fl_slot_get(&page->slots[LANE_WORKER], FL_SLOT_lane_requests) == 0);
}

static void *client_runs(void *data) {
    uint64_t state = first_seed * 1000 + (uint64_t) (uintptr_t) data + 1;
    peer_server server = {.port = port};
    int sockets[SOCKETS];
    unsigned numbers[SOCKETS];
    for (int i = 0; i < SOCKETS; i++) sockets[i] = -1;
    while (goes_on()) {
        for (int i = 0; i < SOCKETS; i++) {
            if (sockets[i] < 0)
                sockets[i] = client(&server);
            numbers[i] = atomic_fetch_add(&asked, 1);
            if (numbers[i] >= MAX_REQUESTS)
                abort();
            if (!ask(sockets[i], numbers[i], &state))
                atomic_fetch_add(&lost, 1);
        }
        for (int i = 0; i < SOCKETS; i++)
            if (!read_answer(sockets[i], numbers[i]) || dice(&state, 30) == 0) {
                close(sockets[i]);
                sockets[i] = -1;
            }
        if (dice(&state, 200) == 0)
            pause_for(dice(&state, 300000)); /* so that the reactors wait, too */
    }
    for (int i = 0; i < SOCKETS; i++)
        if (sockets[i] >= 0)
            close(sockets[i]);
    return NULL;
}

static void open_workers(int listening, int ends[WORKERS][2]) {
    int sending[WORKERS];
    page = fl_shared_page_open(WORKERS);
    atomic_store(&page->max_lanes, 1);
    for (int i = 0; i < WORKERS; i++) {
        if (socketpair(AF_UNIX, FL_PACKETS, 0, ends[i]) < 0)
            abort();
        sending[i] = ends[i][1];
    }
    for (int i = 0; i < WORKERS; i++) {
        worker *each = &workers[i];
        each->loop = fl_loop_open(&limits);
        pthread_mutex_init(&each->gvl, NULL);
        CHECK_NUMBER(FL_OK, fl_loop_listen(each->loop, listening, false));
        fl_slot_set(&page->slots[i], FL_SLOT_lane, i == LANE_WORKER);
        CHECK_NUMBER(FL_OK, fl_loop_join(each->loop, page, i, ends[i][0], sending, WORKERS));
        each->watch = fl_watch_open(each->loop, &watch_limits);
        each->watch->supervisor = supervisor[1];
        CHECK_NUMBER(0, fl_notifier_open(&each->watch->reporter));
        each->watch->request_backtrace = request_backtrace;
        strcpy(each->watch->relief_request, "relief\n");
        strcpy(each->watch->lane_request, "lane\n");
        fl_slot_set(&page->slots[i], FL_SLOT_state, FL_WORKER_SERVING);
    }
}

static void start_reactors(place places[WORKERS][REACTORS]) {
    for (int i = 0; i < WORKERS; i++)
        for (int k = 0; k < REACTORS; k++) {
            places[i][k] = (place){&workers[i], k};
            pthread_create(&workers[i].threads[k], NULL, reactor_runs, &places[i][k]);
            while (atomic_load(&workers[i].entered) <= k) pause_for(1000);
            if (k == 0)
                fl_watch_start(workers[i].watch); /* the others register while the watch thread runs */
        }
    for (int i = 0; i < WORKERS; i++)
        pthread_create(&workers[i].reporter, NULL, reporter_runs, &workers[i]);
}

static void end_workers(int ends[WORKERS][2]) {
    atomic_store(&over, true);
    for (int i = 0; i < WORKERS; i++)
        for (int k = 0; k < REACTORS; k++) {
            void *thread;
            fl_loop_wake(workers[i].loop);
            pthread_join(workers[i].threads[k], &thread);
        }
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(workers[i].reporter, NULL);
        for (int k = 0; k < FL_MAX_REACTORS; k++)
            workers_lane_running[i][k] = atomic_load(&workers[i].loop->lanes.running[k]);
        fl_watch_close(workers[i].watch);
        fl_loop_close(workers[i].loop);
        close(ends[i][0]);
        close(ends[i][1]);
    }
}

/* Its connections go to the other worker, while requests go on. */
static void drain_one(void) {
    worker *worker = &workers[0];
    while (fl_clock() < end_at - SECOND) pause_for(1000);
    fl_slot_set(&page->slots[0], FL_SLOT_state, FL_WORKER_DRAINING);
    pthread_mutex_lock(&worker->loop->context.lock);
    fl_loop_drain(worker->loop, true);
    pthread_mutex_unlock(&worker->loop->context.lock);
}

static int64_t total(fl_slot_field field) {
    int64_t sum = 0;
    for (int i = 0; i < WORKERS; i++) sum += fl_slot_get(&page->slots[i], field);
    return sum;
}

static void run(void) {
    int ends[WORKERS][2];
    place places[WORKERS][REACTORS];
    pthread_t clients[CLIENTS];
    memset(workers, 0, sizeof workers);
    for (unsigned i = 0; i < atomic_load(&asked); i++) atomic_store(&answered_times[i], 0);
    asked = received = lost = wrong = too_long = reported = misreported = backtraces = left = 0;
    over = quiet = false;
    const char *seconds = getenv("FL_SECONDS"), *seed = getenv("FL_SEED");
    if (seed != NULL)
        first_seed = strtoull(seed, NULL, 10);
    end_at = fl_clock() + (seconds == NULL ? 4 : (uint64_t) atoi(seconds)) * SECOND;
    peer_server server = server_start(); /* only its socket is used: nothing turns its loop */
    port = server.port;
    fl_loop_close(server.loop);
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, supervisor) < 0)
        abort();
    open_workers(server.listening, ends);
    start_reactors(places);
    for (int i = 0; i < CLIENTS; i++) pthread_create(&clients[i], NULL, client_runs, (void *) (uintptr_t) i);
    if (drains)
        drain_one();
    for (int i = 0; i < CLIENTS; i++) pthread_join(clients[i], NULL);
    atomic_store(&quiet, true);
    /* A request that has timed out runs on when its client has gone. */
    for (uint64_t deadline = fl_clock() + 20 * SECOND; fl_clock() < deadline; pause_for(5000))
        if (total(FL_SLOT_connections) + total(FL_SLOT_queued) + total(FL_SLOT_in_flight) == 0)
            break;
    CHECK_NUMBER(0, total(FL_SLOT_connections));
    CHECK_NUMBER(0, total(FL_SLOT_queued));
    CHECK_NUMBER(0, total(FL_SLOT_in_flight));
    end_workers(ends);

    unsigned times_wrong = 0;
    for (unsigned i = 0; i < atomic_load(&asked); i++) times_wrong += atomic_load(&answered_times[i]) != 1;
    CHECK_NUMBER(0, times_wrong);
    CHECK_NUMBER(0, atomic_load(&lost));
    CHECK_NUMBER(0, atomic_load(&wrong));
    CHECK_NUMBER(atomic_load(&asked), atomic_load(&received));
    CHECK(atomic_load(&asked) > 100);
    /* Each way around a stall was used. */
    CHECK(total(FL_SLOT_standbys) > 0);
    CHECK(total(FL_SLOT_handed) > 0);
    CHECK_NUMBER(total(FL_SLOT_handed), total(FL_SLOT_received));
    CHECK(fl_slot_get(&page->slots[LANE_WORKER], FL_SLOT_lane_requests) > 0);
    CHECK(total(FL_SLOT_lane_requests) > fl_slot_get(&page->slots[LANE_WORKER], FL_SLOT_lane_requests));
    for (int i = 0; i < WORKERS; i++)
        for (int k = 0; k < FL_MAX_REACTORS; k++) CHECK_NUMBER(0, workers_lane_running[i][k]);
    CHECK(atomic_load(&left) > 0);
    /* Stalls were reported, and only long ones. */
    CHECK(atomic_load(&reported) > 0);
    CHECK(atomic_load(&backtraces) > 0);
    CHECK_NUMBER(0, atomic_load(&misreported));
    printf("%u requests, %lld leads for standbys, %lld hand-overs, %lld requests in lanes, %u stalls reported\n",
           atomic_load(&asked), (long long) total(FL_SLOT_standbys), (long long) total(FL_SLOT_handed),
           (long long) total(FL_SLOT_lane_requests), atomic_load(&reported));
}

static void each_request_is_answered_once_whoever_stalls(void) {
    limits = peer_limits;
    watch_limits = (fl_watch_limits){.tick = 2000, .blocked = 4000, .stuck = 8000, .computing = 20000, .reported = 5000};
    run();
    CHECK_NUMBER(0, atomic_load(&too_long));
}

static void each_request_is_answered_once_or_ended(void) {
    limits = peer_limits;
    limits.request_timeout = 8 * MILLISECOND;
    watch_limits.lost = 12 * MILLISECOND;
    watch_limits.drain = 8 * MILLISECOND;
    run();
    CHECK(atomic_load(&too_long) > 0);
    char message[2048];
    bool loss_reported = false;
    while (recv(supervisor[0], message, sizeof message, MSG_DONTWAIT) > 0) loss_reported |= strncmp(message, "[\"stuck\"", 8) == 0;
    CHECK(loss_reported);
    printf("%u requests timed out\n", atomic_load(&too_long));
}

static void each_request_is_answered_once_while_a_worker_drains(void) {
    limits = peer_limits;
    watch_limits = (fl_watch_limits){.tick = 2000, .blocked = 4000, .stuck = 8000, .computing = 20000, .reported = 5000};
    drains = true;
    run();
    CHECK_NUMBER(0, atomic_load(&too_long));
}

int main(void) {
    TEST(each_request_is_answered_once_whoever_stalls);
    TEST(each_request_is_answered_once_or_ended);
    TEST(each_request_is_answered_once_while_a_worker_drains);
    return test_summary();
}
