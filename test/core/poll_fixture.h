/* A poll and the ends of a connection, for the tests of poll.h. Each test gets a new poll. */
#ifndef FL_TEST_POLL_FIXTURE_H
#define FL_TEST_POLL_FIXTURE_H

#include "base/poll.h"
#include "test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/poll.h>

enum { MILLISECOND = 1000, SECOND = 1000000 };

static fl_poll poller;
static int ours, theirs; /* the ends of a connection */

static inline void connect_pair(int type) {
    int ends[2];
    if (socketpair(AF_UNIX, type, 0, ends) < 0)
        abort();
    ours = ends[0];
    theirs = ends[1];
    fl_close_on_exec_nonblocking(ours);
    fl_close_on_exec_nonblocking(theirs);
}

static inline int listen_somewhere(struct sockaddr_in *address) {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t size = sizeof *address;
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    if (bind(listener, (struct sockaddr *) address, size) < 0 || listen(listener, 16) < 0 ||
        getsockname(listener, (struct sockaddr *) address, &size) < 0)
        abort();
    fl_close_on_exec_nonblocking(listener);
    return listener;
}

static inline int connect_to(const struct sockaddr_in *address) {
    int descriptor = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(descriptor, (const struct sockaddr *) address, sizeof *address) < 0)
        abort();
    return descriptor;
}

static inline void connect_tcp(void) {
    struct sockaddr_in address;
    int listener = listen_somewhere(&address);
    theirs = connect_to(&address);
    struct pollfd waiting = {.fd = listener, .events = POLLIN};
    poll(&waiting, 1, 5000);
    ours = fl_accept(listener, NULL, NULL);
    close(listener);
}

static inline void hang_up(void) {
    fl_poll_remove(&poller, ours);
    close(ours);
    close(theirs);
}

/* The events of `data` until no more are reported. */
static inline uint32_t events_of(const void *data, int *times) {
    fl_event events[FL_POLL_EVENTS];
    uint32_t ready = 0;
    bool woken = true;
    for (int round = 0; round < 20 && woken; round++) {
        int count = fl_poll_wait(&poller, events, 20 * MILLISECOND, &woken);
        for (int i = 0; i < count; i++)
            if (events[i].data == data) {
                ready |= events[i].ready;
                *times += 1;
            }
    }
    CHECK(!woken); /* no endless events */
    return ready;
}

#define CHECK_EVENTS(expected, data)                                                                             \
    do {                                                                                                       \
        int times_ = 0;                                                                                        \
        CHECK_NUMBER(expected, events_of(data, &times_));                                                        \
        if (expected)                                                                                          \
            CHECK(times_ > 0);                                                                                 \
        else                                                                                                   \
            CHECK_NUMBER(0, times_);                                                                           \
    } while (0)

/* Whether the poll's descriptor becomes readable in time. libkqueue's descriptor cannot be polled. */
static inline bool is_pending(int milliseconds) {
    struct pollfd descriptor = {.fd = poller.descriptor, .events = POLLIN};
    return poll(&descriptor, 1, milliseconds) == 1;
}

#ifdef LIBKQUEUE
#define CHECK_PENDING(expected, milliseconds) ((void) is_pending)
#else
#define CHECK_PENDING(expected, milliseconds) CHECK(is_pending(milliseconds) == (expected))
#endif

/* Returns how many bytes it has read. */
static inline size_t read_all(void) {
    char bytes[65536];
    size_t all = 0;
    for (ssize_t count; (count = recv(ours, bytes, sizeof bytes, 0)) > 0;) all += (size_t) count;
    return all;
}

static inline void fill(void) {
    static const char bytes[65536];
    while (send(ours, bytes, sizeof bytes, FL_SEND_FLAGS) > 0) continue;
}

static inline void drain_their_side(void) {
    char bytes[65536];
    while (recv(theirs, bytes, sizeof bytes, MSG_DONTWAIT) > 0) continue;
}

#define POLL_TEST(function)                                                                                    \
    do {                                                                                                       \
        if (fl_poll_open(&poller) < 0)                                                                         \
            abort();                                                                                           \
        TEST(function);                                                                                        \
        fl_poll_close(&poller);                                                                                \
    } while (0)

#endif
