#include "base/platform.h"
#include "transport.h"

static ssize_t outcome(ssize_t result) {
    if (result >= 0)
        return result;
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? FL_TRANSPORT_WAIT : FL_TRANSPORT_BROKEN;
}

/* A short read has drained the socket. The end of the stream causes an event of its own. */
static ssize_t plain_read(fl_transport *transport, void *bytes, size_t size) {
    ssize_t result = recv(transport->descriptor, bytes, size, 0);
    if (result <= 0)
        return outcome(result);
    transport->drained = result < (ssize_t) size;
    return result;
}

static ssize_t plain_write(fl_transport *transport, const struct iovec *parts, int count) {
    if (count == 1)
        return outcome(send(transport->descriptor, parts[0].iov_base, parts[0].iov_len, FL_SEND_FLAGS));
    struct msghdr message = {.msg_iov = (struct iovec *) parts, .msg_iovlen = (size_t) count};
    return outcome(sendmsg(transport->descriptor, &message, FL_SEND_FLAGS));
}

#ifdef FL_HAS_SEND_FILE
static ssize_t plain_send_file(fl_transport *transport, int file, off_t offset, size_t size) {
    ssize_t result;
    do result = fl_send_file(transport->descriptor, file, offset, size);
    while (result < 0 && errno == EINTR);
    if (result < 0 && errno != EPIPE && errno != ECONNRESET && errno != ETIMEDOUT && outcome(result) == FL_TRANSPORT_BROKEN)
        return FL_TRANSPORT_UNREADABLE;
    return result == 0 ? 0 : outcome(result);
}
#endif

static void plain_finish(fl_transport *transport) {
    shutdown(transport->descriptor, SHUT_WR);
}

static void plain_reset(fl_transport *transport) {
    struct linger none = {.l_onoff = 1};
    setsockopt(transport->descriptor, SOL_SOCKET, SO_LINGER, &none, sizeof none);
}

static void plain_close(fl_transport *transport) {
    close(transport->descriptor);
    transport->descriptor = -1;
}

const fl_transport_kind fl_transport_plain = {
    .scheme = "http",
    .raw = true,
    .read = plain_read,
    .write = plain_write,
#ifdef FL_HAS_SEND_FILE
    .send_file = plain_send_file,
#endif
    .finish = plain_finish,
    .reset = plain_reset,
    .close = plain_close,
};
