/* How soon the watch thread notices that the leading reactor is away, and why. One thread plays the reactor. */
#include "peer.h"
#include "watch/internal.h"

#include <pthread.h>
#include <sys/poll.h>

enum { NOTICED_WITHIN = 10 * MILLISECOND, PATIENCE = 300 * MILLISECOND, GUARD = 20 * SECOND };

/* As in reactor_group.rb. */
static const fl_watch_limits limits = {
    .tick = 2 * MILLISECOND, .blocked = 4 * MILLISECOND, .stuck = 7 * MILLISECOND, .computing = 60 * MILLISECOND};

typedef struct scene {
    fl_watch *watch;
    fl_thread thread;
    fl_stall kind; /* expected */
    bool released, computes;
    uint64_t patience; /* 0: PATIENCE */
    uint64_t least;    /* microseconds until it was noticed, in the best of all tries: the machine may be busy */
    uint64_t within;   /* tries end as soon as it is noticed so early; 0: there is one */
    _Atomic bool registered, watched;
} scene;

static bool answers;

static void request_yield(void) {
    if (answers)
        atomic_fetch_add(&fl_gvl_progress, 1);
}

static void set_gvl(fl_thread *thread, fl_gvl gvl) {
    atomic_store(&thread->gvl_since, fl_clock());
    atomic_store(&thread->gvl, gvl);
    if (gvl == FL_GVL_HELD)
        atomic_fetch_add(&fl_gvl_progress, 1);
    atomic_store(&fl_gvl_holder, gvl == FL_GVL_HELD ? thread : NULL);
}

static void pause_for(uint64_t microseconds) {
    struct timespec time = {.tv_sec = (time_t) (microseconds / SECOND), .tv_nsec = (long) (microseconds % SECOND) * 1000};
    nanosleep(&time, NULL);
}

static uint64_t time_until_noticed(scene *scene) {
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
    fl_reactor *reactor = &scene->watch->reactors[fl_watch_register(scene->watch, thread)];
    set_gvl(thread, FL_GVL_RELEASED);
    atomic_store(&scene->registered, true);
    while (!atomic_load(&scene->watched)) pause_for(MILLISECOND);
    uint64_t gives_up = fl_clock() + GUARD;
    scene->least = UINT64_MAX;
    do {
        set_gvl(thread, FL_GVL_HELD);
        fl_reactor_enters_app(reactor, fl_clock());
        fl_watch_wake(scene->watch);
        if (scene->released)
            set_gvl(thread, FL_GVL_RELEASED);
        uint64_t took = time_until_noticed(scene);
        scene->least = took < scene->least ? took : scene->least;
        fl_reactor_leaves_app(reactor);
        set_gvl(thread, FL_GVL_RELEASED);
        while (atomic_load(&scene->watch->stall) != FL_STALL_NONE && fl_clock() < gives_up) pause_for(MILLISECOND);
    } while (scene->least > scene->within && scene->within > 0 && fl_clock() < gives_up);
    return NULL;
}

/* Microseconds until the watch thread notices. */
static uint64_t noticed_after(scene scene) {
    peer_server server = server_start();
    scene.watch = fl_watch_open(server.loop, &limits);
    scene.watch->request_yield = request_yield;
    pthread_t thread;
    pthread_create(&thread, NULL, reactor_runs, &scene);
    while (!atomic_load(&scene.registered)) pause_for(MILLISECOND);
    CHECK_NUMBER(0, fl_watch_start(scene.watch));
    atomic_store(&scene.watched, true);
    pthread_join(thread, NULL);
    fl_watch_close(scene.watch);
    server_stop(&server);
    return scene.least;
}

static void a_reactor_that_blocks_without_the_gvl_is_noticed_within_ten_milliseconds(void) {
    CHECK(noticed_after((scene){.kind = FL_STALL_BLOCKED, .released = true, .within = NOTICED_WITHIN}) <= NOTICED_WITHIN);
}

