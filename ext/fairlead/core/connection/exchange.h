/* One request and its response, seen from the one who answers it.
 * The loop allocates it with the first byte of a request, and it is freed by fl_exchange_finish or fl_exchange_abandon,
 * or before it was taken when its client goes. `connection` is NULL once the client has gone.
 * Only the holder of the loop may call, but for fl_exchange_begin and fl_exchange_header, which touch nothing but what is
 * staged: for them the GVL is enough, and the rest of that time nobody else touches it.
 * What can fail: writing, with FL_CLOSED when the client has gone, FL_BAD_CHUNK when the app's own chunks are none, FL_AGAIN when too much is unsent (the loop then tells,
 * as woken, when there is room), FL_NO_MEMORY, and a refused header. */
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
    FL_FRAMING_UNDECIDED, /* by length if the body ends before it has to be sent, else in pieces */
    FL_FRAMING_LENGTH,
    FL_FRAMING_PIECES, /* each with its length, as the protocol has it: chunks */
    FL_FRAMING_CLOSE,  /* the end of the connection ends the body */
    FL_FRAMING_RAW,    /* the app frames it: in chunks of its own */
    FL_FRAMING_NONE,   /* there is no body: HEAD, 1xx, 204, 205, 304, a tunnel */
} fl_framing;

typedef enum fl_exchange_state {
    FL_EXCHANGE_NEW,    /* nothing has come but empty lines */
    FL_EXCHANGE_HEAD,   /* part of its head has come */
    FL_EXCHANGE_BODY,   /* its body is read ahead, before a fiber is taken */
    FL_EXCHANGE_QUEUED, /* it waits in the FIFO */
    FL_EXCHANGE_SERVED, /* a fiber has it */
} fl_exchange_state;

/* What has come. */
typedef struct fl_request {
    fl_head *head;        /* until fl_exchange_head_used */
    fl_buffer head_bytes; /* its bytes, once it has been taken, or where its protocol keeps them from the start */
    fl_buffer body;       /* what has come of the body and has not been read yet */
    fl_buffer trailers;   /* those of the body, and the empty line behind them */
    uint64_t expected;    /* bytes of the body: content-length */
    uint64_t received;
    uint64_t first_byte_at; /* of fl_clock */
    fl_deadline deadline;   /* of the body */
    uint8_t rejection;      /* of fl_status: what was wrong with the body, told to the client if the app has nothing to say */
    bool chunked : 1;
    bool whole : 1;       /* all of the body has been received */
    bool failed : 1;      /* it will never come whole */
    bool awaited : 1;     /* its reader waits for more of it */
    bool head_method : 1;
    bool connect_method : 1;
    bool compact : 1;     /* the head has a block of its own size */
} fl_request;

