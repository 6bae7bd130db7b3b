/* The transport: a connection of OpenSSL over our own socket calls. */
#include "base/platform.h"
#include "tls.h"

#ifdef HAVE_OPENSSL
#include "internal.h"

#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>

enum {
    RECORD = 16384,       /* bytes that one TLS record carries at most */
    MAX_HELD = 256 << 10, /* encrypted bytes: a client that makes us answer, and does not read, is cut off */
    HANDSHAKE = 0x16,     /* the first byte that a client of TLS sends */
    DISCARDED = 65536,    /* bytes read before a connection is refused, so that the client reads why */
    MAX_RENEWALS = 64,    /* of keys, by the client: each computes, and OpenSSL returns only once it has bytes for the app */
};

/* An idle connection of a client that has sent nothing yet costs no more than this. */
typedef struct session {
    fl_tls *tls;
    SSL *ssl;   /* NULL until the client has sent something */
    char *held; /* encrypted bytes that the socket has not taken yet; NULL: none */
    size_t held_at, held_size;
    int renewals;
    bool drained;     /* the socket had fewer bytes than there was room for */
    bool ended;       /* the client has ended its side of the socket */
    bool broken;      /* OpenSSL, or the socket, has failed */
    bool established; /* the handshake is over */
    bool was_reset;
    /* The caller still offers a byte that has been encrypted, since encrypted bytes are held: so it knows that not all is sent. */
    bool withholds;
} session;

/* OpenSSL's side: it never waits to write, since what the socket does not take is held. */

static bool hold(session *session, const char *bytes, size_t size) {
    if (session->held_size + size > MAX_HELD)
        return false;
    char *held = malloc(session->held_size + size);
    if (held == NULL)
        return false;
    if (session->held_size > 0)
        memcpy(held, session->held + session->held_at, session->held_size);
    memcpy(held + session->held_size, bytes, size);
    free(session->held);
    session->held = held;
    session->held_at = 0;
    session->held_size += size;
    return true;
}

static ssize_t send_some(int descriptor, const char *bytes, size_t size) {
    ssize_t sent = send(descriptor, bytes, size, FL_SEND_FLAGS);
    return sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) ? 0 : sent;
}

static int bio_write(BIO *bio, const char *bytes, int size) {
    fl_transport *transport = BIO_get_data(bio);
    session *session = transport->state;
    bool holds = !session->established || session->held_size > 0; /* what a handshake writes leaves together */
    ssize_t sent = holds ? 0 : send_some(transport->descriptor, bytes, (size_t) size);
    if (sent < 0 || (sent < size && !hold(session, bytes + sent, (size_t) (size - sent)))) {
        session->broken = true;
        return -1;
    }
    return size;
}

static int bio_read(BIO *bio, char *bytes, int size) {
    fl_transport *transport = BIO_get_data(bio);
    session *session = transport->state;
    BIO_clear_retry_flags(bio);
    if (session->broken)
        return -1;
    ssize_t count = recv(transport->descriptor, bytes, (size_t) size, 0);
    session->drained = count < size;
    session->ended = count == 0;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        BIO_set_retry_read(bio);
    else if (count < 0)
        session->broken = true;
    return (int) count;
}

static long bio_control(BIO *bio, int command, long number, void *data) {
    (void) number, (void) data;
    switch (command) {
    case BIO_CTRL_FLUSH:
        return 1;
    case BIO_CTRL_EOF:
        return ((session *) ((fl_transport *) BIO_get_data(bio))->state)->ended;
    default:
        return 0;
    }
}

static int bio_create(BIO *bio) {
    BIO_set_init(bio, 1);
    return 1;
}

static BIO_METHOD *method;
static pthread_once_t prepared = PTHREAD_ONCE_INIT;

static void prepare(void) {
    BIO_METHOD *new = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "fairlead");
    if (new == NULL)
        return;
    BIO_meth_set_write(new, bio_write);
    BIO_meth_set_read(new, bio_read);
    BIO_meth_set_ctrl(new, bio_control);
    BIO_meth_set_create(new, bio_create);
    method = new;
}

/* Counts what the client sends after its handshake: renewals of keys, and handshakes that OpenSSL refuses. */
static void count_renewals(int written, int version, int type, const void *bytes, size_t size, SSL *ssl, void *data) {
    session *session = ((fl_transport *) data)->state;
    (void) version, (void) bytes, (void) size, (void) ssl;
    if (!written && type == SSL3_RT_HANDSHAKE && session->established && ++session->renewals > MAX_RENEWALS)
        session->broken = true;
}

