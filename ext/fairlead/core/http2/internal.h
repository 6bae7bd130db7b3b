/* The protocol's state and functions, for the files of this folder. The contract is that of connection/protocol.h.
 *
 * A session belongs to its connection, streams belong to their session. A stream lives until nghttp2 closes it, its exchange may end
 * earlier: then `exchange` is NULL, and the rest of the response is in `out`. An exchange may outlive its stream, too, if its owner
 * still runs: then the state's `stream` is NULL.
 *
 * nghttp2 calls back within fl_http2_receive and fl_http2_pump, which set `busy` meanwhile. Callbacks neither send nor close: the
 * functions below see `busy`, and the caller does it afterwards. Whoever pumps may hold an exchange, so exchanges that lost their stream
 * are freed in fl_http2_settle only. */
#ifndef FL_HTTP2_INTERNAL_H
#define FL_HTTP2_INTERNAL_H

#include "connection/connection.h"
#include "connection/context.h"
#include "connection/exchange.h"
#include "http1/http1.h"
#include <nghttp2/nghttp2.h>

enum {
    FL_HTTP2_MAX_STREAMS = 100,           /* at once */
    FL_HTTP2_MAX_OUT = 65536,             /* bytes of frames that wait for the socket */
    FL_HTTP2_CONNECTION_WINDOW = 1 << 20, /* bytes of bodies on their way */
    FL_HTTP2_MAX_TRAILERS = 8192,         /* bytes, as in HTTP/1 */
    FL_HTTP2_EMPTY_FRAME = 4,             /* tokens */
    FL_HTTP2_A_TURN = 131072,             /* bytes of bodies, before it is another connection's turn, */
    FL_HTTP2_HEAVY = 8,                   /* and how many of these each other byte counts for, also of header lists, */
    FL_HTTP2_HEAD = 4096,                 /* and each header list */
};

/* The ids between them. */
typedef struct fl_http2_gap {
    int32_t after, before;
} fl_http2_gap;

typedef struct fl_http2_session {
    nghttp2_session *session;
    fl_connection *connection;
    nghttp2_mem memory;
    size_t allocated;              /* bytes of nghttp2, see budget.c */
    int32_t tokens;                /* see budget.c */
    uint64_t filled_at;            /* fl_clock */
    uint32_t turn;                 /* bytes since it was other connections' turn, see FL_HTTP2_A_TURN */
    fl_buffer rest;                /* input of the next turn, */
    bool paused;                   /* if this turn has ended within a header list */
    size_t body_bytes;             /* of the bytes that nghttp2 reads, */
    uint32_t idle_bytes;           /* and others that are not paid for */
    struct fl_http2_stream *first; /* of the open streams, the newest first */
    uint32_t streams;              /* how many */
    struct fl_http2_stream *head;  /* the stream whose head is being received; NULL: none is */
    size_t list_size;              /* of the header list that is being received (RFC 9113, 6.5.2) */
    int32_t last_id;               /* the highest id of a stream so far, */
    fl_http2_gap skipped;          /* and the ids that the client has skipped last */
    bool busy;                     /* within nghttp2 */
    bool pumping;
    bool closed;     /* the connection was closed while it was busy */
    bool lost;       /* an exchange has lost its stream */
    bool holds;      /* a stream gets no new window, until others have been read */
    bool draining;   /* the client knows that the connection will end, */
    bool last_named; /* and which was its last request */
    bool ending;     /* no more frames are read */
} fl_http2_session;

typedef struct fl_http2_stream {
    fl_stream_deadline stalled; /* first: runs while the client opens no window for the response */
    struct fl_http2_stream *previous, *next;
    fl_http2_session *owner;
    fl_exchange *exchange;
    int32_t id;
    /* The request */
    fl_buffer pseudo;                        /* the bytes of these: */
    fl_span method, scheme, authority, path; /* size 0: none */
    fl_buffer cookie;
    uint32_t held_back; /* bytes for which the client got no new window yet */
    fl_status refused;  /* what is wrong with the head */
    bool begun;         /* the request line is written */
    bool read_ended;    /* the client has ended its side */
    /* The response */
    fl_buffer out;      /* the rest of the body, once the exchange has ended */
    fl_buffer trailers; /* lines */
    uint32_t pending;   /* bytes of the body that nghttp2 knows of and has not sent */
    uint64_t sent;      /* bytes of the body */
    bool submitted;     /* the head */
    bool finished;      /* the body is complete */
    bool deferred;      /* nghttp2 waits for more of the body */
} fl_http2_stream;

typedef struct fl_http2_exchange {
    fl_http2_stream *stream;   /* NULL: it is closed */
    fl_chunks response_chunks; /* that the app writes */
    uint32_t head_size;        /* bytes of response.out that are the staged head, as lines of HTTP/1 */
    bool lost;
} fl_http2_exchange;

_Static_assert(sizeof(fl_http2_session *) <= FL_PROTOCOL_CONNECTION_STATE, "FL_PROTOCOL_CONNECTION_STATE is too small");
_Static_assert(sizeof(fl_http2_exchange) <= FL_PROTOCOL_EXCHANGE_STATE, "FL_PROTOCOL_EXCHANGE_STATE is too small");

