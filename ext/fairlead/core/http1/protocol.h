/* HTTP/1.0 and 1.1 as an fl_protocol: it answers each request before it reads the next one. */
#ifndef FL_HTTP1_PROTOCOL_H
#define FL_HTTP1_PROTOCOL_H

#include "connection/protocol.h"

extern const fl_protocol fl_http1_protocol;

#endif
