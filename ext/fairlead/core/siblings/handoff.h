/* Hands a connection to a sibling worker: its descriptor and the bytes read from it, in one message over a socket pair.
 * The caller holds the lock. Nothing is allocated. A connection that cannot be handed over stays in this worker. */
#ifndef FL_HANDOFF_H
#define FL_HANDOFF_H

#include "connection/connection.h"
#include "siblings.h"
#include <stdbool.h>

enum { FL_HANDOFF_BYTES = 65536 }; /* the maximum for a connection */

/* A connection in transit. */
typedef struct fl_handover {
    uint64_t arrived; /* fl_clock when its request was ready; 0: it has none */
    int listener;     /* the index of its listener */
    int hand_overs;   /* how often its request has been handed over */
    int descriptor;   /* owned by the caller; -1: lost, since the process had no free descriptor */
    char *bytes;      /* input that was read already */
    size_t size;
} fl_handover;

/* Whether a connection can be handed over. */
bool fl_handoff_possible(const fl_connection *connection);

/* Hands a connection that is idle, or whose request is queued, to a sibling, and closes it in this worker; the client does not notice.
 * Returns false if that is not possible now. */
bool fl_handoff_give(fl_siblings *siblings, fl_connection *connection, int sibling);

/* The same for a connection with a request of which only the head has been read. The sibling reads the body, of whatever size. */
bool fl_handoff_give_unread(fl_siblings *siblings, fl_connection *connection, int sibling);

/* The same as fl_handoff_give, to the sibling that fl_siblings_choose returns. */
bool fl_handoff_give_to_least_loaded(fl_siblings *siblings, fl_connection *connection);

/* Sends a received connection on to another sibling, and closes the descriptor. */
bool fl_handoff_forward(const fl_siblings *siblings, int sibling, const fl_handover *handover);

/* Receives the next connection, with its input in `bytes`, which has room for FL_HANDOFF_BYTES. Returns false if there is none. The slot
 * counts it as incoming until fl_handoff_received. */
bool fl_handoff_receive(const fl_siblings *siblings, char *bytes, fl_handover *handover);
void fl_handoff_received(const fl_siblings *siblings, const fl_handover *handover);

/* Whether the slot counts incoming connections. */
bool fl_handoff_is_pending(const fl_siblings *siblings);

#endif
