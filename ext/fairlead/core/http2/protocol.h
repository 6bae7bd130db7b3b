/* HTTP/2 (RFC 9113) as an fl_protocol, by libnghttp2. Each stream of a connection is one exchange. */
#ifndef FL_HTTP2_PROTOCOL_H
#define FL_HTTP2_PROTOCOL_H

#include "connection/protocol.h"

/* Without libnghttp2 the server speaks HTTP/1 only. */
#ifdef HAVE_NGHTTP2
extern const fl_protocol fl_http2_protocol;
#define FL_HTTP2 &fl_http2_protocol
enum { FL_HAS_HTTP2 = 1 };
#else
#define FL_HTTP2 NULL
enum { FL_HAS_HTTP2 = 0 };
#endif

#endif
