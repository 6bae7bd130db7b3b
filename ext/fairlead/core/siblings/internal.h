/* Functions that only the files of this folder call. */
#ifndef FL_SIBLINGS_INTERNAL_H
#define FL_SIBLINGS_INTERNAL_H

#include "connection/exchange.h"
#include "siblings.h"

/* Whether a request may go to another worker: it is not bound to this one, and has not been passed around. */
bool fl_handoff_may_move(const fl_exchange *exchange);

/* Sends a queued request to a sibling, with the descriptor of the socket on which it gets the response. */
bool fl_handoff_send_request(const fl_siblings *siblings, const fl_exchange *exchange, int sibling, int descriptor);

#endif
