/* Limits of memory: buffers under pressure, clients that do not read, and bursts. */
#include "peer.h"

static void under_memory_pressure_each_connection_buffers_less(void) {
    fl_limits limits = peer_limits;
    limits.body_buffer = 200000;
    peer_server server = server_with(limits);
    fl_loop *loop = server.loop;
    int reader = narrow_client(&server), upload = client(&server);
    char body[100000];
    memset(body, 'x', sizeof body);

    send_text(upload, "PUT /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 150000\r\n\r\n");
    send_bytes(upload, body, 90000);
    turn(loop);
    CHECK_NUMBER(0, loop->ready.count); /* the body is incomplete */

    size_t before = loop->context.slab.in_use, used;
    loop->context.slab.in_use += FL_MEMORY_PRESSURE;
    send_bytes(upload, body, 10);
    fl_exchange *exchange = take(loop); /* although the body is incomplete */
    CHECK_TEXT("/upload", path_of(exchange));
    fl_exchange_abandon(exchange);

    send_text(reader, GET("/"));
    exchange = take(loop);
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 200));
    CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, 1000000));
    fl_status status = FL_OK;
    size_t written = 0;
    for (int i = 0; i < 10 && status == FL_OK; i++, written += used)
        status = fl_exchange_write(exchange, body, sizeof body, &used);
    CHECK_NUMBER(FL_AGAIN, status);
    CHECK(exchange->connection->out.length <= FL_BUFFER_UNDER_PRESSURE + 1024);
    loop->context.slab.in_use -= FL_MEMORY_PRESSURE;
    CHECK(loop->context.slab.in_use < before + 300000);
    CHECK_NUMBER(FL_OK, fl_exchange_write(exchange, body, sizeof body, &used));
    fl_exchange_abandon(exchange);
    close(reader);
    close(upload);
    server_stop(&server);
}

/* The oldest make room for others. */
static void requests_that_do_not_end_take_a_limited_amount_of_memory(void) {
    static const char *const parts[] = {"GET /old HTTP/1.1\r\nHost", "PUT /body HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab",
                                        "GET /young HTTP/1.1\r\nHost"};
    peer_server server = server_start();
    fl_context *context = &server.loop->context;
    int clients[3];
    for (int i = 0; i < 3; i++) {
        clients[i] = client(&server);
        send_text(clients[i], parts[i]);
        TURN_UNTIL(server.loop, context->last_id == (uint64_t) i + 1);
    }
    uint64_t bytes = context->unfinished.bytes;
    CHECK(bytes > 3 * sizeof(fl_head));
    for (int i = 0; i < 2; i++) {
        uint64_t others = FL_MAX_UNFINISHED + 1 - context->unfinished.bytes;
        context->unfinished.bytes += others;
        CHECK_RECEIVED("HTTP/1.1 503 Service Unavailable\r\n", "\n", receive_to_end(server.loop, clients[i]));
        context->unfinished.bytes -= others;
    }
    CHECK(context->unfinished.bytes < bytes);
    send_text(clients[2], ": a\r\n\r\n");
    CHECK_NUMBER(1, answer_all(server.loop));
    CHECK_RECEIVED("HTTP/1.1 200 OK", "/young", receive(server.loop, clients[2]));
    CHECK(context->unfinished.bytes == 0 && context->unfinished.first == NULL);
    for (int i = 0; i < 3; i++) close(clients[i]);
    server_stop(&server);
}

/* The head is staged in another slab than the one that it returns to. */
static void long_response_heads_count_only_while_they_are_buffered(void) {
    peer_server server = server_start();
    int asks = client(&server);
    char value[3000];
    memset(value, 'x', sizeof value);
    for (int i = 0; i < 20; i++) {
        send_text(asks, GET("/"));
        fl_exchange *exchange = take(server.loop);
        CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 200));
        CHECK_NUMBER(FL_OK, fl_exchange_header(exchange, "x-long", 6, value, sizeof value));
        CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, 0));
        fl_exchange_finish(exchange);
        free(receive(server.loop, asks).bytes);
    }
    CHECK_NUMBER(peer_limits.response_buffer, fl_context_buffer_limit(&server.loop->context, peer_limits.response_buffer));
    close(asks);
    TURN_UNTIL(server.loop, server.loop->context.counts.connections == 0);
    CHECK_NUMBER(0, fl_context_buffered(&server.loop->context));
    server_stop(&server);
}

/* The reset also drops the kernel's buffer. */
static void a_client_that_stops_reading_is_reset(void) {
    fl_limits limits = peer_limits;
    limits.deadlines[FL_DEADLINE_WRITE] = 50 * MILLISECOND;
    peer_server server = server_with(limits);
    int reader = client(&server), size = 4096;
    setsockopt(reader, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    send_text(reader, GET("/"));
    fl_exchange *exchange = take(server.loop);
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 200));
    CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, 100000000));
    static char body[1000000];
    size_t used;
    while (fl_exchange_write(exchange, body, sizeof body, &used) == FL_OK) continue;
    TURN_UNTIL(server.loop, server.loop->context.counts.connections == 0);
    fl_exchange_abandon(exchange);
    received_bytes received = receive_to_end(server.loop, reader);
    CHECK(received.reset);
    CHECK(received.size < 10000000);
    free(received.bytes);
    close(reader);
    server_stop(&server);
}