static inline fl_http2_session *fl_http2_session_of(const fl_connection *connection) {
    return *(fl_http2_session *const *) (const void *) connection->protocol_state;
}
static inline fl_http2_exchange *fl_http2_exchange_state(const fl_exchange *exchange) {
    return (fl_http2_exchange *) exchange->protocol_state;
}
static inline fl_http2_stream *fl_http2_stream_of(const fl_exchange *exchange) {
    return fl_http2_exchange_state(exchange)->stream;
}
static inline fl_slab *fl_http2_slab(const fl_http2_stream *stream) {
    return &stream->owner->connection->context->slab;
}

/* protocol.c */
/* Sends what nghttp2 has, as far as the socket takes it. May close the connection. */
void fl_http2_pump(fl_connection *connection);
/* Frees what has lost its stream, and ends or closes the connection or starts its deadline. Called after pumping, by a caller that
 * holds no exchange. May close the connection. */
void fl_http2_settle(fl_connection *connection);

/* stream.c */
int fl_http2_on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *data);
fl_http2_stream *fl_http2_stream_new(fl_http2_session *owner, int32_t id);
void fl_http2_stream_free(fl_http2_stream *stream);
/* The stream's response ends with RST_STREAM. Its exchange, if any, has no stream any more. */
void fl_http2_stream_reset(fl_http2_stream *stream, uint32_t code);
/* Its exchange, if any, has no stream any more. */
void fl_http2_stream_forget_exchange(fl_http2_stream *stream);
/* Starts or stops the deadline, by what is pending. The end of a response waits for the client's window, too. */
void fl_http2_stream_watch(fl_http2_stream *stream);
/* The head of a request is complete, or its stream is closed: its deadline ends. */
void fl_http2_head_ends(fl_http2_session *own);
/* nghttp2 ignores these errors of the connection: a stream with an id that was skipped before (RFC 9113, 5.1.1), of which only the last
 * gap is known, and PRIORITY without a stream (6.3). */
bool fl_http2_is_wrong_stream(fl_http2_session *own, const nghttp2_frame_hd *header);
size_t fl_http2_serialize(const fl_exchange *exchange, struct iovec parts[3]);

/* request.c: callbacks of nghttp2 */
int fl_http2_on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *data);
int fl_http2_on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_size,
                       const uint8_t *value, size_t value_size, uint8_t flags, void *data);
int fl_http2_on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *data);

/* body.c: fl_http2_on_data is a callback of nghttp2, too */
int fl_http2_on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes, size_t size, void *data);
bool fl_http2_reads_body(const fl_http2_stream *stream);
void fl_http2_body_is_complete(fl_http2_stream *stream);
void fl_http2_read_body(fl_exchange *exchange);
void fl_http2_body_consumed(fl_exchange *exchange);
/* Gives windows to streams that were held back, as far as the connection's budget allows. */
void fl_http2_grant_held(fl_http2_session *own);

/* respond.c */
fl_status fl_http2_begin(fl_exchange *exchange);
fl_status fl_http2_header(fl_exchange *exchange, const char *name, size_t name_size, const char *value, size_t value_size);
fl_status fl_http2_end_head(fl_exchange *exchange, int64_t length);
bool fl_http2_is_well_formed(fl_exchange *exchange, const char *bytes, size_t size);
fl_status fl_http2_body(fl_exchange *exchange, const char *bytes, size_t size);
fl_status fl_http2_trailer(fl_exchange *exchange, const char *name, size_t name_size, const char *value, size_t value_size);
void fl_http2_flush(fl_exchange *exchange);
bool fl_http2_finish(fl_exchange *exchange);
void fl_http2_reset(fl_exchange *exchange);
void fl_http2_canned_response(fl_exchange *exchange, int code, const char *text, bool may_keep_alive);
fl_status fl_http2_send_interim(fl_exchange *exchange, int code, const char *fields, size_t size);

/* send.c */
/* Gives nghttp2 the head: lines as HTTP/1 has them, and names in any case. `has_body`: data follows, or at least the stream's end.
 * False: out of memory. */
bool fl_http2_submit_head(fl_http2_stream *stream, int code, const char *lines, size_t size, bool has_body);
bool fl_http2_submit_interim(fl_http2_stream *stream, int code, const char *lines, size_t size);
/* There is more of the body, or its end. */
void fl_http2_resume(fl_http2_stream *stream);
int fl_http2_on_frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *data);
/* A head or trailers that nghttp2 cannot send: the stream is reset. */
int fl_http2_on_frame_not_sent(nghttp2_session *session, const nghttp2_frame *frame, int error, void *data);
int fl_http2_on_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *header, size_t size,
                          nghttp2_data_source *source, void *data);

/* budget.c */
void fl_http2_budget_open(fl_http2_session *own);
/* Spends tokens for what costs without progress. Once they have run out, the connection ends with ENHANCE_YOUR_CALM. */
void fl_http2_spend(fl_http2_session *own, int tokens);
/* nghttp2 has read so many bytes. Those that were not part of a body cost tokens. */
void fl_http2_received(fl_http2_session *own, size_t size);
/* A header list is complete: a large one costs tokens. */
void fl_http2_unpacked(fl_http2_session *own);
/* The client has made progress. */
void fl_http2_earn(fl_http2_session *own, int tokens);
/* The connection ends with GOAWAY. */
void fl_http2_end(fl_http2_session *own, uint32_t code);
int fl_http2_on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *header, void *data);

#endif
