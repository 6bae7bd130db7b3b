/* How soon the watch thread knows that the reactor which leads has not come back, and why. One thread stands for it. */
#include "peer.h"
#include "watch/watch.h"

#include <pthread.h>
#include <sys/poll.h>

enum { TRIES = 11, NOTICED_WITHIN = 10 * MILLISECOND, PATIENCE = 300 * MILLISECOND };

/* As crew.rb has them. */
static const fl_watch_limits limits = {
    .tick = 2 * MILLISECOND, .blocked = 4 * MILLISECOND, .stuck = 7 * MILLISECOND, .computing = 60 * MILLISECOND};

typedef struct scene {
    fl_watch *watch;
    fl_thread thread;
    fl_stall kind; /* as what it shall be known */
    bool released, computes;
    int tries;
    uint64_t patience; /* 0: PATIENCE */
    uint64_t least; /* microseconds until it was, in the best of all tries: the machine may be busy */
    _Atomic bool entered, watched;
} scene;

static bool gives_sign;

static void press(void) {
    if (gives_sign)
        atomic_fetch_add(&fl_gvl_turns, 1);
}

static void set_gvl(fl_thread *thread, fl_gvl gvl) {
    atomic_store(&thread->gvl_since, fl_clock());
    atomic_store(&thread->gvl, gvl);
    if (gvl == FL_GVL_HELD)
        atomic_fetch_add(&fl_gvl_turns, 1);
    atomic_store(&fl_gvl_holder, gvl == FL_GVL_HELD ? thread : NULL);
}

static void pause_for(uint64_t microseconds) {
    struct timespec time = {.tv_sec = (time_t) (microseconds / SECOND), .tv_nsec = (long) (microseconds % SECOND) * 1000};
    nanosleep(&time, NULL);
}

static uint64_t time_until_known(scene *scene) {
    uint64_t began = fl_clock(), patience = scene->patience == 0 ? PATIENCE : scene->patience;
    while (atomic_load(&scene->watch->stall) != (int) scene->kind && fl_clock() < began + patience)
        if (!scene->computes)
            pause_for(200);
    return fl_clock() - began;
}

static void *reactor_runs(void *data) {
    scene *scene = data;
    fl_thread *thread = &scene->thread;
    thread->task = fl_task_self();
    set_gvl(thread, FL_GVL_HELD);
    fl_reactor *reactor = &scene->watch->reactors[fl_watch_enter(scene->watch, thread)];
    set_gvl(thread, FL_GVL_RELEASED);
    atomic_store(&scene->entered, true);
    while (!atomic_load(&scene->watched)) pause_for(MILLISECOND);
    for (int i = 0; i < scene->tries; i++) {
        set_gvl(thread, FL_GVL_HELD);
        fl_reactor_enters_app(reactor, fl_clock());
        fl_watch_attend(scene->watch);
        if (scene->released)
            set_gvl(thread, FL_GVL_RELEASED);
        uint64_t took = time_until_known(scene);
        scene->least = i == 0 || took < scene->least ? took : scene->least;
        fl_reactor_leaves_app(reactor);
        set_gvl(thread, FL_GVL_RELEASED);
        pause_for(10 * MILLISECOND);
    }
    return NULL;
}

/* Answers after how many microseconds. */
static uint64_t known_after(scene scene) {
    peer_server server = server_start();
    scene.watch = fl_watch_open(server.loop, &limits);
    scene.watch->press = press;
    pthread_t thread;
    pthread_create(&thread, NULL, reactor_runs, &scene);
    while (!atomic_load(&scene.entered)) pause_for(MILLISECOND);
    CHECK_NUMBER(0, fl_watch_start(scene.watch));
    atomic_store(&scene.watched, true);
    pthread_join(thread, NULL);
    fl_watch_close(scene.watch);
    server_stop(&server);
    return scene.least;
}

static void one_that_blocks_without_the_lock_is_known_within_ten_milliseconds(void) {
    CHECK(known_after((scene){.kind = FL_STALL_BLOCKED, .released = true, .tries = TRIES}) <= NOTICED_WITHIN);
}

