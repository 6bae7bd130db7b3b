/* Browsers that load a page and its assets over TLS: first the page, then all assets at once over HTTP/2 where the server speaks
 * it, else over six connections of HTTP/1.1. When all responses have ended, the next page begins.
 *
 *   pages PORT SECONDS BROWSERS FRESH PAGE ASSET...
 *
 * With FRESH 1 each page has a new visitor, who opens new connections; the others of HTTP/1.1 resume the session of the first. A
 * page's time counts from its first connection, or its first request. Speaks to 127.0.0.1, believes every certificate, and prints one JSON
 * object. One thread, one epoll set. Only sockets wait: what is sent is so little that the kernel takes it at once. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "samples.h"

enum { CONNECTIONS = 6, READ_SIZE = 65536, HEAD_SIZE = 8192, EVENTS = 64, PATIENCE_SECONDS = 10 };
/* What Chromium grants. */
enum { STREAM_WINDOW = 6 << 20, CONNECTION_WINDOW = 15 << 20 };

/* Which response one waits for is known by its path's place: 0 is the page. */
typedef struct response {
    int status;
    bool coded;
} response;

typedef struct connection {
    struct browser *browser;
    int fd; /* -1: none */
    bool established;
    SSL *ssl;
    nghttp2_session *session; /* NULL: HTTP/1.1 */
    /* Of HTTP/1.1: the response that comes, -1 while none does, and how far it has. */
    int place;
    enum { HEAD, LENGTH, CHUNK_SIZE, CHUNK, TRAILER } state;
    char head[HEAD_SIZE + 1];
    size_t size; /* of the head, or of the line of a chunk */
    size_t left; /* of the body, or of the chunk */
    bool closing;
} connection;

typedef struct browser {
    connection connections[CONNECTIONS]; /* the first one asks for the page */
    SSL_SESSION *session;
    double begun;
    int next, left; /* the next asset to be asked for; responses that have not ended */
    long bytes;     /* of all bodies, as they came */
    bool failed, bad, counts;
} browser;

static struct sockaddr_in address;
static SSL_CTX *context;
static nghttp2_session_callbacks *callbacks;
static int epoll, port, count; /* count: of all paths */
static char **paths;
static response *expected; /* of one browser after the other */
static browser *browsers;
static bool fresh, http2;
static samples times;
static long bytes, responses, errors, non_2xx, plain;

static response *response_of(const browser *b, int place) {
    return &expected[(b - browsers) * count + place];
}

static int keep_session(SSL *ssl, SSL_SESSION *session) {
    browser *b = ((connection *) SSL_get_app_data(ssl))->browser;
    SSL_SESSION_free(b->session);
    b->session = session;
    return 1;
}

static void drop(connection *c) {
    if (c->fd < 0)
        return;
    nghttp2_session_del(c->session);
    SSL_shutdown(c->ssl);
    SSL_free(c->ssl);
    ERR_clear_error();
    close(c->fd);
    c->fd = -1;
    c->session = NULL;
}

static void open_connection(connection *c) {
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    c->established = c->closing = false;
    c->place = -1;
    c->ssl = SSL_new(context);
    SSL_set_app_data(c->ssl, c);
    SSL_set_fd(c->ssl, c->fd);
    SSL_set_tlsext_host_name(c->ssl, "127.0.0.1");
    SSL_set_connect_state(c->ssl);
    if (c->browser->session)
        SSL_set_session(c->ssl, c->browser->session);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c};
    if (connect(c->fd, (struct sockaddr *) &address, sizeof address) < 0 && errno != EINPROGRESS)
        c->browser->failed = true;
    else if (epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &event) < 0)
        perror("epoll_ctl"), exit(1);
}

static void send_bytes(connection *c, const void *data, size_t size) {
    if (SSL_write(c->ssl, data, (int) size) != (int) size)
        c->browser->failed = true;
}

