/* A connection: a socket with its transport, its protocol, and the exchanges that are under way on it.
 * fl_connection_open allocates it. It is closed at once but freed only at the end of a turn, so a pointer in an event of the
 * same turn stays valid. It holds no buffer while it is idle. Only the holder of the loop may call. Nothing fails towards the
 * caller: trouble closes the connection, and its exchanges are told. */
#ifndef FL_CONNECTION_H
#define FL_CONNECTION_H

#include "base/buffer.h"
#include "base/status.h"
#include "protocol.h"
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
    FL_CONNECTION_OPENING,   /* its transport shakes hands */
    FL_CONNECTION_OPEN,      /* its protocol reads requests */
    FL_CONNECTION_SENDING,   /* likewise, once what is unsent has been taken */
    FL_CONNECTION_ENDING,    /* the last response is not sent yet */
    FL_CONNECTION_LINGERING, /* we have ended; what the client still sends is dropped, so that it can read the answer */
    FL_CONNECTION_CLOSED,
} fl_connection_state;

/* Deadlines of one kind have the same length, so each kind is a list in order of time. */
typedef enum fl_deadline_kind {
    FL_DEADLINE_NONE,
    FL_DEADLINE_IDLE,
    FL_DEADLINE_HEAD, /* and of a handshake */
    FL_DEADLINE_BODY, /* of an exchange; all others are of a connection */
    FL_DEADLINE_WRITE,
    FL_DEADLINE_LINGER,
    FL_DEADLINE_KINDS,
} fl_deadline_kind;

typedef struct fl_deadline {
    struct fl_deadline *before, *after;
    uint64_t at;       /* of fl_clock */
    uint64_t progress; /* bytes that had moved when it was set, to tell slow from stalled */
    uint8_t kind;
} fl_deadline;

/* The time that deadlines of this kind allow begins now; FL_DEADLINE_NONE: there is none any more. */
void fl_deadline_set(struct fl_context *context, fl_deadline *deadline, fl_deadline_kind kind, uint64_t progress);

/* It has come. */
void fl_deadline_expired(fl_deadline *deadline);

/* Who is at the other end, as far as the kernel knows. */
typedef struct fl_client {
    uint8_t address[16]; /* 4 or 16 bytes are used, by the family */
    uint8_t family;
} fl_client;

typedef struct fl_connection {
    fl_source source;
    fl_transport transport;
    const fl_protocol *protocol; /* NULL until the transport is open */
    _Alignas(8) unsigned char protocol_state[FL_PROTOCOL_CONNECTION_STATE];
    struct fl_context *context;
    struct fl_listener *listener;
    struct fl_exchange *exchanges; /* that are under way, the newest first */

    struct fl_connection *previous, *next; /* all connections of the context, or the closed */
    struct fl_connection *dirty_next;
    fl_deadline deadline;
    uint64_t progress;                     /* bytes moved */

    fl_buffer in, out;
    fl_client client;
    uint8_t state;
    bool readable : 1;       /* the transport may have more for us */
    bool half_closed : 1;    /* the client sends no more */
    bool wants_writable : 1; /* the poll tells us of writability */
    bool dirty : 1;          /* on the context's list of those to flush */
    bool fresh : 1;          /* has had no request yet */
} fl_connection;

static inline fl_connection *fl_connection_of_deadline(const fl_deadline *deadline) {
    return (fl_connection *) ((char *) deadline - offsetof(fl_connection, deadline));
}

/* A new socket of `listener`; takes over `descriptor`, and copies its `bytes`, which have been read already.
 * NULL when there is no memory or the poll refuses it; the descriptor is then closed. */
fl_connection *fl_connection_open(struct fl_context *context, struct fl_listener *listener, int descriptor,
                                  const char *bytes, size_t size);

void fl_connection_event(fl_connection *connection, uint32_t ready);
void fl_connection_close(fl_connection *connection);

/* Its socket, which is the caller's from now on; what was read from it and not used, or is not sent yet, is lost with the
 * connection. */
int fl_connection_give_away(fl_connection *connection);

/* No further request is accepted on it. */
void fl_connection_drain(fl_connection *connection);

/* Nothing is under way on it, neither from us nor, as far as we know, from the client. */
bool fl_connection_is_idle(const fl_connection *connection);

/* Reads on where it stopped, for want of room or because something else had to be done first. */
void fl_connection_receive(fl_connection *connection);

/* Sends what is in `out`, then `staged`; what the client does not take is kept in `out`. */
void fl_connection_send(fl_connection *connection, fl_buffer *staged);

/* What is staged is sent at the loop's next turn, or before. */
void fl_connection_mark_dirty(fl_connection *connection);

/* Of the protocol */

static inline void fl_connection_set_deadline(fl_connection *connection, fl_deadline_kind kind) {
    fl_deadline_set(connection->context, &connection->deadline, kind, connection->progress);
}

/* Reads up to `most` bytes into the room of `buffer`; fl_buffer_added is the caller's to say. Answers how many, 0 when there is
 * nothing now or the connection has been closed, -1 when the client has ended its side. */
ssize_t fl_connection_read(fl_connection *connection, fl_buffer *buffer, size_t most);

/* Puts `staged` behind what is in `out`, to be sent with it at the loop's next turn. */
void fl_connection_stage(fl_connection *connection, fl_buffer *staged);

/* Sends what is `staged`, and behind it, in the same packet, bytes that stay the caller's: as many as the kernel takes,
 * when nothing waits before them. Answers how many of the caller's. */
size_t fl_connection_send_directly(fl_connection *connection, fl_buffer *staged, const char *bytes, size_t size);

/* Sends what is left, and nothing after that. */
void fl_connection_end(fl_connection *connection);

/* A deadline that starts again while the client moves on. */
void fl_connection_start_deadline(fl_connection *connection, fl_deadline_kind kind);

#endif
