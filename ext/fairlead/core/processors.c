#include "processors.h"
#include "stalls.h"

#include <unistd.h>

enum {
    WORTH = 4000, /* microseconds: requests that take less are not worth waking each other for */
    BEING_MOVED = -1,
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
    if (claim == FL_CLAIM_NONE)
        fl_slot_set(loop->siblings.slot, FL_SLOT_processor, 0);
    atomic_store_explicit(&loop->claim, claim, memory_order_relaxed);
}

bool fl_processors_given(const fl_loop *loop) {
    return steps_back(loop) && fl_slot_get(loop->siblings.slot, FL_SLOT_steps_back) == 0;
}

/* The first of those below that computes there; -1: none. */
static int who_computes_on(const fl_loop *loop, int64_t place, int below) {
    for (int i = 0; i < below; i++)
        if (fl_slot_get(&loop->siblings.page->slots[i], FL_SLOT_processor) == place && computes(loop, i, UINT64_MAX))
            return i;
    return -1;
}

static bool is_free(const fl_loop *loop, int64_t place) {
    return who_computes_on(loop, place, loop->siblings.count) < 0;
}

/* One at a time: what another one is about to take back would be taken for all the places where it may run. */
static bool move(fl_slot *slot, int64_t task, int64_t place) {
    _Atomic int64_t *field = &slot->fields[FL_SLOT_task];
    int64_t expected = task;
    if (task <= 0 || !atomic_compare_exchange_strong(field, &expected, BEING_MOVED))
        return false;
    bool moved = fl_task_move((int) task, (int) place - 1);
    atomic_store(field, task);
    return moved;
}

/* Who is roused while all compute stays where it was, beside a sibling: the kernel leaves the processor that it was given
 * idle for milliseconds. */
static void go_to_free_processor(fl_loop *loop) {
    fl_slot *slot = loop->siblings.slot;
    int64_t task = fl_task_self().id, place = fl_processor() + 1;
    if (fl_slot_get(slot, FL_SLOT_task) != BEING_MOVED)
        fl_slot_set(slot, FL_SLOT_task, task);
    for (int64_t other = 1; !is_free(loop, place) && other <= processors() && fl_processors_free(loop) == 1; other++)
        if (is_free(loop, other) && move(slot, task, other))
            place = other;
    fl_slot_set(slot, FL_SLOT_processor, place);
}

/* Likewise, where two share one and ours is left: one of them goes there. */
static void leave_processor(fl_loop *loop) {
    int64_t place = fl_slot_get(loop->siblings.slot, FL_SLOT_processor);
    fl_slot_set(loop->siblings.slot, FL_SLOT_processor, 0);
    if (place == 0 || fl_processors_free(loop) > 0 || !is_free(loop, place))
        return;
    for (int i = 0; i < loop->siblings.count; i++) {
        fl_slot *slot = &loop->siblings.page->slots[i];
        int64_t shared = fl_slot_get(slot, FL_SLOT_processor);
        if (shared == 0 || !computes(loop, i, UINT64_MAX) || who_computes_on(loop, shared, i) < 0)
            continue;
        if (move(slot, fl_slot_get(slot, FL_SLOT_task), place))
            fl_slot_set(slot, FL_SLOT_processor, place);
        return;
    }
}

bool fl_processors_claim(fl_loop *loop) {
    fl_claim claim = FL_CLAIM_MADE;
    if (!are_worth_it(loop))
        claim = FL_CLAIM_NONE;
    else if (!fl_processors_given(loop) &&
             (all_taken(loop) || (!steps_back(loop) && give(loop, loop->ready.first->ready_at))))
        claim = FL_CLAIM_WAITS;
    set_claim(loop, claim);
    if (claim == FL_CLAIM_MADE)
        go_to_free_processor(loop);
    else if (claim == FL_CLAIM_WAITS)
        leave_processor(loop);
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
    if (loop->claim == FL_CLAIM_MADE)
        leave_processor(loop);
    if (loop->claim == FL_CLAIM_MADE || fl_processors_given(loop))
        give(loop, UINT64_MAX);
    set_claim(loop, FL_CLAIM_NONE);
}
