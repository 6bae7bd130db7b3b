/* Handing a connection to a sibling worker: its descriptor and the bytes read from it, in one message of a socket pair.
 * Nothing is allocated. Only the holder of the loop may call. Giving fails quietly: the connection then stays where it is. */
#ifndef FL_HANDOFF_H
#define FL_HANDOFF_H

#include "connection/connection.h"
#include "siblings.h"
#include <stdbool.h>

enum { FL_HANDOFF_BYTES = 65536 }; /* the most that goes with a connection */

/* A connection on its way. */
typedef struct fl_handover {
    uint64_t arrived;  /* of fl_clock; 0: no request comes with it */
    int listener;      /* its index */
    int hand_overs;    /* how often it has been handed over */
    int descriptor;    /* the caller's; -1: it was lost for want of descriptors */
    char *bytes;       /* what has been read of its request */
    size_t size;
} fl_handover;

/* Whether a connection is such that it can be given at all. */
bool fl_handoff_possible(const fl_connection *connection);

/* Gives a connection that is idle, or whose request waits in the FIFO, to a sibling, and closes our side of it,
 * unnoticed by the client. False when it cannot be given now; it is then as it was. */
bool fl_handoff_give(fl_siblings *siblings, fl_connection *connection, int sibling);

/* Likewise, to whom fl_siblings_choose names. */
bool fl_handoff_leave(fl_siblings *siblings, fl_connection *connection);

/* Likewise, one for which nothing has been opened here: its descriptor is closed. */
bool fl_handoff_pass_on(const fl_siblings *siblings, int sibling, const fl_handover *handover);

/* Takes in the next one that was handed to us, with its bytes in `bytes`, which has room for FL_HANDOFF_BYTES. False: none is
 * there. Whoever has seen to it says so with fl_handoff_received: until then it counts as on its way. */
bool fl_handoff_receive(const fl_siblings *siblings, char *bytes, fl_handover *handover);
void fl_handoff_received(const fl_siblings *siblings, const fl_handover *handover);

/* Whether more are on their way. */
bool fl_handoff_more_comes(const fl_siblings *siblings);

#endif
