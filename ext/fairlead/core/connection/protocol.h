/* A protocol turns the bytes of a connection into requests, and responses into bytes: one table of functions each. HTTP/1 is the first
 * (http1/protocol.c). A connection gets its protocol when its transport is open: the one that the transport has negotiated, else the
 * first of its listener. Any number of requests of a connection may be under way at once; each is an exchange on the connection's list.
 *
 * The protocol reads with fl_connection_read, stages output in the exchange's `response.out` or the connection's `out`, and sends with
 * fl_connection_send. It allocates exchanges with fl_exchange_new, and queues them with fl_exchange_is_ready. Sending and reading may
 * close the connection: check its state, or exchange->connection, afterwards. The caller of all functions except `begin` and `header`
 * holds the lock.
 *
 * `protocol_state` belongs to the protocol. It is zeroed in a new connection, not in a new exchange; `close` and `forget` free what it
 * points to. */
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

    /* Connections. Functions marked with * may be NULL. */

    /* * The connection is open. `in` holds what has been read from it already. */
    void (*open)(struct fl_connection *connection);
    /* There may be something to read. Called again until nothing was read. */
    void (*receive)(struct fl_connection *connection);
    /* All output that had to wait in `out` has been sent. */
    void (*sent)(struct fl_connection *connection);
    /* * The client has ended its side. It may still read. Called again with each event. */
    void (*half_closed)(struct fl_connection *connection);
    /* The server begins to end: accept no further request, and close the connection if it is idle. */
    void (*drain)(struct fl_connection *connection);
    /* * The connection is closed, and has no exchanges any more. */
    void (*close)(struct fl_connection *connection);

    /* Requests */

    /* * The exchange is being freed. */
    void (*forget)(struct fl_exchange *exchange);

    /* * The request leaves the queue. Must move the bytes of its head to request.head_bytes, if they are elsewhere. */
    void (*taken)(struct fl_exchange *exchange);
    /* The owner wants more of the body: read what is there. */
    void (*read)(struct fl_exchange *exchange);
    /* * Whether a client that has ended its side still waits for the response. If it has gone, closes the connection. */
    bool (*is_read)(struct fl_exchange *exchange);
    /* Sends a response of the core with a short text, and detaches the exchange, which the caller frees. `may_go_on`: the connection may
     * stay open for other requests. */
    void (*answer)(struct fl_exchange *exchange, int code, const char *text, bool may_go_on);
    /* * The bytes of a whole request as HTTP/1, to hand it to another worker. Returns the number of parts; 0: not possible. */
    size_t (*raw)(const struct fl_exchange *exchange, struct iovec parts[3]);

    /* Responses, in this order. If a function fails, the caller ends the exchange. */

    /* response.code is set. `begin` and `header` run without the lock: they may touch the exchange and the staging slab only. What depends
     * on other exchanges of the connection, such as compression of fields, belongs into `head`. */
    fl_status (*begin)(struct fl_exchange *exchange);
    fl_status (*header)(struct fl_exchange *exchange, const char *name, size_t name_size, const char *value, size_t value_size);
    /* Ends the head: sets response.framing and stages the fields that follow from it. `length` of the body: -1 if not known. */
    fl_status (*head)(struct fl_exchange *exchange, int64_t length);
    /* * Whether bytes of a body that the app frames itself are well-formed. */
    bool (*is_sound)(struct fl_exchange *exchange, const char *bytes, size_t size);
    /* Stages bytes of the body. */
    fl_status (*body)(struct fl_exchange *exchange, const char *bytes, size_t size);
    /* * Sends what is staged, and `bytes` behind it without a copy. Returns how many of `bytes` were sent; the rest is staged. */
    size_t (*body_directly)(struct fl_exchange *exchange, const char *bytes, size_t size);
    /* Stages a field behind the body. */
    fl_status (*trailer)(struct fl_exchange *exchange, const char *name, size_t name_size, const char *value,
                         size_t value_size);
    /* Sends what is staged, as far as possible. What stays in response.out is offered again. */
    void (*flush)(struct fl_exchange *exchange);
    /* Ends the response, and sends or stages the rest. False: the response is incomplete. */
    bool (*finish)(struct fl_exchange *exchange);
    /* Called after `finish`, when the exchange has been freed. */
    void (*finished)(struct fl_connection *connection);
    /* The response will never be complete: let the client notice. */
    void (*reset)(struct fl_exchange *exchange);

    /* Sends an interim response. `fields`: lines that end with CR LF. */
    fl_status (*inform)(struct fl_exchange *exchange, int code, const char *fields, size_t size);
    /* * See fl_exchange_hijack. */
    int (*hijack)(struct fl_exchange *exchange, fl_buffer *unsent, fl_buffer *ahead);
} fl_protocol;

enum { FL_PROTOCOL_CONNECTION_STATE = 8, FL_PROTOCOL_EXCHANGE_STATE = 112 };

#endif