static void a_reactor_that_sleeps_with_the_gvl_is_noticed_too(void) {
    CHECK(noticed_after((scene){.kind = FL_STALL_STUCK, .within = NOTICED_WITHIN}) <= NOTICED_WITHIN);
}

static void a_reactor_that_computes_is_noticed_too(void) {
    CHECK(noticed_after((scene){.kind = FL_STALL_COMPUTING, .computes = true, .within = NOTICED_WITHIN}) <= NOTICED_WITHIN);
}

static void a_reactor_that_computes_and_does_not_answer_is_stuck_after_a_while(void) {
    /* It has 60 ms of its own CPU time, which may be much longer on a busy machine. */
    uint64_t took = noticed_after((scene){.kind = FL_STALL_STUCK, .computes = true, .patience = GUARD});
    CHECK(took > 110 * MILLISECOND);
    CHECK(took < GUARD);
}

static void a_reactor_that_computes_and_answers_is_not_stuck(void) {
    answers = true;
    CHECK(noticed_after((scene){.kind = FL_STALL_STUCK, .computes = true}) >= PATIENCE);
}

static bool keeps_the_lead(bool in_loop) {
    peer_server server = server_start();
    fl_watch *watch = fl_watch_open(server.loop, &limits);
    watch->request_yield = request_yield;
    answers = true;
    fl_thread leader = {.task = fl_task_self()}, standby = leader, hog = leader;
    set_gvl(&standby, FL_GVL_RELEASED);
    set_gvl(&leader, FL_GVL_WANTED);
    CHECK_NUMBER(0, fl_watch_register(watch, &leader));
    CHECK_NUMBER(1, fl_watch_register(watch, &standby));
    set_gvl(&hog, FL_GVL_HELD);
    if (!in_loop)
        fl_reactor_enters_app(&watch->reactors[0], fl_clock());
    fl_loop_notify_driver(server.loop);
    CHECK_NUMBER(0, fl_watch_start(watch));
    fl_watch_wake(watch);
    uint64_t deadline = fl_clock() + (in_loop ? PATIENCE : GUARD);
    while (fl_clock() < deadline && fl_watch_leads(watch, 0)) continue;
    bool keeps = fl_watch_leads(watch, 0);
    fl_watch_close(watch);
    server_stop(&server);
    return keeps;
}

/* It has prepared its wait, and is about to release the GVL: nobody would show that it is idle until something comes. */
static void a_leader_that_has_just_returned_to_its_loop_stays_idle(void) {
    peer_server server = server_start();
    fl_shared_page *page = fl_shared_page_open(1);
    int nobody[] = {-1};
    CHECK_NUMBER(FL_OK, fl_loop_join(server.loop, page, 0, -1, nobody, 1));
    fl_watch *watch = fl_watch_open(server.loop, &limits);
    fl_thread leader = {.task = fl_task_self()};
    set_gvl(&leader, FL_GVL_HELD);
    CHECK_NUMBER(0, fl_watch_register(watch, &leader));
    fl_loop_prepare_wait(server.loop, true, false);
    fl_watch_relieve(watch, FL_STALL_STUCK, 50 * MILLISECOND, fl_clock());
    CHECK_NUMBER(1, fl_slot_get(&page->slots[0], FL_SLOT_idle));
    fl_reactor_enters_app(&watch->reactors[0], fl_clock());
    fl_watch_relieve(watch, FL_STALL_STUCK, 50 * MILLISECOND, fl_clock());
    CHECK_NUMBER(0, fl_slot_get(&page->slots[0], FL_SLOT_idle));
    set_gvl(&leader, FL_GVL_RELEASED);
    fl_watch_close(watch);
    server_stop(&server);
    fl_shared_page_close(page);
}