static bool begin(fl_transport *transport) {
    session *session = transport->state;
    pthread_once(&prepared, prepare);
    BIO *bio = method == NULL ? NULL : BIO_new(method);
    SSL *ssl = bio == NULL ? NULL : fl_tls_new_session(session->tls);
    if (ssl == NULL) {
        BIO_free(bio);
        return false;
    }
    BIO_set_data(bio, transport);
    SSL_set_bio(ssl, bio, bio);
    SSL_set_msg_callback(ssl, count_renewals);
    SSL_set_msg_callback_arg(ssl, transport);
    SSL_set_accept_state(ssl);
    session->ssl = ssl;
    return true;
}

/* Sends what is held. 0: nothing is held any more. */
static int flush(fl_transport *transport) {
    session *session = transport->state;
    while (session->held_size > 0) {
        ssize_t sent = send_some(transport->descriptor, session->held + session->held_at, session->held_size);
        if (sent < 0)
            session->broken = true;
        if (sent <= 0)
            return sent < 0 ? FL_TRANSPORT_BROKEN : FL_TRANSPORT_WAIT;
        session->held_at += (size_t) sent;
        session->held_size -= (size_t) sent;
    }
    free(session->held);
    session->held = NULL;
    return 0;
}

/* The event to wait for: a client that waits for held bytes sends nothing. Readability is always reported. */
static int wait_for_input(fl_transport *transport) {
    transport->read_needs = ((session *) transport->state)->held_size > 0 ? FL_WRITABLE : FL_READABLE;
    return FL_TRANSPORT_WAIT;
}

/* OpenSSL has prepared an alert that tells the client why. Its thread-wide errors are not for Ruby's openssl to find. */
static int fail(fl_transport *transport) {
    session *session = transport->state;
    session->broken = true;
    ERR_clear_error();
    flush(transport);
    return FL_TRANSPORT_BROKEN;
}

/* The client gets no reset before it has read why it is refused. */
static void discard_input(int descriptor) {
    char dropped[4096];
    for (int i = 0; i < DISCARDED / (int) sizeof dropped; i++)
        if (recv(descriptor, dropped, sizeof dropped, 0) <= 0)
            return;
}

static void refuse_plain_http(int descriptor) {
    static const char response[] = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 61\r\n"
                                   "connection: close\r\n\r\n"
                                   "This is plain HTTP on a port for HTTPS: use an https:// URL.\n";
    discard_input(descriptor);
    send_some(descriptor, response, sizeof response - 1);
    shutdown(descriptor, SHUT_WR);
}

/* Whether the first byte has come, and may begin a handshake: else a client of plain HTTP learns what is wrong. */
static int check_first_byte(fl_transport *transport) {
    unsigned char first;
    ssize_t count = recv(transport->descriptor, &first, 1, MSG_PEEK);
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return wait_for_input(transport);
    if (count == 1 && first >= 'A' && first <= 'Z')
        refuse_plain_http(transport->descriptor);
    return count == 1 && first == HANDSHAKE ? 0 : FL_TRANSPORT_BROKEN;
}

/* The transport's functions */

static bool tls_open(fl_transport *transport, void *configuration) {
    session *session = calloc(1, sizeof *session);
    if (session == NULL)
        return false;
    session->tls = configuration;
    transport->state = session;
    return true;
}

static int tls_handshake(fl_transport *transport) {
    session *session = transport->state;
    if (session->ssl == NULL) {
        int outcome = check_first_byte(transport);
        if (outcome != 0 || !begin(transport))
            return outcome != 0 ? outcome : FL_TRANSPORT_BROKEN;
    }
    ERR_clear_error();
    int result = session->established ? 1 : SSL_accept(session->ssl);
    if (result != 1 && SSL_get_error(session->ssl, result) != SSL_ERROR_WANT_READ)
        return fail(transport);
    session->established = result == 1;
    int flushed = flush(transport);
    if (flushed == FL_TRANSPORT_BROKEN)
        return FL_TRANSPORT_BROKEN;
    if (result != 1 || flushed != 0) /* the client waits for what is held */
        return wait_for_input(transport);
    const unsigned char *name;
    unsigned size;
    SSL_get0_alpn_selected(session->ssl, &name, &size);
    if (transport->identity == NULL && !fl_tls_identify(session->ssl, &transport->identity))
        return fail(transport);
    const fl_protocol *protocol = size == 0 ? NULL : fl_tls_find_protocol(session->tls, name, size);
    transport->protocol = protocol == NULL ? NULL : protocol->name;
    return 0;
}

