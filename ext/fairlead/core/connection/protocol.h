/* A protocol turns the bytes of a connection into requests, and responses into bytes. It is a table of functions; HTTP/1 is the first one
 * (http1/protocol.c). A connection gets its protocol when its transport is open: the negotiated one, else the first one of its listener.
 * A connection may have any number of requests at once; each is an exchange on the connection's list.
 *
 * The protocol reads with fl_connection_read, stages output in the exchange's `response.out` or the connection's `out`, and sends with
 * fl_connection_send. It allocates exchanges with fl_exchange_new, and queues them with fl_exchange_submit. Sending and reading may
 * close the connection: check its state, or exchange->connection, afterwards. The caller of all functions except `begin` and `header`
 * holds the lock.
 *
 * `protocol_state` belongs to the protocol. It is zeroed in a new connection, but not in a new exchange; `close` and `exchange_freed`
 * free what it points to. */
#ifndef FL_PROTOCOL_H
#define FL_PROTOCOL_H

#include "base/buffer.h"
#include "base/status.h"
#include "deadline.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct fl_connection;
struct fl_exchange;

typedef struct fl_protocol {
    const char *name; /* its ALPN identifier */
    /* A connection with at most one request can go to another worker; others end their connections when they drain. */
    bool moves;
    /* A response stays in response.out until the client has room for it, so that `out` does not grow by it. */
    bool keeps;

    /* Connections. Functions marked with * may be NULL. */

    /* * The connection is open. `in` holds bytes that were read already. */
    void (*open)(struct fl_connection *connection);
    /* There may be input. Called again until it reads nothing, or the connection's turn ends. Parses `in` in place only if the heads of its
     * requests are in request.head_bytes. */
    void (*receive)(struct fl_connection *connection);
    /* All output that waited in `out` has been sent. Must not free exchanges: a caller may hold one. */
    void (*sent)(struct fl_connection *connection);
    /* * The client has ended its side, but may still read. Called again with each event. */
    void (*half_closed)(struct fl_connection *connection);
    /* * Output was staged, or the connection's turn had ended: sends what it has, after those exchanges that are served have been flushed.
     * May free exchanges. NULL: `out` is sent. */
    void (*send_staged)(struct fl_connection *connection);
    /* * What the client has to do next: FL_DEADLINE_IDLE, FL_DEADLINE_HEAD, FL_DEADLINE_LINGER (to close a connection that the server is
     * about to end), or FL_DEADLINE_NONE. Not asked while output waits, and once the connection ends. NULL: nothing. */
    fl_deadline_kind (*awaits)(const struct fl_connection *connection);
    /* The server is shutting down: accept no further request, and close the connection if it is idle. */
    void (*drain)(struct fl_connection *connection);
    /* * The connection is closed and has no exchanges. */
    void (*close)(struct fl_connection *connection);

    /* Requests */

    /* * The exchange is about to be freed. */
    void (*exchange_freed)(struct fl_exchange *exchange);

    /* * A fiber takes the request. Must move the bytes of the head to request.head_bytes. */
    void (*taken)(struct fl_exchange *exchange);
    /* The owner needs more of the body: read what is available, or have the client send it. Must not read other requests: the driver of
     * the loop would not hear of them. */
    void (*read)(struct fl_exchange *exchange);
    /* * The owner has taken bytes of the body. */
    void (*consumed)(struct fl_exchange *exchange);
    /* * Whether a client that has ended its side may still read the response. If not, closes the connection. */
    bool (*client_reads)(struct fl_exchange *exchange);
    /* Sends a response of the core with a short text, and detaches the exchange, which the caller frees. `may_keep_alive`: the connection
     * may stay open for other requests. Must not free other exchanges, unless the connection is closed. */
    void (*canned_response)(struct fl_exchange *exchange, int code, const char *text, bool may_keep_alive);
    /* * The bytes of a complete request as HTTP/1, to hand it to another worker: its head, its body unless it is empty, and what follows
     * on the connection. Returns the number of parts; 0: not possible. */
    size_t (*serialize)(const struct fl_exchange *exchange, struct iovec parts[3]);

    /* Responses, in this order. If a function fails, the caller ends the exchange. */

    /* response.code is set. `begin` and `header` run without the lock: they may only touch the exchange and the staging slab. Work that
     * depends on other exchanges, such as header compression, belongs in `head`. */
    fl_status (*begin)(struct fl_exchange *exchange);
    fl_status (*header)(struct fl_exchange *exchange, const char *name, size_t name_size, const char *value, size_t value_size);
    /* Ends the head: sets response.framing and stages its headers. `length` of the body: -1 if unknown. */
    fl_status (*head)(struct fl_exchange *exchange, int64_t length);
    /* * FL_FRAMING_RAW: whether the app's bytes are well-formed. */
    bool (*is_well_formed)(struct fl_exchange *exchange, const char *bytes, size_t size);
    /* Stages bytes of the body. */
    fl_status (*body)(struct fl_exchange *exchange, const char *bytes, size_t size);
    /* * Sends the staged bytes, then `bytes` without a copy. Returns how many of `bytes` were sent. */
    size_t (*body_directly)(struct fl_exchange *exchange, const char *bytes, size_t size);
    /* Stages a field after the body. */
    fl_status (*trailer)(struct fl_exchange *exchange, const char *name, size_t name_size, const char *value,
                         size_t value_size);
    /* Sends the staged bytes, as far as possible. Bytes that stay in response.out are offered again. */
    void (*flush)(struct fl_exchange *exchange);
    /* Ends the response, and sends or stages the rest. False: the response is incomplete. */
    bool (*finish)(struct fl_exchange *exchange);
    /* Called after `finish`, once the exchange has been freed. */
    void (*finished)(struct fl_connection *connection);
    /* Truncates the response so that the client notices. */
    void (*reset)(struct fl_exchange *exchange);

    /* Sends an interim response. `fields`: lines that end with CR LF. */
    fl_status (*send_interim)(struct fl_exchange *exchange, int code, const char *fields, size_t size);
    /* * See fl_exchange_hijack. */
    int (*hijack)(struct fl_exchange *exchange, fl_buffer *unsent, fl_buffer *ahead);
} fl_protocol;

enum { FL_MAX_SERIALIZED = 65536 };
enum { FL_PROTOCOL_CONNECTION_STATE = 8, FL_PROTOCOL_EXCHANGE_STATE = 112 };

#endif
