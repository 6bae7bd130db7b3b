/* Functions that only the files of this folder call. */
#ifndef FL_CONNECTION_INTERNAL_H
#define FL_CONNECTION_INTERNAL_H

#include "connection.h"

/* Takes the next connection from the list of handshakes that can go on. NULL: none. It may be closed. */
fl_connection *fl_context_next_handshake(struct fl_context *context);

/* `out` is empty: continues or ends the connection. */
void fl_connection_all_sent(fl_connection *connection);

/* Makes the poll report this event, which the transport waits for. */
void fl_connection_await(fl_connection *connection, uint8_t event);

/* Adds to the counts of connections, and of those without a request. */
void fl_connection_count(fl_connection *connection, int connections, int fresh);

/* Sends the rejection of a served request that has no response. Detaches the exchange. */
void fl_exchange_reject_served(struct fl_exchange *exchange);

#endif
