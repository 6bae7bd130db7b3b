/* What proxies say of the client of a request, in X-Forwarded-* and Forwarded (RFC 7239). Reads the caller's head only; nothing is
 * allocated, any thread may call.
 *
 * Without a list of trusted proxies, as with other servers, any sender is believed that the client speaks TLS, and none what address
 * it has. With a list, only these proxies are believed, in both. */
#ifndef FL_FORWARDED_H
#define FL_FORWARDED_H

#include "head.h"
#include "networks.h"

typedef enum fl_scheme { FL_SCHEME_UNKNOWN, FL_SCHEME_HTTP, FL_SCHEME_HTTPS } fl_scheme;

/* The scheme that this header says; FL_SCHEME_UNKNOWN: none. */
fl_scheme fl_forwarded_scheme_of(fl_header_id id, const char *value, size_t size);

/* Sets `client`, at first the peer, to the client that the trusted proxies name: the last address in X-Forwarded-For that is not one of
 * theirs, else the first; Forwarded counts only without X-Forwarded-For, which most proxies extend while they pass on Forwarded as the
 * client has sent it. Returns the scheme that the client used, if a believed proxy says one. */
fl_scheme fl_forwarded_read(const fl_head *head, const char *bytes, const fl_networks *trusted, fl_client *client);

#endif