/* All frames in one piece, as a browser does. */
static void send_frames(connection *c) {
    static char out[READ_SIZE];
    const uint8_t *frame;
    size_t size = 0;
    for (ssize_t length; (length = nghttp2_session_mem_send(c->session, &frame)) > 0; size += (size_t) length) {
        if (size + (size_t) length > sizeof out) {
            c->browser->failed = true;
            return;
        }
        memcpy(out + size, frame, (size_t) length);
    }
    if (size)
        send_bytes(c, out, size);
}

#define ACCEPT "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
#define ACCEPT_ENCODING "gzip, deflate, br, zstd"
#define ACCEPT_LANGUAGE "en-US,en;q=0.9"
#define USER_AGENT "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"

static nghttp2_nv field(char *name, char *value) {
    return (nghttp2_nv) {(uint8_t *) name, (uint8_t *) value, strlen(name), strlen(value), NGHTTP2_NV_FLAG_NONE};
}

static void ask(connection *c, int place) {
    char authority[32];
    snprintf(authority, sizeof authority, "127.0.0.1:%d", port);
    *response_of(c->browser, place) = (response) {0};
    if (c->session) {
        nghttp2_nv fields[] = {
            field(":method", "GET"), field(":scheme", "https"), field(":authority", authority), field(":path", paths[place]),
            field("accept", ACCEPT), field("accept-encoding", ACCEPT_ENCODING), field("accept-language", ACCEPT_LANGUAGE),
            field("user-agent", USER_AGENT),
        };
        if (nghttp2_submit_request(c->session, NULL, fields, sizeof fields / sizeof *fields, NULL, response_of(c->browser, place)) < 0)
            c->browser->failed = true;
        return;
    }
    char request[4096];
    int size = snprintf(request, sizeof request,
                        "GET %s HTTP/1.1\r\nHost: %s\r\nAccept: " ACCEPT "\r\nAccept-Encoding: " ACCEPT_ENCODING
                        "\r\nAccept-Language: " ACCEPT_LANGUAGE "\r\nUser-Agent: " USER_AGENT "\r\n\r\n",
                        paths[place], authority);
    c->place = place;
    c->state = HEAD;
    c->size = 0;
    send_bytes(c, request, (size_t) size);
}

/* Asks for what comes next, if this connection is free for it. */
static void ask_next(connection *c) {
    browser *b = c->browser;
    if (!c->established || c->closing || b->next == count || (b->next == 1 && b->left == count))
        return;
    do ask(c, b->next++);
    while (c->session && b->next > 1 && b->next < count);
}

/* The page has ended: now all connections are needed. */
static void ask_for_assets(browser *b) {
    if (b->connections[0].session) {
        ask_next(&b->connections[0]);
        return;
    }
    for (int i = 0; i < CONNECTIONS; i++) {
        connection *c = &b->connections[i];
        if (c->fd < 0)
            open_connection(c);
        else if (c->place < 0)
            ask_next(c);
    }
}

static void end_response(browser *b, int place) {
    const response *r = response_of(b, place);
    responses++;
    b->left--;
    if (r->status < 200 || r->status > 299) {
        non_2xx++;
        b->bad = true;
    }
    if (place == 0) {
        plain += !r->coded;
        ask_for_assets(b);
    }
}

static void begin_page(browser *b) {
    b->begun = now();
    b->next = 0;
    b->left = count;
    b->bytes = 0;
    b->failed = b->bad = false;
    if (b->connections[0].fd < 0)
        open_connection(&b->connections[0]);
    else
        ask_next(&b->connections[0]);
    if (b->connections[0].session)
        send_frames(&b->connections[0]);
}

static void leave(browser *b) {
    for (int i = 0; i < CONNECTIONS; i++) drop(&b->connections[i]);
    SSL_SESSION_free(b->session);
    b->session = NULL;
    b->counts = fresh;
}