/* The kernel has accepted both responses. One client reads nothing; the other one reads slowly, and its kernel acknowledges large parts at a
 * time. */
static void a_client_that_does_not_acknowledge_is_reset(void) {
    enum { WAITS = 800 * MILLISECOND, MOST = 350000 };
    fl_limits limits = peer_limits;
    limits.deadlines[FL_DEADLINE_IDLE] = limits.deadlines[FL_DEADLINE_WRITE] = WAITS;
    peer_server server = server_with(limits);
    int stalled = client(&server), slow = client(&server), size = 32768;
    static char body[400000];
    int sockets[] = {stalled, slow};
    for (int i = 0; i < 2; i++) {
        size_t used;
        setsockopt(sockets[i], SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
        send_text(sockets[i], GET("/"));
        fl_exchange *exchange = take(server.loop);
        CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 200));
        CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, sizeof body));
        CHECK_NUMBER(FL_OK, fl_exchange_write(exchange, body, sizeof body, &used));
        CHECK_NUMBER(sizeof body, used);
        fl_exchange_finish(exchange);
        fl_loop_turn(server.loop);
    }
    CHECK_NUMBER(2, server.loop->context.counts.connections);
    size_t taken = 0;
    for (uint64_t began = fl_clock(), due; (due = MOST * (fl_clock() - began) / (3 * WAITS)) < MOST;) {
        char bytes[2000];
        ssize_t count;
        while (taken < due && (count = recv(slow, bytes, sizeof bytes, 0)) > 0) taken += (size_t) count;
        for (uint64_t ends = fl_clock() + 4 * MILLISECOND; fl_clock() < ends; fl_loop_turn(server.loop))
            fl_loop_wait(server.loop, 4 * MILLISECOND);
    }
    CHECK_NUMBER(1, server.loop->context.counts.connections);
    received_bytes received = receive_to_end(server.loop, stalled);
    CHECK(received.reset);
    free(received.bytes);
    received = receive_to_end(server.loop, slow);
    CHECK(received.ended && !received.reset);
    CHECK(taken + received.size > sizeof body);
    free(received.bytes);
    close(stalled);
    close(slow);
    server_stop(&server);
}

static void a_burst_does_not_keep_memory_for_ever(void) {
    enum { MANY = 3000 };
    peer_server server = server_start();
    static fl_exchange *exchanges[MANY];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MANY; i++) exchanges[i] = fl_exchange_new(&server.loop->context, NULL);
        for (int i = 0; i < MANY; i++) fl_exchange_free(exchanges[i]);
    }
    uint32_t kept = 0;
    for (fl_exchange *exchange = server.loop->context.free_exchanges; exchange != NULL; exchange = exchange->next) kept++;
    CHECK_NUMBER(FL_REUSE_MEMORY ? 512 : 0, kept);
    CHECK(server.loop->context.free_head_count <= 512);
    server_stop(&server);
}

static void unread_rejections_are_buffered_up_to_a_limit(void) {
    static const char request[] = GET("/");
    peer_server server = server_start();
    int socket = narrow_client(&server);
    fl_connection *connection = server.loop->context.connections;
    unsigned rejected = 0;
    for (int i = 0; i < 5000; i++) {
        if (send(socket, request, sizeof request - 1, MSG_NOSIGNAL) < 0)
            break; /* the server does not read any more */
        for (int j = 0; j < 3 && server.loop->ready.first == NULL; j++) fl_loop_turn(server.loop);
        if (server.loop->ready.first != NULL) {
            fl_exchange_turn_away(connection->exchanges, FL_OVERLOADED);
            rejected++;
        }
    }
    CHECK(rejected > 100);
    if (connection->out.length > 70000)
        test_fail(__FILE__, __LINE__, "%u bytes are buffered, of %u rejections", connection->out.length, rejected);
    received_bytes received = {0};
    for (int i = 0; i < 2000; i++) {
        receive_available(socket, &received);
        fl_loop_turn(server.loop);
        if (server.loop->ready.first != NULL) {
            fl_exchange_turn_away(connection->exchanges, FL_OVERLOADED);
            rejected++;
        }
    }
    CHECK_NUMBER(rejected, occurrences(&received, "HTTP/1.1 503"));
    free(received.bytes);
    close(socket);
    server_stop(&server);
}

int main(void) {
    TEST(under_memory_pressure_each_connection_buffers_less);
    TEST(requests_that_do_not_end_take_a_limited_amount_of_memory);
    TEST(long_response_heads_count_only_while_they_are_buffered);
    TEST(a_client_that_stops_reading_is_reset);
    TEST(a_client_that_does_not_acknowledge_is_reset);
    TEST(a_burst_does_not_keep_memory_for_ever);
    TEST(unread_rejections_are_buffered_up_to_a_limit);
    return test_summary();
}
