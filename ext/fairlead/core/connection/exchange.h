/* An exchange: one request and its response. Its owner is the fiber that serves the request.
 *
 * The protocol allocates an exchange with the first byte of a request. fl_exchange_finish and fl_exchange_abandon free it; the connection
 * frees it if it closes before the request was taken. `connection` is NULL once the client has disconnected. The caller holds the lock.
 * fl_exchange_begin and fl_exchange_header need only the GVL: they touch only the staged response, which no other thread touches
 * meanwhile.
 * Writing fails with FL_CLOSED once the client has disconnected, FL_BAD_CHUNK if the app's own chunks are malformed, FL_AGAIN if too much
 * is unsent (the exchange is woken when there is room), FL_NO_MEMORY, and FL_BAD_HEADER_NAME or FL_BAD_HEADER_VALUE. */
#ifndef FL_EXCHANGE_H
#define FL_EXCHANGE_H

#include "base/buffer.h"
#include "context.h"
#include "base/head.h"
#include "base/routes.h"
#include "base/time_account.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum fl_framing {
    FL_FRAMING_UNDECIDED, /* LENGTH if the body ends before it has to be sent, else CHUNKED */
    FL_FRAMING_LENGTH,
    FL_FRAMING_CHUNKED, /* in HTTP/1; other protocols have their own data frames */
    FL_FRAMING_CLOSE,   /* the end of the connection ends the body */
    FL_FRAMING_RAW,     /* the app writes chunks itself */
    FL_FRAMING_NONE,    /* no body: HEAD, 1xx, 204, 205, 304, a tunnel */
} fl_framing;

typedef enum fl_exchange_state {
    FL_EXCHANGE_NEW,     /* only empty lines have been received */
    FL_EXCHANGE_HEAD,    /* a part of the head has been received */
    FL_EXCHANGE_BODY,    /* the protocol reads the body ahead */
    FL_EXCHANGE_QUEUED,  /* the request waits for a fiber */
    FL_EXCHANGE_SERVED,  /* a fiber serves it */
    FL_EXCHANGE_RELAYED, /* a sibling does */
    FL_EXCHANGE_FILE,    /* the core sends a file, see file_body.h */
} fl_exchange_state;

typedef struct fl_request {
    fl_head *head;        /* until fl_exchange_release_head */
    fl_buffer head_bytes; /* its bytes: see fl_exchange_head_bytes */
    fl_buffer body;       /* received, but not read by the app yet */
    fl_buffer trailers;   /* with the empty line at their end */
    uint64_t content_length;
    uint64_t received;      /* bytes of the body */
    uint64_t first_byte_at; /* of fl_clock */
    uint32_t unfinished;    /* bytes that it counts for among the context's unfinished requests; 0: it is none of them */
    fl_deadline deadline;   /* of the body */
    uint8_t rejection;      /* fl_status: sent to the client if the app sends no response */
    bool chunked : 1;
    bool complete : 1; /* the whole body has been received */
    bool failed : 1;   /* the rest of the body will never be received */
    bool awaited : 1;  /* the owner waits for more of the body. Only a wake-up ends that: several fibers may wait */
    bool head_method : 1;
    bool connect_method : 1;
    bool accepts_html : 1; /* see error_page.h; known once it is submitted, like the next two */
    bool reconnects : 1;   /* an EventSource: its client asks again by itself once the response has ended */
    bool mcp_call : 1;     /* goes on without its client (MCP, Streamable HTTP) */
    bool https : 1;        /* see https.h */
    bool compact : 1;      /* the head's block has room for its own headers only */
} fl_request;

/* Whether a response is an event stream, see event_stream.h. */
typedef struct fl_event_stream {
    struct fl_event_coding *coding; /* how the core may add to an encoded one; NULL: not known */
    uint32_t tail;                  /* the last four bytes of its body */
    bool is_one, encoded, has_cache_control, has_accel_buffering;
} fl_event_stream;

