/* Which request goes to which sibling. */
#include "watch/balance.h"
#include "siblings.h"

static void an_idle_sibling_gets_the_oldest(void) {
    scene scene = begin(2);
    says(&scene, 1, FL_SLOT_idle, 1);
    come(&scene, 3);
    CHECK_NUMBER(2, fl_balance(scene.loop, false, 0));
    CHECK_TEXT("1", sent_to(&scene, 1));
    end(&scene);
}

static void who_leaves_keeps_none_for_itself(void) {
    scene scene = begin(2);
    says(&scene, 1, FL_SLOT_idle, 1);
    come(&scene, 1);
    fl_loop_drain(scene.loop, true);
    CHECK_NUMBER(0, fl_balance(scene.loop, false, 0));
    CHECK_TEXT("1", sent_to(&scene, 1));
    end(&scene);
}

static void who_has_no_more_time_gives_all_away_or_refuses_it(void) {
    scene scene = begin(2);
    come(&scene, 2);
    fl_loop_drain(scene.loop, true);
    fl_loop_give_up(scene.loop);
    CHECK_TEXT("21", sent_to(&scene, 1)); /* it puts them in order */
    CHECK_NUMBER(0, scene.loop->context.counts.refused);
    says(&scene, 1, FL_SLOT_state, FL_WORKER_DRAINING);
    come(&scene, 2);
    fl_loop_give_up(scene.loop);
    CHECK_TEXT("", sent_to(&scene, 1));
    CHECK_NUMBER(2, scene.loop->context.counts.refused);
    end(&scene);
}

static void a_busy_sibling_gets_the_second_oldest_if_that_is_older_than_its_own(void) {
    scene scene = begin(2);
    come(&scene, 3);
    uint64_t second = scene.loop->ready.first->next->queueing.ready_at;
    says(&scene, 1, FL_SLOT_queued, 1);
    says(&scene, 1, FL_SLOT_oldest_us, (int64_t) (second + USUAL));
    CHECK_NUMBER(3, fl_balance(scene.loop, false, 0)); /* by no more than a request takes: chance */
    says(&scene, 1, FL_SLOT_oldest_us, (int64_t) (second + USUAL + 1));
    CHECK_NUMBER(2, fl_balance(scene.loop, false, 0));
    CHECK_TEXT("2", sent_to(&scene, 1));
    end(&scene);
}

static void where_requests_differ_the_margin_is_wider(void) {
    scene scene = begin(2);
    come(&scene, 2);
    scene.loop->pace.deviation = 10 * MILLISECOND;
    uint64_t second = scene.loop->ready.first->next->queueing.ready_at;
    says(&scene, 1, FL_SLOT_queued, 1);
    says(&scene, 1, FL_SLOT_oldest_us, (int64_t) (second + USUAL + 30 * MILLISECOND));
    CHECK_NUMBER(2, fl_balance(scene.loop, false, 0));
    says(&scene, 1, FL_SLOT_oldest_us, (int64_t) (second + USUAL + 30 * MILLISECOND + 1));
    CHECK_NUMBER(1, fl_balance(scene.loop, false, 0));
    end(&scene);
}

static void behind_an_unusually_long_one_the_oldest_goes(void) {
    scene scene = begin(2);
    come(&scene, 2);
    CHECK_NUMBER(1, fl_balance(scene.loop, false, 4 * USUAL + 6 * MILLISECOND));
    CHECK_TEXT("1", sent_to(&scene, 1));
    end(&scene);
}

static void of_two_that_are_long_away_the_later_does_not_give_back(void) {
    scene scene = begin(2);
    come(&scene, 1);
    uint64_t away = 10 * USUAL, now = scene.loop->context.now;
    says(&scene, 1, FL_SLOT_away_us, (int64_t) (now - away - MILLISECOND)); /* before ours */
    CHECK_NUMBER(1, fl_balance(scene.loop, false, away));
    says(&scene, 1, FL_SLOT_away_us, (int64_t) (now - away + MILLISECOND));
    CHECK_NUMBER(0, fl_balance(scene.loop, false, away));
    end(&scene);
}

static void one_where_more_are_at_work_gets_what_has_waited_for_a_while(void) {
    scene scene = begin(2);
    come(&scene, 3);
    says(&scene, 1, FL_SLOT_in_flight, 7);
    scene.loop->context.counts.streams = 100; /* whose end nobody waits for */
    scene.loop->context.counts.in_flight = 3;
    CHECK_NUMBER(3, fl_balance(scene.loop, false, 0));
    scene.loop->context.counts.in_flight = 4;
    CHECK_NUMBER(2, fl_balance(scene.loop, false, 0));
    CHECK_NUMBER(2, fl_balance(scene.loop, false, 0)); /* one is on its way there */
    scene.loop->context.now = scene.loop->ready.first->queueing.ready_at + 20 * MILLISECOND;
    says(&scene, 1, FL_SLOT_in_flight, 1000);
    says(&scene, 1, FL_SLOT_incoming_requests, 0);
    CHECK_NUMBER(1, fl_balance(scene.loop, false, 0));
    scene.loop->context.counts.in_flight = scene.loop->context.counts.streams = 0;
    end(&scene);
}

static void a_stuck_worker_gives_all_to_who_has_least(void) {
    scene scene = begin(3);
    says(&scene, 1, FL_SLOT_queued, 2);
    come(&scene, 5);
    CHECK_NUMBER(0, fl_balance(scene.loop, true, 0));
    CHECK_TEXT("35", sent_to(&scene, 1)); /* those on their way count */
    CHECK_TEXT("124", sent_to(&scene, 2));
    end(&scene);
}

static void who_is_stuck_silent_or_leaving_gets_nothing(void) {
    scene scene = begin(5);
    says(&scene, 1, FL_SLOT_stall, FL_STALL_STUCK);
    says(&scene, 2, FL_SLOT_state, FL_WORKER_DRAINING);
    says(&scene, 3, FL_SLOT_heartbeat_ms, (int64_t) (fl_clock() / 1000) - 1000);
    says(&scene, 4, FL_SLOT_lane, 1);
    come(&scene, 3);
    CHECK_NUMBER(3, fl_balance(scene.loop, true, 0));
    for (int i = 1; i < scene.count; i++) CHECK_TEXT("", sent_to(&scene, i));
    end(&scene);
}

static void one_that_has_been_around_stays(void) {
    scene scene = begin(2);
    come(&scene, 2);
    scene.loop->ready.first->queueing.hand_overs = 3;
    CHECK_NUMBER(1, fl_balance(scene.loop, true, 0));
    CHECK_TEXT("2", sent_to(&scene, 1));
    end(&scene);
}

int main(void) {
    TEST(an_idle_sibling_gets_the_oldest);
    TEST(who_leaves_keeps_none_for_itself);
    TEST(who_has_no_more_time_gives_all_away_or_refuses_it);
    TEST(a_busy_sibling_gets_the_second_oldest_if_that_is_older_than_its_own);
    TEST(where_requests_differ_the_margin_is_wider);
    TEST(behind_an_unusually_long_one_the_oldest_goes);
    TEST(of_two_that_are_long_away_the_later_does_not_give_back);
    TEST(one_where_more_are_at_work_gets_what_has_waited_for_a_while);
    TEST(a_stuck_worker_gives_all_to_who_has_least);
    TEST(who_is_stuck_silent_or_leaving_gets_nothing);
    TEST(one_that_has_been_around_stays);
    return test_summary();
}
