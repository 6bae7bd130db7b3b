/* The other workers, as the shared page shows them: who serves, who has room, who has least to do.
 * Their figures may be some milliseconds old. Nothing is allocated, nothing fails. Only the holder of the loop may call. */
#ifndef FL_SIBLINGS_H
#define FL_SIBLINGS_H

#include "base/shared_page.h"
#include "connection/connection.h"

enum { FL_MOST_SIBLINGS = 256 };

/* The ends of the socket pairs belong to the supervisor. */
typedef struct fl_siblings {
    fl_source source; /* what the event of the receiving end points at */
    fl_shared_page *page;
    fl_slot *slot; /* our own; NULL: alone */
    int own, count;
    int receiving;
    int receiver; /* who was given something last */
    int sending[FL_MOST_SIBLINGS];
} fl_siblings;

/* The slot of another worker that serves, is not stuck, and has room, the least loaded first; -1 if there is none. */
int fl_siblings_choose(const fl_siblings *siblings);

/* Likewise; `least` is set to its load, in the unit of fl_siblings_load. */
int fl_siblings_least_loaded(const fl_siblings *siblings, int64_t *least);

/* The slot of the lane worker with the least to do that has room; -1 if there is none. */
int fl_siblings_choose_lane(const fl_siblings *siblings);

/* Whether a sibling serves all that comes, and is not stuck. */
bool fl_siblings_usable(const fl_siblings *siblings, int sibling);

/* Likewise, and could take one more connection than are on their way to it. */
bool fl_siblings_has_room(const fl_siblings *siblings, int sibling);

/* Whether one that does anything has told so lately. */
bool fl_siblings_heard(const fl_siblings *siblings, int sibling, uint64_t now);

#endif