/* No bit fields: fl_exchange_begin sets flags without the lock. */
typedef struct fl_response {
    fl_buffer out;  /* staged by the protocol, but not passed to the connection yet */
    fl_buffer held; /* body bytes while the framing is undecided */
    uint64_t length_left;
    uint64_t body_sent;
    size_t checked; /* FL_FRAMING_RAW: bytes that were checked, but not taken yet */
    fl_event_stream events;
    int code;
    uint8_t framing;
    bool close; /* the connection ends after this response */
    bool has_length;
    bool has_date;
    bool has_hsts;          /* the head has Strict-Transport-Security */
    bool head_complete;     /* the app has set all headers */
    bool framing_decided;   /* and the whole head is staged or sent */
    bool committed;         /* the connection has some of the response */
    bool switches_protocol; /* the app takes over the connection after the head */
    bool names_protocol;    /* the head has an Upgrade header */
    bool has_trailers;      /* the head has a Trailer header */
    bool awaits_room;       /* the owner waits until it can write more. Likewise */
} fl_response;

/* See time_limit.c. */
typedef struct fl_time_limit {
    /* Siblings in the heap of running limits (the first one's `before` is its parent), or neighbours in the list of expired exchanges. */
    struct fl_exchange *before, *after;
    struct fl_exchange *child; /* the first one in the heap */
    uint64_t limit;            /* microseconds; 0: none */
    uint64_t expires_at;       /* of fl_clock */
    bool running;
    bool expired;   /* waits in the list of expired exchanges */
    bool timed_out; /* the client has got a timeout response, or a truncated response */
    bool stopped;   /* the server has ended the response, since it stops */
} fl_time_limit;

typedef struct fl_queueing {
    int hand_overs; /* between workers, so far */
    int8_t lane;    /* fl_lane of the route when the request was queued */
    int8_t queue;   /* fl_lane: the queue in which it waits, or waited */
    int8_t reactor; /* took it from the queue of a lane; -1: none */
    bool pinned;    /* cannot be handed over */
    /* fl_exchange_new does not clear the members from here on. */
    uint64_t ready_at, started_at; /* of fl_clock, when it was queued and taken */
    uint64_t queued_at;            /* of fl_clock, when it was queued in this worker: later than ready_at if a sibling had it */
    uint64_t route;                /* if it has a lane: its key, */
    int64_t route_stalls;          /* and how often it had stalled when the request was taken */
    fl_route timed_route;          /* for request_times.h, once it is taken */
    bool route_named;              /* the app's router has named it */
    bool recorded;                 /* its times are in the shared page */
    fl_time_account *account;      /* NULL: none is kept; it may be another request's by now */
} fl_queueing;

typedef struct fl_exchange {
    fl_connection *connection;
    const fl_protocol *protocol;
    struct fl_context *context;
    fl_slab *staging;       /* for the bytes of `begin` and `header`: a relay calls them with the lock, but without the GVL */
    struct fl_relay *relay; /* its owner, if it is relayed */
    uint64_t id;
    struct fl_exchange *stream_previous, *stream_next; /* in its connection */
    struct fl_exchange *previous, *next;               /* among the unfinished, in the queue, then among the served */
    struct fl_exchange *woken_before, *woken_next, *abandoned_next;
    uint8_t state;
    bool woken;
    bool long_lived;
    bool stream; /* counts as one, since the limit of streams was not reached */
    struct fl_file_body *file;
    fl_identity *identity; /* of the client, once it has been taken */
    fl_request request;
    fl_response response;
    fl_time_limit timing;
    fl_queueing queueing;
    fl_client client; /* once it has been taken */
    int listener;     /* its index: the same */
    _Alignas(8) unsigned char protocol_state[FL_PROTOCOL_EXCHANGE_STATE];
} fl_exchange;

static inline fl_exchange *fl_exchange_of_deadline(const fl_deadline *deadline) {
    return (fl_exchange *) ((char *) deadline - offsetof(fl_exchange, request.deadline));
}

static inline void fl_exchange_stop_deadline(fl_exchange *exchange) {
    if (exchange->request.deadline.kind != FL_DEADLINE_NONE)
        fl_deadline_set(exchange->context, &exchange->request.deadline, FL_DEADLINE_NONE, 0);
}

