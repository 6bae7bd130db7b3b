#include "balance.h"
#include "siblings/handoff.h"

enum {
    MARGIN = 5000,        /* microseconds by which a sibling's oldest must be younger at least, */
    MOST_MARGIN = 100000, /* and at most: see margin */
    PATIENCE = 20000,     /* microseconds for which one waits here before it goes to where more are at work */
    UNUSUAL = 4,          /* times the usual: a request that takes longer may take for ever */
    AT_ONCE = 64,         /* requests that leave a stuck worker at one look */
};

/* How soon a sibling would serve one more: the smaller, the better. */
typedef struct offer {
    int sibling;
    bool idle;
    int64_t waiting;
    int64_t begun;   /* requests that have a fiber and will end */
    uint64_t oldest; /* 0: none waits */
    uint64_t away;   /* since when its reactor has been in one request; 0: not for long */
} offer;

static bool is_idle(fl_slot *slot) {
    return fl_slot_get(slot, FL_SLOT_idle) == 1 && fl_slot_get(slot, FL_SLOT_incoming_requests) == 0;
}

static bool offer_of(const fl_loop *loop, int sibling, offer *offer) {
    fl_slot *slot = &loop->siblings.page->slots[sibling];
    if (!fl_siblings_has_room(&loop->siblings, sibling))
        return false;
    int64_t coming = fl_slot_get(slot, FL_SLOT_incoming_requests);
    offer->sibling = sibling;
    offer->begun = fl_slot_get(slot, FL_SLOT_in_flight);
    offer->idle = is_idle(slot);
    offer->waiting = fl_slot_get(slot, FL_SLOT_queued) + coming;
    offer->oldest = (uint64_t) fl_slot_get(slot, FL_SLOT_oldest_us);
    offer->away = (uint64_t) fl_slot_get(slot, FL_SLOT_away_us);
    return offer->idle || fl_siblings_is_responsive(&loop->siblings, sibling, loop->context.now);
}

/* Whether one more would begin there sooner, and wait in its fiber for it: where more are at work, whose turns come first.
 * Connections stick: each that goes makes the other worker slower, and after some hundreds of them one would have nearly
 * all. */
static bool takes_longer(const fl_loop *loop, const offer *offer) {
    return offer->begun > loop->context.counts.in_flight + loop->ready.count &&
           loop->context.now < loop->ready.first->queueing.ready_at + PATIENCE;
}

/* `any`: who waits has no better place here. */
static bool best_offer(const fl_loop *loop, bool any, offer *best) {
    bool found = false;
    for (int i = 0; i < loop->siblings.count; i++) {
        offer offer;
        if (!offer_of(loop, i, &offer) || (!any && takes_longer(loop, &offer)))
            continue;
        if (!found || offer.idle > best->idle || (offer.idle == best->idle && offer.waiting < best->waiting)) {
            *best = offer;
            found = true;
        }
    }
    return found;
}

bool fl_balance_would_be_taken(const fl_loop *loop) {
    for (int i = 0; i < loop->siblings.count; i++)
        if (fl_siblings_has_room(&loop->siblings, i) && is_idle(&loop->siblings.page->slots[i]))
            return true;
    return false;
}

void fl_balance_listen(fl_loop *loop, bool stuck) {
    fl_loop_pause_accepting(loop, stuck && loop->siblings.slot != NULL && fl_siblings_choose(&loop->siblings) >= 0);
}

/* All that waits, to whoever would serve it soonest. */
static void evacuate(fl_loop *loop) {
    offer best;
    fl_exchange *next = loop->ready.first;
    for (int i = 0; i < AT_ONCE && next != NULL && best_offer(loop, true, &best); i++) {
        fl_exchange *exchange = next;
        next = exchange->next;
        /* One that must stay does not keep those behind it; a full socket does. */
        if (fl_handoff_possible(exchange->connection) && !fl_handoff_give(&loop->siblings, exchange->connection, best.sibling))
            return;
    }
}

/* By how much a sibling's oldest must be younger than a request that would go there. Less than what a request takes, and
 * than those differ by, is chance and evens out by itself: workers would only pass requests around. As with the timeout of
 * a retransmission, three times the mean deviation is rarely exceeded. */
static uint64_t margin(const fl_loop *loop) {
    int64_t margin = loop->pace.interval + 3 * loop->pace.deviation;
    return (uint64_t) (margin < MARGIN ? MARGIN : margin > MOST_MARGIN ? MOST_MARGIN : margin);
}

/* One request, if a sibling has nothing older to do: our second oldest, since the oldest is next here; but the oldest
 * when the sibling is idle, or we leave, or ours has been at it for unusually long. */
static void even_out(fl_loop *loop, uint64_t away) {
    offer best;
    bool unusually_long = loop->pace.interval > 0 && away > UNUSUAL * (uint64_t) loop->pace.interval + MARGIN;
    if (loop->ready.first == NULL || !best_offer(loop, unusually_long || loop->context.draining, &best))
        return;
    fl_exchange *candidate = best.idle || unusually_long ? loop->ready.first : loop->ready.first->next;
    if (candidate == NULL)
        return;
    /* Of two that are away for unusually long none gives to the other what that would give back. */
    bool nothing_waits = best.waiting == 0 && !(unusually_long && best.away != 0 && best.away <= loop->context.now - away);
    if (best.idle || nothing_waits || best.oldest > candidate->queueing.ready_at + margin(loop))
        fl_handoff_give(&loop->siblings, candidate->connection, best.sibling);
}

void fl_balance_lanes(fl_loop *loop) {
    fl_exchange *next = loop->queues[FL_LANE_PROCESS].first;
    for (int i = 0; i < AT_ONCE && next != NULL; i++) {
        fl_exchange *exchange = next;
        next = exchange->next;
        if (exchange->queueing.pinned)
            continue;
        int lane = fl_siblings_choose_lane(&loop->siblings);
        if (lane < 0)
            return;
        if (!fl_handoff_possible(exchange->connection))
            exchange->queueing.pinned = true;
        else if (!fl_handoff_give(&loop->siblings, exchange->connection, lane))
            return;
    }
}

/* In a lane worker, one that waits goes to another that has nothing to do. */
static void share_lane(fl_loop *loop) {
    int lane = fl_siblings_choose_lane(&loop->siblings);
    if (loop->ready.first == NULL || lane < 0)
        return;
    fl_slot *slot = &loop->siblings.page->slots[lane];
    if (fl_slot_get(slot, FL_SLOT_idle) == 1 && fl_slot_get(slot, FL_SLOT_incoming_requests) == 0)
        fl_handoff_give(&loop->siblings, loop->ready.first->connection, lane);
}

uint32_t fl_balance(fl_loop *loop, bool stuck, uint64_t away) {
    if (loop->siblings.slot != NULL && (!loop->context.draining || loop->context.handing_over)) {
        if (loop->lanes.dedicated)
            share_lane(loop);
        else if (stuck)
            evacuate(loop);
        else
            even_out(loop, away);
    }
    return loop->ready.count;
}
