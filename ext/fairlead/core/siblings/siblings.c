#include "siblings.h"

enum { STALE = 20000 }; /* microseconds */

bool fl_siblings_is_usable(const fl_siblings *siblings, int sibling) {
    fl_slot *slot = &siblings->page->slots[sibling];
    return sibling != siblings->own && fl_slot_get(slot, FL_SLOT_state) == FL_WORKER_SERVING &&
           fl_slot_get(slot, FL_SLOT_stall) != FL_STALL_STUCK && fl_slot_get(slot, FL_SLOT_lane) == 0;
}

static bool has_room(fl_slot *slot) {
    return fl_slot_get(slot, FL_SLOT_room) >
           fl_slot_get(slot, FL_SLOT_incoming_requests) + fl_slot_get(slot, FL_SLOT_incoming_connections);
}

bool fl_siblings_may_own(const fl_siblings *siblings, int sibling) {
    fl_slot *slot = &siblings->page->slots[sibling];
    return sibling < siblings->count && fl_slot_get(slot, FL_SLOT_state) == FL_WORKER_SERVING && has_room(slot);
}

bool fl_siblings_has_room(const fl_siblings *siblings, int sibling) {
    return fl_siblings_is_usable(siblings, sibling) && has_room(&siblings->page->slots[sibling]);
}

bool fl_siblings_is_responsive(const fl_siblings *siblings, int sibling, uint64_t now) {
    uint64_t heartbeat = (uint64_t) fl_slot_get(&siblings->page->slots[sibling], FL_SLOT_heartbeat_ms) * 1000;
    return now < heartbeat + STALE;
}

int fl_siblings_choose_lane(const fl_siblings *siblings) {
    int best = -1;
    int64_t least = 0;
    for (int i = 0; i < siblings->count; i++) {
        fl_slot *slot = &siblings->page->slots[i];
        if (i == siblings->own || fl_slot_get(slot, FL_SLOT_lane) == 0 ||
            fl_slot_get(slot, FL_SLOT_state) != FL_WORKER_SERVING || !has_room(slot))
            continue;
        int64_t load = fl_slot_get(slot, FL_SLOT_queued) + fl_slot_get(slot, FL_SLOT_incoming_requests) +
                       fl_slot_get(slot, FL_SLOT_in_flight);
        if (best < 0 || load < least) {
            best = i;
            least = load;
        }
    }
    return best;
}

/* New connections count as busy: a request is about to come. */
static int64_t load_of(fl_slot *slot) {
    return fl_slot_get(slot, FL_SLOT_connections) + fl_slot_get(slot, FL_SLOT_fresh) + fl_slot_get(slot, FL_SLOT_in_flight) +
           fl_slot_get(slot, FL_SLOT_queued) + 2 * fl_slot_get(slot, FL_SLOT_incoming_requests) +
           2 * fl_slot_get(slot, FL_SLOT_incoming_connections);
}

int fl_siblings_least_loaded(const fl_siblings *siblings, int64_t *least) {
    int best = -1;
    for (int i = 0; i < siblings->count; i++) {
        if (!fl_siblings_has_room(siblings, i))
            continue;
        int64_t load = load_of(&siblings->page->slots[i]);
        if (best < 0 || load < *least) {
            best = i;
            *least = load;
        }
    }
    return best;
}

int fl_siblings_choose(const fl_siblings *siblings) {
    int64_t least = 0;
    return fl_siblings_least_loaded(siblings, &least);
}