static void one_that_sleeps_with_it_too(void) {
    CHECK(known_after((scene){.kind = FL_STALL_STUCK, .tries = TRIES}) <= NOTICED_WITHIN);
}

static void one_that_computes_too(void) {
    CHECK(known_after((scene){.kind = FL_STALL_COMPUTING, .computes = true, .tries = TRIES}) <= NOTICED_WITHIN);
}

static void one_that_computes_and_gives_no_sign_is_stuck_after_a_while(void) {
    /* It is given 60 ms of its own time, which on a busy machine is many of the clock. */
    uint64_t took = known_after((scene){.kind = FL_STALL_STUCK, .computes = true, .tries = 2, .patience = 5 * SECOND});
    CHECK(took > 110 * MILLISECOND);
    CHECK(took < 5 * SECOND);
}

static void one_that_gives_a_sign_when_asked_for_it_is_not(void) {
    gives_sign = true;
    CHECK(known_after((scene){.kind = FL_STALL_STUCK, .computes = true, .tries = 1}) >= PATIENCE);
}

static bool keeps_the_lead(bool at_home) {
    peer_server server = server_start();
    fl_watch *watch = fl_watch_open(server.loop, &limits);
    watch->press = press;
    gives_sign = true;
    fl_thread leader = {.task = fl_task_self()}, standby = leader, hog = leader;
    set_gvl(&standby, FL_GVL_RELEASED);
    set_gvl(&leader, FL_GVL_WANTED);
    CHECK_NUMBER(0, fl_watch_enter(watch, &leader));
    CHECK_NUMBER(1, fl_watch_enter(watch, &standby));
    set_gvl(&hog, FL_GVL_HELD);
    if (!at_home)
        fl_reactor_enters_app(&watch->reactors[0], fl_clock());
    fl_loop_want(server.loop);
    CHECK_NUMBER(0, fl_watch_start(watch));
    fl_watch_attend(watch);
    uint64_t give_up = fl_clock() + (at_home ? PATIENCE : 5 * SECOND);
    while (fl_clock() < give_up && fl_watch_leads(watch, 0)) continue;
    bool keeps = fl_watch_leads(watch, 0);
    fl_watch_close(watch);
    server_stop(&server);
    return keeps;
}

static void one_that_waits_for_the_lock_to_lead_keeps_the_lead_beside_one_that_computes(void) {
    CHECK(keeps_the_lead(true));
    CHECK(!keeps_the_lead(false));
}

static void a_standby_is_told_also_of_a_stall_that_begins_before_the_last_one_has_been_told(void) {
    peer_server server = server_start();
    fl_watch_limits telling = limits;
    telling.reported = 50 * MILLISECOND;
    fl_watch *watch = fl_watch_open(server.loop, &telling);
    fl_thread leader = {.task = fl_task_self()}, standby = leader;
    set_gvl(&leader, FL_GVL_RELEASED);
    set_gvl(&standby, FL_GVL_RELEASED);
    CHECK_NUMBER(0, fl_watch_enter(watch, &leader));
    CHECK_NUMBER(1, fl_watch_enter(watch, &standby));
    fl_stall_record *record = &watch->stalls[0];
    atomic_store(&record->began, 1);
    atomic_store(&record->phase, FL_STALL_OVER);
    fl_reactor_enters_app(&watch->reactors[0], fl_clock());
    CHECK_NUMBER(0, fl_watch_start(watch));
    fl_watch_attend(watch);
    uint64_t give_up = fl_clock() + 5 * SECOND;
    while (fl_clock() < give_up && fl_watch_leads(watch, 0)) continue;
    CHECK(!fl_watch_leads(watch, 0));
    CHECK(!fl_stall_has_standby(record));
    atomic_store(&record->phase, FL_STALL_CALM);
    while (fl_clock() < give_up && atomic_load(&record->phase) == FL_STALL_CALM) continue;
    CHECK(fl_stall_has_standby(record));
    fl_watch_close(watch);
    server_stop(&server);
}

