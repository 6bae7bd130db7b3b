/* An exchange: one request and its response, as their owner sees them.
 *
 * The protocol allocates an exchange with the first byte of a request. fl_exchange_finish and fl_exchange_abandon free it, or the
 * connection if it closes before the request was taken. `connection` is NULL once the client has gone. The caller holds the lock.
 * fl_exchange_begin and fl_exchange_header need the GVL only: they touch nothing but what is staged, which no other thread touches
 * meanwhile.
 * Writing fails with FL_CLOSED once the client has gone, FL_BAD_CHUNK if the app's own chunks are malformed, FL_AGAIN if too much is
 * unsent (the exchange is woken when there is room), FL_NO_MEMORY, and FL_BAD_HEADER_NAME or FL_BAD_HEADER_VALUE. */
#ifndef FL_EXCHANGE_H
#define FL_EXCHANGE_H

#include "base/buffer.h"
#include "connection.h"
#include "base/head.h"
#include "base/routes.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum fl_framing {
    FL_FRAMING_UNDECIDED, /* LENGTH if the body ends before it has to be sent, else PIECES */
    FL_FRAMING_LENGTH,
    FL_FRAMING_PIECES, /* each with its length, as the protocol has it: chunks */
    FL_FRAMING_CLOSE,  /* the end of the connection ends the body */
    FL_FRAMING_RAW,    /* the app frames it: in chunks of its own */
    FL_FRAMING_NONE,   /* there is no body: HEAD, 1xx, 204, 205, 304, a tunnel */
} fl_framing;

typedef enum fl_exchange_state {
    FL_EXCHANGE_NEW,    /* nothing but empty lines has come */
    FL_EXCHANGE_HEAD,   /* part of its head has come */
    FL_EXCHANGE_BODY,   /* its body is read ahead, before a fiber is taken */
    FL_EXCHANGE_QUEUED, /* it waits in a queue */
    FL_EXCHANGE_SERVED, /* a fiber has it */
} fl_exchange_state;

/* What has been received. */
typedef struct fl_request {
    fl_head *head;        /* until fl_exchange_head_used */
    fl_buffer head_bytes; /* its bytes, once it has been taken, or from the start if the protocol puts them here */
    fl_buffer body;       /* received, and not read by the app yet */
    fl_buffer trailers;   /* those behind the body, with the empty line at their end */
    uint64_t expected;    /* bytes of the body: content-length */
    uint64_t received;
    uint64_t first_byte_at; /* of fl_clock */
    fl_deadline deadline;   /* of the body */
    uint8_t rejection;      /* fl_status: what was wrong with the body; sent to the client if the app sends nothing */
    bool chunked : 1;
    bool whole : 1;   /* all of the body has been received */
    bool failed : 1;  /* it will never come whole */
    bool awaited : 1; /* its reader waits for more of the body */
    bool head_method : 1;
    bool connect_method : 1;
    bool compact : 1; /* the head has a block of its own size */
} fl_request;

/* What is sent. fl_exchange_begin sets these without the lock, so each flag has a byte of its own. */
typedef struct fl_response {
    fl_buffer out;  /* staged by the protocol, and not handed to the connection yet */
    fl_buffer held; /* body bytes while the framing is undecided */
    uint64_t length_left;
    uint64_t body_sent;
    size_t checked; /* bytes of a body that the app frames which were checked, and not taken yet */
    int code;
    uint8_t framing;
    bool close; /* the connection ends after this response */
    bool has_length;
    bool has_date;
    bool head_given;   /* the app has given the whole head */
    bool head_done;    /* its framing is decided, and the rest of the head staged or sent */
    bool committed;    /* something has been handed to the connection */
    bool takes_over;   /* after this head, the app talks to the client itself */
    bool upgrades;     /* the head names the protocol in which it does */
    bool has_trailers; /* the head announces some */
    bool awaits_room;  /* its writer waits until the client has taken more */
} fl_response;

/* The time limit of a request; see time_limit.c. */
typedef struct fl_time_limit {
    /* Siblings in the heap of running limits (the first one's `before` is its parent), or neighbours in the list of expired ones. */
    struct fl_exchange *before, *after;
    struct fl_exchange *below; /* in the heap: its first child */
    uint64_t limit;            /* microseconds without a piece of a body read or written; 0: none */
    uint64_t ends_at;          /* of fl_clock */
    bool runs;
    bool expired; /* its owner has to be told that the time is over */
    bool out;     /* the client has got a timeout response, or was cut off */
} fl_time_limit;

