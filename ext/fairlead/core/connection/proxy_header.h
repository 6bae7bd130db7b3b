/* The header of the PROXY protocol, version 1 or 2, with which a load balancer begins a connection to name its client
 * (haproxy.org, proxy-protocol.txt). Reads bytes of the caller only; nothing is allocated, any thread may call. */
#ifndef FL_PROXY_HEADER_H
#define FL_PROXY_HEADER_H

#include "base/client.h"
#include <stddef.h>
#include <sys/types.h>

enum { FL_PROXY_HEADER_MAX = 4096 }; /* bytes of the longest header, with the extensions of version 2, which are skipped */

/* Parses the header at the beginning of `bytes`. Returns its size; 0: it is incomplete; -1: it is malformed or too long, which shows at the
 * first wrong byte. A complete header sets `client`, unless it names none: for health checks of the load balancer, and for clients that
 * have no IP address, the peer stays the client. */
ssize_t fl_proxy_header_parse(const char *bytes, size_t available, fl_client *client);

#endif
