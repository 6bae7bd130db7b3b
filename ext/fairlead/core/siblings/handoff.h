/* Hands a connection to a sibling worker: its descriptor and the bytes read from it, in one message over a socket pair.
 * The caller holds the lock. Nothing is allocated. If a connection cannot be given, it stays where it is. */
#ifndef FL_HANDOFF_H
#define FL_HANDOFF_H

#include "connection/connection.h"
#include "siblings.h"
#include <stdbool.h>

enum { FL_HANDOFF_BYTES = 65536 }; /* the most that goes with a connection */

/* A connection on its way. */
typedef struct fl_handover {
    uint64_t arrived; /* fl_clock when its request came; 0: it has none */
    int listener;     /* the index of its listener */
    int hand_overs;   /* how often its request has been handed over */
    int descriptor;   /* the caller's; -1: lost, since there was no descriptor */
    char *bytes;      /* read from it so far */
    size_t size;
} fl_handover;

/* Whether a connection can be given at all. */
bool fl_handoff_possible(const fl_connection *connection);

/* Gives a connection that is idle, or whose request waits in a queue, to a sibling, and closes it here without the client noticing.
 * False if it cannot be given now. */
bool fl_handoff_give(fl_siblings *siblings, fl_connection *connection, int sibling);

/* The same, to the sibling that fl_siblings_choose returns. */
bool fl_handoff_leave(fl_siblings *siblings, fl_connection *connection);

/* Gives a socket for which no connection has been opened here, and closes the descriptor. */
bool fl_handoff_pass_on(const fl_siblings *siblings, int sibling, const fl_handover *handover);

/* Receives the next connection, with its bytes in `bytes`, which has room for FL_HANDOFF_BYTES. False: none is there. It counts as on
 * its way until fl_handoff_received. */
bool fl_handoff_receive(const fl_siblings *siblings, char *bytes, fl_handover *handover);
void fl_handoff_received(const fl_siblings *siblings, const fl_handover *handover);

/* Whether more are on their way, as far as is known. */
bool fl_handoff_more_comes(const fl_siblings *siblings);

#endif
