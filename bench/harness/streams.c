/* A language model and the clients of a server that relays it, in one thread with one epoll set: cheap beside any server.
 *
 *   streams PORT PATH COUNT RATE
 *
 * Each client asks 127.0.0.1:PORT for PATH?MODEL, where MODEL is the port of the model. The server requests an event stream
 * from the model (POST, chunked) and relays each token to its client. A token is " token~SENT~", where SENT is the sending time
 * in microseconds; clients ignore all other bytes.
 *
 * The model greets each stream with one token. A stream has begun once its client has this token. When all streams have begun,
 * or none has for QUIET seconds, the program prints {"begun":…} and reads commands from standard input, one letter each:
 *
 *   g  the model sends RATE tokens a second to each stream, evenly, all streams taking turns
 *   c  counting begins
 *   e  counting ends: prints one JSON object, and exits
 *
 * When a server does not read, the model skips tokens and counts them as held_back. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "samples.h"

enum { READ_SIZE = 65536, EVENT_SIZE = 512, EVENTS = 512, BACKLOG = 4096, OPENED_AT_ONCE = 100, UNSENT_BYTES = 8192 };

static const double QUIET = 2;
static const double STUCK = 0.5; /* seconds without a new stream, after which all other clients connect at once */

typedef enum kind { COMMANDS, LISTENER, UPSTREAM, CLIENT } kind;

typedef struct client {
    kind kind;
    int fd;
    bool sent, begun, in_mark;
    long long value; /* of the mark read so far */
    long tokens;     /* since counting began */
    double first, last;
} client;

/* A stream from the model to the server, at a fixed place in the model's turns. */
typedef struct upstream {
    kind kind;
    int fd;
    bool asked;
    int newlines; /* in a row, so far: two end the request's head */
    char rest[EVENT_SIZE];
    int rest_length;
} upstream;

static int epoll, count;
static double rate;
static client *clients;
static upstream *upstreams;
static char request[512];
static int request_length;
static int begun, closed;
static double last_begun;
static double started; /* when the model began to send, or 0 */
static bool counting;
static double counted_from;
static long tokens, sent, held_back;
static samples gaps, delays;

static void watch(int fd, uint32_t events, void *owner) {
    struct epoll_event event = {.events = events, .data.ptr = owner};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0)
        perror("epoll_ctl"), exit(1);
}

static void do_not_delay(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

/* The model. */

static void drop_upstream(upstream *stream) {
    close(stream->fd);
    stream->fd = -1;
}

static void send_all(upstream *stream, const char *bytes, int length) {
    ssize_t written = send(stream->fd, bytes, (size_t) length, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written < 0 && errno != EAGAIN) {
        drop_upstream(stream);
        return;
    }
    if (written < 0)
        written = 0;
    stream->rest_length = length - (int) written;
    memmove(stream->rest, bytes + written, (size_t) stream->rest_length);
}

/* One event as OpenAI's chat completions have it, in a chunk of its own. */
static void send_token(upstream *stream) {
    if (stream->rest_length)
        send_all(stream, stream->rest, stream->rest_length);
    if (stream->fd < 0)
        return;
    if (stream->rest_length) {
        held_back += counting;
        return;
    }
    char event[EVENT_SIZE], chunk[EVENT_SIZE];
    int length =
        snprintf(event, sizeof event,
                 "data: {\"id\":\"chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG\",\"object\":\"chat.completion.chunk\","
                 "\"created\":1741570283,\"model\":\"fake\",\"system_fingerprint\":\"fp_44709d6fcb\",\"choices\":"
                 "[{\"index\":0,\"delta\":{\"content\":\" token~%lld~\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n",
                 (long long) (now() * 1e6));
    int size = snprintf(chunk, sizeof chunk, "%x\r\n%s\r\n", (unsigned) length, event);
    send_all(stream, chunk, size);
    sent += counting;
}

static void answer(upstream *stream) {
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream->asked = true;
    send_all(stream, head, sizeof head - 1);
    if (stream->fd >= 0)
        send_token(stream);
}

/* Answers after the head, whatever the request's body is. */
static void read_upstream(upstream *stream) {
    char bytes[READ_SIZE];
    ssize_t length = recv(stream->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (length < 0 && errno == EAGAIN)
        return;
    if (length <= 0) {
        drop_upstream(stream);
        return;
    }
    for (ssize_t i = 0; i < length && !stream->asked; i++) {
        if (bytes[i] == '\n' && ++stream->newlines == 2)
            answer(stream);
        else if (bytes[i] != '\r' && bytes[i] != '\n')
            stream->newlines = 0;
    }
}

static void accept_upstreams(int listener) {
    static int next;
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return;
        int tries = 0;
        while (upstreams[next].fd >= 0 && tries++ < count) next = (next + 1) % count;
        upstream *stream = &upstreams[next];
        if (stream->fd >= 0) {
            close(fd);
            continue;
        }
        *stream = (upstream) {.kind = UPSTREAM, .fd = fd};
        do_not_delay(fd);
        int unsent = UNSENT_BYTES; /* few tokens wait in the kernel when the server does not read */
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &unsent, sizeof unsent);
        watch(fd, EPOLLIN, stream);
    }
}

