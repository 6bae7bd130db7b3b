/* The protocol's state and functions, for the files of this folder. The contract is that of connection/protocol.h. */
#ifndef FL_HTTP1_INTERNAL_H
#define FL_HTTP1_INTERNAL_H

#include "connection/connection.h"
#include "connection/context.h"
#include "connection/exchange.h"
#include "http1.h"

typedef struct fl_http1_connection {
    bool keep_alive;          /* stays open after the current response */
    bool probed;              /* see probe_client */
    uint8_t canned_responses; /* in a row */
} fl_http1_connection;

typedef struct fl_http1_exchange {
    fl_chunks request_chunks;
    fl_chunks response_chunks; /* that the app writes */
    uint8_t minor;             /* of the request's HTTP/1.x */
    bool trailers_begun;       /* of the response */
} fl_http1_exchange;

_Static_assert(sizeof(fl_http1_connection) <= FL_PROTOCOL_CONNECTION_STATE, "FL_PROTOCOL_CONNECTION_STATE is too small");
_Static_assert(sizeof(fl_http1_exchange) <= FL_PROTOCOL_EXCHANGE_STATE, "FL_PROTOCOL_EXCHANGE_STATE is too small");

static inline fl_http1_connection *fl_http1_connection_state(fl_connection *connection) {
    return (fl_http1_connection *) connection->protocol_state;
}
static inline fl_http1_exchange *fl_http1_exchange_state(const fl_exchange *exchange) {
    return (fl_http1_exchange *) exchange->protocol_state;
}

/* Whether the connection ends with its current response: the server drains, and no sibling can take it over. */
static inline bool fl_http1_is_ending(const fl_connection *connection) {
    const fl_context *context = connection->context;
    return context->draining && (!connection->transport.kind->raw || context->calls->is_ending(context));
}

/* protocol.c: for connections without an exchange. */
void fl_http1_reject_connection(fl_connection *connection, fl_status status);

/* receive.c */
void fl_http1_receive(fl_connection *connection);
/* Parses `in` until a request is ready or more bytes are needed. */
void fl_http1_read_requests(fl_connection *connection);

/* respond.c */
fl_status fl_http1_begin(fl_exchange *exchange);
fl_status fl_http1_header(fl_exchange *exchange, const char *name, size_t name_size, const char *value, size_t value_size);
fl_status fl_http1_end_head(fl_exchange *exchange, int64_t length);
bool fl_http1_is_well_formed(fl_exchange *exchange, const char *bytes, size_t size);
fl_status fl_http1_body(fl_exchange *exchange, const char *bytes, size_t size);
size_t fl_http1_body_directly(fl_exchange *exchange, const char *bytes, size_t size);
fl_status fl_http1_trailer(fl_exchange *exchange, const char *name, size_t name_size, const char *value, size_t value_size);
void fl_http1_flush(fl_exchange *exchange);
bool fl_http1_finish(fl_exchange *exchange);
void fl_http1_reset(fl_exchange *exchange);
fl_status fl_http1_send_interim(fl_exchange *exchange, int code, const char *fields, size_t size);

#endif
