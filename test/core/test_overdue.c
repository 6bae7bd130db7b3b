/* Which call of a request whose time is up counts as one that holds the GVL. One thread sleeps in it, another computes. */
#include "overdue.h"
#include "peer.h"

#include <pthread.h>

enum { LOOK = 5 * MILLISECOND };

static const fl_watch_limits limits = {.tick = 2 * MILLISECOND, .computing = 60 * MILLISECOND};

typedef struct scene {
    peer_server server;
    fl_watch *watch;
    fl_reactor *reactor;
    fl_thread thread;
    fl_run run;
    pthread_t id;
    bool computes;
    _Atomic bool is_there, ends;
} scene;

static unsigned pressed;

static void press(void) {
    pressed++;
}

static void pause_for(uint64_t microseconds) {
    nanosleep(&(struct timespec){.tv_nsec = (long) microseconds * 1000}, NULL);
}

static void *reactor_runs(void *data) {
    scene *scene = data;
    scene->thread.task = fl_task_self();
    atomic_store(&scene->is_there, true);
    while (!atomic_load(&scene->ends))
        if (!scene->computes)
            pause_for(50 * MILLISECOND);
    return NULL;
}

/* A request runs in its reactor, which has the GVL, and its time is up. */
static void begin(scene *scene) {
    scene->server = server_start();
    scene->watch = fl_watch_open(scene->server.loop, &limits);
    scene->watch->press = press;
    pthread_create(&scene->id, NULL, reactor_runs, scene);
    while (!atomic_load(&scene->is_there)) pause_for(MILLISECOND);
    scene->reactor = &scene->watch->reactors[fl_watch_enter(scene->watch, &scene->thread)];
    fl_reactor_goes_out(scene->reactor, fl_clock());
    atomic_store(&scene->run.overdue, true);
    atomic_store(&scene->reactor->run, &scene->run);
    atomic_fetch_add(&fl_gvl_turns, 1);
    atomic_store(&fl_gvl_holder, &scene->thread);
    pressed = 0;
}

static void end(scene *scene) {
    atomic_store(&scene->ends, true);
    pthread_join(scene->id, NULL);
    atomic_store(&fl_gvl_holder, NULL);
    fl_watch_close(scene->watch);
    server_stop(&scene->server);
}

static void look(scene *scene, int times) {
    for (int i = 0; i < times; i++) {
        fl_overdue_look(scene->watch, fl_clock());
        pause_for(LOOK);
    }
}

static bool returns(scene *scene) {
    return fl_overdue_returns(scene->reactor, atomic_load(&fl_gvl_turns));
}

/* A busy machine may not let the other thread go to sleep for long. */
static bool returns_soon(scene *scene) {
    for (uint64_t give_up = fl_clock() + 5 * SECOND; !returns(scene) && fl_clock() < give_up;) look(scene, 1);
    return returns(scene);
}

static void one_that_sleeps_with_the_lock_is_told_as_it_returns(void) {
    scene scene = {0};
    begin(&scene);
    look(&scene, 1);
    CHECK_NUMBER(1, pressed);
    CHECK(!returns(&scene)); /* it may have come back before it was asked for a sign */
    CHECK(returns_soon(&scene));
    end(&scene);
}

static void the_mark_is_worth_nothing_after_the_first_sign_and_in_another_fiber(void) {
    scene scene = {0};
    begin(&scene);
    CHECK(returns_soon(&scene));
    atomic_fetch_add(&fl_gvl_turns, 1);
    CHECK(!returns(&scene));
    CHECK(returns_soon(&scene));
    fl_reactor_goes_out(scene.reactor, fl_clock());
    CHECK(!returns(&scene));
    end(&scene);
}

static void one_that_computes_is_not_told_before_it_counts_as_c_code(void) {
    scene scene = {.computes = true};
    begin(&scene);
    look(&scene, 5);
    CHECK(!returns(&scene));
    scene.watch->kept = true;
    look(&scene, 1);
    CHECK(returns(&scene));
    end(&scene);
}

static void who_is_in_time_or_at_home_is_left_alone(void) {
    scene scene = {0};
    begin(&scene);
    atomic_store(&scene.run.overdue, false);
    look(&scene, 3);
    atomic_store(&scene.run.overdue, true);
    fl_reactor_comes_home(scene.reactor);
    look(&scene, 3);
    CHECK_NUMBER(0, pressed);
    CHECK(!returns(&scene));
    end(&scene);
}

int main(void) {
    TEST(one_that_sleeps_with_the_lock_is_told_as_it_returns);
    TEST(the_mark_is_worth_nothing_after_the_first_sign_and_in_another_fiber);
    TEST(one_that_computes_is_not_told_before_it_counts_as_c_code);
    TEST(who_is_in_time_or_at_home_is_left_alone);
    return test_summary();
}