static bool tls_is_unread(const fl_transport *transport) {
    return ((const session *) transport->state)->ssl == NULL;
}

static ssize_t tls_read(fl_transport *transport, void *bytes, size_t size) {
    session *session = transport->state;
    size_t count = 0;
    transport->drained = false;
    if (session->broken || flush(transport) == FL_TRANSPORT_BROKEN)
        return FL_TRANSPORT_BROKEN;
    session->drained = false; /* what OpenSSL held does not tell what has come to the socket since */
    ERR_clear_error();
    int result = SSL_read_ex(session->ssl, bytes, size, &count);
    if (result == 1) {
        transport->drained = session->drained && !SSL_has_pending(session->ssl);
        if (transport->drained)
            wait_for_input(transport);
        return (ssize_t) count;
    }
    switch (SSL_get_error(session->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        return wait_for_input(transport);
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    default:
        return fail(transport);
    }
}

/* The next bytes after `done` ones, at most a record. Bytes of several parts are copied, so that a small head shares its record. */
static const char *next_record(const struct iovec *parts, int count, size_t done, char *room, size_t *size) {
    int part = 0;
    for (; done >= parts[part].iov_len; part++) done -= parts[part].iov_len;
    const char *first = (const char *) parts[part].iov_base + done;
    *size = parts[part].iov_len - done;
    if (*size >= RECORD || part == count - 1) {
        *size = *size < RECORD ? *size : RECORD;
        return first;
    }
    memcpy(room, first, *size);
    while (++part < count && *size < RECORD) {
        size_t more = parts[part].iov_len < RECORD - *size ? parts[part].iov_len : RECORD - *size;
        memcpy(room + *size, parts[part].iov_base, more);
        *size += more;
    }
    return room;
}

static ssize_t tls_write(fl_transport *transport, const struct iovec *parts, int count) {
    session *session = transport->state;
    char room[RECORD];
    size_t total = 0, done = session->withholds;
    for (int i = 0; i < count; i++) total += parts[i].iov_len;
    int flushed = session->broken ? FL_TRANSPORT_BROKEN : flush(transport);
    if (flushed != 0)
        return flushed;
    session->withholds = false;
    while (done < total) {
        size_t size, written = 0;
        const char *bytes = next_record(parts, count, done, room, &size);
        ERR_clear_error();
        if (SSL_write_ex(session->ssl, bytes, size, &written) != 1)
            return fail(transport);
        done += written;
        if (session->held_size == 0)
            continue;
        session->withholds = true;
        return done > 1 ? (ssize_t) done - 1 : FL_TRANSPORT_WAIT;
    }
    return (ssize_t) done;
}

/* Says that no more comes, so that the client knows that nothing was cut off. */
static void notify_close(fl_transport *transport) {
    session *session = transport->state;
    if (!session->established || session->broken || session->was_reset || session->held_size > 0)
        return;
    SSL_shutdown(session->ssl);
    ERR_clear_error();
}

static void tls_finish(fl_transport *transport) {
    notify_close(transport);
    fl_transport_plain.finish(transport);
}

static void tls_reset(fl_transport *transport) {
    ((session *) transport->state)->was_reset = true;
    fl_transport_plain.reset(transport);
}

static void tls_close(fl_transport *transport) {
    session *session = transport->state;
    if (session->ssl != NULL && !(SSL_get_shutdown(session->ssl) & SSL_SENT_SHUTDOWN))
        notify_close(transport);
    SSL_free(session->ssl);
    free(session->held);
    free(session);
    transport->state = NULL;
    fl_transport_plain.close(transport);
}

const fl_transport_kind fl_transport_tls = {
    .scheme = "https",
    .open = tls_open,
    .handshake = tls_handshake,
    .is_unread = tls_is_unread,
    .read = tls_read,
    .write = tls_write,
    .finish = tls_finish,
    .reset = tls_reset,
    .close = tls_close,
};

#else
const fl_transport_kind fl_transport_tls = {.scheme = "https"};
#endif
