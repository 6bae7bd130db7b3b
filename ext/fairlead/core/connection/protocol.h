/* What turns the bytes of a connection into requests, and responses into bytes: one table of functions for each protocol.
 * HTTP/1 is the first (http1/protocol.c). A protocol is chosen when a connection begins, by what the transport has agreed on
 * with the client, else the first of its listener. It may have any number of requests of a connection under way at once; each
 * is an exchange on the connection's list.
 *
 * Of a connection: the protocol reads with fl_connection_read, puts what it sends into `out` or an exchange's own buffer, and
 * sends with fl_connection_send. It makes exchanges with fl_exchange_new, and says with fl_exchange_is_ready that one can have
 * its turn. Any call may close the connection: look at its state, or at exchange->connection, afterwards. Only the holder of the
 * loop calls, but for `begin` and `header`: see there.
 *
 * `protocol_state` is the protocol's own: zeroed at first in a connection, not in an exchange. `close` and `forget` free what
 * it points to. */
#ifndef FL_PROTOCOL_H
#define FL_PROTOCOL_H

#include "base/buffer.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct fl_connection;
struct fl_exchange;

typedef struct fl_protocol {
    const char *name; /* as ALPN has it */

    /* A connection. Those marked with * may be NULL: there is nothing to do. */

    /* * It has just begun. What has been read of it already is in `in`. */
    void (*open)(struct fl_connection *connection);
    /* There may be something to read. Called again as long as anything was read. */
    void (*receive)(struct fl_connection *connection);
    /* All that had to wait in `out` has been sent. */
    void (*sent)(struct fl_connection *connection);
    /* * The client has ended its side, which need not mean that it has gone. */
    void (*half_closed)(struct fl_connection *connection);
    /* No further request is accepted: what is idle is closed. Called once, when the server begins to end. */
    void (*drain)(struct fl_connection *connection);
    /* * It is closed: its exchanges have gone. */
    void (*close)(struct fl_connection *connection);

    /* A request */

    /* * The exchange is freed. */
    void (*forget)(struct fl_exchange *exchange);

    /* * It leaves the queue. From now on `head_bytes` holds the bytes of its head. */
    void (*taken)(struct fl_exchange *exchange);
    /* Its owner wants more of its body: what can be read is read. */
    void (*read)(struct fl_exchange *exchange);
    /* * Whether its client, which has ended its side, still waits for the answer, as far as can be told. */
    bool (*is_read)(struct fl_exchange *exchange);
    /* Answers in the app's stead with a short text. The exchange loses its connection; its caller frees it. `may_go_on`: the
     * connection may stay open for other requests. */
    void (*answer)(struct fl_exchange *exchange, int code, const char *text, bool may_go_on);
    /* * The bytes of a whole request, as HTTP/1 has it, to be handed to another worker; 0: it cannot be. */
    size_t (*raw)(const struct fl_exchange *exchange, struct iovec parts[3]);

    /* Its response, in this order. A function that fails leaves it to its caller to end the exchange. */

    /* `code` is set. This and `header` touch nothing but the exchange, with the staging slab: the GVL is enough for them. What
     * depends on other exchanges of the connection (compressed fields) waits for `head`. */
    fl_status (*begin)(struct fl_exchange *exchange);
    fl_status (*header)(struct fl_exchange *exchange, const char *name, size_t name_size, const char *value, size_t value_size);
    /* Ends the head: sets `framing` and stages what follows from it. `length` of the body: -1 if it is not known. */
    fl_status (*head)(struct fl_exchange *exchange, int64_t length);
    /* * Whether bytes of a body that the app frames itself are sound. */
    bool (*is_sound)(struct fl_exchange *exchange, const char *bytes, size_t size);
    /* Stages bytes of the body. */
    fl_status (*body)(struct fl_exchange *exchange, const char *bytes, size_t size);
    /* * Sends what is staged, and behind it bytes that stay the caller's; answers how many of these. 0 too where they have to be
     * staged. */
    size_t (*body_directly)(struct fl_exchange *exchange, const char *bytes, size_t size);
    /* A field behind the body. */
    fl_status (*trailer)(struct fl_exchange *exchange, const char *name, size_t name_size, const char *value, size_t value_size);
    /* Hands what is staged to the connection, as far as that takes it now, and sends it. */
    void (*flush)(struct fl_exchange *exchange);
    /* Ends the response, and sends or stages its rest. False: it is not whole, and cannot be. */
    bool (*finish)(struct fl_exchange *exchange);
    /* After that, and after the exchange has gone. */
    void (*finished)(struct fl_connection *connection);
    /* It will never be whole: the client must see that. */
    void (*reset)(struct fl_exchange *exchange);

    /* An interim response: `fields` are lines that end with CR LF each. */
    fl_status (*inform)(struct fl_exchange *exchange, int code, const char *fields, size_t size);
    /* * Gives the socket away: see fl_exchange_hijack. */
    int (*hijack)(struct fl_exchange *exchange, fl_buffer *unsent, fl_buffer *ahead);
} fl_protocol;

enum { FL_PROTOCOL_CONNECTION_STATE = 8, FL_PROTOCOL_EXCHANGE_STATE = 112 };

#endif