static int listen_for_upstreams(int *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *) &address, sizeof address) < 0 || listen(fd, BACKLOG) < 0 ||
        getsockname(fd, (struct sockaddr *) &address, &length) < 0)
        perror("listen"), exit(1);
    *port = ntohs(address.sin_port);
    return fd;
}

/* The clients. */

static void drop_client(client *one) {
    close(one->fd);
    one->fd = -1;
    closed++;
}

static void open_client(client *one, const struct sockaddr_in *address) {
    one->kind = CLIENT;
    one->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (one->fd < 0)
        perror("socket"), exit(1);
    watch(one->fd, EPOLLOUT, one);
    if (connect(one->fd, (const struct sockaddr *) address, sizeof *address) < 0 && errno != EINPROGRESS)
        drop_client(one);
}

static void ask(client *one) {
    if (send(one->fd, request, (size_t) request_length, MSG_NOSIGNAL) != request_length) {
        drop_client(one);
        return;
    }
    one->sent = true;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = one};
    epoll_ctl(epoll, EPOLL_CTL_MOD, one->fd, &event);
}

static void take_token(client *one, double time) {
    if (!one->begun) {
        one->begun = true;
        begun++;
        last_begun = time;
    }
    if (!counting) {
        one->last = time;
        return;
    }
    tokens++;
    if (one->last > 0)
        push(&gaps, time - one->last);
    push(&delays, time - (double) one->value / 1e6);
    if (one->tokens++ == 0)
        one->first = time;
    one->last = time;
}

