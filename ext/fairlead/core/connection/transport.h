/* A transport carries the bytes of one connection: a plain socket (transport_plain.c), or an encrypted stream.
 * The connection owns its transport, opens it before the first event and closes it once. The caller holds the lock. No function blocks:
 * a function that has to wait for the peer returns FL_TRANSPORT_WAIT and sets `read_needs` or `write_needs` to the event that it waits
 * for. An encrypted stream may have to write before it can read, and vice versa. */
#ifndef FL_TRANSPORT_H
#define FL_TRANSPORT_H

#include "base/identity.h"
#include "base/poll.h"
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

enum { FL_TRANSPORT_WAIT = -1, FL_TRANSPORT_BROKEN = -2, FL_TRANSPORT_UNREADABLE = -3 };

typedef struct fl_transport fl_transport;

typedef struct fl_transport_kind {
    const char *scheme;
    bool raw; /* the socket carries the bytes unchanged, so another worker or the app can take over the socket */
    /* Allocates `state` from the listener's configuration; false: out of memory. NULL if there is no state. */
    bool (*open)(fl_transport *transport, void *configuration);
    /* Returns 0 once the transport is open, with `protocol` set; FL_TRANSPORT_WAIT, with `read_needs` set; or FL_TRANSPORT_BROKEN.
     * NULL if there is no handshake. */
    int (*handshake)(fl_transport *transport);
    /* Whether the handshake has read nothing yet, so another worker can begin it. NULL if that is never so. */
    bool (*is_unread)(const fl_transport *transport);
    /* Returns how many bytes; 0: the peer has ended its side. Sets `drained` if no more can be read before the next event: bytes in the
     * transport's own buffer cause no event. */
    ssize_t (*read)(fl_transport *transport, void *bytes, size_t size);
    /* Returns how many bytes: fewer than offered only if it has to wait. The next call then offers the remaining bytes first, perhaps at
     * another address. */
    ssize_t (*write)(fl_transport *transport, const struct iovec *parts, int count);
    /* Sends from an offset of a file, like `write`. 0: the file has ended. FL_TRANSPORT_UNREADABLE: it cannot be read. NULL if the
     * transport has to see the bytes. */
    ssize_t (*send_file)(fl_transport *transport, int file, off_t offset, size_t size);
    void (*finish)(fl_transport *transport); /* ends this side */
    void (*reset)(
        fl_transport *transport); /* makes `close` reset the connection: the peer sees that the response is incomplete */
    void (*close)(fl_transport *transport); /* frees `state` */
} fl_transport_kind;

struct fl_transport {
    const fl_transport_kind *kind;
    void *state;
    const char *protocol;  /* negotiated in the handshake, as ALPN names it; NULL: none */
    fl_identity *identity; /* of the client, once the transport is open; NULL: it has shown none */
    int descriptor;
    uint8_t read_needs, write_needs; /* FL_READABLE or FL_WRITABLE: the event to wait for */
    bool drained;
};

extern const fl_transport_kind fl_transport_plain;

/* Returns false if it is out of memory. The caller still owns the descriptor then. */
static inline bool fl_transport_open(fl_transport *transport, const fl_transport_kind *kind, void *configuration,
                                     int descriptor) {
    *transport = (fl_transport) {.kind = kind, .descriptor = descriptor, .read_needs = FL_READABLE, .write_needs = FL_WRITABLE};
    return kind->open == NULL || kind->open(transport, configuration);
}

#endif
