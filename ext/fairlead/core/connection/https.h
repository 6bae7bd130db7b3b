/* Whether a request came over TLS, and what follows: a redirect of those that did not, and the header Strict-Transport-Security (RFC 6797).
 * Used by the exchange. The caller of all but fl_https_add_header holds the lock. */
#ifndef FL_HTTPS_H
#define FL_HTTPS_H

#include "exchange.h"

/* Sets request.https. Redirects a request that came without TLS, and frees the exchange. Returns false if it goes to the app: it came
 * with TLS, the server does not redirect, the request has no host or no path, or it validates a domain for a certificate (RFC 8555,
 * 8.3). */
bool fl_https_redirect(fl_exchange *exchange);

/* Adds the header to the response of a request with TLS, unless the app has. */
fl_status fl_https_add_header(fl_exchange *exchange);

#endif
