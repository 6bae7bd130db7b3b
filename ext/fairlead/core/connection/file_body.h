/* The body of a response that is a part of a file. The core sends it, without a fiber: with sendfile where the socket carries the bytes
 * unchanged, else in pieces. A slow client costs a descriptor and no buffer.
 * fl_file_body_begin takes the descriptor; it is closed when the exchange ends, however that happens. If the file turns out shorter than
 * announced, the response is truncated so that the client notices. The caller holds the lock. */
#ifndef FL_FILE_BODY_H
#define FL_FILE_BODY_H

#include "exchange.h"

/* The head is complete and announces `size` bytes, or the response has no body; then `descriptor` may be -1. The exchange belongs to the
 * core from here on; it is sent in the turns of the loop. A request that was taken must not be used by its owner any more. FL_NO_MEMORY:
 * the descriptor is closed, and the exchange is unchanged. */
fl_status fl_file_body_begin(fl_exchange *exchange, int descriptor, uint64_t offset, uint64_t size);

/* Sends a piece of each file whose client has room. Returns whether some could go on at once. */
bool fl_file_bodies_turn(struct fl_context *context);

/* The context is about to close, and has no connections. */
void fl_file_bodies_close(struct fl_context *context);

/* Called by the exchange */

void fl_file_body_free(struct fl_file_body *body);
/* The client has gone: the next turn frees the exchange, since a caller may hold it now. */
void fl_file_body_lost(fl_exchange *exchange);

#endif