/* Its reactor retired while it was given the lead, and no other can take it. */
static void a_leader_that_has_retired_is_not_idle(void) {
    peer_server server = server_start();
    fl_shared_page *page = fl_shared_page_open(1);
    int nobody[] = {-1};
    CHECK_NUMBER(FL_OK, fl_loop_join(server.loop, page, 0, -1, nobody, 1));
    fl_watch *watch = fl_watch_open(server.loop, &limits);
    fl_thread blocked = {.task = fl_task_self()}, retired = blocked;
    CHECK_NUMBER(0, fl_watch_register(watch, &blocked));
    CHECK_NUMBER(1, fl_watch_register(watch, &retired));
    fl_reactor_enters_app(&watch->reactors[0], fl_clock());
    CHECK(fl_watch_retire(watch, 1));
    atomic_store(&watch->leader, 1);
    fl_loop_prepare_wait(server.loop, true, false); /* its scheduler has still gone round once */
    uint64_t away;
    CHECK_NUMBER(FL_STALL_BLOCKED, fl_watch_classify(watch, &watch->reactors[1], fl_clock(), &away));
    fl_watch_relieve(watch, FL_STALL_BLOCKED, away, fl_clock());
    CHECK(fl_watch_leads(watch, 1));
    CHECK_NUMBER(0, fl_slot_get(&page->slots[0], FL_SLOT_idle));
    fl_watch_close(watch);
    server_stop(&server);
    fl_shared_page_close(page);
}

/* It has prepared its wait, and another thread takes the GVL before it waits. Then it has it for a moment, and nothing comes. */
static void a_leader_that_had_to_wait_for_the_gvl_before_it_waits_is_idle_again(void) {
    peer_server server = server_start();
    fl_shared_page *page = fl_shared_page_open(1);
    int nobody[] = {-1};
    CHECK_NUMBER(FL_OK, fl_loop_join(server.loop, page, 0, -1, nobody, 1));
    fl_watch *watch = fl_watch_open(server.loop, &limits);
    fl_thread leader = {.task = fl_task_self()}, hog = leader;
    set_gvl(&leader, FL_GVL_HELD);
    CHECK_NUMBER(0, fl_watch_register(watch, &leader));
    fl_loop_prepare_wait(server.loop, true, false);
    set_gvl(&leader, FL_GVL_WANTED);
    set_gvl(&hog, FL_GVL_HELD);
    uint64_t away, now = fl_clock() + 5 * MILLISECOND;
    CHECK_NUMBER(FL_STALL_COMPUTING, fl_watch_classify(watch, &watch->reactors[0], now, &away));
    fl_watch_relieve(watch, FL_STALL_COMPUTING, away, now);
    CHECK_NUMBER(0, fl_slot_get(&page->slots[0], FL_SLOT_idle));
    set_gvl(&hog, FL_GVL_RELEASED);
    set_gvl(&leader, FL_GVL_RELEASED);
    CHECK_NUMBER(0, fl_watch_start(watch));
    for (uint64_t deadline = fl_clock() + GUARD; fl_slot_get(&page->slots[0], FL_SLOT_idle) == 0 && fl_clock() < deadline;)
        pause_for(200);
    CHECK_NUMBER(1, fl_slot_get(&page->slots[0], FL_SLOT_idle));
    fl_watch_close(watch);
    server_stop(&server);
    fl_shared_page_close(page);
}

static void a_leader_that_waits_for_the_gvl_keeps_the_lead(void) {
    CHECK(keeps_the_lead(true));
    CHECK(!keeps_the_lead(false));
}

