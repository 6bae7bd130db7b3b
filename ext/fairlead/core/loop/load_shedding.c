#include "load_shedding.h"
#include "loop.h"

enum {
    MAY_STAND = 500000,      /* microseconds that any burst may last */
    STANDS = 1000000,        /* microseconds after which it is no burst */
    LONG = 3,                /* times the target: a queue that takes so long to serve is long */
    VERY_LONG = 10,          /* the same before STANDS */
    COUNTED_FOR = 250000,    /* least microseconds over which taken requests are counted, */
    MIN_TAKEN = 8,           /* and least requests: the first ones may be unusual */
    LEAST = 8,               /* requests that may wait in any case */
    SHEDDING_LASTS = 250000, /* microseconds after the last request that was turned away */
    CUT_AT_ONCE = 64,        /* requests turned away in a turn, so that a turn stays short */
};

/* All requests of this worker and its siblings, in queues and in fibers: keep-alive clients may all end up in one worker's queue
 * without having become more. */
static uint32_t present_in_all(fl_loop *loop) {
    int64_t count = loop->ready.count + loop->context.counts.in_flight;
    for (int i = 0; i < loop->siblings.count; i++) {
        fl_slot *slot = &loop->siblings.page->slots[i];
        if (fl_siblings_is_usable(&loop->siblings, i))
            count += fl_slot_get(slot, FL_SLOT_queued) + fl_slot_get(slot, FL_SLOT_in_flight);
    }
    return (uint32_t) count;
}

/* Microseconds that a request may wait in a queue that does not stand. */
static uint64_t short_wait(const fl_loop *loop) {
    return loop->context.limits.queue_target / 3;
}

/* Whether a sibling's queue does not stand: balancing hands it what is too much here. */
static bool sibling_has_room(const fl_loop *loop, uint64_t now) {
    for (int i = 0; i < loop->siblings.count; i++) {
        if (!fl_siblings_is_usable(&loop->siblings, i))
            continue;
        uint64_t oldest = (uint64_t) fl_slot_get(&loop->siblings.page->slots[i], FL_SLOT_oldest_us);
        if (oldest == 0 || now < oldest + short_wait(loop))
            return true;
    }
    return false;
}

static uint32_t largest(uint64_t a, uint64_t b, uint64_t c) {
    uint64_t most = a > b ? a : b;
    most = most > c ? most : c;
    return most < UINT32_MAX ? (uint32_t) most : UINT32_MAX;
}

/* Whether more requests come than can be served. `served` requests were taken in `microseconds`. A longer queue is proof earlier. */
static bool grows(fl_loop *loop, uint64_t served, uint64_t microseconds, uint64_t now) {
    const fl_load_shedding *shedding = &loop->shedding;
    uint64_t stood = now - shedding->since, target = loop->context.limits.queue_target;
    uint32_t acceptable = largest(served * (stood > STANDS ? LONG : VERY_LONG) * target / microseconds,
                                  4 * (uint64_t) loop->context.counts.in_flight, 2 * LEAST);
    uint32_t present = present_in_all(loop);
    return stood > MAY_STAND && loop->ready.count > acceptable && present > 2 * shedding->at_first &&
           present > shedding->before && !sibling_has_room(loop, now);
}

void fl_load_shedding_taken(fl_loop *loop, uint64_t waited, uint64_t now) {
    fl_load_shedding *shedding = &loop->shedding;
    bool sheds = shedding->most != 0 && now < shedding->cut_at + SHEDDING_LASTS;
    bool stands = waited >= short_wait(loop) && loop->ready.count > 0 && loop->context.limits.queue_target != 0;
    if (!stands && !sheds) {
        shedding->since = 0;
        shedding->most = 0;
        return;
    }
    if (shedding->since == 0) {
        uint32_t present = present_in_all(loop);
        *shedding = (fl_load_shedding) {.since = now, .counted_at = now, .at_first = present, .before = present};
        return;
    }
    shedding->taken++;
    uint64_t passed = now - shedding->counted_at, taken = shedding->taken;
    if (passed < COUNTED_FOR || taken < MIN_TAKEN)
        return;
    shedding->counted_at = now;
    shedding->taken = 0;
    if (shedding->most != 0 || grows(loop, taken, passed, now))
        shedding->most = largest(taken * loop->context.limits.queue_target / passed, loop->context.counts.in_flight, LEAST);
    shedding->before = present_in_all(loop);
}

void fl_load_shedding_cut(fl_loop *loop) {
    if (loop->ready.count <= loop->shedding.most || sibling_has_room(loop, loop->context.now))
        return;
    loop->shedding.cut_at = loop->context.now;
    for (int i = 0; i < CUT_AT_ONCE && loop->ready.count > loop->shedding.most; i++)
        fl_exchange_turn_away(loop->ready.last, FL_OVERLOADED);
}