/* Where connections stay, the first page that opens them counts not. */
static void end_page(browser *b) {
    double time = now();
    if (b->counts && !b->bad) {
        push(&times, time - b->begun);
        bytes += b->bytes;
    }
    b->counts = true;
    if (fresh)
        leave(b);
    begin_page(b);
}

static void give_up(browser *b) {
    errors++;
    leave(b);
    begin_page(b);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_size,
                     const uint8_t *value, size_t value_size, uint8_t flags, void *owner) {
    response *r = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    (void) flags, (void) owner, (void) value_size;
    if (r && name_size == 7 && memcmp(name, ":status", 7) == 0)
        r->status = atoi((const char *) value);
    if (r && name_size == 16 && memcmp(name, "content-encoding", 16) == 0)
        r->coded = true;
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *data, size_t size, void *owner) {
    (void) session, (void) flags, (void) stream, (void) data;
    ((connection *) owner)->browser->bytes += (long) size;
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t stream, uint32_t error, void *owner) {
    browser *b = ((connection *) owner)->browser;
    response *r = nghttp2_session_get_stream_user_data(session, stream);
    if (error || !r)
        b->failed = true;
    else
        end_response(b, (int) (r - response_of(b, 0)));
    return 0;
}

static void begin_http2(connection *c) {
    nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_ENABLE_PUSH, 0}, {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW}};
    nghttp2_session_client_new(&c->session, callbacks, c);
    nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, settings, 2);
    nghttp2_session_set_local_window_size(c->session, NGHTTP2_FLAG_NONE, 0, CONNECTION_WINDOW);
    http2 = true;
}

/* Whether the field's value begins so. */
static bool has_field(const char *head, const char *name, const char *value) {
    const char *found = strcasestr(head, name);
    return found && strncasecmp(found + strlen(name), value, strlen(value)) == 0;
}

static void end_of_body(connection *c) {
    int place = c->place;
    c->place = -1;
    end_response(c->browser, place);
    if (c->place < 0)
        ask_next(c);
}

static void end_of_head(connection *c) {
    response *r = response_of(c->browser, c->place);
    c->head[c->size] = '\0';
    c->size = 0;
    r->status = atoi(c->head + 9);
    if (r->status < 200) /* an early hint */
        return;
    r->coded = strcasestr(c->head, "\r\ncontent-encoding:") != NULL;
    c->closing = has_field(c->head, "\r\nconnection: ", "close");
    const char *length = strcasestr(c->head, "\r\ncontent-length:");
    c->left = length ? (size_t) atol(length + 17) : 0;
    c->state = length ? LENGTH : CHUNK_SIZE;
    if (!length && !has_field(c->head, "\r\ntransfer-encoding: ", "chunked"))
        c->browser->failed = true;
    else if (length && c->left == 0)
        end_of_body(c);
}

/* Takes a line's next byte. A chunk's size counts the line end after it; the last one is followed by trailers. */
static void take_byte(connection *c, char byte) {
    if (byte != '\n') {
        if (byte != '\r' && c->size < HEAD_SIZE)
            c->head[c->size++] = byte;
        return;
    }
    c->head[c->size] = '\0';
    size_t size = c->size;
    c->size = 0;
    if (c->state == TRAILER) {
        if (size == 0)
            end_of_body(c);
        return;
    }
    c->left = strtoul(c->head, NULL, 16);
    c->state = c->left ? CHUNK : TRAILER;
    c->left += 2;
}

static void take(connection *c, const char *data, size_t size) {
    while (size > 0 && c->place >= 0 && !c->browser->failed) {
        size_t taken = 1;
        if (c->state == HEAD) {
            c->head[c->size++] = *data;
            if (c->size == HEAD_SIZE)
                c->browser->failed = true;
            else if (c->size >= 4 && memcmp(c->head + c->size - 4, "\r\n\r\n", 4) == 0)
                end_of_head(c);
        } else if (c->state == LENGTH || c->state == CHUNK) {
            taken = size < c->left ? size : c->left;
            c->left -= taken;
            c->browser->bytes += (long) taken;
            if (c->left == 0 && c->state == LENGTH)
                end_of_body(c);
            else if (c->left == 0)
                c->state = CHUNK_SIZE;
        } else {
            take_byte(c, *data);
        }
        data += taken;
        size -= taken;
    }
}

