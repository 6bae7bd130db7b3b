/* Who computes first where more workers do than there are processors. */
#include "siblings.h"
#include "processors.h"

enum { ORDINARY = 20 * MILLISECOND, LONGER_THAN_ORDINARY = 61 * MILLISECOND };

/* One sibling more than there are processors, so that those after the first take all of them. */
static scene begin_crowded(void) {
    scene scene = begin(more_than_processors() + 1);
    scene.loop->ordinary_computation = ORDINARY;
    says(&scene, 1, FL_SLOT_idle, 1);
    return scene;
}

static void sibling_waits(scene *scene, uint64_t since) {
    says(scene, 1, FL_SLOT_idle, 0);
    says(scene, 1, FL_SLOT_oldest_us, (int64_t) since);
    says(scene, 1, FL_SLOT_steps_back, 1);
}

static int64_t steps_back(scene *scene, int sibling) {
    return fl_slot_get(&scene->page->slots[sibling], FL_SLOT_steps_back);
}

static bool takes(scene *scene) {
    fl_exchange *exchange = fl_loop_take(scene->loop);
    if (exchange != NULL)
        answer(exchange, 200, "");
    return exchange != NULL;
}

static void one_that_finds_no_processor_steps_back(void) {
    scene scene = begin_crowded();
    come(&scene, 1);
    CHECK(!takes(&scene));
    CHECK_NUMBER(1, steps_back(&scene, OURS));
    CHECK_NUMBER(0, fl_loop_takeable(scene.loop)); /* its driver rests */
    end(&scene);
}

static void it_goes_on_once_there_is_one(void) {
    scene scene = begin_crowded();
    come(&scene, 1);
    CHECK(!takes(&scene));
    says(&scene, 2, FL_SLOT_idle, 1);
    turn(scene.loop);
    CHECK_NUMBER(0, fl_loop_takeable(scene.loop));
    fl_processors_look(scene.loop);
    CHECK(fl_loop_wait(scene.loop, SECOND));
    CHECK_NUMBER(1, fl_loop_takeable(scene.loop));
    CHECK(takes(&scene));
    CHECK_NUMBER(0, steps_back(&scene, OURS));
    end(&scene);
}

static void it_goes_on_at_once_when_it_is_given_a_turn(void) {
    scene scene = begin_crowded();
    come(&scene, 1);
    CHECK(!takes(&scene));
    says(&scene, OURS, FL_SLOT_steps_back, 0); /* all others still compute */
    CHECK_NUMBER(1, fl_loop_takeable(scene.loop));
    CHECK(takes(&scene));
    end(&scene);
}

static void who_has_waited_longer_goes_first(void) {
    scene scene = begin_crowded();
    says(&scene, 2, FL_SLOT_idle, 1);
    sibling_waits(&scene, fl_clock());
    come(&scene, 1);
    CHECK(!takes(&scene));
    CHECK_NUMBER(0, steps_back(&scene, 1));
    CHECK_TEXT("?", sent_to(&scene, 1)); /* a message without a request: it is roused */
    CHECK_NUMBER(1, steps_back(&scene, OURS));
    end(&scene);
}

static void who_has_waited_less_does_not(void) {
    scene scene = begin_crowded();
    says(&scene, 2, FL_SLOT_idle, 1);
    come(&scene, 1);
    sibling_waits(&scene, fl_clock() + 1);
    CHECK(takes(&scene));
    CHECK_NUMBER(1, steps_back(&scene, 1));
    end(&scene);
}

static void one_that_has_nothing_left_gives_its_turn_away(void) {
    scene scene = begin_crowded();
    says(&scene, 2, FL_SLOT_idle, 1);
    come(&scene, 1);
    CHECK(takes(&scene));
    sibling_waits(&scene, fl_clock());
    fl_loop_rest(scene.loop);
    CHECK_NUMBER(0, steps_back(&scene, 1));
    sibling_waits(&scene, fl_clock());
    fl_loop_rest(scene.loop);
    CHECK_NUMBER(1, steps_back(&scene, 1)); /* it had but one */
    end(&scene);
}

static void nobody_waits_for_one_that_computes_for_unusually_long(void) {
    scene scene = begin_crowded();
    come(&scene, 1);
    says(&scene, 2, FL_SLOT_stall, FL_STALL_COMPUTING);
    says(&scene, 2, FL_SLOT_away_us, (int64_t) (fl_clock() - LONGER_THAN_ORDINARY));
    CHECK(takes(&scene));
    end(&scene);
}

