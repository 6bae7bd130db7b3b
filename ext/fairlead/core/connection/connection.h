/* A connection: a socket with its transport, its protocol, and its exchanges.
 * fl_connection_open allocates it. The loop frees a closed connection at the end of the turn, so that pointers in events of the same turn
 * stay valid. An idle connection holds no buffer. The caller holds the lock. No function fails: an error closes the connection and wakes
 * the owners of its exchanges. */
#ifndef FL_CONNECTION_H
#define FL_CONNECTION_H

#include "base/buffer.h"
#include "base/client.h"
#include "base/status.h"
#include "deadline.h"
#include "protocol.h"
#include "transport.h"
#include <stdbool.h>
#include <stdint.h>

/* Bytes that the kernel keeps unsent for a client; its default of 4 MB would be copied for nothing if the client never reads. When the
 * poll reports room, enough bytes are left to bridge a short delay. */
enum { FL_MAX_UNSENT = 512 << 10 };

struct fl_context;
struct fl_exchange;
struct fl_listener;

/* The first member of everything that an event's data points at. */
typedef enum fl_source {
    FL_SOURCE_LISTENER,
    FL_SOURCE_CONNECTION,
    FL_SOURCE_CHANNEL,
    FL_SOURCE_RELAY,
    FL_SOURCE_TUNNEL
} fl_source;

typedef enum fl_connection_state {
    FL_CONNECTION_OPENING,   /* its PROXY header is awaited, or its transport shakes hands */
    FL_CONNECTION_OPEN,      /* its protocol reads requests */
    FL_CONNECTION_SENDING,   /* its protocol waits until the unsent output has been sent */
    FL_CONNECTION_ENDING,    /* it sends its last response */
    FL_CONNECTION_LINGERING, /* all output is sent; input is dropped until the client closes */
    FL_CONNECTION_CLOSED,
} fl_connection_state;

typedef struct fl_connection {
    fl_source source;
    fl_transport transport;
    const fl_protocol *protocol; /* NULL until the transport is open */
    _Alignas(8) unsigned char protocol_state[FL_PROTOCOL_CONNECTION_STATE];
    struct fl_context *context;
    struct fl_listener *listener;
    struct fl_exchange *exchanges; /* the newest first */

    struct fl_connection *previous, *next; /* the context's list of connections, or of closed ones */
    struct fl_connection *dirty_next, *handshake_next;
    fl_deadline deadline;
    uint64_t received, sent; /* bytes */

    fl_buffer in, out;
    uint32_t retained; /* bytes of responses that the protocol keeps back until the client has room for them */
    fl_client client;
    uint8_t state;
    bool readable : 1;       /* the transport may have more to read */
    bool half_closed : 1;    /* the client has ended its side */
    bool wants_writable : 1; /* the poll reports writability */
    bool dirty : 1;          /* on the context's list of connections to flush */
    bool flushing : 1;       /* its exchanges are being flushed, one after the other */
    bool fresh : 1;          /* no request so far */
    bool relayed : 1;        /* a sibling relays a request of its client over it */
    bool tunneled : 1;       /* the app has hijacked it, see tunnel.h */
    bool shakes : 1;         /* on the context's list of connections whose handshake can go on */
    bool awaits_proxy : 1;   /* its PROXY header is awaited */
    bool awaits_room : 1;    /* `out`, or a file, waits until the transport takes more */
    bool receives : 1;       /* all is sent, and it would be idle, but its client still takes the last response */
} fl_connection;

static inline fl_connection *fl_connection_of_deadline(const fl_deadline *deadline) {
    return (fl_connection *) ((char *) deadline - offsetof(fl_connection, deadline));
}

/* Takes ownership of `descriptor`, accepted from `listener`, and copies `bytes`, which were read from it already. Closes the descriptor
 * and returns NULL if there is no memory or the poll fails. */
fl_connection *fl_connection_open(struct fl_context *context, struct fl_listener *listener, int descriptor, const char *bytes,
                                  size_t size);

void fl_connection_event(fl_connection *connection, uint32_t ready);
void fl_connection_close(fl_connection *connection);

/* Closes the connection and passes its open socket to the caller. Drops unread input and unsent output. */
int fl_connection_release_socket(fl_connection *connection);

/* Accepts no further request. Closes the connection if it is idle. */
void fl_connection_drain(fl_connection *connection);

/* Whether the connection has no exchange, no input and no output, as far as the poll has reported. */
bool fl_connection_is_idle(const fl_connection *connection);

/* Reads until the transport is drained, the protocol stops reading, or it is another connection's turn: then it goes on at the next one. */
void fl_connection_receive(fl_connection *connection);

/* Sends `out`, then `staged` (may be NULL). Bytes that the socket does not accept stay in `out`. */
void fl_connection_send(fl_connection *connection, fl_buffer *staged);

/* The loop flushes the connection at its next turn at the latest. */
void fl_connection_mark_dirty(fl_connection *connection);

/* Called by the protocol */

/* Starts the deadline that the connection's state calls for, unless it runs already. Call it when that state has changed, its exchanges,
 * or what fl_protocol.awaits tells. */
void fl_connection_update_deadline(fl_connection *connection);

/* The same, but it starts again if it runs. */
void fl_connection_restart_deadline(fl_connection *connection);

/* Reads up to `most` bytes into the room of `buffer`; the caller adds them with fl_buffer_added. Returns how many; 0: none are available,
 * or the connection was closed; -1: the client has ended its side. */
ssize_t fl_connection_read(fl_connection *connection, fl_buffer *buffer, size_t most);

/* Moves `staged` to the end of `out` and marks the connection dirty. */
void fl_connection_stage(fl_connection *connection, fl_buffer *staged);

/* If `out` is empty, sends `staged` and then `bytes` with one system call, without a copy. Returns how many of `bytes` were sent. */
size_t fl_connection_send_directly(fl_connection *connection, fl_buffer *staged, const char *bytes, size_t size);

/* The listener's protocol of this name; NULL: it does not have it. */
const fl_protocol *fl_connection_find_protocol(const fl_connection *connection, const char *name);

/* Changes to another protocol, which finds its first bytes in `in`. Frees the exchanges. */
void fl_connection_switch_protocol(fl_connection *connection, const fl_protocol *protocol);

/* Sends a part of a file. Call it while `out` is empty and the transport has send_file. Returns how many bytes; 0: the client has to read
 * first, or the connection was closed; FL_TRANSPORT_UNREADABLE: the file has ended, or cannot be read. */
ssize_t fl_connection_send_file(fl_connection *connection, int file, off_t offset, size_t size);

/* Sends `out`, then closes the connection. */
void fl_connection_end(fl_connection *connection);

#endif
