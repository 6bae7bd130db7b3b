/* What the connection's own files use of each other. For the connection files alone; the contract of connection.h holds
 * here too: each of these may end the connection. */
#ifndef FL_CONNECTION_PARTS_H
#define FL_CONNECTION_PARTS_H

#include "connection.h"

/* Nothing is left to send: what has waited for that goes on. */
void fl_connection_all_sent(fl_connection *connection);

/* All of its request that is read ahead is here: it is answered by us, or waits for its turn. */
void fl_connection_request_is_ready(fl_connection *connection);

/* Sends what is left, and nothing after that. */
void fl_connection_end(fl_connection *connection);

/* A deadline that starts again while the client moves on. */
void fl_connection_start_deadline(fl_connection *connection, fl_deadline_kind kind);

/* Reads requests out of `in` until one is ready or more bytes are needed. */
void fl_connection_parse(fl_connection *connection);

#endif
