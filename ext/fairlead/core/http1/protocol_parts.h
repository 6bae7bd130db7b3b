/* What the files of HTTP/1's protocol use of each other: each function is one of fl_protocol's, or may end the connection as
 * those may. */
#ifndef FL_HTTP1_PROTOCOL_PARTS_H
#define FL_HTTP1_PROTOCOL_PARTS_H

#include "connection/connection.h"
#include "connection/context.h"
#include "connection/exchange.h"
#include "http1.h"

typedef struct fl_http1_connection {
    bool keep_alive; /* may stay open after the present response */
    bool asked;      /* the client ended its side, and the protocol asked whether it still reads */
    uint8_t answers; /* of ours, in a row that needed no app */
} fl_http1_connection;

typedef struct fl_http1_exchange {
    fl_chunks chunks;     /* of the request's body */
    fl_chunks own_chunks; /* the app's, of the response's */
    uint8_t minor;        /* of the request's HTTP/1.x */
    bool trailers_begun;  /* of the response */
} fl_http1_exchange;

_Static_assert(sizeof(fl_http1_connection) <= FL_PROTOCOL_CONNECTION_STATE, "the protocol's own part is too small");
_Static_assert(sizeof(fl_http1_exchange) <= FL_PROTOCOL_EXCHANGE_STATE, "the protocol's own part is too small");

static inline fl_http1_connection *fl_http1_of(fl_connection *connection) {
    return (fl_http1_connection *) connection->protocol_state;
}
static inline fl_http1_exchange *fl_http1_part(const fl_exchange *exchange) {
    return (fl_http1_exchange *) exchange->protocol_state;
}

/* protocol.c: refuses what is no request yet, or has no exchange for want of memory. */
void fl_http1_reject_connection(fl_connection *connection, fl_status status);

/* receive.c */
void fl_http1_receive(fl_connection *connection);
/* Reads requests out of `in` until one is ready or more bytes are needed. */
void fl_http1_read_requests(fl_connection *connection);

/* respond.c */
fl_status fl_http1_begin(fl_exchange *exchange);
fl_status fl_http1_header(fl_exchange *exchange, const char *name, size_t name_size, const char *value, size_t value_size);
fl_status fl_http1_end_head(fl_exchange *exchange, int64_t length);
bool fl_http1_is_sound(fl_exchange *exchange, const char *bytes, size_t size);
fl_status fl_http1_body(fl_exchange *exchange, const char *bytes, size_t size);
size_t fl_http1_body_directly(fl_exchange *exchange, const char *bytes, size_t size);
fl_status fl_http1_trailer(fl_exchange *exchange, const char *name, size_t name_size, const char *value, size_t value_size);
void fl_http1_flush(fl_exchange *exchange);
bool fl_http1_finish(fl_exchange *exchange);
void fl_http1_reset(fl_exchange *exchange);
fl_status fl_http1_inform(fl_exchange *exchange, int code, const char *fields, size_t size);

#endif