/* Where a request waits for its turn, and has waited. */
typedef struct fl_queueing {
    int hand_overs;                /* between workers, so far */
    int8_t lane;                   /* fl_lane of the route, when the request was ready */
    int8_t queue;                  /* fl_lane: in whose queue it waits, or has waited */
    int8_t reactor;                /* the one that took it from the queue of a lane; -1: none */
    bool stays;                    /* it cannot be handed over */
    uint64_t ready_at, started_at; /* of fl_clock: once it is queued, and taken. From here on nothing is cleared at first */
    uint64_t route;                /* its key, and how often the route had stalled when this one began: if it has a lane */
    int64_t route_stalls;
} fl_queueing;

typedef struct fl_exchange {
    fl_connection *connection;
    const fl_protocol *protocol;
    struct fl_context *context;
    uint64_t id;
    struct fl_exchange *stream_previous, *stream_next; /* of its connection */
    struct fl_exchange *previous, *next;               /* the queue, then all that are being served */
    struct fl_exchange *woken_before, *woken_next, *abandoned_next;
    uint8_t state;
    bool woken;
    bool stream; /* counted as long-lived */
    fl_request request;
    fl_response response;
    fl_time_limit timing;
    fl_queueing queueing;
    fl_client client; /* this and the index of its listener: once it has been taken */
    int listener;
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

/* The bytes of the head, to which its spans refer. They belong to the connection while the request waits, and to the exchange once
 * it is taken: then they are valid until fl_exchange_head_used, and reading them needs no lock. */
static inline const char *fl_exchange_head_bytes(const fl_exchange *exchange) {
    const fl_buffer *own = &exchange->request.head_bytes;
    return fl_buffer_at(own->length > 0 || exchange->connection == NULL ? own : &exchange->connection->in);
}

/* Frees the head, once the app's environment is built. */
void fl_exchange_head_used(fl_exchange *exchange);

/* What has come of the body: FL_OK with `size` > 0, or 0 at its end; FL_AGAIN if nothing is there yet; FL_CLOSED if the rest will
 * never come. The bytes are valid until fl_exchange_body_used. */
fl_status fl_exchange_body(fl_exchange *exchange, const char **bytes, size_t *size);
void fl_exchange_body_used(fl_exchange *exchange, size_t size);

/* Writing the response, in this order */

/* `code`: 200 to 999, or 101, after which the app takes over. Starts over if a head is staged; FL_CLOSED once something was sent. */
fl_status fl_exchange_begin(fl_exchange *exchange, int code);
fl_status fl_exchange_header(fl_exchange *exchange, const char *name, size_t name_size, const char *value, size_t value_size);
/* Ends the head. `length` of the body: -1 if it is not known. A content-length field that the app has set has precedence. */
fl_status fl_exchange_head_end(fl_exchange *exchange, int64_t length);
/* How many bytes fl_exchange_write takes before it returns FL_AGAIN. */
size_t fl_exchange_room(const fl_exchange *exchange);
/* `used`: how many bytes were taken; with FL_AGAIN, not all. */
fl_status fl_exchange_write(fl_exchange *exchange, const char *bytes, size_t size, size_t *used);
/* Sends now what is staged, instead of at the next turn. */
void fl_exchange_flush(fl_exchange *exchange);
/* A field behind the body. Dropped unless the head had a "trailer" field, the body is sent in pieces, and the field may be a trailer
 * (fl_may_be_trailer). */
fl_status fl_exchange_trailer(fl_exchange *exchange, const char *name, size_t name_size, const char *value, size_t value_size);
/* The response is complete. Frees the exchange. */
void fl_exchange_finish(fl_exchange *exchange);
/* The response will never be complete: it is cut off so that the client notices. If nothing was sent and the request was at fault, it
 * is rejected. Frees the exchange. */
void fl_exchange_abandon(fl_exchange *exchange);

/* Between the request and the response */

/* Sends an interim response (1xx). `fields`: lines that end with CR LF. Sends nothing to a client of HTTP/1.0, after the final
 * response has begun, or while the client takes nothing. */
fl_status fl_exchange_inform(fl_exchange *exchange, int code, const char *fields, size_t size);

/* Gives the connection's socket to the caller, before a response has begun or after the head of one that takes over. `unsent`: bytes
 * to send before all others; `ahead`: bytes that were read and not used. Both are empty before; the caller frees them with the
 * context's slab. Returns the descriptor, or -1 if the client has gone, a chunked body was not read to its end, or the protocol or
 * transport cannot. The exchange still has to be finished. */
int fl_exchange_hijack(fl_exchange *exchange, fl_buffer *unsent, fl_buffer *ahead);

/* Counts the response as long-lived, if there is room for one more. */
void fl_exchange_becomes_stream(fl_exchange *exchange);

/* Sets the time limit from now on (0: none). It starts again with each piece of a body that the owner reads or writes. While the
 * exchange waits for the client, the connection's deadlines count instead. */
void fl_exchange_limit_time(fl_exchange *exchange, uint64_t microseconds);
/* Starts the time limit again. */
void fl_exchange_restart_time(fl_exchange *exchange);

/* Wakes the owner if it waits: for more of the body, or for room. */
void fl_exchange_wake(fl_exchange *exchange);
/* The same as fl_exchange_abandon, without the lock, for finalisers: the loop does it at its next turn. */
void fl_exchange_abandon_later(fl_exchange *exchange);
/* The loop has ended, or belongs to the parent process. The owner finds the client gone, and frees the exchange with free(). */
void fl_exchange_disown(fl_exchange *exchange);

/* Called by the loop */

/* Answers with the error of this status, and frees the exchange. If it is served, its owner is woken and answers. */
void fl_exchange_reject(fl_exchange *exchange, fl_status status);
/* The same for a request that waits; the connection stays open if it can. */
void fl_exchange_turn_away(fl_exchange *exchange, fl_status status);
/* A served request takes too long: the client gets an error, or is cut off if a response has begun. The exchange loses its
 * connection. */
void fl_exchange_time_out(fl_exchange *exchange);
/* Whether the client of a waiting request still reads, as far as is known. If not, the connection and the exchange are gone. */
static inline bool fl_exchange_is_read(fl_exchange *exchange) {
    return !exchange->connection->half_closed || exchange->protocol->is_read == NULL || exchange->protocol->is_read(exchange);
}
/* Reduces the memory of a waiting request, while many wait. */
void fl_exchange_compact(fl_exchange *exchange);

/* Called by the protocol */

/* NULL: out of memory. */
fl_exchange *fl_exchange_new(struct fl_context *context, fl_connection *connection);
/* All that is read ahead of the request has come: it is queued, or answered by the core and freed. */
void fl_exchange_is_ready(fl_exchange *exchange);
/* More of the body has come, or never will (request.failed): queues the request once it is ready, or wakes its owner. */
void fl_exchange_body_came(fl_exchange *exchange);
/* Removes the exchange from its connection. */
void fl_exchange_detach(fl_exchange *exchange);
/* Whether a tunnel begins behind the head (RFC 9110, 9.3.6). */
static inline bool fl_exchange_opens_tunnel(const fl_exchange *exchange) {
    return exchange->request.connect_method && exchange->response.code >= 200 && exchange->response.code < 300;
}
/* Whether the head must not say how a body is framed (RFC 9110, 8.6; RFC 9112, 6.1). A 304 could have the length of what is not sent,
 * but apps set that of the empty body. */
static inline bool fl_exchange_has_no_framing(const fl_exchange *exchange) {
    int code = exchange->response.code;
    return code < 200 || code == 204 || code == 205 || code == 304 || fl_exchange_opens_tunnel(exchange);
}
static inline bool fl_exchange_has_no_body(const fl_exchange *exchange) {
    return exchange->request.head_method || fl_exchange_has_no_framing(exchange);
}

/* Called within this folder */

/* The exchange has been detached. `gone`: its client has gone; else its connection was given away. */
void fl_exchange_lost(fl_exchange *exchange, bool gone);
void fl_exchange_client_left(fl_exchange *exchange);
void fl_exchange_free(fl_exchange *exchange);
void fl_exchange_free_head(fl_exchange *exchange);
void fl_exchange_free_buffers(fl_exchange *exchange);
void fl_exchange_stop_waking(fl_exchange *exchange);
void fl_exchange_stop_time(fl_exchange *exchange);

#endif