/* Reading the request */

/* The bytes to which the head's spans refer. The connection owns them while the request waits, unless the protocol puts them into
 * head_bytes. Once the request is taken they are valid until fl_exchange_release_head, and reading them needs no lock. */
static inline const char *fl_exchange_head_bytes(const fl_exchange *exchange) {
    const fl_buffer *own = &exchange->request.head_bytes;
    return fl_buffer_at(own->length > 0 || exchange->connection == NULL ? own : &exchange->connection->in);
}

void fl_exchange_release_head(fl_exchange *exchange);

/* Received bytes of the body, valid until fl_exchange_consume_body. FL_OK: `size` is 0 at the end of the body. FL_AGAIN: the exchange is
 * woken when more is received. FL_CLOSED: the rest will never be received. */
fl_status fl_exchange_body(fl_exchange *exchange, const char **bytes, size_t *size);
void fl_exchange_consume_body(fl_exchange *exchange, size_t size);

/* Writing the response, in this order */

/* `code`: 200 to 999, or 101. Replaces a staged head. FL_CLOSED if some of the response was sent. */
fl_status fl_exchange_begin(fl_exchange *exchange, int code);
fl_status fl_exchange_header(fl_exchange *exchange, const char *name, size_t name_size, const char *value, size_t value_size);
/* Ends the head. `length` of the body: -1 if unknown. The app's content-length header has precedence. */
fl_status fl_exchange_head_end(fl_exchange *exchange, int64_t length);
/* How many bytes fl_exchange_write takes before it returns FL_AGAIN. */
size_t fl_exchange_room(const fl_exchange *exchange);
/* Sets `used` to the number of bytes taken: with FL_AGAIN, not all. */
fl_status fl_exchange_write(fl_exchange *exchange, const char *bytes, size_t size, size_t *used);
/* Sends the staged bytes now, instead of at the next turn. */
void fl_exchange_flush(fl_exchange *exchange);
/* Adds a field after the body. Drops it unless the head has a Trailer header, the framing is FL_FRAMING_CHUNKED, and fl_may_be_trailer
 * allows it. */
fl_status fl_exchange_trailer(fl_exchange *exchange, const char *name, size_t name_size, const char *value, size_t value_size);
/* The response is complete. Frees the exchange. */
void fl_exchange_finish(fl_exchange *exchange);
/* Truncates the response so that the client notices. If nothing was sent and the request has a rejection, sends that. Frees the
 * exchange. */
void fl_exchange_abandon(fl_exchange *exchange);

/* Between the request and the response */

/* Sends an interim response (1xx). `fields`: lines that end with CR LF. Sends nothing if the client speaks HTTP/1.0, the final response
 * has begun, or too much output is unsent. */
fl_status fl_exchange_send_interim(fl_exchange *exchange, int code, const char *fields, size_t size);

/* Passes the connection's socket to the caller, before the response has begun or after the head of one that switches protocols. Fills
 * `unsent` with bytes that the caller must send first, and `ahead` with input that was read already; the caller frees both with the
 * context's slab. Returns the descriptor, or -1 if the client has disconnected, a chunked body is not complete, or the protocol or
 * transport does not support it. The exchange still has to be finished. */
int fl_exchange_hijack(fl_exchange *exchange, fl_buffer *unsent, fl_buffer *ahead);

/* Counts the response as a stream instead of in flight, unless the limit of streams is reached. */
void fl_exchange_mark_long_lived(fl_exchange *exchange);

/* Starts a time limit now (0: none). It starts again when the owner reads or writes a part of a body. While the exchange waits for the
 * client, the client's deadlines count instead. */
void fl_exchange_set_time_limit(fl_exchange *exchange, uint64_t microseconds);
void fl_exchange_restart_time_limit(fl_exchange *exchange);