static void nor_for_one_that_steps_back_too(void) {
    scene scene = begin_crowded();
    come(&scene, 1);
    says(&scene, 2, FL_SLOT_steps_back, 1);
    says(&scene, 2, FL_SLOT_oldest_us, (int64_t) (fl_clock() + 1));
    CHECK(takes(&scene));
    CHECK_NUMBER(1, steps_back(&scene, 2));
    end(&scene);
}

static void nor_for_one_that_blocks_or_is_silent(void) {
    int64_t stalls[] = {FL_STALL_BLOCKED, FL_STALL_STUCK};
    for (int i = 0; i < 2; i++) {
        scene scene = begin_crowded();
        come(&scene, 1);
        says(&scene, 2, FL_SLOT_stall, stalls[i]);
        CHECK(takes(&scene));
        end(&scene);
    }
    scene scene = begin_crowded();
    come(&scene, 1);
    says(&scene, 2, FL_SLOT_heartbeat_ms, (int64_t) (fl_clock() / 1000) - 1000);
    CHECK(takes(&scene));
    end(&scene);
}

/* All siblings but two compute, each on a processor of its own: the last one is left, on which we may run. */
static bool begin_beside(scene *scene, int *left) {
    *scene = begin_crowded();
    says(scene, 2, FL_SLOT_idle, 1);
    for (int i = 3; i < scene->count; i++) says(scene, i, FL_SLOT_processor, i - 2);
    come(scene, 1);
    *left = scene->count - 2;
    return scene->count > 3 && fl_task_move(fl_task_self().id, *left - 1) && fl_task_move(fl_task_self().id, 0);
}

static int64_t processor(scene *scene, int sibling) {
    return fl_slot_get(&scene->page->slots[sibling], FL_SLOT_processor);
}

static void who_begins_beside_a_sibling_goes_where_none_computes(void) {
    scene scene;
    int left;
    if (begin_beside(&scene, &left)) {
        CHECK(takes(&scene));
        CHECK_NUMBER(left, processor(&scene, OURS));
        fl_loop_rest(scene.loop);
        CHECK_NUMBER(0, processor(&scene, OURS));
    }
    end(&scene);
}

static void one_of_two_that_share_a_processor_goes_where_one_is_left(void) {
    scene scene;
    int left;
    if (begin_beside(&scene, &left)) {
        CHECK(takes(&scene));
        says(&scene, 2, FL_SLOT_idle, 0);
        says(&scene, 2, FL_SLOT_processor, processor(&scene, 3));
        says(&scene, 3, FL_SLOT_task, fl_task_self().id);
        fl_loop_rest(scene.loop);
        CHECK_NUMBER(left, processor(&scene, 3));
        CHECK_NUMBER(1, processor(&scene, 2));
    }
    end(&scene);
}

static void nobody_moves_one_that_is_being_moved(void) {
    scene scene;
    int left;
    if (begin_beside(&scene, &left)) {
        CHECK(takes(&scene));
        says(&scene, 2, FL_SLOT_idle, 0);
        says(&scene, 2, FL_SLOT_processor, processor(&scene, 3));
        says(&scene, 3, FL_SLOT_task, -1);
        fl_loop_rest(scene.loop);
        CHECK_NUMBER(1, processor(&scene, 3));
        CHECK_NUMBER(-1, fl_slot_get(&scene.page->slots[3], FL_SLOT_task));
    }
    end(&scene);
}

static void short_requests_take_no_turns(void) {
    scene scene = begin_crowded();
    come(&scene, 2);
    scene.loop->ordinary_computation = MILLISECOND;
    CHECK(takes(&scene));
    scene.loop->ordinary_computation = ORDINARY;
    scene.loop->take_interval = MILLISECOND;
    CHECK(takes(&scene));
    end(&scene);
}

int main(void) {
    TEST(one_that_finds_no_processor_steps_back);
    TEST(it_goes_on_once_there_is_one);
    TEST(it_goes_on_at_once_when_it_is_given_a_turn);
    TEST(who_has_waited_longer_goes_first);
    TEST(who_has_waited_less_does_not);
    TEST(one_that_has_nothing_left_gives_its_turn_away);
    TEST(nobody_waits_for_one_that_computes_for_unusually_long);
    TEST(nor_for_one_that_steps_back_too);
    TEST(nor_for_one_that_blocks_or_is_silent);
    TEST(who_begins_beside_a_sibling_goes_where_none_computes);
    TEST(one_of_two_that_share_a_processor_goes_where_one_is_left);
    TEST(nobody_moves_one_that_is_being_moved);
    TEST(short_requests_take_no_turns);
    return test_summary();
}
