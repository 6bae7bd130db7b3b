/* A transport that is as awkward as an encrypted one: it shakes hands, has to write before it can read, and returns buffered input byte by
 * byte, while the socket reports no event. It does not change the bytes. */
#ifndef FL_TEST_TOY_TRANSPORT_H
#define FL_TEST_TOY_TRANSPORT_H

#include "connection/transport.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct toy_transport {
    char held[16384];
    size_t at, size;
    bool shaken, has_written;
} toy_transport;

static bool toy_transport_open(fl_transport *transport, void *configuration) {
    (void) configuration;
    transport->state = calloc(1, sizeof(toy_transport));
    return transport->state != NULL;
}

static int toy_transport_wait(fl_transport *transport, uint8_t event) {
    transport->read_needs = event;
    return FL_TRANSPORT_WAIT;
}

static int toy_transport_handshake(fl_transport *transport) {
    toy_transport *toy = transport->state;
    if (!toy->shaken) {
        toy->shaken = true;
        return toy_transport_wait(transport, FL_WRITABLE);
    }
    transport->protocol = "http/1.1";
    return 0;
}

static ssize_t toy_transport_read(fl_transport *transport, void *bytes, size_t size) {
    toy_transport *toy = transport->state;
    (void) size;
    transport->drained = false;
    if (toy->at == toy->size) {
        toy->has_written = !toy->has_written;
        if (toy->has_written)
            return toy_transport_wait(transport, FL_WRITABLE);
        ssize_t count = recv(transport->descriptor, toy->held, sizeof toy->held, 0);
        if (count < 0)
            return errno == EAGAIN ? toy_transport_wait(transport, FL_READABLE) : FL_TRANSPORT_BROKEN;
        if (count == 0)
            return 0;
        toy->at = 0;
        toy->size = (size_t) count;
    }
    *(char *) bytes = toy->held[toy->at++];
    return 1;
}

static ssize_t toy_transport_write(fl_transport *transport, const struct iovec *parts, int count) {
    return fl_transport_plain.write(transport, parts, count);
}

static void toy_transport_finish(fl_transport *transport) {
    fl_transport_plain.finish(transport);
}

static void toy_transport_reset(fl_transport *transport) {
    fl_transport_plain.reset(transport);
}

static void toy_transport_close(fl_transport *transport) {
    free(transport->state);
    fl_transport_plain.close(transport);
}

static const fl_transport_kind toy_transport_kind = {
    .scheme = "toy",
    .open = toy_transport_open,
    .handshake = toy_transport_handshake,
    .read = toy_transport_read,
    .write = toy_transport_write,
    .finish = toy_transport_finish,
    .reset = toy_transport_reset,
    .close = toy_transport_close,
};

#endif
