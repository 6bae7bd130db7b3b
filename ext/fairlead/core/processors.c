#include "processors.h"
#include "stalls.h"

#include <unistd.h>

enum {
    WORTH = 4000, /* microseconds: requests that take less are not worth waking each other for */
};

static long processors(void) {
    static _Atomic long count;
    if (atomic_load(&count) == 0)
        atomic_store(&count, sysconf(_SC_NPROCESSORS_ONLN));
    return atomic_load(&count);
}

/* Whether a sibling does so, and has not been at the same for longer than that. */
static bool computes(const fl_loop *loop, int sibling, uint64_t most) {
    fl_slot *slot = &loop->siblings.page->slots[sibling];
    int64_t stall = fl_slot_get(slot, FL_SLOT_stall);
    uint64_t away = (uint64_t) fl_slot_get(slot, FL_SLOT_away_us);
    return fl_siblings_usable(&loop->siblings, sibling) && fl_siblings_heard(&loop->siblings, sibling, loop->now) &&
           fl_slot_get(slot, FL_SLOT_idle) == 0 && fl_slot_get(slot, FL_SLOT_steps_back) == 0 &&
           (stall == FL_STALL_NONE || stall == FL_STALL_COMPUTING) && (away == 0 || loop->now - away < most);
}

static long free_beside(const fl_loop *loop, uint64_t most) {
    long free = processors();
    for (int i = 0; i < loop->siblings.count; i++) free -= computes(loop, i, most);
    return free;
}

long fl_processors_free(const fl_loop *loop) {
    return free_beside(loop, UINT64_MAX);
}

static bool are_worth_it(const fl_loop *loop) {
    return loop->siblings.slot != NULL && !loop->dedicated && loop->ordinary_computation >= WORTH &&
           loop->take_interval >= WORTH;
}

/* Who has been at it for longer than is ordinary may be so for ever: nobody waits for it. */
static bool all_taken(const fl_loop *loop) {
    return free_beside(loop, loop->ordinary_computation * FL_ORDINARY_TIMES) < 1;
}

/* Ours goes to the sibling that has stepped back and whose oldest came first, if that was before then. */
static bool give(fl_loop *loop, uint64_t then) {
    int sibling = -1;
    for (int i = 0; i < loop->siblings.count; i++) {
        fl_slot *slot = &loop->siblings.page->slots[i];
        uint64_t oldest = (uint64_t) fl_slot_get(slot, FL_SLOT_oldest_us);
        if (fl_slot_get(slot, FL_SLOT_steps_back) == 0 || oldest == 0 || oldest >= then ||
            !fl_siblings_usable(&loop->siblings, i))
            continue;
        then = oldest;
        sibling = i;
    }
    if (sibling < 0)
        return false;
    /* Of two that give theirs to the same one keeps it. */
    int64_t steps_back = 1;
    _Atomic int64_t *field = &loop->siblings.page->slots[sibling].fields[FL_SLOT_steps_back];
    return atomic_compare_exchange_strong(field, &steps_back, 0) && fl_handoff_wake(&loop->siblings, sibling);
}

static bool steps_back(const fl_loop *loop) {
    return atomic_load_explicit(&loop->claim, memory_order_relaxed) == FL_CLAIM_WAITS;
}

static void set_claim(fl_loop *loop, fl_claim claim) {
    if (claim == (fl_claim) loop->claim) /* a sibling may be giving us one: that must not be undone */
        return;
    fl_slot_set(loop->siblings.slot, FL_SLOT_steps_back, claim == FL_CLAIM_WAITS);
    atomic_store_explicit(&loop->claim, claim, memory_order_relaxed);
}

bool fl_processors_given(const fl_loop *loop) {
    return steps_back(loop) && fl_slot_get(loop->siblings.slot, FL_SLOT_steps_back) == 0;
}

bool fl_processors_claim(fl_loop *loop) {
    fl_claim claim = FL_CLAIM_MADE;
    if (!are_worth_it(loop))
        claim = FL_CLAIM_NONE;
    else if (!fl_processors_given(loop) &&
             (all_taken(loop) || (!steps_back(loop) && give(loop, loop->ready.first->ready_at))))
        claim = FL_CLAIM_WAITS;
    set_claim(loop, claim);
    return claim != FL_CLAIM_WAITS;
}

void fl_processors_look(fl_loop *loop) {
    loop->now = fl_clock();
    if (!steps_back(loop) || (!fl_processors_given(loop) && are_worth_it(loop) && all_taken(loop)))
        return;
    fl_slot_set(loop->siblings.slot, FL_SLOT_steps_back, 0);
    fl_loop_wake(loop);
}

void fl_processors_leave(fl_loop *loop) {
    if (loop->claim == FL_CLAIM_MADE || fl_processors_given(loop))
        give(loop, UINT64_MAX);
    set_claim(loop, FL_CLAIM_NONE);
}
