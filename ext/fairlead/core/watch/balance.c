#include "balance.h"
#include "siblings/handoff.h"

enum {
    MARGIN = 5000,       /* microseconds by which a sibling's oldest request must be younger at least, */
    MAX_MARGIN = 100000, /* and at most: see margin */
    PATIENCE = 20000,    /* microseconds that a request waits here before it goes to a sibling that runs more requests */
    UNUSUAL = 4,         /* times the usual: a request that takes longer may never end */
    AT_ONCE = 64,        /* requests handed over in one tick, */
    LOOKED_AT = 1024,    /* and looked at: many that must stay may be before them */
};

/* How soon a sibling would serve one more request: the smaller, the better. */
typedef struct offer {
    int sibling;
    bool idle;
    int64_t waiting;
    int64_t begun;   /* requests that have a fiber and will end */
    uint64_t oldest; /* fl_clock when its oldest waiting request came; 0: none waits */
    uint64_t away;   /* fl_clock since when its reactor has been in one request; 0: not for long */
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

/* Whether the sibling runs more requests, whose turns come first: a request would begin there sooner, but wait in its fiber. And its
 * connection would stay there: after some hundreds of hand-overs one worker would have nearly all. */
static bool takes_longer(const fl_loop *loop, const offer *offer) {
    return offer->begun > loop->context.counts.in_flight + loop->ready.count &&
           loop->context.now < loop->ready.first->queueing.ready_at + PATIENCE;
}

/* `any`: the requests have no better place here. */
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

bool fl_balance_finds_idle_sibling(const fl_loop *loop) {
    for (int i = 0; i < loop->siblings.count; i++)
        if (fl_siblings_has_room(&loop->siblings, i) && is_idle(&loop->siblings.page->slots[i]))
            return true;
    return false;
}

/* This request, or the first one behind it that can be handed over: one that must stay does not keep them. */
static fl_exchange *first_movable(fl_exchange *exchange) {
    for (int i = 0; i < LOOKED_AT && exchange != NULL && !fl_handoff_request_possible(exchange); i++) exchange = exchange->next;
    return exchange;
}

static void hand_over_all(fl_loop *loop) {
    offer best;
    fl_exchange *next = loop->ready.first;
    for (int i = 0; i < AT_ONCE; i++) {
        /* A request that must stay does not keep those behind it; a full socket does. */
        fl_exchange *exchange = first_movable(next);
        if (exchange == NULL || !best_offer(loop, true, &best))
            return;
        next = exchange->next;
        if (!fl_handoff_give_request(&loop->siblings, exchange, best.sibling))
            return;
    }
}

/* By how much a sibling's oldest request must be younger than one that would go there. Without a margin, workers would pass requests
 * around: a difference of less than a request takes evens out by itself. As with the timeout of a retransmission, three times the mean
 * deviation is rarely exceeded. */
static uint64_t margin(const fl_loop *loop) {
    int64_t margin = loop->pace.interval + 3 * loop->pace.deviation;
    return (uint64_t) (margin < MARGIN ? MARGIN : margin > MAX_MARGIN ? MAX_MARGIN : margin);
}

/* Hands over one request, if a sibling has nothing older to do: the second oldest, since the oldest is next here; but the oldest if the
 * sibling is idle, or our reactor has been in its request for unusually long. */
static void hand_over_one(fl_loop *loop, uint64_t away) {
    offer best;
    bool unusually_long = loop->pace.interval > 0 && away > UNUSUAL * (uint64_t) loop->pace.interval + MARGIN;
    if (loop->ready.first == NULL || !best_offer(loop, unusually_long || loop->context.draining, &best))
        return;
    fl_exchange *candidate = first_movable(best.idle || unusually_long ? loop->ready.first : loop->ready.first->next);
    if (candidate == NULL)
        return;
    /* If both reactors have been away for unusually long, the later one keeps its request: the other would give it back. */
    bool nothing_waits = best.waiting == 0 && !(unusually_long && best.away != 0 && best.away <= loop->context.now - away);
    if (best.idle || nothing_waits || best.oldest > candidate->queueing.ready_at + margin(loop))
        fl_handoff_give_request(&loop->siblings, candidate, best.sibling);
}

void fl_balance_lanes(fl_loop *loop) {
    fl_exchange *next = loop->queues[FL_LANE_PROCESS].first;
    for (int i = 0; i < LOOKED_AT && next != NULL; i++) {
        fl_exchange *exchange = next;
        next = exchange->next;
        if (exchange->queueing.pinned || fl_handoff_must_stay_for_now(exchange))
            continue;
        int lane = fl_siblings_choose_lane(&loop->siblings);
        if (lane < 0)
            return;
        if (!fl_handoff_request_possible(exchange))
            exchange->queueing.pinned = true;
        else if (!fl_handoff_give_request(&loop->siblings, exchange, lane))
            return;
    }
}

/* Hands a request from this lane worker to an idle one. */
static void share_lane(fl_loop *loop) {
    int lane = fl_siblings_choose_lane(&loop->siblings);
    fl_exchange *candidate = first_movable(loop->ready.first);
    if (candidate != NULL && lane >= 0 && is_idle(&loop->siblings.page->slots[lane]))
        fl_handoff_give_request(&loop->siblings, candidate, lane);
}

uint32_t fl_balance(fl_loop *loop, bool stuck, uint64_t away) {
    if (loop->siblings.slot != NULL && (!loop->context.draining || loop->context.handing_over)) {
        if (loop->lanes.dedicated)
            share_lane(loop);
        else if (stuck)
            hand_over_all(loop);
        else
            hand_over_one(loop, away);
    }
    return loop->ready.count;
}
