/* Relays a request to a sibling, where its connection cannot move: it is encrypted, or has other requests too. The sibling gets one end
 * of a socket pair, as a plain HTTP/1 connection on which the request has come already. This worker, which needs no Ruby for that, writes
 * what comes back to the exchange, with the functions of its protocol.
 *
 * A relay owns its exchange, as a fiber owns that of a served request. fl_relay_give allocates it; the loop frees ended ones at the end
 * of a turn. If the sibling is lost, the response is cut off; if the client is, the sibling sees its connection closed. The caller holds
 * the lock. */
#ifndef FL_RELAY_H
#define FL_RELAY_H

#include "connection/exchange.h"
#include "siblings.h"

typedef struct fl_relay fl_relay;

/* Whether a queued request can be relayed. */
bool fl_relay_possible(const fl_exchange *exchange);

/* Returns false if that is not possible now: the request stays queued. */
bool fl_relay_give(fl_siblings *siblings, fl_exchange *exchange, int sibling);

void fl_relay_event(fl_relay *relay, uint32_t ready);

/* The exchange has room, or its client has ended its side, or has gone. A member of fl_context_calls. */
void fl_relay_notify(fl_exchange *exchange);

/* Goes on with relays that were notified. */
void fl_relays_continue(struct fl_context *context);

/* Ends all relays, when a drain has run out of time: their clients get FL_ENDING, or a response that is cut off. */
void fl_relays_stop(struct fl_context *context);

void fl_relays_free_ended(struct fl_context *context);

#endif
