/* What the connection's own files use of each other. */
#ifndef FL_CONNECTION_PARTS_H
#define FL_CONNECTION_PARTS_H

#include "connection.h"

/* Nothing is left to send: what has waited for that goes on. */
void fl_connection_all_sent(fl_connection *connection);

/* The transport needs this event before its next try. */
void fl_connection_await(fl_connection *connection, uint8_t event);

/* Connections have come or gone, or had their first request. */
void fl_connection_count(fl_connection *connection, int connections, int fresh);

/* A request that is served was at fault, and its owner has nothing to say. The exchange loses its connection. */
void fl_exchange_reject_served(struct fl_exchange *exchange);

#endif
