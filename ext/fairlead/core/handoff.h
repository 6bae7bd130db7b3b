/* Handing a connection to a sibling worker: its descriptor and the bytes read from it, in one message of a socket pair.
 * Nothing is allocated here but what the receiver's connection needs. The ends of the pairs belong to the supervisor,
 * and are used by the holder of the loop alone. Giving fails quietly: the connection then stays where it is. */
#ifndef FL_HANDOFF_H
#define FL_HANDOFF_H

#include "connection.h"
#include "shared_page.h"
#include <stdbool.h>

enum { FL_MOST_SIBLINGS = 256 };

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

/* The slot of the lane worker with the least to do that has room; -1 if there is none. */
int fl_siblings_choose_lane(const fl_siblings *siblings);

/* Whether a sibling serves all that comes, and is not stuck. */
bool fl_siblings_usable(const fl_siblings *siblings, int sibling);

/* Likewise, and could take one more connection than are on their way to it. */
bool fl_siblings_has_room(const fl_siblings *siblings, int sibling);

/* Whether one that does anything has told so lately. */
bool fl_siblings_heard(const fl_siblings *siblings, int sibling, uint64_t now);

/* Whether a connection is such that it can be given at all. */
bool fl_handoff_possible(fl_connection *connection);

/* Gives a connection that is idle, or whose request waits in the FIFO, to a sibling, and closes our side of it,
 * unnoticed by the client. False when it cannot be given now; it is then as it was. */
bool fl_handoff_give(fl_connection *connection, int sibling);

/* Likewise, to whom fl_siblings_choose names. */
bool fl_handoff_leave(fl_connection *connection);

/* A connection that has just been accepted goes to a sibling that has less to do than we, if there is one: the kernel
 * wakes whom it likes, and would leave one worker with most of a crowd that comes at once. If we have no room, to any.
 * Answers whether it has gone. */
bool fl_handoff_pass_on(struct fl_loop *loop, const struct fl_listener *listener, int descriptor);

/* Takes in what has been handed to us, or passes it on, if we have no room. A connection for which there is no descriptor
 * even so is lost: its client sees it closed. */
void fl_handoff_receive(struct fl_loop *loop);

#endif