/* @return whether it is there; without it the handshake goes on, or has failed. */
static bool establish(connection *c) {
    const unsigned char *name;
    unsigned size;
    int result = SSL_do_handshake(c->ssl);
    if (result != 1) {
        int error = SSL_get_error(c->ssl, result);
        if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE)
            c->browser->failed = true;
        return false;
    }
    SSL_get0_alpn_selected(c->ssl, &name, &size);
    if (size == 2)
        begin_http2(c);
    c->established = true;
    ask_next(c);
    return true;
}

static void advance(connection *c) {
    static char data[READ_SIZE];
    browser *b = c->browser;
    if (!c->established && !establish(c))
        return;
    int size = 1;
    while (!b->failed && (size = SSL_read(c->ssl, data, READ_SIZE)) > 0) {
        if (!c->session)
            take(c, data, (size_t) size);
        else if (nghttp2_session_mem_recv(c->session, (const uint8_t *) data, (size_t) size) < 0)
            b->failed = true;
    }
    bool over = size <= 0 && SSL_get_error(c->ssl, size) != SSL_ERROR_WANT_READ;
    if (over && (c->place >= 0 || c->session))
        b->failed = true;
    else if (c->place < 0 && (over || c->closing)) {
        drop(c);
        if (b->left > 0 && b->next < count)
            open_connection(c);
    }
    if (c->session)
        send_frames(c);
}

/* A load ends with at least one page, if the server has any in time. */
static bool goes_on(double late) {
    return times.count == 0 && errors == 0 && non_2xx == 0 && late < PATIENCE_SECONDS;
}

int main(int argc, char **argv) {
    if (argc < 7)
        return 2;
    double seconds = atof(argv[2]);
    int number = atoi(argv[3]);
    port = atoi(argv[1]);
    fresh = atoi(argv[4]) != 0;
    paths = argv + 5;
    count = argc - 5;
    address = (struct sockaddr_in) {.sin_family = AF_INET, .sin_port = htons((uint16_t) port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    signal(SIGPIPE, SIG_IGN);
    context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_alpn_protos(context, (const unsigned char *) "\x02h2\x08http/1.1", 12);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(context, keep_session);
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    browsers = calloc((size_t) number, sizeof *browsers);
    expected = calloc((size_t) (number * count), sizeof *expected);

    double begun = now(), time = begun, end = begun + seconds;
    for (int i = 0; i < number; i++) {
        browser *b = &browsers[i];
        b->counts = fresh;
        for (int j = 0; j < CONNECTIONS; j++) b->connections[j] = (connection) {.browser = b, .fd = -1, .place = -1};
        begin_page(b);
    }
    struct epoll_event events[EVENTS];
    while ((time = now()) < end || goes_on(time - end)) {
        int ready = epoll_wait(epoll, events, EVENTS, 10);
        for (int i = 0; i < ready; i++) {
            connection *c = events[i].data.ptr;
            if (c->fd >= 0)
                advance(c);
        }
        for (int i = 0; i < number; i++) {
            browser *b = &browsers[i];
            if (b->failed || time - b->begun > PATIENCE_SECONDS)
                give_up(b);
            else if (b->left == 0)
                end_page(b);
        }
    }
    printf("{\"pages\":%ld,\"requests\":%ld,\"errors\":%ld,\"non_2xx\":%ld,\"plain\":%ld,\"bytes\":%ld,\"http2\":%s,", times.count,
           responses, errors, non_2xx, plain, bytes, http2 ? "true" : "false");
    print_latencies(&times);
    printf("\"seconds\":%.3f}\n", time - begun);
    return 0;
}
