/* The app hijacks a connection whose transport changes the bytes: it gets one end of a socket pair. The transport is the toy one. */
#include "peer.h"
#include "toy_transport.h"

#include <fcntl.h>

enum { LARGE = 1 << 20 };

typedef struct tunnel {
    peer_server server;
    int client, app;
} tunnel;

/* The request that has it goes on. */
static tunnel begin_within(fl_exchange **exchange, int (*connect)(peer_server *)) {
    tunnel tunnel = {.server = server_start()};
    tunnel.server.loop->accepting.listeners->transport = &toy_transport_kind;
    tunnel.client = connect(&tunnel.server);
    send_text(tunnel.client, GET("/"));
    *exchange = take(tunnel.server.loop);
    fl_buffer unsent = {0}, ahead = {0};
    tunnel.app = fl_exchange_hijack(*exchange, &unsent, &ahead);
    CHECK(tunnel.app >= 0);
    CHECK_NUMBER(0, unsent.length);
    CHECK_NUMBER(0, ahead.length);
    fcntl(tunnel.app, F_SETFL, O_NONBLOCK);
    return tunnel;
}

static tunnel begin_with(int (*connect)(peer_server *)) {
    fl_exchange *exchange;
    tunnel tunnel = begin_within(&exchange, connect);
    fl_exchange_finish(exchange);
    return tunnel;
}

static tunnel begin(void) {
    return begin_with(client);
}

static void end(tunnel *tunnel) {
    if (tunnel->client >= 0)
        close(tunnel->client);
    if (tunnel->app >= 0)
        close(tunnel->app);
    server_stop(&tunnel->server);
}

/* The loop turns until this is all that has come. */
static void check_comes(tunnel *tunnel, int descriptor, const char *text) {
    received_bytes received = {0};
    TURN_UNTIL(tunnel->server.loop, (receive_available(descriptor, &received), received.size >= strlen(text)));
    CHECK_BYTES(text, strlen(text), received.bytes, received.size);
    free(received.bytes);
}

static void bytes_go_both_ways(void) {
    tunnel tunnel = begin();
    for (int i = 0; i < 3; i++) {
        send_text(tunnel.client, "from the client");
        check_comes(&tunnel, tunnel.app, "from the client");
        send_text(tunnel.app, "from the app");
        check_comes(&tunnel, tunnel.client, "from the app");
    }
    CHECK_NUMBER(1, tunnel.server.loop->context.counts.connections);
    CHECK_NUMBER(0, tunnel.server.loop->context.counts.in_flight);
    end(&tunnel);
}

static void a_response_that_was_staged_before_comes_first(void) {
    tunnel tunnel = begin();
    fl_buffer staged = {0};
    CHECK(fl_buffer_append(&tunnel.server.loop->context.slab, &staged, "first", 5) == FL_OK);
    fl_connection_stage(tunnel.server.loop->context.connections, &staged);
    send_text(tunnel.app, "then");
    check_comes(&tunnel, tunnel.client, "firstthen");
    end(&tunnel);
}

/* Writes as much as fits, and counts what comes at the other end, which reads only every so often. */
static void pass_much(tunnel *tunnel, int from, int to) {
    static char bytes[LARGE];
    size_t sent = 0, came = 0, turns = 0;
    received_bytes received = {0};
    memset(bytes, 'x', sizeof bytes);
    uint64_t give_up = fl_clock() + 60 * SECOND;
    while (came < LARGE && fl_clock() < give_up) {
        ssize_t count = sent < LARGE ? send(from, bytes + sent, LARGE - sent, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
        sent += count > 0 ? (size_t) count : 0;
        fl_loop_turn(tunnel->server.loop);
        if (++turns % 3 == 0)
            receive_available(to, &received);
        came = received.size;
    }
    CHECK_NUMBER(LARGE, came);
    free(received.bytes);
}

static void each_direction_waits_for_its_receiver(void) {
    tunnel tunnel = begin_with(narrow_client);
    pass_much(&tunnel, tunnel.app, tunnel.client);
    pass_much(&tunnel, tunnel.client, tunnel.app);
    end(&tunnel);
}

static void a_client_that_goes_is_gone_for_the_app(void) {
    tunnel tunnel = begin();
    send_text(tunnel.client, "last");
    close(tunnel.client);
    tunnel.client = -1;
    CHECK_RECEIVED("last", "last", receive_to_end(tunnel.server.loop, tunnel.app));
    close(tunnel.app);
    tunnel.app = -1;
    TURN_UNTIL(tunnel.server.loop, tunnel.server.loop->context.counts.connections == 0);
    end(&tunnel);
}

static void an_app_that_closes_closes_the_clients_connection(void) {
    tunnel tunnel = begin();
    send_text(tunnel.app, "last");
    close(tunnel.app);
    tunnel.app = -1;
    CHECK_RECEIVED("last", "last", receive_to_end(tunnel.server.loop, tunnel.client));
    send_text(tunnel.client, "too late");
    turn(tunnel.server.loop);
    end(&tunnel);
}

static void a_drain_and_a_stop_end_it(void) {
    tunnel tunnel = begin();
    fl_loop_drain(tunnel.server.loop, false);
    CHECK_RECEIVED("", "", receive_to_end(tunnel.server.loop, tunnel.app));
    close(tunnel.client);
    tunnel.client = -1;
    TURN_UNTIL(tunnel.server.loop, fl_loop_is_drained(tunnel.server.loop));
    end(&tunnel);

    tunnel = begin();
    send_text(tunnel.client, "unread");
    end(&tunnel);
}

/* The server has called the app with it: the request lasts as long, and what the app has written comes whole. */
static void a_drain_waits_for_the_request_that_has_it(void) {
    fl_exchange *exchange;
    tunnel tunnel = begin_within(&exchange, narrow_client);
    fl_loop *loop = tunnel.server.loop;
    fl_loop_drain(loop, false);
    turn(loop);
    send_text(tunnel.client, "from the client");
    check_comes(&tunnel, tunnel.app, "from the client");

    static char bytes[LARGE];
    memset(bytes, 'x', sizeof bytes);
    ssize_t written = 0, count;
    while ((count = send(tunnel.app, bytes, sizeof bytes, MSG_NOSIGNAL)) > 0) written += count;
    close(tunnel.app);
    tunnel.app = -1;
    fl_exchange_finish(exchange);
    fl_loop_prepare_wait(loop, true, false);
    received_bytes received = receive_to_end(loop, tunnel.client);
    CHECK_NUMBER(written, received.size);
    free(received.bytes);
    TURN_UNTIL(loop, fl_loop_is_drained(loop));
    end(&tunnel);
}

static void it_is_not_idle(void) {
    tunnel tunnel = begin();
    CHECK(!fl_connection_is_idle(tunnel.server.loop->context.connections));
    end(&tunnel);
}

int main(void) {
    TEST(bytes_go_both_ways);
    TEST(a_response_that_was_staged_before_comes_first);
    TEST(each_direction_waits_for_its_receiver);
    TEST(a_client_that_goes_is_gone_for_the_app);
    TEST(an_app_that_closes_closes_the_clients_connection);
    TEST(a_drain_and_a_stop_end_it);
    TEST(a_drain_waits_for_the_request_that_has_it);
    TEST(it_is_not_idle);
    return test_summary();
}