/* What is answered. Who begins a response sets these without the lock: each flag has a byte of its own. */
typedef struct fl_response {
    fl_buffer out;     /* as the protocol has staged it: not handed to the connection yet */
    fl_buffer held;    /* body bytes while the framing is undecided */
    uint64_t length_left;
    uint64_t body_sent;
    size_t checked;    /* bytes of a body that the app frames: so many are sound, and have not been taken yet */
    int code;
    uint8_t framing;
    bool close;        /* the connection ends after this response */
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

/* How long it may take; see time_limit.c. */
typedef struct fl_time_limit {
    /* Siblings in the heap of those whose time runs (before the first stands its parent); or the list of those whose time has
     * run out. */
    struct fl_exchange *before, *after;
    struct fl_exchange *below; /* in the heap: its first child */
    uint64_t limit;   /* microseconds that it may take without a word from or to its client; 0: any */
    uint64_t ends_at; /* of fl_clock */
    bool runs;
    bool expired;     /* the time has run out, its owner has to be told */
    bool out;         /* its client has been answered, or cut off, for it */
} fl_time_limit;

/* Where it waits for its turn, and has waited. */
typedef struct fl_queueing {
    int hand_overs; /* between workers, so far */
    int8_t lane;    /* fl_lane of the route, when the request was ready */
    int8_t queue;   /* fl_lane: in whose queue it waits, or has waited */
    int8_t reactor; /* that has taken it from the queue of a lane; -1: none */
    bool stays;     /* it cannot be handed over */
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

/* The request's side */

/* The bytes of the head, to which its spans refer; as long as it waits, those that its connection has read. Once it has been
 * taken they are the exchange's own, valid until fl_exchange_head_used: reading them does not need the lock. */
static inline const char *fl_exchange_head_bytes(const fl_exchange *exchange) {
    const fl_buffer *own = &exchange->request.head_bytes;
    return fl_buffer_at(own->length > 0 || exchange->connection == NULL ? own : &exchange->connection->in);
}

/* The head has been turned into what the app gets: its memory is free for others. */
void fl_exchange_head_used(fl_exchange *exchange);

/* What has come of the body: FL_OK with `size` > 0 or, at its end, 0; FL_AGAIN when the loop has to be awaited;
 * FL_CLOSED when the rest will never come. The bytes are valid until fl_exchange_body_used. */
fl_status fl_exchange_body(fl_exchange *exchange, const char **bytes, size_t *size);
void fl_exchange_body_used(fl_exchange *exchange, size_t size);

/* The response's side, in this order */

/* `code`: the final one, from 200 on, or 101, after which the app takes over. Starts over if a head was staged and nothing
 * has been sent; FL_CLOSED once something has. */
fl_status fl_exchange_begin(fl_exchange *exchange, int code);
fl_status fl_exchange_header(fl_exchange *exchange, const char *name, size_t name_size, const char *value,
                             size_t value_size);
/* Ends the head. `length`: of the body, or -1 if it is not known (a content-length header given before counts). */
fl_status fl_exchange_head_end(fl_exchange *exchange, int64_t length);
/* How many bytes fl_exchange_write takes now without asking to wait. */
size_t fl_exchange_room(const fl_exchange *exchange);
/* `used` tells how many of the bytes were taken; not all of them with FL_AGAIN. */
fl_status fl_exchange_write(fl_exchange *exchange, const char *bytes, size_t size, size_t *used);
/* Sends what is staged now, instead of at the loop's next turn. */
void fl_exchange_flush(fl_exchange *exchange);
/* A field behind the body, between its last bytes and fl_exchange_finish: dropped unless the head had a "trailer" field
 * and the body is sent in chunks, and if it is one that must not stand there (see fl_may_be_trailer). */
fl_status fl_exchange_trailer(fl_exchange *exchange, const char *name, size_t name_size, const char *value,
                              size_t value_size);
/* The response is complete; the exchange is gone after this. */
void fl_exchange_finish(fl_exchange *exchange);
/* The response will never be complete: the connection ends, so that the client sees it. If nothing has been sent and
 * the request was at fault, it is refused. */
void fl_exchange_abandon(fl_exchange *exchange);

/* Between the request and the response */

/* Sends an interim response (1xx), whose `fields` are lines that end with CR LF each; nothing to a client of HTTP/1.0, once the
 * final one has begun to leave, or while the client takes nothing. */
fl_status fl_exchange_inform(fl_exchange *exchange, int code, const char *fields, size_t size);

/* Gives the connection's socket to the caller, who talks to the client from now on: before a response has begun, or after
 * the head of one that takes over. `unsent`: what has to be sent before anything else; `ahead`: what has been read and
 * not used. Both are empty before, and become the caller's, to be freed with the loop's slab. Answers the descriptor; -1
 * when the client has gone, or is in the midst of a chunked body, which cannot be put back. The exchange has to be
 * finished none the less, and counts until then. */
int fl_exchange_hijack(fl_exchange *exchange, fl_buffer *unsent, fl_buffer *ahead);

/* From now on it counts as a long-lived response, if there is room for one more. */
void fl_exchange_becomes_stream(fl_exchange *exchange);

/* It may take so many microseconds from now on (0: any time), and again after each piece of a body that its owner reads
 * or writes. While the client is waited for, its own deadlines count. */
void fl_exchange_limit_time(fl_exchange *exchange, uint64_t microseconds);
/* Of the context, after such a piece. */
void fl_exchange_restart_time(fl_exchange *exchange);

/* Of the connection and the loop: something that the exchange waits for may have happened. */
void fl_exchange_wake(fl_exchange *exchange);
/* Gives it up without the lock, from a finaliser for example; the loop ends it at its next turn. */
void fl_exchange_abandon_later(fl_exchange *exchange);
/* Its loop has ended, or is another process'. Whoever has taken it frees it, and finds the client gone. */
void fl_exchange_disown(fl_exchange *exchange);
/* The loop's calls, for one that has not been answered */

/* Answers with the error of this status, and ends the connection if the protocol has no more to say on it. One that is served
 * is answered by its owner. */
void fl_exchange_reject(fl_exchange *exchange, fl_status status);
/* Likewise, of one that waits; the connection stays open for other requests, if it can. */
void fl_exchange_turn_away(fl_exchange *exchange, fl_status status);
/* One that is served takes too long: it loses its connection, and the client is told, or, if it has part of a response, cut
 * off. */
void fl_exchange_time_out(fl_exchange *exchange);
/* Whether the client of one that waits is there to read the answer, as far as can be told. If not, both are gone. */
static inline bool fl_exchange_is_read(fl_exchange *exchange) {
    return !exchange->connection->half_closed || exchange->protocol->is_read == NULL || exchange->protocol->is_read(exchange);
}
/* Gives up what it holds beyond what it needs, while many wait. */
void fl_exchange_compact(fl_exchange *exchange);

/* The protocol's calls */

/* Allocates one with the first byte of a request; NULL when there is no memory. */
fl_exchange *fl_exchange_new(struct fl_context *context, fl_connection *connection);
/* As much of it is here as is read ahead: it is answered by us, and gone, or waits for its turn. */
void fl_exchange_is_ready(fl_exchange *exchange);
/* More of its body has come, or the rest will never come (`body_failed`): it may be ready, or its owner goes on. */
void fl_exchange_body_came(fl_exchange *exchange);
/* Its connection has nothing to do with it any more. */
void fl_exchange_detach(fl_exchange *exchange);
/* A tunnel begins behind the head of such an answer (RFC 9110, 9.3.6). */
static inline bool fl_exchange_opens_tunnel(const fl_exchange *exchange) {
    return exchange->request.connect_method && exchange->response.code >= 200 && exchange->response.code < 300;
}
/* No response says how a body is framed where there can be none (RFC 9110, 8.6; RFC 9112, 6.1). A 304 could have the length of
 * what is not sent, but apps say there that of the empty body. */
static inline bool fl_exchange_has_no_framing(const fl_exchange *exchange) {
    return exchange->response.code < 200 || exchange->response.code == 204 || exchange->response.code == 205 || exchange->response.code == 304 ||
           fl_exchange_opens_tunnel(exchange);
}
static inline bool fl_exchange_has_no_body(const fl_exchange *exchange) {
    return exchange->request.head_method || fl_exchange_has_no_framing(exchange);
}

/* Calls of the connection and the context */

/* It has been detached. `gone`: its client has, else its connection has been given away. */
void fl_exchange_lost(fl_exchange *exchange, bool gone);
void fl_exchange_client_left(fl_exchange *exchange);
void fl_exchange_free(fl_exchange *exchange);
void fl_exchange_free_head(fl_exchange *exchange);
void fl_exchange_free_buffers(fl_exchange *exchange);
void fl_exchange_stop_waking(fl_exchange *exchange);
void fl_exchange_stop_time(fl_exchange *exchange);

#endif
