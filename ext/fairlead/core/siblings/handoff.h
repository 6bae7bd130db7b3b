/* Hands a connection to a sibling worker: its descriptor and the bytes read from it, in one message over a socket pair.
 * The caller holds the lock. Nothing is allocated. A connection that cannot be handed over stays in this worker. */
#ifndef FL_HANDOFF_H
#define FL_HANDOFF_H

#include "connection/connection.h"
#include "siblings.h"
#include <stdbool.h>

enum {
    FL_HANDOFF_BYTES = 65536,                               /* the maximum for a connection */
    FL_HANDOFF_ROOM = FL_HANDOFF_BYTES + FL_IDENTITY_BYTES, /* what receiving one needs */
};

/* A connection in transit. */
typedef struct fl_handover {
    uint64_t arrived; /* fl_clock when its request was ready; 0: it has none */
    int listener;     /* the index of its listener */
    int hand_overs;   /* how often its request has been handed over */
    fl_client client; /* see fl_handed */
    int descriptor;   /* owned by the caller; -1: lost, since the process had no free descriptor */
    char *bytes;      /* input that was read already */
    size_t size;
    bool relayed;   /* it is one end of a relay (relay.h) */
    char *identity; /* of fl_identity, in `identity_size` bytes; 0: it has none */
    size_t identity_size;
} fl_handover;

/* Whether a connection can be handed over. */
bool fl_handoff_possible(const fl_connection *connection);

/* Hands a connection that is idle, or not open yet, or whose request is queued, to a sibling, and closes it in this worker; the client
 * does not notice. Returns false if that is not possible now. */
bool fl_handoff_give(fl_siblings *siblings, fl_connection *connection, int sibling);

/* Hands over a queued request: with its connection, or by a relay. Returns false if that is not possible now: it stays queued. */
bool fl_handoff_give_request(fl_siblings *siblings, struct fl_exchange *exchange, int sibling);
bool fl_handoff_request_possible(const struct fl_exchange *exchange);

/* Whether a request has moved often, and has come a moment ago. A draining worker keeps none, since none comes back. */
bool fl_handoff_must_stay_for_now(const struct fl_exchange *exchange);

/* fl_handoff_give for a connection with a request of which only the head has been read, and whose output has been sent. The sibling reads
 * the body, of whatever size. */
bool fl_handoff_may_give_unread(const fl_connection *connection);
bool fl_handoff_give_unread(fl_siblings *siblings, fl_connection *connection, int sibling);

/* The same as fl_handoff_give, to the sibling that fl_siblings_choose returns. */
bool fl_handoff_give_to_least_loaded(fl_siblings *siblings, fl_connection *connection);

/* Sends a received connection on to another sibling, and closes the descriptor. */
bool fl_handoff_forward(const fl_siblings *siblings, int sibling, const fl_handover *handover);

/* Receives the next connection, with its input in `bytes`, which has room for FL_HANDOFF_ROOM. Returns false if there is none. The slot
 * counts it as incoming until fl_handoff_received. */
bool fl_handoff_receive(const fl_siblings *siblings, char *bytes, fl_handover *handover);
void fl_handoff_received(const fl_siblings *siblings, const fl_handover *handover);

/* Whether the slot counts incoming connections. */
bool fl_handoff_is_pending(const fl_siblings *siblings);

#endif
