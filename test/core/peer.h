/* A loop under test and its clients in one process, over TCP or socket pairs. All waits fail after twenty seconds. */
#ifndef FL_TEST_PEER_H
#define FL_TEST_PEER_H

#include "loop/loop.h"
#include "base/platform.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* RAW_TEST: a test that hands over the socket itself, or counts reads, needs the plain transport. */
#ifdef TOY_TRANSPORT
#include "toy_transport.h"
#define RAW_TEST(function) (void) function
#else
#define RAW_TEST(function) TEST(function)
#endif

enum { MILLISECOND = 1000, SECOND = 1000000 };

#define GET(path) "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"

static const fl_limits peer_limits = {
    .head = {8192, 32768, 100},
    .body_size = 1 << 30,
    .body_buffer = 65536,
    .response_buffer = 1 << 20,
    .in_flight = 100,
    .streams = 100,
    .queue_timeout = 5 * SECOND,
    .deadlines = {[FL_DEADLINE_IDLE] = 5 * SECOND,
                  [FL_DEADLINE_HEAD] = 5 * SECOND,
                  [FL_DEADLINE_BODY] = 5 * SECOND,
                  [FL_DEADLINE_WRITE] = 5 * SECOND,
                  [FL_DEADLINE_LINGER] = 5 * SECOND},
};

typedef struct peer_server {
    fl_loop *loop;
    int listening, port;
} peer_server;

static inline peer_server server_with(fl_limits limits) {
    peer_server server = {.loop = fl_loop_open(&limits), .listening = socket(AF_INET, SOCK_STREAM, 0)};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    if (bind(server.listening, (struct sockaddr *) &address, size) < 0 || listen(server.listening, 128) < 0 ||
        getsockname(server.listening, (struct sockaddr *) &address, &size) < 0)
        abort();
    server.port = ntohs(address.sin_port);
    CHECK_NUMBER(FL_OK, fl_loop_listen(server.loop, server.listening, false));
#ifdef TOY_TRANSPORT
    server.loop->accepting.listeners->transport = &toy_transport_kind;
#endif
    return server;
}

static inline peer_server server_start(void) {
    return server_with(peer_limits);
}

static inline void server_stop(peer_server *server) {
    if (server->loop != NULL)
        fl_loop_close(server->loop);
    server->loop = NULL;
    close(server->listening);
}

/* Connects two serving workers. The caller closes the channels. */
static inline fl_shared_page *make_siblings(peer_server *old, peer_server *young, int channels[4]) {
    fl_shared_page *page = fl_shared_page_open(2);
    if (page == NULL || socketpair(AF_UNIX, FL_PACKETS, 0, channels) < 0 ||
        socketpair(AF_UNIX, FL_PACKETS, 0, channels + 2) < 0)
        abort();
    int sending[] = {channels[1], channels[3]};
    CHECK_NUMBER(FL_OK, fl_loop_join(old->loop, page, 0, channels[0], sending, 2));
    CHECK_NUMBER(FL_OK, fl_loop_join(young->loop, page, 1, channels[2], sending, 2));
    for (int i = 0; i < 2; i++) fl_slot_set(&page->slots[i], FL_SLOT_state, FL_WORKER_SERVING);
    return page;
}

/* Turns the loop until it is idle. */
static inline void turn(fl_loop *loop) {
    for (int i = 0; i < 200; i++) {
        fl_loop_turn(loop);
        bool goes_on = loop->context.dirty != NULL; /* see fl_loop_prepare_wait */
        if (!fl_loop_wait(loop, goes_on ? 0 : 2 * MILLISECOND) && !goes_on)
            break;
    }
    fl_loop_turn(loop);
}

#define TURN_UNTIL(loop, condition)                                                                            \
    do {                                                                                                       \
        uint64_t give_up_ = fl_clock() + 20 * SECOND;                                                          \
        bool came_ = false;                                                                                    \
        for (fl_loop_turn(loop); !(came_ = (condition)) && fl_clock() < give_up_; fl_loop_turn(loop))          \
            fl_loop_wait(loop, 5 * MILLISECOND);                                                               \
        if (!came_)                                                                                            \
            test_fail(__FILE__, __LINE__, "never became true: %s", #condition);                                \
    } while (0)

static inline int client_socket(int descriptor) {
    fcntl(descriptor, F_SETFL, O_NONBLOCK);
    return descriptor;
}

static inline int client(peer_server *server) {
    int descriptor = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* no delay */
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_port = htons((uint16_t) server->port)};
    if (connect(descriptor, (struct sockaddr *) &address, sizeof address) < 0)
        abort();
    return client_socket(descriptor);
}

/* A client with tiny buffers on both sides. */
static inline int narrow_client(peer_server *server) {
    int pair[2], size = 4096;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
        abort();
    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    fl_close_on_exec_nonblocking(pair[0]);
    CHECK(fl_connection_open(&server->loop->context, server->loop->accepting.listeners, pair[0], "", 0) != NULL);
    return client_socket(pair[1]);
}

