/* Bytes in and out of one connection, whatever carries them: plain sockets (transport_plain.c), or an encrypted stream.
 * The connection owns its transport, opens it before its first event and closes it once. Only the holder of the loop may call.
 * Nothing blocks. A call that has to wait for the peer answers FL_TRANSPORT_WAIT, and has noted in `read_needs` or
 * `write_needs` for which event: an encrypted stream may have to write before it can read, and the other way round. */
#ifndef FL_TRANSPORT_H
#define FL_TRANSPORT_H

#include "base/poll.h"
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

enum { FL_TRANSPORT_WAIT = -1, FL_TRANSPORT_BROKEN = -2 };

typedef struct fl_transport fl_transport;

typedef struct fl_transport_kind {
    const char *scheme;
    bool raw; /* the socket carries the bytes as they are: it can be handed over, or given to the app */
    /* Allocates `state` out of the listener's configuration; false when there is no memory. NULL: there is none to allocate. */
    bool (*open)(fl_transport *transport, void *configuration);
    /* 0 once bytes can be read and written, with `protocol` set, or FL_TRANSPORT_WAIT (see read_needs), or FL_TRANSPORT_BROKEN.
     * NULL: that is so from the start. */
    int (*handshake)(fl_transport *transport);
    /* How many bytes; 0: the peer has ended its side. Sets `drained` where no more can be read before the next event:
     * what the transport itself holds back is no event. */
    ssize_t (*read)(fl_transport *transport, void *bytes, size_t size);
    /* How many bytes: fewer than are offered only where it has to wait for the rest. What is offered after that begins with
     * the same bytes, perhaps from elsewhere. */
    ssize_t (*write)(fl_transport *transport, const struct iovec *parts, int count);
    void (*finish)(fl_transport *transport); /* no more will be written */
    void (*reset)(fl_transport *transport);  /* closing shall not look like the end of what was sent */
    void (*close)(fl_transport *transport);  /* frees `state` */
} fl_transport_kind;

struct fl_transport {
    const fl_transport_kind *kind;
    void *state;
    const char *protocol; /* that the peers have agreed on, as ALPN has it; NULL: none */
    int descriptor;
    uint8_t read_needs, write_needs; /* FL_READABLE or FL_WRITABLE: the event before the next try; set by fl_transport_open */
    bool drained;
};

extern const fl_transport_kind fl_transport_plain;

/* False when there is no memory; the descriptor stays the caller's then. */
static inline bool fl_transport_open(fl_transport *transport, const fl_transport_kind *kind, void *configuration, int descriptor) {
    *transport = (fl_transport){
        .kind = kind, .descriptor = descriptor, .read_needs = FL_READABLE, .write_needs = FL_WRITABLE};
    return kind->open == NULL || kind->open(transport, configuration);
}

#endif