static void a_standby_is_recorded_for_a_stall_that_begins_before_the_last_one_was_reported(void) {
    peer_server server = server_start();
    fl_watch_limits reporting = limits;
    reporting.reported = 50 * MILLISECOND;
    fl_watch *watch = fl_watch_open(server.loop, &reporting);
    fl_thread leader = {.task = fl_task_self()}, standby = leader;
    set_gvl(&leader, FL_GVL_RELEASED);
    set_gvl(&standby, FL_GVL_RELEASED);
    CHECK_NUMBER(0, fl_watch_register(watch, &leader));
    CHECK_NUMBER(1, fl_watch_register(watch, &standby));
    fl_stall_record *record = &watch->stalls[0];
    atomic_store(&record->began, 1);
    atomic_store(&record->phase, FL_STALL_OVER);
    fl_reactor_enters_app(&watch->reactors[0], fl_clock());
    CHECK_NUMBER(0, fl_watch_start(watch));
    fl_watch_wake(watch);
    uint64_t deadline = fl_clock() + GUARD;
    while (fl_clock() < deadline && fl_watch_leads(watch, 0)) continue;
    CHECK(!fl_watch_leads(watch, 0));
    CHECK(!fl_stall_has_standby(record));
    atomic_store(&record->phase, FL_STALL_CALM);
    while (fl_clock() < deadline && atomic_load(&record->phase) == FL_STALL_CALM) continue;
    CHECK(fl_stall_has_standby(record));
    fl_watch_close(watch);
    server_stop(&server);
}

/* The loop has not turned for a minute. Its connections cannot go to a sibling, as if they were encrypted. */
static void a_request_that_a_lost_worker_finds_is_not_late(void) {
    peer_server server = server_start();
    fl_transport_kind staying = fl_transport_plain;
    staying.raw = false;
    server.loop->accepting.listeners->transport = &staying;
    fl_shared_page *page = fl_shared_page_open(1);
    int none = -1, known = client(&server);
    CHECK_NUMBER(FL_OK, fl_loop_join(server.loop, page, 0, -1, &none, 1));
    send_text(known, GET("/first"));
    CHECK_NUMBER(1, answer_all(server.loop));
    CHECK_RECEIVED("HTTP/1.1 200 OK", "/first", receive(server.loop, known));

    fl_watch_limits losing = limits;
    losing.lost = MILLISECOND;
    losing.drain = 60 * SECOND;
    fl_watch *watch = fl_watch_open(server.loop, &losing);
    fl_thread thread = {.task = fl_task_self()};
    CHECK_NUMBER(0, fl_watch_register(watch, &thread));
    set_gvl(&thread, FL_GVL_HELD);
    fl_reactor_enters_app(&watch->reactors[0], fl_clock() - SECOND);
    server.loop->context.now -= 60 * SECOND;
    send_text(known, GET("/second"));
    fl_watch_report_loss(watch, fl_clock());
    CHECK_NUMBER(1, server.loop->ready.count);
    CHECK(fl_loop_wait(server.loop, 0));
    CHECK_NUMBER(1, answer_all(server.loop));
    CHECK_RECEIVED("HTTP/1.1 200 OK", "/second", receive(server.loop, known));
    set_gvl(&thread, FL_GVL_RELEASED);
    fl_watch_close(watch);
    close(known);
    server_stop(&server);
    fl_shared_page_close(page);
}

static void nothing(void) {}

/* The phase of the record of a reactor that is away for 500 ms, updated every 10 ms. Unless it computes, its thread gets no CPU
 * meanwhile. */
