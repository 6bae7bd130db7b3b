/* Where the time of a request went, by what its fibers and its thread did. Times are made up. */
#include "base/time_account.h"
#include "test.h"

#include <string.h>

static fl_time_account account;
static fl_thread_clock thread;

static void begin(void) {
    memset(&thread, 0, sizeof thread);
    fl_account_begin(&account, 1, &thread, 1000);
}

static uint64_t total(void) {
    uint64_t sum = 0;
    for (int kind = 0; kind < FL_KINDS; kind++) sum += account.kinds[kind];
    return sum;
}

static void time_without_a_wait_is_computed(void) {
    begin();
    fl_account_settle(&account, 1500);
    CHECK_NUMBER(500, account.kinds[FL_KIND_cpu]);
}

static void what_the_thread_has_lost_is_no_computing(void) {
    begin();
    fl_thread_wants_gvl(&thread, 1100, 1300);
    fl_thread_got_gvl(&thread, 40);
    atomic_fetch_add(&fl_collected, 60);
    fl_account_settle(&account, 1500);
    CHECK_NUMBER(200, account.kinds[FL_KIND_blocked]);
    CHECK_NUMBER(40, account.kinds[FL_KIND_gvl]);
    CHECK_NUMBER(60, account.kinds[FL_KIND_gc]);
    CHECK_NUMBER(200, account.kinds[FL_KIND_cpu]);
    atomic_fetch_add(&fl_collected, 1000); /* of another thread, too */
    fl_account_settle(&account, 1600);
    CHECK_NUMBER(600, total());
}

/* The reactor sleeps from 1210 until 1800, and has the GVL at 1830. */
static void a_wait_ends_when_the_reactor_is_woken(void) {
    begin();
    fl_account_wait(&account, FL_KIND_socket, 0);
    fl_account_leave(&account, 1200);
    fl_thread_polls(&thread, 1210);
    fl_thread_wants_gvl(&thread, 1215, 1800);
    fl_thread_got_gvl(&thread, 30);
    fl_account_resume(&account, &thread, 1850);
    fl_account_waited(&account, FL_KIND_socket);
    fl_account_settle(&account, 1900);
    CHECK_NUMBER(600, account.kinds[FL_KIND_socket]);
    CHECK_NUMBER(30, account.kinds[FL_KIND_gvl]);
    CHECK_NUMBER(20, account.kinds[FL_KIND_turn]);
    CHECK_NUMBER(250, account.kinds[FL_KIND_cpu]);
    CHECK_NUMBER(650, account.waited);
}

/* Others compute from 1300 until 1900. */
static void a_sleep_that_is_over_waits_for_its_turn(void) {
    begin();
    fl_account_wait(&account, FL_KIND_sleep, 1500);
    fl_account_leave(&account, 1200);
    fl_thread_polls(&thread, 1250);
    fl_thread_polls(&thread, 1900);
    fl_account_resume(&account, &thread, 1950);
    CHECK_NUMBER(300, account.kinds[FL_KIND_sleep]);
    CHECK_NUMBER(450, account.kinds[FL_KIND_turn]);
}

/* Others compute from 1800 until 2400; meanwhile a thread takes the GVL from them twice, and one of their calls blocks. */
static void what_takes_the_gvl_from_others_wakes_nobody(void) {
    fl_time_account other;
    begin();
    fl_account_wait(&account, FL_KIND_lock, 0);
    fl_account_leave(&account, 1200);
    fl_thread_polls(&thread, 1210);
    fl_thread_wants_gvl(&thread, 1215, 1800);
    fl_thread_got_gvl(&thread, 0);
    fl_account_begin(&other, 2, &thread, 1800);
    for (uint64_t preempted = 2000; preempted < 2400; preempted += 200) {
        fl_thread_wants_gvl(&thread, preempted, preempted);
        fl_thread_got_gvl(&thread, 50);
    }
    fl_thread_wants_gvl(&thread, 2300, 2350);
    fl_thread_got_gvl(&thread, 0);
    fl_account_leave(&other, 2400);
    fl_thread_polls(&thread, 2410);
    fl_account_resume(&account, &thread, 2420);
    CHECK_NUMBER(600, account.kinds[FL_KIND_lock]);
    CHECK_NUMBER(620, account.kinds[FL_KIND_turn]);
    CHECK_NUMBER(0, account.kinds[FL_KIND_gvl]);
}