static void nothing(void) {}

/* What becomes of the record of a reactor that is away for 500 ms, as a look each 10 ms finds it. Unless it computes, its
 * thread has used no CPU meanwhile, though it wanted to. */
static int phase_after(fl_gvl gvl, bool computes) {
    peer_server server = server_start();
    fl_watch_limits telling = limits;
    telling.reported = 50 * MILLISECOND;
    fl_watch *watch = fl_watch_open(server.loop, &telling);
    watch->interrupt = nothing;
    fl_thread thread = {.task = fl_task_self()}, other = thread;
    atomic_store(&other.watch, watch);
    CHECK_NUMBER(0, fl_watch_enter(watch, &thread));
    set_gvl(&thread, gvl);
    if (gvl != FL_GVL_HELD)
        set_gvl(&other, FL_GVL_HELD);
    uint64_t now = fl_clock();
    fl_reactor_enters_app(&watch->reactors[0], now);
    for (int i = 0; i < 50; i++) {
        uint64_t used = fl_task_clock(&thread.task) + 10 * MILLISECOND;
        while (computes && fl_task_clock(&thread.task) < used) continue;
        now = computes ? fl_clock() : now + 10 * MILLISECOND;
        fl_stalls_update(watch, now);
    }
    fl_reactor_leaves_app(&watch->reactors[0]);
    set_gvl(&thread, FL_GVL_RELEASED);
    fl_stalls_update(watch, now + MILLISECOND);
    int phase = atomic_load(&watch->stalls[0].phase);
    fl_watch_close(watch);
    server_stop(&server);
    return phase;
}

static void what_the_machine_or_another_reactor_takes_is_no_stall_of_a_request(void) {
    CHECK_NUMBER(FL_STALL_CALM, phase_after(FL_GVL_HELD, false));
    CHECK_NUMBER(FL_STALL_CALM, phase_after(FL_GVL_WANTED, false));
    CHECK_NUMBER(FL_STALL_OVER, phase_after(FL_GVL_HELD, true));
}

typedef struct restless {
    fl_watch *watch;
    fl_thread thread;
    _Atomic uint64_t ended; /* its last time out, but for the present one */
    _Atomic bool entered, over;
} restless;

static void *comes_and_goes(void *data) {
    restless *restless = data;
    restless->thread.task = fl_task_self();
    fl_reactor *reactor = &restless->watch->reactors[fl_watch_enter(restless->watch, &restless->thread)];
    atomic_store(&restless->entered, true);
    while (!atomic_load(&restless->over)) {
        fl_reactor_enters_app(reactor, fl_clock());
        (void) fl_clock();
        fl_reactor_leaves_app(reactor);
    }
    return NULL;
}

/* The one that leads blocks for ever; the other one goes out again and again. */
static bool is_told_that_it_leads(void) {
    peer_server server = server_start();
    fl_watch *watch = fl_watch_open(server.loop, &limits);
    fl_thread leader = {.task = fl_task_self()};
    restless other = {.watch = watch};
    set_gvl(&leader, FL_GVL_RELEASED);
    set_gvl(&other.thread, FL_GVL_RELEASED);
    CHECK_NUMBER(0, fl_watch_enter(watch, &leader));
    fl_reactor_enters_app(&watch->reactors[0], fl_clock());
    pthread_t thread;
    pthread_create(&thread, NULL, comes_and_goes, &other);
    while (!atomic_load(&other.entered)) pause_for(100);
    CHECK_NUMBER(0, fl_watch_start(watch));
    for (uint64_t give_up = fl_clock() + 5 * SECOND; fl_watch_leads(watch, 0) && fl_clock() < give_up;) pause_for(200);
    CHECK(fl_watch_leads(watch, 1));
    struct pollfd notifier = {.fd = watch->reactors[1].lead.read_end, .events = POLLIN};
    bool told = poll(&notifier, 1, 500) == 1;
    atomic_store(&other.over, true);
    pthread_join(thread, NULL);
    fl_watch_close(watch);
    server_stop(&server);
    return told;
}

