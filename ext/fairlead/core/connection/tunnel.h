/* A connection that the app has hijacked, though its socket does not carry the app's bytes: it is encrypted. The app gets one end of a
 * socket pair, and the loop carries bytes between the other end and the client. Each direction waits while its receiver has no room.
 *
 * Either side that ends ends the other. fl_connection_drain ends both, unless the app has closed its end: then what it has written is sent.
 * The tunnel belongs to its connection and is freed with it. The caller holds the lock. */
#ifndef FL_TUNNEL_H
#define FL_TUNNEL_H

#include "connection.h"

typedef struct fl_tunnel fl_tunnel;

/* The connection has no exchanges. Returns the app's end; -1: that is not possible, and nothing has changed. */
int fl_tunnel_begin(fl_connection *connection);

void fl_tunnel_event(fl_tunnel *tunnel, uint32_t ready);

/* The connection is about to be freed. */
void fl_tunnel_free(fl_connection *connection);

#endif
