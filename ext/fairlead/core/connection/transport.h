/* Bytes in and out of one connection, whatever carries them: TCP and Unix sockets here, TLS has its place beside.
 * The connection owns its transport and closes it once. One caller at a time: who owns the connection.
 * Reads and writes never block. They answer how many bytes, 0 for the end of the stream (read only), FL_TRANSPORT_WAIT
 * when it has to wait for the peer, FL_TRANSPORT_BROKEN when the connection is lost. */
#ifndef FL_TRANSPORT_H
#define FL_TRANSPORT_H

#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

enum { FL_TRANSPORT_WAIT = -1, FL_TRANSPORT_BROKEN = -2 };

typedef struct fl_transport fl_transport;

typedef struct fl_transport_kind {
    const char *scheme;
    ssize_t (*read)(fl_transport *transport, void *bytes, size_t size);
    ssize_t (*write)(fl_transport *transport, const struct iovec *parts, int count);
    void (*finish)(fl_transport *transport); /* no more will be written */
    void (*reset)(fl_transport *transport);  /* closing shall not look like the end of what was sent */
    void (*close)(fl_transport *transport);
} fl_transport_kind;

struct fl_transport {
    const fl_transport_kind *kind;
    int descriptor;
};

extern const fl_transport_kind fl_transport_plain;

#endif
