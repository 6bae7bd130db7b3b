/* Open-loop load: requests are due at random moments (a Poisson process) at a given mean rate, whether earlier ones
 * have been answered or not, as those of many people are. A latency counts from the moment at which the request was
 * due, so that waiting for a free connection is in it. Whoever has waited for the patience gives up and closes.
 *
 *   open_loop PORT PATH RATE SECONDS CONNECTIONS PATIENCE SEED CALM_RATE CALM_SECONDS NORMAL KEEP_ALIVE
 *
 * After the load, with no pause, a calm of so many seconds may follow, at a lower rate; what is told of it is how long
 * after the load the last request came that was not answered well within NORMAL seconds.
 *
 * Speaks HTTP/1.1 to 127.0.0.1, with keep-alive connections or (KEEP_ALIVE 0) a new one for each request. Prints one JSON
 * object. One thread, one epoll set. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "samples.h"

enum { READ_SIZE = 65536, HEAD_SIZE = 8192, EVENTS = 512 };

typedef struct connection {
    int fd; /* -1: none yet */
    bool busy, reused;
    double due;               /* of the request it carries */
    char head[HEAD_SIZE + 1]; /* the answer's, until it is complete */
    int head_length;
    bool in_body, chunked, closing;
    int status;
    long body_left;
    char tail[5]; /* a chunked body's last bytes */
    struct connection *next_free;
} connection;

static struct sockaddr_in address;
static char request[2048];
static size_t request_length;
static int epoll;
static double end; /* of the load; what is due later belongs to the calm */
static connection *connections, *free_list;
static samples latencies, refusals, later_refusals;
static double settled; /* what is due from here on comes when a server had time to see that it is too much */
/* bare: refused without being told when to come again. */
typedef struct tally { long offered, answered, in_time, refused, bare, wrong, failed, gave_up; } tally;
static tally load, calm;
static double normal, slow_until; /* since the end of the load */
static double patience;
static bool keep_alive;
static double *waiting; /* due times of those without a connection, a ring that never wraps */
static long waiting_first, waiting_end;

static tally *tally_of(double due) {
    return due < end ? &load : &calm;
}

/* A request of the calm that was not answered as usual. */
static void note_slow(double due) {
    if (due >= end && due - end > slow_until) slow_until = due - end;
}

static void count_failed(double due) {
    tally_of(due)->failed++;
    note_slow(due);
}

static void count_given_up(double due) {
    tally_of(due)->gave_up++;
    note_slow(due);
}

static void drop(connection *c) {
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
}

static void release(connection *c) {
    c->busy = false;
    c->next_free = free_list;
    free_list = c;
}

static void begin(connection *c) {
    c->head_length = 0;
    c->in_body = c->chunked = c->closing = false;
    memset(c->tail, 0, sizeof c->tail);
}

static void send_request(connection *c) {
    begin(c);
    c->reused = c->fd >= 0;
    if (c->fd < 0) {
        c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        int one = 1;
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c};
        if (c->fd < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &event) < 0 ||
            (connect(c->fd, (struct sockaddr *)&address, sizeof address) < 0 && errno != EINPROGRESS)) {
            count_failed(c->due);
            drop(c);
            release(c);
        }
        return; /* sent once it is writable */
    }
    if (send(c->fd, request, request_length, MSG_NOSIGNAL) != (ssize_t)request_length) { /* closed meanwhile */
        drop(c);
        send_request(c);
    }
}

static void start(double due) {
    connection *c = free_list;
    if (!c) {
        waiting[waiting_end++] = due;
        return;
    }
    free_list = c->next_free;
    c->busy = true;
    c->due = due;
    send_request(c);
}

static void finish(connection *c) {
    double time = now(), took = time - c->due;
    tally *counts = tally_of(c->due);
    bool good = c->status >= 200 && c->status < 300;
    if (good) {
        if (counts == &load) push(&latencies, took);
        counts->answered++;
        counts->in_time += time <= end;
    } else if (c->status == 503) {
        if (counts == &load) push(&refusals, took);
        if (counts == &load && c->due >= settled) push(&later_refusals, took);
        counts->refused++;
        counts->bare += strcasestr(c->head, "\r\nretry-after:") == NULL;
    } else counts->wrong++;
    if (!good || took > normal) note_slow(c->due);
    if (c->closing || !keep_alive) drop(c);
    release(c);
}

static void fail(connection *c) {
    drop(c);
    if (!c->busy) return;
    if (c->reused && c->head_length == 0 && !c->in_body) { /* an idle one that was closed as we wrote: once more */
        send_request(c);
        return;
    }
    count_failed(c->due);
    release(c);
}

/* Whether the answer is complete. */
static bool take(connection *c, const char *bytes, long count) {
    if (!c->in_body) {
        long room = HEAD_SIZE - c->head_length, copied = count < room ? count : room;
        memcpy(c->head + c->head_length, bytes, (size_t)copied);
        int before = c->head_length;
        c->head_length += (int)copied;
        c->head[c->head_length] = 0;
        char *end = strstr(c->head, "\r\n\r\n");
        if (!end) return false;
        long used = end + 4 - c->head - before;
        end[2] = 0;
        sscanf(c->head, "HTTP/1.%*d %d", &c->status);
        c->in_body = true;
        c->closing = strcasestr(c->head, "\r\nconnection: close") != NULL;
        char *length = strcasestr(c->head, "\r\ncontent-length:");
        c->chunked = strcasestr(c->head, "\r\ntransfer-encoding: chunked") != NULL;
        c->body_left = length ? atol(length + 17) : 0;
        bytes += used;
        count -= used;
    }
    if (!c->chunked) return (c->body_left -= count) <= 0;
    for (long i = count > 5 ? count - 5 : 0; i < count; i++) {
        memmove(c->tail, c->tail + 1, 4);
        c->tail[4] = bytes[i];
    }
    return memcmp(c->tail, "0\r\n\r\n", 5) == 0;
}

