/* HTTP/1.0 and 1.1 as a protocol of connections: one request after the other, each answered before the next one is read.
 * The contract is that of connection/protocol.h. */
#ifndef FL_HTTP1_PROTOCOL_H
#define FL_HTTP1_PROTOCOL_H

#include "connection/protocol.h"

extern const fl_protocol fl_http1_protocol;

#endif
