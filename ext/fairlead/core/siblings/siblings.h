/* The other workers: which of them serve, have room, and have the least load, according to the shared page.
 * The figures may be some milliseconds old. The caller holds the lock. Nothing is allocated, nothing fails. */
#ifndef FL_SIBLINGS_H
#define FL_SIBLINGS_H

#include "base/shared_page.h"
#include "connection/connection.h"

enum { FL_MAX_SIBLINGS = 256 };

/* The supervisor owns the ends of the socket pairs. */
typedef struct fl_siblings {
    fl_source source; /* the event of the receiving end points here */
    fl_shared_page *page;
    fl_slot *slot; /* of this worker; NULL: it is the only one */
    int own, count;
    int receiving;
    int receiver; /* the last sibling that got a connection */
    int sending[FL_MAX_SIBLINGS];
} fl_siblings;

/* Returns the slot of the least loaded sibling that is usable and has room; -1: none. */
int fl_siblings_choose(const fl_siblings *siblings);

/* The same, and sets `least` to its load: its connections, where busy and new ones count twice. */
int fl_siblings_least_loaded(const fl_siblings *siblings, int64_t *least);

/* Returns the slot of the least loaded lane worker that has room; -1: none. */
int fl_siblings_choose_lane(const fl_siblings *siblings);

/* Whether a sibling serves and has room, also if it is stuck or a lane worker. */
bool fl_siblings_may_own(const fl_siblings *siblings, int sibling);

/* Whether a sibling serves, is not stuck, and is no lane worker. */
bool fl_siblings_is_usable(const fl_siblings *siblings, int sibling);

/* Whether it is usable and has room for one more connection beyond the incoming ones. */
bool fl_siblings_has_room(const fl_siblings *siblings, int sibling);

/* Whether a sibling's loop has turned recently. */
bool fl_siblings_is_responsive(const fl_siblings *siblings, int sibling, uint64_t now);

#endif