/* What it does after its response, or as the driver: from 1800 until 2400, in which another thread takes the GVL from it. */
static void nor_does_a_fiber_whose_request_has_ended(void) {
    fl_time_account other;
    begin();
    fl_account_begin(&other, 2, &thread, 1000);
    other.ended = true;
    fl_account_wait(&account, FL_KIND_lock, 0);
    fl_account_leave(&account, 1200);
    fl_thread_polls(&thread, 1210);
    fl_thread_wants_gvl(&thread, 1215, 1800);
    fl_thread_got_gvl(&thread, 0);
    fl_account_resume(&other, &thread, 1800);
    fl_thread_wants_gvl(&thread, 2300, 2300);
    fl_thread_got_gvl(&thread, 50);
    fl_account_leave(&other, 2400);
    fl_thread_polls(&thread, 2410);
    fl_account_resume(&account, &thread, 2420);
    CHECK_NUMBER(600, account.kinds[FL_KIND_lock]);
    CHECK_NUMBER(620, account.kinds[FL_KIND_turn]);
    CHECK_NUMBER(0, account.kinds[FL_KIND_gvl]);
}

/* A fiber waits for two tasks of its request. */
static void a_request_waits_for_what_its_tasks_wait_for(void) {
    begin();
    fl_account_wait(&account, FL_KIND_sleep, 0);
    fl_account_wait(&account, FL_KIND_database, 0);
    fl_account_wait(&account, FL_KIND_lock, 0);
    fl_account_leave(&account, 1000);
    fl_thread_polls(&thread, 1000);
    fl_thread_wants_gvl(&thread, 1000, 1400);
    fl_account_resume(&account, &thread, 1400);
    fl_account_waited(&account, FL_KIND_database);
    fl_account_leave(&account, 1400);
    fl_thread_polls(&thread, 1400);
    fl_thread_wants_gvl(&thread, 1400, 1700);
    fl_account_resume(&account, &thread, 1700);
    CHECK_NUMBER(400, account.kinds[FL_KIND_database]);
    CHECK_NUMBER(300, account.kinds[FL_KIND_sleep]);
    CHECK_NUMBER(700, total());
}

/* Two requests and a task that works for none share a thread, in any order of what can happen to them. */
static void no_time_is_lost_or_counted_twice(void) {
    fl_time_account accounts[2];
    unsigned seed = 1;
    for (int round = 0; round < 2000; round++) {
        uint64_t now = 1000;
        int runs = -1; /* the request; -1: none */
        memset(&thread, 0, sizeof thread);
        for (int i = 0; i < 2; i++) {
            fl_account_begin(&accounts[i], (uint64_t) i + 1, &thread, 1000);
            fl_account_wait(&accounts[i], FL_KIND_lock, 0);
            fl_account_leave(&accounts[i], 1000);
        }
        for (int step = 0; step < 30; step++) {
            unsigned choice = (unsigned) rand_r(&seed);
            uint64_t before = now;
            now += choice / 16 % 300;
            switch (choice % 4) {
            case 0: /* without the GVL, then waiting for it */
                fl_thread_wants_gvl(&thread, before, now);
                fl_thread_got_gvl(&thread, choice / 16 % 50);
                now += choice / 16 % 50;
                break;
            case 1:
                if (runs >= 0) {
                    fl_account_wait(&accounts[runs], choice & 16 ? FL_KIND_sleep : FL_KIND_socket, choice & 16 ? now + 200 : 0);
                    fl_account_leave(&accounts[runs], now);
                }
                runs = -1;
                break;
            case 2:
                if (runs < 0)
                    fl_account_resume(&accounts[runs = choice / 16 % 2], &thread, now);
                break;
            default:
                if (runs < 0)
                    fl_thread_polls(&thread, now);
            }
        }
        for (int i = 0; i < 2; i++) {
            fl_account_settle(&accounts[i], now);
            account = accounts[i];
            CHECK_NUMBER(now - 1000, total());
        }
    }
}

static void an_account_that_has_ended_stays(void) {
    begin();
    fl_account_settle(&account, 1100);
    account.ended = true;
    fl_account_leave(&account, 1200);
    fl_account_resume(&account, &thread, 1300);
    fl_account_settle(&account, 1400);
    CHECK_NUMBER(100, total());
}

int main(void) {
    TEST(time_without_a_wait_is_computed);
    TEST(what_the_thread_has_lost_is_no_computing);
    TEST(a_wait_ends_when_the_reactor_is_woken);
    TEST(a_sleep_that_is_over_waits_for_its_turn);
    TEST(what_takes_the_gvl_from_others_wakes_nobody);
    TEST(nor_does_a_fiber_whose_request_has_ended);
    TEST(a_request_waits_for_what_its_tasks_wait_for);
    TEST(no_time_is_lost_or_counted_twice);
    TEST(an_account_that_has_ended_stays);
    return test_summary();
}
