/* Clients and the app act at random, by a seeded generator: no memory may be used after it is freed, and none may leak.
 * FL_SEED=… repeats a run, FL_STEPS=… prolongs it. */
#include "watch/balance.h"
#include "peer.h"

enum { CLIENTS = 5, TAKEN = 6 };

static uint64_t dice_state;

static unsigned dice(unsigned sides) {
    dice_state ^= dice_state << 13;
    dice_state ^= dice_state >> 7;
    dice_state ^= dice_state << 17;
    return (unsigned) (dice_state >> 11) % sides;
}

static const char *const snippets[] = {
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\nGET /c HTTP/1.1\r\nHost: a\r\n\r\n",
    "HEAD / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789",
    "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx",
    "GET / HTTP/1.0\r\n\r\n",
    "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /up HTTP/1.1\r\nHost: a\r\n\r\nGET /up HTTP/1.1\r\nHost: a\r\n\r\nHEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
    "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 80000\r\nExpect: 100-continue\r\n\r\n",
    "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n",
    "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n",
    "0\r\n\r\n", "zz\r\n", "\r\n", "G", "X: y\r\n", "Host: a\r\n\r\n", "bad\r\n\r\n",
};
enum { WELL_FORMED = 6 }; /* the first snippets */
static char filling[70000];
static bool polite; /* in some runs, so that connections live long enough for slow readers */

typedef struct taken {
    fl_exchange *exchange;
    bool begun, ended;
} taken;

static int clients[CLIENTS];
static taken served[TAKEN];