static void read_client(client *one, double time) {
    static char bytes[READ_SIZE];
    ssize_t length = recv(one->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (length < 0 && errno == EAGAIN)
        return;
    if (length <= 0) {
        drop_client(one);
        return;
    }
    for (ssize_t i = 0; i < length; i++) {
        if (bytes[i] == '~') {
            if (one->in_mark && one->value)
                take_token(one, time);
            one->in_mark = !one->in_mark;
            if (one->in_mark)
                one->value = 0;
        } else if (one->in_mark) {
            if (bytes[i] >= '0' && bytes[i] <= '9')
                one->value = one->value * 10 + (bytes[i] - '0');
            else
                one->in_mark = false;
        }
    }
}

/* The report covers all streams that have begun. */

/* Tokens a second between the first and the last token: whole periods, so that few tokens give an exact rate. Silence that
 * lasts longer than a period, before the first token or after the last, lengthens the time. */
static double rate_of(const client *one, double end) {
    double period = 1 / rate;
    if (one->tokens < 2)
        return 0.5 / (end - counted_from);
    double before = one->first - counted_from - period, after = end - one->last - period;
    return (double) (one->tokens - 1) / (one->last - one->first + fmax(before, 0) + fmax(after, 0));
}

/* Forgets the greetings, so that no gap begins with one. */
static void start(double time) {
    started = time;
    for (int i = 0; i < count; i++) clients[i].last = 0;
}

static void report(void) {
    double end = now(), lowest = INFINITY, highest = 0;
    for (int i = 0; i < count; i++) {
        client *one = &clients[i];
        if (!one->begun)
            continue;
        double silence = end - fmax(one->last, started);
        if (silence > 1 / rate)
            push(&gaps, silence);
        double its = rate_of(one, end);
        lowest = fmin(lowest, its);
        highest = fmax(highest, its);
    }
    sort(&gaps);
    sort(&delays);
    printf("{\"begun\":%d,\"closed\":%d,\"tokens\":%ld,\"sent\":%ld,\"held_back\":%ld,\"seconds\":%.3f,", begun, closed, tokens,
           sent, held_back, end - counted_from);
    printf("\"gap_p50\":%.3f,\"gap_p99\":%.3f,\"gap_max\":%.3f,\"delay_p50\":%.3f,\"delay_p99\":%.3f,", percentile(&gaps, 0.5),
           percentile(&gaps, 0.99), percentile(&gaps, 1), percentile(&delays, 0.5), percentile(&delays, 0.99));
    printf("\"slowest\":%.4f,\"fastest\":%.4f}\n", begun ? lowest : 0, highest);
}

int main(int argc, char **argv) {
    if (argc != 5)
        return 2;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t) atoi(argv[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    count = atoi(argv[3]);
    rate = atof(argv[4]);
    clients = calloc((size_t) count, sizeof *clients);
    upstreams = calloc((size_t) count, sizeof *upstreams);
    for (int i = 0; i < count; i++) clients[i].fd = upstreams[i].fd = -1;

    epoll = epoll_create1(EPOLL_CLOEXEC);
    int port, listener = listen_for_upstreams(&port);
    kind listening = LISTENER, commands = COMMANDS;
    watch(listener, EPOLLIN, &listening);
    request_length = snprintf(request, sizeof request,
                              "GET %s?%d HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n", argv[2], port);

    struct epoll_event events[EVENTS];
    int opened = 0;
    bool ready = false;
    double opened_at = 0; /* the last client */
    long turn = 0;
    last_begun = now();
    for (;;) {
        double time = now();
        while (opened < count && (opened - begun - closed < OPENED_AT_ONCE || time - last_begun > STUCK)) {
            open_client(&clients[opened++], &address);
            opened_at = time;
        }
        if (!ready && opened == count && (begun + closed == count || time - fmax(last_begun, opened_at) > QUIET)) {
            ready = true;
            printf("{\"begun\":%d}\n", begun);
            fflush(stdout);
            watch(STDIN_FILENO, EPOLLIN, &commands);
        }
        while (started > 0 && started + (double) turn / (rate * count) <= time) {
            upstream *stream = &upstreams[turn++ % count];
            if (stream->fd >= 0 && stream->asked)
                send_token(stream);
        }
        int length = epoll_wait(epoll, events, EVENTS, started > 0 || opened < count ? 1 : 100);
        time = now();
        for (int i = 0; i < length; i++) {
            kind *owner = events[i].data.ptr;
            if (*owner == LISTENER)
                accept_upstreams(listener);
            else if (*owner == UPSTREAM)
                read_upstream((upstream *) owner);
            else if (*owner == CLIENT) {
                client *one = (client *) owner;
                if (one->sent)
                    read_client(one, time);
                else
                    ask(one);
            } else {
                char command;
                if (read(STDIN_FILENO, &command, 1) != 1)
                    return 1;
                if (command == 'g')
                    start(time);
                if (command == 'c') {
                    counting = true;
                    counted_from = time;
                }
                if (command == 'e') {
                    report();
                    return 0;
                }
            }
        }
    }
}
