/* The other workers, as the shared page shows them: which serve, have room, and have least to do.
 * The figures may be some milliseconds old. The caller holds the lock. Nothing is allocated, nothing fails. */
#ifndef FL_SIBLINGS_H
#define FL_SIBLINGS_H

#include "base/shared_page.h"
#include "connection/connection.h"

enum { FL_MOST_SIBLINGS = 256 };

/* The supervisor owns the ends of the socket pairs. */
typedef struct fl_siblings {
    fl_source source; /* the event of the receiving end points here */
    fl_shared_page *page;
    fl_slot *slot; /* of this worker; NULL: it is the only one */
    int own, count;
    int receiving;
    int receiver; /* the sibling that got a connection last */
    int sending[FL_MOST_SIBLINGS];
} fl_siblings;

/* The slot of the least loaded sibling that serves, is not stuck, and has room; -1: none. */
int fl_siblings_choose(const fl_siblings *siblings);

/* The same; sets `least` to its load: connections, counted twice if they are busy or new. */
int fl_siblings_least_loaded(const fl_siblings *siblings, int64_t *least);

/* The slot of the least loaded lane worker that has room; -1: none. */
int fl_siblings_choose_lane(const fl_siblings *siblings);

/* Whether a sibling serves all routes, and is not stuck. */
bool fl_siblings_usable(const fl_siblings *siblings, int sibling);

/* The same, and has room for one more connection than are on their way to it. */
bool fl_siblings_has_room(const fl_siblings *siblings, int sibling);

/* Whether a sibling has turned its loop lately. */
bool fl_siblings_heard(const fl_siblings *siblings, int sibling, uint64_t now);

#endif