static void read_answer(connection *c) {
    static char bytes[READ_SIZE];
    for (;;) {
        ssize_t count = recv(c->fd, bytes, sizeof bytes, 0);
        if (count < 0 && errno == EAGAIN) return;
        if (count <= 0) {
            fail(c);
            return;
        }
        if (c->busy && take(c, bytes, count)) {
            finish(c);
            if (c->fd < 0) return;
        }
    }
}

/* Counts clients that gave up, too: each with its patience. */
static double percentile_with_those_who_gave_up(double share) {
    long waited = load.answered + load.gave_up;
    if (!waited) return 0;
    long rank = (long)ceil(share * (double)waited);
    return rank <= load.answered ? latencies.values[rank ? rank - 1 : 0] * 1000 : patience * 1000;
}

static long open_requests(const tally *counts) {
    return counts->offered - counts->answered - counts->refused - counts->wrong - counts->failed - counts->gave_up;
}

int main(int argc, char **argv) {
    if (argc != 12) return 2;
    double rate = atof(argv[3]), seconds = atof(argv[4]);
    patience = atof(argv[6]);
    int count = atoi(argv[5]);
    unsigned short random[3] = {(unsigned short)atoi(argv[7]), 7, 9};
    double calm_rate = atof(argv[8]), calm_seconds = atof(argv[9]);
    normal = atof(argv[10]);
    keep_alive = atoi(argv[11]);
    long most = (long)((rate * seconds + calm_rate * calm_seconds) * 1.5) + 1000;

    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    request_length = (size_t)snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", argv[2],
                                      keep_alive ? "" : "Connection: close\r\n");
    epoll = epoll_create1(EPOLL_CLOEXEC);
    connections = calloc((size_t)count, sizeof *connections);
    waiting = calloc((size_t)most, sizeof *waiting);
    for (int i = count - 1; i >= 0; i--) {
        connections[i].fd = -1;
        release(&connections[i]);
    }

    struct epoll_event events[EVENTS];
    double begun = now(), due = begun, swept = begun;
    end = begun + seconds;
    settled = begun + 1;
    double last = end + calm_seconds;
    for (;;) {
        double time = now();
        while (due <= time && due < last && load.offered + calm.offered < most) {
            tally_of(due)->offered++;
            start(due);
            due += -log(1 - erand48(random)) / (due < end ? rate : calm_rate);
        }
        bool over = due >= last || load.offered + calm.offered >= most;
        if (over && (open_requests(&load) + open_requests(&calm) <= 0 || time > last + patience + 1)) break;

        if (time - swept > 0.01) { /* who has waited too long gives up */
            swept = time;
            for (int i = 0; i < count; i++) {
                if (!connections[i].busy || time - connections[i].due < patience) continue;
                count_given_up(connections[i].due);
                drop(&connections[i]);
                release(&connections[i]);
            }
            while (waiting_first < waiting_end && time - waiting[waiting_first] >= patience)
                count_given_up(waiting[waiting_first++]);
        }
        while (free_list && waiting_first < waiting_end) start(waiting[waiting_first++]);

        double next = over ? time + 0.01 : due;
        double pause = next - now();
        struct timespec timeout = {.tv_nsec = pause <= 0 ? 0 : pause > 0.01 ? 10000000 : (long)(pause * 1e9)};
        int ready = epoll_pwait2(epoll, events, EVENTS, &timeout, NULL);
        for (int i = 0; i < ready; i++) {
            connection *c = events[i].data.ptr;
            if (c->fd < 0) continue;
            if ((events[i].events & EPOLLOUT) && c->busy && !c->reused && c->head_length == 0 && !c->in_body) {
                if (send(c->fd, request, request_length, MSG_NOSIGNAL) != (ssize_t)request_length) {
                    fail(c);
                    continue;
                }
                struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.ptr = c};
                epoll_ctl(epoll, EPOLL_CTL_MOD, c->fd, &event);
            }
            if (events[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) read_answer(c);
        }
    }

    sort(&refusals);
    sort(&later_refusals);
    printf("{\"offered\":%ld,\"answered\":%ld,\"in_time\":%ld,\"refused\":%ld,\"bare\":%ld,\"wrong\":%ld,"
           "\"failed\":%ld,\"gave_up\":%ld,\"seconds\":%.3f,",
           load.offered, load.answered, load.in_time, load.refused, load.bare, load.wrong, load.failed, load.gave_up,
           seconds);
    print_latencies(&latencies);
    printf("\"waited_p50\":%.4f,\"waited_p99\":%.4f,", percentile_with_those_who_gave_up(0.5),
           percentile_with_those_who_gave_up(0.99));
    printf("\"refused_p50\":%.4f,\"refused_p99\":%.4f,\"refused_later\":%ld,\"refused_later_p99\":%.4f,",
           percentile(&refusals, 0.5), percentile(&refusals, 0.99), later_refusals.count, percentile(&later_refusals, 0.99));
    printf("\"calm_offered\":%ld,\"calm_answered\":%ld,\"calm_failed\":%ld,\"recovered\":%.1f}\n",
           calm.offered, calm.answered, calm.failed + calm.wrong, slow_until * 1000);
    return 0;
}
