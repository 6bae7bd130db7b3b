/* A connection: reads requests off its transport in order, and sends what their exchanges have written.
 * The loop allocates and frees it. It is closed at once but freed only at the end of a turn, so a pointer in an event
 * of the same turn stays valid. It holds no buffer while it is idle.
 * A connection belongs to its context, or to the one exchange that a fiber serves; only the holder of the loop may call.
 * Nothing fails towards the caller: trouble ends the connection, and its exchange is told. */
#ifndef FL_CONNECTION_H
#define FL_CONNECTION_H

#include "base/buffer.h"
#include "base/status.h"
#include "transport.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct fl_context;
struct fl_exchange;
struct fl_listener;

/* What an event's data points at begins with this. */
typedef enum fl_source { FL_SOURCE_LISTENER, FL_SOURCE_CONNECTION, FL_SOURCE_CHANNEL } fl_source;

typedef enum fl_connection_state {
    FL_CONNECTION_IDLE,      /* between requests */
    FL_CONNECTION_HEAD,      /* part of a head has come */
    FL_CONNECTION_BODY,      /* the body is read ahead, before a fiber is taken */
    FL_CONNECTION_QUEUED,    /* its request waits in the FIFO */
    FL_CONNECTION_SERVED,    /* a fiber has its request */
    FL_CONNECTION_SENDING,   /* the request is over, its response is not sent yet */
    FL_CONNECTION_ENDING,    /* the last response is not sent yet */
    FL_CONNECTION_LINGERING, /* we have ended; what the client still sends is dropped, so that it can read the answer */
    FL_CONNECTION_CLOSED,
} fl_connection_state;

/* Deadlines of one kind have the same length, so each kind is a list in order of time. */
typedef enum fl_deadline_kind {
    FL_DEADLINE_NONE,
    FL_DEADLINE_IDLE,
    FL_DEADLINE_HEAD,
    FL_DEADLINE_BODY,
    FL_DEADLINE_WRITE,
    FL_DEADLINE_LINGER,
    FL_DEADLINE_KINDS,
} fl_deadline_kind;

/* Who is at the other end, as far as the kernel knows. */
typedef struct fl_client {
    uint8_t address[16]; /* 4 or 16 bytes are used, by the family */
    uint8_t family;
} fl_client;

typedef struct fl_connection {
    fl_source source;
    fl_transport transport;
    struct fl_context *context;
    struct fl_listener *listener;
    struct fl_exchange *exchange;

    struct fl_connection *previous, *next;             /* all connections of the context, or the graveyard */
    struct fl_connection *deadline_before, *deadline_after;
    struct fl_connection *dirty_next;
    uint64_t deadline;
    uint64_t progress;                                 /* bytes moved, to tell slow from stalled */
    uint64_t progress_at_deadline;

    fl_buffer in, out;
    fl_client client;
    uint8_t state;
    uint8_t deadline_kind;
    uint8_t own_answers;     /* in a row that needed no app */
    bool readable : 1;       /* the kernel may have more for us */
    bool half_closed : 1;    /* the client sends no more */
    bool wants_writable : 1; /* the poll tells us of writability */
    bool dirty : 1;          /* on the loop's list of those to flush */
    bool keep_alive : 1;     /* may stay open after the present response */
    bool asked : 1;          /* who has ended its side was asked whether it still reads */
    bool fresh : 1;          /* has had no request yet */
} fl_connection;

/* A new socket of `listener`; takes over `descriptor`, and copies its `bytes`, which have been read already.
 * NULL when there is no memory or the poll refuses it; the descriptor is then closed. */
fl_connection *fl_connection_open(struct fl_context *context, struct fl_listener *listener, int descriptor,
                                  const char *bytes, size_t size);

/* The time that deadlines of this kind allow begins now; FL_DEADLINE_NONE: there is none any more. */
void fl_connection_set_deadline(fl_connection *connection, fl_deadline_kind kind);

/* What is staged is sent at the loop's next turn, or before. */
void fl_connection_mark_dirty(fl_connection *connection);

void fl_connection_event(fl_connection *connection, uint32_t ready);
void fl_connection_deadline(fl_connection *connection);
void fl_connection_close(fl_connection *connection);

/* Its socket, which is the caller's from now on; what was read from it and not used, or is not sent yet, is lost with the
 * connection. */
int fl_connection_give_away(fl_connection *connection);

/* Answers with the error of this status and ends the connection. */
void fl_connection_refuse(fl_connection *connection, fl_status status);

/* Likewise of one whose request was being served: its exchange is gone. */
void fl_connection_refuse_served(fl_connection *connection, fl_status status, bool head_method);

/* Answers the request that waits on it with the error of this status; the connection stays open for the next one, if it
 * can. */
void fl_connection_turn_away(fl_connection *connection, fl_status status);

/* The request that is being served on it takes too long: its exchange loses it, and the client is told, or, if it has
 * part of a response, cut off. */
void fl_connection_time_out(fl_connection *connection);

/* Sends what is in `out`, then `staged`; what the client does not take is kept in `out`. */
void fl_connection_send(fl_connection *connection, fl_buffer *staged);

/* Puts `staged` behind what is in `out`, to be sent with it at the loop's next turn. */
void fl_connection_stage(fl_connection *connection, fl_buffer *staged);

/* Sends what is `staged`, and behind it, in the same packet, bytes that stay the caller's: as many as the kernel takes,
 * when nothing waits before them. Answers how many of the caller's. */
size_t fl_connection_send_directly(fl_connection *connection, fl_buffer *staged, const char *bytes, size_t size);

/* Reads on where it stopped for want of room: the body of the present exchange. */
void fl_connection_receive(fl_connection *connection);

/* The exchange has written its whole response: on with the next request, or the end. */
void fl_connection_answered(fl_connection *connection, bool body_unread);

/* Of one whose client has ended its side while its request waits: whether anybody is there to read the answer, as far as
 * can be told. If not, it is closed. */
bool fl_connection_is_read(fl_connection *connection);

/* Nothing is under way on it, neither from us nor, as far as we know, from the client. */
bool fl_connection_is_idle(const fl_connection *connection);

/* Part of a head has come, and more than empty lines. */
bool fl_connection_begins_to_ask(const fl_connection *connection);

#endif