/* Wakes the owner if it waits for more of the body, or for room to write. */
void fl_exchange_wake(fl_exchange *exchange);
/* The loop abandons the exchange at its next turn. Needs no lock; for finalisers. */
void fl_exchange_abandon_later(fl_exchange *exchange);
/* Detaches a served exchange from a loop that has ended, or that belongs to the parent process. The owner frees it with free(). */
void fl_exchange_disown(fl_exchange *exchange);

/* Called by the loop */

/* Sends the error of this status, closes the connection, and frees the exchange. If it is served, wakes its owner instead. */
void fl_exchange_reject(fl_exchange *exchange, fl_status status);
/* The same for a queued request, but keeps the connection open if possible. */
void fl_exchange_turn_away(fl_exchange *exchange, fl_status status);
/* A served request has timed out: sends an error, or truncates the response if it has begun. Detaches the exchange. */
void fl_exchange_time_out(fl_exchange *exchange);
/* Whether the client of a queued request may still read the response. If not, frees the connection and the exchange. */
static inline bool fl_exchange_client_reads(fl_exchange *exchange) {
    return !exchange->connection->half_closed || exchange->protocol->client_reads == NULL ||
           exchange->protocol->client_reads(exchange);
}
/* Reduces the memory of a queued request, while many are queued. */
void fl_exchange_compact(fl_exchange *exchange);

/* Called by the protocol */

/* NULL: out of memory. */
fl_exchange *fl_exchange_new(struct fl_context *context, fl_connection *connection);
/* Queues the request, or answers a health check and frees the exchange. */
void fl_exchange_submit(fl_exchange *exchange);
/* More of the body was received, or the body has failed: queues the request once enough is read ahead, or wakes its owner. */
void fl_exchange_body_received(fl_exchange *exchange);
/* Only a part of the request has come so far: counts the memory that it takes by now, and `more` bytes that its protocol keeps for it. */
void fl_exchange_count_unfinished(fl_exchange *exchange, size_t more);
/* Removes the exchange from its connection. */
void fl_exchange_detach(fl_exchange *exchange);
/* Sets what of the head is needed once it has been freed. */
void fl_exchange_note_head(fl_exchange *exchange);
/* What a client is told that gets no response, if timing.timed_out. */
static inline fl_status fl_exchange_timeout(const fl_exchange *exchange) {
    return exchange->timing.stopped ? FL_ENDING : FL_REQUEST_TIMEOUT;
}
/* Whether a tunnel begins after the head (RFC 9110, 9.3.6). */
static inline bool fl_exchange_opens_tunnel(const fl_exchange *exchange) {
    return exchange->request.connect_method && exchange->response.code >= 200 && exchange->response.code < 300;
}
/* Whether the head must not have framing headers (RFC 9110, 8.6; RFC 9112, 6.1). A 304 may have the length of the omitted body, but apps
 * set that of the empty body. */
static inline bool fl_exchange_has_no_framing(const fl_exchange *exchange) {
    int code = exchange->response.code;
    return code < 200 || code == 204 || code == 205 || code == 304 || fl_exchange_opens_tunnel(exchange);
}
static inline bool fl_exchange_has_no_body(const fl_exchange *exchange) {
    return exchange->request.head_method || fl_exchange_has_no_framing(exchange);
}

/* Called within this folder */

/* Adds the request to the counters of the shared page, once: when its response becomes a stream, or at its end, which also ends its
 * account. */
void fl_exchange_record(fl_exchange *exchange);
void fl_exchange_record_stream(fl_exchange *exchange);
void fl_exchange_forget_unfinished(fl_exchange *exchange);
/* Frees a detached exchange, or wakes its owner. `client_gone`: false if the connection was closed for another reason. */
void fl_exchange_connection_lost(fl_exchange *exchange, bool client_gone);
void fl_exchange_client_gone(fl_exchange *exchange);
void fl_exchange_free(fl_exchange *exchange);
void fl_exchange_free_head(fl_exchange *exchange);
void fl_exchange_free_buffers(fl_exchange *exchange);
void fl_exchange_cancel_wake(fl_exchange *exchange);
void fl_exchange_clear_time_limit(fl_exchange *exchange);

#endif