static void client_step(peer_server *server, int *socket) {
    static const struct linger reset = {1, 0};
    if (*socket < 0) {
        *socket = dice(2) ? client(server) : narrow_client(server);
        return;
    }
    const char *text;
    char bytes[8192];
    switch (polite ? 3 + dice(6) : dice(30)) {
    case 0:
        shutdown(*socket, SHUT_WR);
        break;
    case 1:
        setsockopt(*socket, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        /* fall through */
    case 2:
        close(*socket);
        *socket = -1;
        break;
    case 3:
    case 4:
        while (recv(*socket, bytes, sizeof bytes, 0) > 0 && dice(20) > 0) {}
        break;
    case 29:
        (void) !send(*socket, filling, dice(sizeof filling), MSG_NOSIGNAL);
        break;
    default:
        text = snippets[dice(polite ? WELL_FORMED : sizeof snippets / sizeof snippets[0])];
        size_t size = strlen(text);
        (void) !send(*socket, text, polite || dice(6) ? size : dice((unsigned) size), MSG_NOSIGNAL);
    }
}

static void read_some(fl_exchange *exchange) {
    const char *bytes;
    size_t size;
    if (fl_exchange_body(exchange, &bytes, &size) != FL_OK || size == 0)
        return;
    unsigned sum = 0;
    for (size_t i = 0; i < size; i++) sum += (unsigned char) bytes[i];
    fl_exchange_consume_body(exchange, sum % 2 ? size : size / 2 + 1);
}

static void begin(taken *one) {
    static const int codes[] = {200, 200, 204, 205, 304, 500};
    static const char *const codings[] = {"chunked", "identity", "gzip"};
    static const int64_t lengths[] = {-1, -1, -1, 0, 10, 100000};
    if (fl_exchange_begin(one->exchange, codes[dice(6)]) != FL_OK)
        return;
    one->begun = true;
    if (!polite && dice(4) == 0)
        fl_exchange_header(one->exchange, "connection", 10, "close", 5);
    if (!polite && dice(10) == 0)
        fl_exchange_header(one->exchange, "content-length", 14, "7", 1);
    if (!polite && dice(10) == 0) {
        const char *coding = codings[dice(3)];
        fl_exchange_header(one->exchange, "transfer-encoding", 17, coding, strlen(coding));
    }
    if (!polite && dice(10) == 0)
        fl_exchange_header(one->exchange, "trailer", 7, "x", 1);
    if (dice(3) == 0)
        fl_exchange_header(one->exchange, "content-type", 12, "text/event-stream", 17);
    one->ended = fl_exchange_head_end(one->exchange, lengths[dice(polite ? 3 : 6)]) == FL_OK;
}

static void hijack(taken *one) {
    fl_slab *slab = &one->exchange->context->slab;
    fl_buffer unsent = {0}, ahead = {0};
    int descriptor = fl_exchange_hijack(one->exchange, &unsent, &ahead);
    if (descriptor < 0)
        return;
    fl_buffer_free(slab, &unsent);
    fl_buffer_free(slab, &ahead);
    close(descriptor);
    fl_exchange_finish(one->exchange);
    one->exchange = NULL;
}

static void do_something_rare(taken *one) {
    static const char hint[] = "link: a\r\n";
    switch (dice(polite ? 3 : 6)) {
    case 0:
        fl_exchange_set_time_limit(one->exchange, dice(3) ? (1 + dice(polite ? 10000 : 30)) * MILLISECOND : 0);
        break;
    case 1:
        fl_exchange_send_interim(one->exchange, 103, hint, sizeof hint - 1);
        break;
    case 2:
        fl_exchange_restart_time_limit(one->exchange);
        break;
    case 3:
        if (one->ended)
            fl_exchange_trailer(one->exchange, "x", 1, "y", 1);
        break;
    case 4:
        if (dice(4) == 0)
            hijack(one);
        break;
    default:
        fl_exchange_abandon_later(one->exchange);
        one->exchange = NULL;
    }
}

static void server_step(peer_server *server, taken *one) {
    fl_loop *loop = server->loop;
    size_t used;
    if (one->exchange == NULL) {
        *one = (taken){.exchange = fl_loop_take(loop)};
        if (one->exchange != NULL)
            fl_exchange_release_head(one->exchange);
        return;
    }
    switch (polite ? 1 + dice(12) : dice(13)) {
    case 0:
        fl_exchange_abandon(one->exchange);
        one->exchange = NULL;
        break;
    case 1:
        fl_exchange_mark_long_lived(one->exchange);
        break;
    case 2:
    case 3:
        read_some(one->exchange);
        break;
    case 4:
        if (one->begun)
            fl_exchange_flush(one->exchange);
        break;
    case 5:
    case 6:
        if (!one->begun || dice(5) == 0)
            begin(one);
        break;
    case 7:
        if (one->ended)
            fl_exchange_write(one->exchange, "data: a\n\n", 9, &used);
        break;
    case 8:
    case 9:
        if (one->ended)
            fl_exchange_write(one->exchange, filling, dice(dice(3) ? 100 : sizeof filling), &used);
        break;
    case 12:
        do_something_rare(one);
        break;
    default:
        if (!one->ended)
            break;
        fl_exchange_finish(one->exchange);
        one->exchange = NULL;
    }
}

static void check_counts(const fl_loop *loop) {
    unsigned connections = 0, queued = 0, running = 0;
    for (fl_connection *each = loop->context.connections; each != NULL; each = each->next) {
        connections++;
        if (each->next != NULL)
            CHECK(each->next->previous == each);
        CHECK(each->state != FL_CONNECTION_CLOSED);
        CHECK(each->state == FL_CONNECTION_OPEN || each->exchanges == NULL);
    }
    for (fl_exchange *each = loop->ready.first; each != NULL; each = each->next) {
        queued++;
        CHECK(each->connection != NULL && each->connection->exchanges == each);
        CHECK_NUMBER(FL_EXCHANGE_QUEUED, each->state);
    }
    for (fl_exchange *each = loop->context.served; each != NULL; each = each->next) {
        running++;
        CHECK(each->connection == NULL || each->connection->exchanges == each);
        CHECK_NUMBER(FL_EXCHANGE_SERVED, each->state);
    }
    CHECK_NUMBER(connections, loop->context.counts.connections);
    CHECK_NUMBER(queued, loop->ready.count);
    CHECK_NUMBER(running, loop->context.counts.in_flight + loop->context.counts.streams);
}

static void run(uint64_t seed, unsigned steps) {
    dice_state = seed * 0x9e3779b97f4a7c15u + 1;
    polite = dice(2);
    fl_limits limits = peer_limits;
    limits.body_buffer = dice(3) ? 1000 : 100000;
    limits.response_buffer = dice(2) ? 8192 : 300000;
    limits.body_size = 90000;
    limits.in_flight = 1 + dice(TAKEN);
    limits.streams = dice(5);
    limits.queue_timeout = (1 + dice(seed % 2 ? 20 : 1000)) * MILLISECOND;
    for (int kind = 1; kind < FL_DEADLINE_KINDS; kind++) limits.deadlines[kind] = (1 + dice(seed % 2 ? 10 : 1000)) * MILLISECOND;
    if (dice(2))
        limits.request_timeout = (1 + dice(polite ? 1000 : 20)) * MILLISECOND;
    limits.cancel_abandoned = dice(2);
    limits.cancel_streams = dice(2);
    strcpy(limits.health_path, "/up");
    peer_server servers[] = {server_with(limits), server_with(limits)};
    int channels[4];
    fl_shared_page *page = make_siblings(&servers[0], &servers[1], channels);
    for (int i = 0; i < CLIENTS; i++) clients[i] = -1;
    memset(served, 0, sizeof served);
    bool drains = dice(4) == 0, sheds = dice(3) == 0, ends_streams = dice(3) == 0, stops = dice(4) == 0;

    for (unsigned step = 0; step < steps && !test.failing; step++) {
        peer_server *server = &servers[dice(3) == 0];
        switch (dice(4)) {
        case 0:
            fl_loop_turn(server->loop);
            check_counts(server->loop);
            break;
        case 1:
            if (dice(3))
                fl_loop_wait(server->loop, dice(3) ? 0 : dice(500));
            else
                fl_balance(server->loop, dice(2), dice(100000));
            break;
        case 2:
            client_step(server, &clients[dice(CLIENTS)]);
            break;
        case 3:
            server_step(server, &served[dice(TAKEN)]);
            break;
        }
        if (sheds)
            server->loop->shedding.most = dice(6);
        while (dice(3) == 0 && fl_context_next_woken(&server->loop->context) != 0) {}
        while (dice(3) == 0 && fl_context_next_expired(&server->loop->context) != 0) {}
        if (ends_streams && step == steps / 2)
            servers[1].loop->context.draining = true; /* but without the long deadlines of fl_loop_drain */
        if (drains && step == steps * 3 / 4)
            fl_loop_drain(servers[0].loop, dice(2));
        if (stops && step == steps * 7 / 8)
            fl_loop_stop(servers[0].loop, true);
    }
    servers[1].loop->context.draining = false;
    bool closes_first = dice(2);
    for (int i = 0; i < 2 && closes_first; i++) server_stop(&servers[i]);
    for (int i = 0; i < TAKEN; i++) {
        if (served[i].exchange == NULL)
            continue;
        if (served[i].exchange->context == NULL)
            free(served[i].exchange);
        else
            fl_exchange_abandon(served[i].exchange);
    }
    for (int i = 0; i < CLIENTS; i++)
        if (clients[i] >= 0)
            close(clients[i]);
    for (int i = 0; i < 2 && !closes_first; i++) {
        fl_loop_drain(servers[0].loop, false); /* ends the handing over */
        fl_loop_drain(servers[1].loop, false);
        fl_loop_turn(servers[0].loop);
        fl_loop_turn(servers[1].loop);
        TURN_UNTIL(servers[i].loop, servers[i].loop->context.connections == NULL);
        check_counts(servers[i].loop);
    }
    for (int i = 0; i < 2 && !closes_first; i++) {
        CHECK_NUMBER(0, servers[i].loop->context.slab.in_use + servers[i].loop->context.staging.in_use);
        server_stop(&servers[i]);
    }
    for (int i = 0; i < 4; i++) close(channels[i]);
    fl_shared_page_close(page);
    if (test.failing)
        printf("  FL_SEED=%llu FL_STEPS=%u repeats it\n", (unsigned long long) seed, steps);
}

static void no_sequence_of_events_leaks_memory_or_uses_freed_memory(void) {
    const char *seed = getenv("FL_SEED"), *steps = getenv("FL_STEPS");
    uint64_t first = seed == NULL ? 1 : strtoull(seed, NULL, 10), count = seed == NULL ? 40 : 1;
    for (uint64_t i = 0; i < count && !test.failing; i++) run(first + i, steps == NULL ? 4000 : (unsigned) atoi(steps));
}

int main(void) {
    TEST(no_sequence_of_events_leaks_memory_or_uses_freed_memory);
    return test_summary();
}
