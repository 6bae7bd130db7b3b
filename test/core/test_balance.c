/* Which request goes to which sibling. */
#include "watch/balance.h"
#include "siblings.h"

static void an_idle_sibling_gets_the_oldest(void) {
    scene scene = begin(2);
    publish(&scene, 1, FL_SLOT_idle, 1);
    queue_requests(&scene, 3);
    CHECK_NUMBER(2, fl_balance(scene.loop, false, 0));
    CHECK_TEXT("1", sent_to(&scene, 1));
    end(&scene);
}

static void a_draining_worker_keeps_no_request(void) {
    scene scene = begin(2);
    publish(&scene, 1, FL_SLOT_idle, 1);
    queue_requests(&scene, 1);
    fl_loop_drain(scene.loop, true);
    CHECK_NUMBER(0, fl_balance(scene.loop, false, 0));
    CHECK_TEXT("1", sent_to(&scene, 1));
    end(&scene);
}

static void a_stopped_worker_hands_over_all_requests_or_rejects_them(void) {
    scene scene = begin(2);
    queue_requests(&scene, 2);
    fl_loop_drain(scene.loop, true);
    fl_loop_stop(scene.loop, true);
    CHECK_TEXT("21", sent_to(&scene, 1)); /* the sibling sorts them by age */
    CHECK_NUMBER(0, scene.loop->context.counts.refused);
    publish(&scene, 1, FL_SLOT_state, FL_WORKER_DRAINING);
    queue_requests(&scene, 2);
    fl_loop_stop(scene.loop, true);
    CHECK_TEXT("", sent_to(&scene, 1));
    CHECK_NUMBER(2, scene.loop->context.counts.refused);
    end(&scene);
}

static void a_busy_sibling_gets_the_second_oldest_if_it_has_only_younger_ones(void) {
    scene scene = begin(2);
    queue_requests(&scene, 3);
    uint64_t second = scene.loop->ready.first->next->queueing.ready_at;
    publish(&scene, 1, FL_SLOT_queued, 1);
    publish(&scene, 1, FL_SLOT_oldest_us, (int64_t) (second + USUAL));
    CHECK_NUMBER(3, fl_balance(scene.loop, false, 0)); /* within the margin */
    publish(&scene, 1, FL_SLOT_oldest_us, (int64_t) (second + USUAL + 1));
    CHECK_NUMBER(2, fl_balance(scene.loop, false, 0));
    CHECK_TEXT("2", sent_to(&scene, 1));
    end(&scene);
}

static void the_margin_grows_with_the_deviation_of_requests(void) {
    scene scene = begin(2);
    queue_requests(&scene, 2);
    scene.loop->pace.deviation = 10 * MILLISECOND;
    uint64_t second = scene.loop->ready.first->next->queueing.ready_at;
    publish(&scene, 1, FL_SLOT_queued, 1);
    publish(&scene, 1, FL_SLOT_oldest_us, (int64_t) (second + USUAL + 30 * MILLISECOND));
    CHECK_NUMBER(2, fl_balance(scene.loop, false, 0));
    publish(&scene, 1, FL_SLOT_oldest_us, (int64_t) (second + USUAL + 30 * MILLISECOND + 1));
    CHECK_NUMBER(1, fl_balance(scene.loop, false, 0));
    end(&scene);
}

static void the_oldest_goes_if_the_running_request_is_unusually_long(void) {
    scene scene = begin(2);
    queue_requests(&scene, 2);
    CHECK_NUMBER(1, fl_balance(scene.loop, false, 4 * USUAL + 6 * MILLISECOND));
    CHECK_TEXT("1", sent_to(&scene, 1));
    end(&scene);
}

static void a_sibling_that_is_away_for_longer_gets_nothing_back(void) {
    scene scene = begin(2);
    queue_requests(&scene, 1);
    uint64_t away = 10 * USUAL, now = scene.loop->context.now;
    publish(&scene, 1, FL_SLOT_away_us, (int64_t) (now - away - MILLISECOND)); /* before this worker */
    CHECK_NUMBER(1, fl_balance(scene.loop, false, away));
    publish(&scene, 1, FL_SLOT_away_us, (int64_t) (now - away + MILLISECOND));
    CHECK_NUMBER(0, fl_balance(scene.loop, false, away));
    end(&scene);
}

static void a_sibling_that_runs_more_requests_gets_those_that_have_waited_for_a_while(void) {
    scene scene = begin(2);
    queue_requests(&scene, 3);
    publish(&scene, 1, FL_SLOT_in_flight, 7);
    scene.loop->context.counts.streams = 100; /* streams do not count */
    scene.loop->context.counts.in_flight = 3;
    CHECK_NUMBER(3, fl_balance(scene.loop, false, 0));
    scene.loop->context.counts.in_flight = 4;
    CHECK_NUMBER(2, fl_balance(scene.loop, false, 0));
    CHECK_NUMBER(2, fl_balance(scene.loop, false, 0)); /* the one on its way counts */
    scene.loop->context.now = scene.loop->ready.first->queueing.ready_at + 20 * MILLISECOND;
    publish(&scene, 1, FL_SLOT_in_flight, 1000);
    publish(&scene, 1, FL_SLOT_incoming_requests, 0);
    CHECK_NUMBER(1, fl_balance(scene.loop, false, 0));
    scene.loop->context.counts.in_flight = scene.loop->context.counts.streams = 0;
    end(&scene);
}

