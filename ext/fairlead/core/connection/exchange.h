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
#include "http1/http1.h"
#include "base/routes.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum fl_framing {
    FL_FRAMING_UNDECIDED, /* by length if the body ends before it has to be sent, else in chunks */
    FL_FRAMING_LENGTH,
    FL_FRAMING_CHUNKED,
    FL_FRAMING_CLOSE, /* the end of the connection ends the body */
    FL_FRAMING_RAW,   /* the app sends chunks of its own */
    FL_FRAMING_NONE,  /* there is no body: HEAD, 1xx, 204, 205, 304, a tunnel */
} fl_framing;

typedef struct fl_exchange {
    fl_connection *connection;
    struct fl_context *context;
    struct fl_exchange *previous, *next; /* the FIFO, then all that are being served */
    struct fl_exchange *woken_before, *woken_next, *abandoned_next;
    /* Siblings in the heap of those whose time runs (before the first stands its parent); or the list of those whose time has
     * run out. */
    struct fl_exchange *timed_before, *timed_after;
    struct fl_exchange *timed_below; /* in the heap: its first child */
    uint64_t id;
    fl_client client; /* this and the index of its listener: once it has been taken */
    int listener;
    int hand_overs;   /* between workers, so far */
    uint64_t time_limit;   /* microseconds that it may take without a word from or to its client; 0: any */
    uint64_t time_ends_at; /* of fl_clock */
    uint64_t first_byte_at, ready_at, started_at; /* of fl_clock */
    uint64_t route;       /* its key, if it has a lane */
    int64_t route_stalls; /* how often the route had stalled when this one began */
    int8_t lane;          /* fl_lane of the route, when the request was ready */
    int8_t queue;         /* fl_lane: in whose FIFO it waits, or has waited */
    int8_t reactor;       /* that has taken it from the FIFO of a lane; -1: none */

    fl_http1_head *head; /* until fl_exchange_head_used */
    fl_buffer head_bytes;/* its bytes, once it has been taken */
    fl_buffer body;      /* what has come of the body and has not been read yet */
    fl_chunks chunks;
    fl_buffer trailers;  /* those of the body, and the empty line behind them */
    uint64_t body_expected; /* content-length */
    uint64_t body_received;

    fl_buffer out;  /* the head, and body bytes as they are sent, not handed to the connection yet */
    fl_buffer held; /* body bytes while the framing is undecided */
    uint64_t length_left;
    fl_chunks own_chunks; /* the app's */
    size_t checked;       /* so many bytes of them that have not been taken yet */
    uint64_t body_sent;
    int code;

    uint8_t minor;
    uint8_t framing;
    /* Each of these has a byte of its own: who begins a response sets them without the lock. */
    bool close;      /* the connection ends after this response */
    bool has_length;
    bool has_date;
    bool head_given; /* the app has given the whole head */
    bool head_done;  /* framing headers and the empty line are staged or sent */
    bool committed;  /* something has been handed to the connection */
    bool takes_over; /* after this head, the app talks to the client itself */
    bool upgrades;   /* the head names the protocol in which it does */
    bool has_trailers; /* the head announces some */
    bool trailers_begun;
    uint8_t refusal; /* of fl_status: what was wrong with its body, told to the client if the app has nothing to say */
    bool chunked : 1;
    bool body_done : 1;   /* the whole body has been received */
    bool body_failed : 1; /* it will never come whole */
    bool head_method : 1;
    bool connect_method : 1;
    bool woken : 1;
    bool awaits_body : 1;
    bool awaits_room : 1;
    bool taken : 1;
    bool compact : 1;     /* its head has a block of its own size */
    bool stream : 1;      /* counted as long-lived */
    bool timed : 1;       /* its time runs */
    bool overdue : 1;     /* its time has run out, its owner has to be told */
    bool timed_out : 1;   /* its client has been answered, or cut off, for it */
    bool stays : 1;       /* it cannot be handed over */
} fl_exchange;

/* The request's side */

/* The bytes of the head of a taken request, to which its spans refer; valid until fl_exchange_head_used. They are the
 * exchange's own: reading them does not need the lock. */
const char *fl_exchange_head_bytes(const fl_exchange *exchange);

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
 * and the body is sent in chunks, and if it is one that must not stand there (see fl_http1_may_be_trailer). */
fl_status fl_exchange_trailer(fl_exchange *exchange, const char *name, size_t name_size, const char *value,
                              size_t value_size);
/* The response is complete; the exchange is gone after this. */
void fl_exchange_finish(fl_exchange *exchange);
/* The response will never be complete: the connection ends, so that the client sees it. If nothing has been sent and
 * the request was at fault, it is refused. */
void fl_exchange_abandon(fl_exchange *exchange);

/* Between the request and the response */

/* Sends a whole interim response (1xx); nothing to a client of HTTP/1.0, once the final one has begun to leave, or
 * while the client takes nothing. */
fl_status fl_exchange_inform(fl_exchange *exchange, const char *bytes, size_t size);

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
void fl_exchange_moves_on(fl_exchange *exchange);

/* Of the connection and the loop: something that the exchange waits for may have happened. */
void fl_exchange_wake(fl_exchange *exchange);
/* Gives it up without the lock, from a finaliser for example; the loop ends it at its next turn. */
void fl_exchange_abandon_later(fl_exchange *exchange);
/* Its loop has ended, or is another process'. Whoever has taken it frees it, and finds the client gone. */
void fl_exchange_disown(fl_exchange *exchange);
/* Of the context, when the client has gone. */
void fl_exchange_lost(fl_exchange *exchange);
void fl_exchange_client_left(fl_exchange *exchange);

/* Of the connection: allocates with the first byte of a request; NULL when there is no memory. */
fl_exchange *fl_exchange_new(struct fl_context *context, fl_connection *connection);
void fl_exchange_free(fl_exchange *exchange);
void fl_exchange_free_head(fl_exchange *exchange);
void fl_exchange_free_buffers(fl_exchange *exchange);
void fl_exchange_stop_waking(fl_exchange *exchange);
void fl_exchange_stop_time(fl_exchange *exchange);

#endif
