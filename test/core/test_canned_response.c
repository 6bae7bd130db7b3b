/* Health checks, which the core answers. */
#include "peer.h"


static peer_server server_with_health(void) {
    fl_limits limits = peer_limits;
    strcpy(limits.health_path, "/up");
    return server_with(limits);
}

static void GET_and_HEAD_of_the_health_path_do_not_reach_the_app(void) {
    peer_server server = server_with_health();
    int socket = client(&server);
    send_text(socket, GET("/up"));
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", "\r\ncontent-type: text/plain\r\ncontent-length: 3\r\n\r\nok\n", receive(server.loop, socket));
    send_text(socket, "HEAD /up?whoever=asks HTTP/1.1\r\nHost: a\r\n\r\n");
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", "\r\ncontent-length: 3\r\n\r\n", receive(server.loop, socket));
    send_text(socket, GET("http://a/up"));
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", "\r\n\r\nok\n", receive(server.loop, socket));
    CHECK_NUMBER(0, fl_loop_takeable(server.loop));
    CHECK_NUMBER(0, server.loop->ready.count);
    send_text(socket, GET("/next"));
    CHECK_NUMBER(1, answer_all(server.loop));
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", "\r\n\r\n/next", receive(server.loop, socket));
    close(socket);
    server_stop(&server);
}

static void other_requests_reach_the_app(void) {
    static const char *const requests[] = {
        GET("/up/"), GET("/u"), GET("/upward"), GET("/UP"), "POST /up HTTP/1.1\r\nHost: a\r\n\r\n",
        "GETS /up HTTP/1.1\r\nHost: a\r\n\r\n", "GET /up HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx",
        "GET /up HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"};
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        peer_server server = server_with_health();
        int socket = client(&server);
        send_text(socket, requests[i]);
        CHECK_NUMBER(1, answer_all(server.loop));
        close(socket);
        server_stop(&server);
    }
}

static void without_a_health_path_every_request_reaches_the_app(void) {
    peer_server server = server_start();
    int socket = client(&server);
    send_text(socket, GET("/up"));
    CHECK_NUMBER(1, answer_all(server.loop));
    close(socket);
    server_stop(&server);
}

static void health_checks_keep_their_order_among_pipelined_requests(void) {
    peer_server server = server_with_health();
    int socket = client(&server);
    send_text(socket, GET("/1") GET("/up") GET("/2") GET("/up") GET("/up") GET("/3"));
    CHECK_NUMBER(3, answer_all(server.loop));
    received_bytes received = receive(server.loop, socket);
    const char *order[] = {"\r\n\r\n/1HTTP", "\r\n\r\nok\nHTTP", "\r\n\r\n/2HTTP", "\r\n\r\nok\nHTTP", "\r\n\r\nok\nHTTP", "\r\n\r\n/3"};
    const char *at = received.bytes;
    for (int i = 0; i < 6 && at != NULL; i++) at = strstr(at, order[i]) == NULL ? NULL : strstr(at, order[i]) + 5;
    CHECK(at != NULL);
    free(received.bytes);
    close(socket);
    server_stop(&server);
}

static void the_connection_closes_if_the_client_asks_for_it(void) {
    peer_server server = server_with_health();
    int socket = client(&server);
    send_text(socket, "GET /up HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    CHECK_RECEIVED("HTTP/1.1 200 OK", "ok\n", receive_to_end(server.loop, socket));
    CHECK_NUMBER(0, server.loop->context.counts.connections); /* at once: nothing of the request is unread */
    close(socket);
    socket = client(&server);
    send_text(socket, "GET /up HTTP/1.0\r\n\r\n");
    received_bytes received = receive_to_end(server.loop, socket);
    CHECK_NUMBER(1, occurrences(&received, "connection: close\r\n"));
    free(received.bytes);
    close(socket);
    server_stop(&server);
}

/* One client must not occupy the loop. */
static void a_connection_may_send_a_limited_number_of_health_checks_in_a_row(void) {
    peer_server server = server_with_health();
    int socket = client(&server);
    char requests[1000 * 32];
    size_t size = 0;
    for (int i = 0; i < 1000; i++) size += (size_t) sprintf(requests + size, "GET /up HTTP/1.1\r\nHost: a\r\n\r\n");
    send_bytes(socket, requests, size);
    received_bytes received = receive_to_end(server.loop, socket);
    CHECK_NUMBER(201, occurrences(&received, "HTTP/1.1 200 OK"));
    CHECK_NUMBER(1, occurrences(&received, "connection: close"));
    free(received.bytes);
    close(socket);
    server_stop(&server);
}

static void a_slow_client_gets_all_responses(void) {
    peer_server server = server_with_health();
    int socket = narrow_client(&server);
    static const char request[] = GET("/up");
    unsigned sent = 0;
    for (int idle = 0; idle < 3 && sent < 190; turn(server.loop))
        if (send(socket, request, sizeof request - 1, MSG_NOSIGNAL) == sizeof request - 1)
            sent++;
        else
            idle++;
    received_bytes received = {0};
    for (int i = 0; i < 50 && occurrences(&received, "HTTP/1.1 200 OK") < sent; i++) {
        receive_available(socket, &received);
        turn(server.loop);
    }
    CHECK_NUMBER(sent, occurrences(&received, "HTTP/1.1 200 OK"));
    free(received.bytes);
    close(socket);
    server_stop(&server);
}

static void a_draining_server_closes_after_a_health_check(void) {
    peer_server server = server_with_health();
    int asks = client(&server), waits = client(&server);
    send_text(waits, GET("/"));
    fl_exchange *exchange = take(server.loop);
    send_text(asks, GET("/1"));
    turn(server.loop);
    fl_exchange *other = fl_loop_take(server.loop);
    fl_loop_drain(server.loop, false);
    send_text(asks, GET("/up"));
    answer(other, 200, "one");
    received_bytes received = receive_to_end(server.loop, asks);
    CHECK_NUMBER(1, occurrences(&received, "HTTP/1.1 200 OK"));
    CHECK_NUMBER(1, occurrences(&received, "connection: close"));
    free(received.bytes);
    answer(exchange, 200, "two");
    close(asks);
    close(waits);
    server_stop(&server);
}

int main(void) {
    TEST(GET_and_HEAD_of_the_health_path_do_not_reach_the_app);
    TEST(other_requests_reach_the_app);
    TEST(without_a_health_path_every_request_reaches_the_app);
    TEST(health_checks_keep_their_order_among_pipelined_requests);
    TEST(the_connection_closes_if_the_client_asks_for_it);
    TEST(a_connection_may_send_a_limited_number_of_health_checks_in_a_row);
    TEST(a_slow_client_gets_all_responses);
    TEST(a_draining_server_closes_after_a_health_check);
    return test_summary();
}