static void a_stuck_worker_hands_all_requests_to_the_least_loaded_siblings(void) {
    scene scene = begin(3);
    publish(&scene, 1, FL_SLOT_queued, 2);
    queue_requests(&scene, 5);
    CHECK_NUMBER(0, fl_balance(scene.loop, true, 0));
    CHECK_TEXT("35", sent_to(&scene, 1)); /* those on their way count */
    CHECK_TEXT("124", sent_to(&scene, 2));
    end(&scene);
}

static void a_stuck_silent_or_draining_sibling_and_a_lane_worker_get_nothing(void) {
    scene scene = begin(5);
    publish(&scene, 1, FL_SLOT_stall, FL_STALL_STUCK);
    publish(&scene, 2, FL_SLOT_state, FL_WORKER_DRAINING);
    publish(&scene, 3, FL_SLOT_heartbeat_ms, (int64_t) (fl_clock() / 1000) - 1000);
    publish(&scene, 4, FL_SLOT_lane, 1);
    queue_requests(&scene, 3);
    CHECK_NUMBER(3, fl_balance(scene.loop, true, 0));
    for (int i = 1; i < scene.count; i++) CHECK_TEXT("", sent_to(&scene, i));
    end(&scene);
}

static void a_request_that_was_handed_over_often_stays_for_a_while(void) {
    scene scene = begin(2);
    queue_requests(&scene, 2);
    scene.loop->ready.first->queueing.hand_overs = 3;
    CHECK_NUMBER(1, fl_balance(scene.loop, true, 0));
    CHECK_TEXT("2", sent_to(&scene, 1));
    scene.loop->context.now += 20000;
    CHECK_NUMBER(0, fl_balance(scene.loop, true, 0));
    CHECK_TEXT("1", sent_to(&scene, 1));
    end(&scene);
}

static void many_that_must_stay_do_not_keep_those_behind_them(void) {
    scene scene = begin(2);
    queue_requests(&scene, 101);
    fl_exchange *exchange = scene.loop->ready.first;
    for (int i = 0; i < 100; i++, exchange = exchange->next) exchange->queueing.pinned = true;
    CHECK_NUMBER(100, fl_balance(scene.loop, true, 0));
    CHECK_TEXT("1", sent_to(&scene, 1));
    end(&scene);
}

static void a_worker_with_streams_to_run_is_not_idle(void) {
    scene scene = begin(2);
    fl_loop_prepare_wait(scene.loop, true, true);
    CHECK_NUMBER(0, fl_slot_get(scene.loop->siblings.slot, FL_SLOT_idle));
    fl_loop_prepare_wait(scene.loop, true, false);
    CHECK_NUMBER(1, fl_slot_get(scene.loop->siblings.slot, FL_SLOT_idle));
    end(&scene);
}

static void a_stopped_worker_keeps_no_request_that_was_handed_over_often(void) {
    scene scene = begin(2);
    queue_requests(&scene, 2);
    scene.loop->ready.first->queueing.hand_overs = 3;
    fl_loop_drain(scene.loop, true);
    fl_loop_stop(scene.loop, true);
    CHECK_TEXT("21", sent_to(&scene, 1));
    CHECK_NUMBER(0, scene.loop->context.counts.refused);
    end(&scene);
}

int main(void) {
    TEST(a_worker_with_streams_to_run_is_not_idle);
    TEST(an_idle_sibling_gets_the_oldest);
    TEST(a_draining_worker_keeps_no_request);
    TEST(a_stopped_worker_hands_over_all_requests_or_rejects_them);
    TEST(a_busy_sibling_gets_the_second_oldest_if_it_has_only_younger_ones);
    TEST(the_margin_grows_with_the_deviation_of_requests);
    TEST(the_oldest_goes_if_the_running_request_is_unusually_long);
    TEST(a_sibling_that_is_away_for_longer_gets_nothing_back);
    TEST(a_sibling_that_runs_more_requests_gets_those_that_have_waited_for_a_while);
    TEST(a_stuck_worker_hands_all_requests_to_the_least_loaded_siblings);
    TEST(a_stuck_silent_or_draining_sibling_and_a_lane_worker_get_nothing);
    TEST(a_request_that_was_handed_over_often_stays_for_a_while);
    TEST(a_stopped_worker_keeps_no_request_that_was_handed_over_often);
    TEST(many_that_must_stay_do_not_keep_those_behind_them);
    return test_summary();
}