static void whoever_gets_the_lead_is_told_also_if_it_goes_out_just_then(void) {
    bool told = true;
    for (int i = 0; told && i < 60; i++) told = is_told_that_it_leads();
    CHECK(told);
}

/* Its stamps are but numbers. */
static void *counts_its_times_out(void *data) {
    restless *restless = data;
    fl_reactor *reactor = &restless->watch->reactors[1];
    for (uint64_t time = 1; !atomic_load(&restless->over); time++) {
        fl_reactor_enters_app(reactor, time);
        fl_reactor_leaves_app(reactor);
        atomic_store(&restless->ended, time);
    }
    return NULL;
}

static void *leaves_in_vain(void *data) {
    restless *restless = data;
    while (!atomic_load(&restless->over)) (void) fl_watch_leave(restless->watch, 1);
    return NULL;
}

static bool is_away_since_this_time(void *(*how)(void *), uint64_t ended) {
    peer_server server = server_start();
    fl_watch *watch = fl_watch_open(server.loop, &limits);
    restless other = {.watch = watch, .ended = ended};
    for (int i = 0; i < 2; i++) CHECK_NUMBER(i, fl_watch_enter(watch, &other.thread));
    atomic_store(&watch->reactors[1].stamp, ended);
    atomic_store(&server.loop->lanes.running[1], 1);
    pthread_t thread;
    pthread_create(&thread, NULL, how, &other);
    bool right = true;
    for (uint64_t give_up = fl_clock() + 100 * MILLISECOND; right && fl_clock() < give_up;)
        for (int i = 0; right && i < 1000; i++) {
            uint64_t before = atomic_load(&other.ended), since = fl_watch_away_since(watch, 1);
            right = since == 0 || since > before;
        }
    atomic_store(&other.over, true);
    pthread_join(thread, NULL);
    fl_watch_close(watch);
    server_stop(&server);
    return right;
}

static void one_that_goes_out_has_not_been_away_since_it_last_did(void) {
    CHECK(is_away_since_this_time(counts_its_times_out, 0));
}

static void one_that_tries_to_leave_has_not_either(void) {
    CHECK(is_away_since_this_time(leaves_in_vain, 1));
}

static void the_place_of_one_that_leaves_is_free_once_its_thread_has_left_it(void) {
    peer_server server = server_start();
    fl_watch *watch = fl_watch_open(server.loop, &limits);
    fl_thread thread = {.task = fl_task_self()};
    for (int i = 0; i < 2; i++) CHECK_NUMBER(i, fl_watch_enter(watch, &thread));
    CHECK(fl_watch_leave(watch, 1));
    CHECK_NUMBER(2, fl_watch_enter(watch, &thread));
    fl_watch_vacate(watch, 1);
    CHECK_NUMBER(1, fl_watch_enter(watch, &thread));
    CHECK_NUMBER(3, fl_watch_enter(watch, &thread));
    CHECK(!fl_watch_leave(watch, 0)); /* it leads */
    fl_watch_close(watch);
    server_stop(&server);
}

int main(void) {
    TEST(one_that_blocks_without_the_lock_is_known_within_ten_milliseconds);
    TEST(one_that_sleeps_with_it_too);
    TEST(one_that_computes_too);
    TEST(one_that_computes_and_gives_no_sign_is_stuck_after_a_while);
    TEST(one_that_gives_a_sign_when_asked_for_it_is_not);
    TEST(one_that_waits_for_the_lock_to_lead_keeps_the_lead_beside_one_that_computes);
    TEST(a_standby_is_told_also_of_a_stall_that_begins_before_the_last_one_has_been_told);
    TEST(whoever_gets_the_lead_is_told_also_if_it_goes_out_just_then);
    TEST(one_that_goes_out_has_not_been_away_since_it_last_did);
    TEST(one_that_tries_to_leave_has_not_either);
    TEST(the_place_of_one_that_leaves_is_free_once_its_thread_has_left_it);
    TEST(what_the_machine_or_another_reactor_takes_is_no_stall_of_a_request);
    return test_summary();
}