static int phase_after(fl_gvl gvl, bool computes) {
    peer_server server = server_start();
    fl_watch_limits reporting = limits;
    reporting.reported = 50 * MILLISECOND;
    fl_watch *watch = fl_watch_open(server.loop, &reporting);
    watch->request_backtrace = nothing;
    fl_thread thread = {.task = fl_task_self()}, other = thread;
    atomic_store(&other.watch, watch);
    CHECK_NUMBER(0, fl_watch_register(watch, &thread));
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

static void time_without_a_cpu_or_the_gvl_is_no_stall_of_a_request(void) {
    CHECK_NUMBER(FL_STALL_CALM, phase_after(FL_GVL_HELD, false));
    CHECK_NUMBER(FL_STALL_CALM, phase_after(FL_GVL_WANTED, false));
    CHECK_NUMBER(FL_STALL_OVER, phase_after(FL_GVL_HELD, true));
}

/* It has moved on since, perhaps: the look at its first moments tells little of a stall that lasts. */
static void the_backtrace_of_a_stall_is_asked_for_again_while_it_goes_on(void) {
    peer_server server = server_start();
    fl_watch_limits reporting = limits;
    reporting.reported = 100 * SECOND; /* so long that the machine's own pauses do not count */
    fl_watch *watch = fl_watch_open(server.loop, &reporting);
    CHECK(fl_notifier_open(&watch->reporter) >= 0);
    fl_thread thread = {.task = fl_task_self()};
    CHECK_NUMBER(0, fl_watch_register(watch, &thread));
    set_gvl(&thread, FL_GVL_RELEASED);
    uint64_t began = fl_clock(), asked = 0;
    int times = 0;
    fl_reactor_enters_app(&watch->reactors[0], began);
    fl_stall_record *record = &watch->stalls[0];
    for (int i = 1; i <= 1000; i++) {
        fl_stalls_update(watch, began + (uint64_t) i * 10 * SECOND);
        if (atomic_load(&record->asked) != asked)
            times++;
        asked = atomic_load(&record->asked);
        if (i == 4)
            CHECK_NUMBER(0, times);
        if (i == 25)
            CHECK_NUMBER(4, times);
    }
    CHECK(asked / SECOND > 7000);
    CHECK(times < 30);
    fl_reactor_leaves_app(&watch->reactors[0]);
    fl_watch_close(watch);
    server_stop(&server);
}

typedef struct restless {
    fl_watch *watch;
    fl_thread thread;
    _Atomic uint64_t ended; /* stamp of its last absence, before the current one */
    _Atomic bool registered, over;
} restless;

static void *comes_and_goes(void *data) {
    restless *restless = data;
    restless->thread.task = fl_task_self();
    fl_reactor *reactor = &restless->watch->reactors[fl_watch_register(restless->watch, &restless->thread)];
    atomic_store(&restless->registered, true);
    while (!atomic_load(&restless->over)) {
        fl_reactor_enters_app(reactor, fl_clock());
        (void) fl_clock();
        fl_reactor_leaves_app(reactor);
    }
    return NULL;
}

/* The leader blocks for ever; the other reactor leaves its loop again and again. */
static bool is_notified_of_the_lead(void) {
    peer_server server = server_start();
    fl_watch_limits reporting = limits;
    reporting.reported = 5 * SECOND;
    fl_watch *watch = fl_watch_open(server.loop, &reporting);
    fl_thread leader = {.task = fl_task_self()};
    restless other = {.watch = watch};
    set_gvl(&leader, FL_GVL_RELEASED);
    set_gvl(&other.thread, FL_GVL_RELEASED);
    CHECK_NUMBER(0, fl_watch_register(watch, &leader));
    fl_reactor_enters_app(&watch->reactors[0], fl_clock());
    pthread_t thread;
    pthread_create(&thread, NULL, comes_and_goes, &other);
    while (!atomic_load(&other.registered)) pause_for(100);
    CHECK_NUMBER(0, fl_watch_start(watch));
    for (uint64_t deadline = fl_clock() + GUARD; fl_watch_leads(watch, 0) && fl_clock() < deadline;) pause_for(200);
    CHECK(fl_watch_leads(watch, 1));
    struct pollfd lead = {.fd = watch->reactors[1].lead.read_end, .events = POLLIN};
    bool notified = poll(&lead, 1, 20000) == 1;
    pthread_mutex_lock(&server.loop->context.lock); /* with which the lead was passed */
    CHECK(fl_stall_has_standby(&watch->stalls[0]));
    pthread_mutex_unlock(&server.loop->context.lock);
    atomic_store(&other.over, true);
    pthread_join(thread, NULL);
    fl_watch_close(watch);
    server_stop(&server);
    return notified;
}

static void a_new_leader_is_notified_even_if_it_has_just_left_its_loop(void) {
    bool notified = true;
    for (int i = 0; notified && i < 60; i++) notified = is_notified_of_the_lead();
    CHECK(notified);
}

/* Stamps are consecutive numbers here. */
static void *counts_absences(void *data) {
    restless *restless = data;
    fl_reactor *reactor = &restless->watch->reactors[1];
    for (uint64_t time = 1; !atomic_load(&restless->over); time++) {
        fl_reactor_enters_app(reactor, time);
        fl_reactor_leaves_app(reactor);
        atomic_store(&restless->ended, time);
    }
    return NULL;
}

static void *fails_to_retire(void *data) {
    restless *restless = data;
    while (!atomic_load(&restless->over)) (void) fl_watch_retire(restless->watch, 1);
    return NULL;
}

static bool absence_begins_anew(void *(*how)(void *), uint64_t ended) {
    peer_server server = server_start();
    fl_watch *watch = fl_watch_open(server.loop, &limits);
    restless other = {.watch = watch, .ended = ended};
    for (int i = 0; i < 2; i++) CHECK_NUMBER(i, fl_watch_register(watch, &other.thread));
    atomic_store(&watch->reactors[1].stamp, ended);
    atomic_store(&server.loop->lanes.running[1], 1);
    pthread_t thread;
    pthread_create(&thread, NULL, how, &other);
    bool right = true;
    for (uint64_t deadline = fl_clock() + 100 * MILLISECOND; right && fl_clock() < deadline;)
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

static void an_absence_begins_when_the_reactor_leaves_its_loop(void) {
    CHECK(absence_begins_anew(counts_absences, 0));
}

static void an_absence_begins_anew_when_a_reactor_fails_to_retire(void) {
    CHECK(absence_begins_anew(fails_to_retire, 1));
}

static void an_entry_is_free_once_its_reactor_has_unregistered(void) {
    peer_server server = server_start();
    fl_watch *watch = fl_watch_open(server.loop, &limits);
    fl_thread thread = {.task = fl_task_self()};
    for (int i = 0; i < 2; i++) CHECK_NUMBER(i, fl_watch_register(watch, &thread));
    CHECK(fl_watch_retire(watch, 1));
    CHECK_NUMBER(2, fl_watch_register(watch, &thread));
    fl_watch_unregister(watch, 1);
    CHECK_NUMBER(1, fl_watch_register(watch, &thread));
    CHECK_NUMBER(3, fl_watch_register(watch, &thread));
    CHECK(!fl_watch_retire(watch, 0)); /* it leads */
    fl_watch_close(watch);
    server_stop(&server);
}

int main(void) {
    TEST(a_reactor_that_blocks_without_the_gvl_is_noticed_within_ten_milliseconds);
    TEST(a_reactor_that_sleeps_with_the_gvl_is_noticed_too);
    TEST(a_reactor_that_computes_is_noticed_too);
    TEST(a_reactor_that_computes_and_does_not_answer_is_stuck_after_a_while);
    TEST(a_reactor_that_computes_and_answers_is_not_stuck);
    TEST(a_leader_that_has_just_returned_to_its_loop_stays_idle);
    TEST(a_leader_that_has_retired_is_not_idle);
    TEST(a_leader_that_had_to_wait_for_the_gvl_before_it_waits_is_idle_again);
    TEST(a_leader_that_waits_for_the_gvl_keeps_the_lead);
    TEST(a_standby_is_recorded_for_a_stall_that_begins_before_the_last_one_was_reported);
    TEST(a_new_leader_is_notified_even_if_it_has_just_left_its_loop);
    TEST(an_absence_begins_when_the_reactor_leaves_its_loop);
    TEST(an_absence_begins_anew_when_a_reactor_fails_to_retire);
    TEST(an_entry_is_free_once_its_reactor_has_unregistered);
    TEST(a_request_that_a_lost_worker_finds_is_not_late);
    TEST(time_without_a_cpu_or_the_gvl_is_no_stall_of_a_request);
    TEST(the_backtrace_of_a_stall_is_asked_for_again_while_it_goes_on);
    return test_summary();
}