static inline void send_bytes(int descriptor, const char *bytes, size_t size) {
    if (send(descriptor, bytes, size, MSG_NOSIGNAL) != (ssize_t) size)
        test_fail(__FILE__, __LINE__, "could not send %zu bytes: %s", size, strerror(errno));
}

static inline void send_text(int descriptor, const char *text) {
    send_bytes(descriptor, text, strlen(text));
}

/* Bytes that a client has received. */
typedef struct received_bytes {
    char *bytes;
    size_t size, capacity;
    bool ended, reset;
} received_bytes;

static inline void receive_available(int descriptor, received_bytes *received) {
    for (;;) {
        if (received->capacity < received->size + 65537) {
            received->capacity = 2 * received->size + 65537;
            received->bytes = realloc(received->bytes, received->capacity);
        }
        ssize_t count = recv(descriptor, received->bytes + received->size, 65536, 0);
        if (count > 0)
            received->size += (size_t) count;
        received->bytes[received->size] = 0;
        received->ended |= count == 0;
        received->reset |= count < 0 && errno != EAGAIN;
        if (count <= 0)
            return;
    }
}

static inline received_bytes receive(fl_loop *loop, int descriptor) {
    received_bytes received = {0};
    turn(loop);
    receive_available(descriptor, &received);
    return received;
}

static inline received_bytes receive_to_end(fl_loop *loop, int descriptor) {
    received_bytes received = {0};
    uint64_t give_up = fl_clock() + 20 * SECOND;
    for (receive_available(descriptor, &received); !received.ended && !received.reset; receive_available(descriptor, &received)) {
        if (fl_clock() > give_up) {
            test_fail(__FILE__, __LINE__, "the connection was not closed");
            break;
        }
        fl_loop_turn(loop);
        fl_loop_wait(loop, 5 * MILLISECOND);
    }
    return received;
}

/* Checks the beginning and the end of the received bytes. */
#define CHECK_RECEIVED(start, end, actual)                                                                     \
    do {                                                                                                       \
        received_bytes received_ = (actual);                                                                   \
        size_t start_ = strlen(start), end_ = strlen(end);                                                     \
        if (received_.size < start_ || memcmp(received_.bytes, start, start_) || received_.size < end_ ||      \
            memcmp(received_.bytes + received_.size - end_, end, end_))                                        \
            test_fail(__FILE__, __LINE__, "received %zu bytes: \"%.*s\"", received_.size,                      \
                      (int) (received_.size < 400 ? received_.size : 400), received_.size ? received_.bytes : "");\
        free(received_.bytes);                                                                                 \
    } while (0)

#define CHECK_NOTHING_RECEIVED(actual)                                                                         \
    do {                                                                                                       \
        received_bytes received_ = (actual);                                                                   \
        if (received_.size > 0 || received_.ended || received_.reset)                                          \
            test_fail(__FILE__, __LINE__, "received %zu bytes, ended %d, reset %d: \"%s\"", received_.size,    \
                      received_.ended, received_.reset, received_.bytes);                                      \
        free(received_.bytes);                                                                                 \
    } while (0)

static inline unsigned occurrences(const received_bytes *received, const char *text) {
    unsigned count = 0;
    for (const char *at = received->bytes; at != NULL && (at = strstr(at, text)) != NULL; at += strlen(text)) count++;
    return count;
}

/* The server's side */

static inline fl_exchange *take(fl_loop *loop) {
    fl_exchange *exchange = NULL;
    turn(loop);
    TURN_UNTIL(loop, (exchange = fl_loop_take(loop)) != NULL);
    return exchange;
}

static inline const char *path_of(fl_exchange *exchange) {
    static char path[256];
    snprintf(path, sizeof path, "%.*s", (int) exchange->request.head->path.size,
             fl_exchange_head_bytes(exchange) + exchange->request.head->path.at);
    return path;
}

static inline void answer(fl_exchange *exchange, int code, const char *body) {
    size_t used, size = strlen(body);
    fl_exchange_release_head(exchange);
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, code));
    CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, (int64_t) size));
    if (size > 0)
        CHECK_NUMBER(FL_OK, fl_exchange_write(exchange, body, size, &used));
    fl_exchange_finish(exchange);
}

/* Answers all ready requests with their path. Returns how many. */
static inline unsigned answer_all(fl_loop *loop) {
    unsigned count = 0;
    fl_exchange *exchange;
    turn(loop);
    for (; (exchange = fl_loop_take(loop)) != NULL || (turn(loop), exchange = fl_loop_take(loop)) != NULL; count++) {
        char path[256];
        snprintf(path, sizeof path, "%s", path_of(exchange));
        answer(exchange, 200, path);
        fl_loop_turn(loop);
    }
    turn(loop);
    return count;
}

#endif
