/* What handshakes may take of a worker: time, connections. */
#include "peer.h"

#ifdef HAVE_OPENSSL
#include "tls_peer.h"

enum { CROWD = 360, MOST = 256 + 8 };

/* Handshakes have a minute. */
static tls_server patient_server(void) {
    fl_limits limits = peer_limits;
    limits.deadlines[FL_DEADLINE_HEAD] = 60 * SECOND;
    return tls_server_with(limits);
}

/* Adds an address without TLS, and returns it. The caller closes `listening`. */
static peer_server plain_address(tls_server *tls) {
    peer_server plain = server_start();
    int listening = dup(plain.listening), port = plain.port;
    server_stop(&plain);
    CHECK_NUMBER(FL_OK, fl_loop_listen(tls->loop, listening, false));
    return (peer_server) {.loop = tls->loop, .listening = listening, .port = port};
}

/* Sends what begins a handshake, as far as the client can go alone. */
static void begin_handshake(tls_client *client) {
    char bytes[4096];
    SSL_do_handshake(client->ssl);
    int size = BIO_read(client->outgoing, bytes, sizeof bytes);
    send_bytes(client->socket, bytes, (size_t) size);
}

static bool has_answer(const tls_client *client) {
    char byte;
    return recv(client->socket, &byte, 1, MSG_PEEK) > 0;
}

/* Turns as a reactor does that holds the GVL. */
#define HOLDING_TURNS_UNTIL(loop, condition)                                                                                   \
    do {                                                                                                                       \
        uint64_t give_up_ = fl_clock() + 5 * SECOND;                                                                           \
        while (!(condition) && fl_clock() < give_up_) fl_loop_turn(loop);                                                      \
        CHECK(condition);                                                                                                      \
    } while (0)

/* The break lasts as long as the test wants. */
static void ready_requests_interrupt_handshakes(void) {
    tls_server tls = patient_server();
    peer_server plain = plain_address(&tls);
    fl_loop *loop = tls.loop;
    tls_client first = tls_client_of(&tls);
    begin_handshake(&first);
    TURN_UNTIL(loop, has_answer(&first));
    CHECK(loop->turns.handshakes_again_at > 0);

    tls_client second = tls_client_of(&tls);
    begin_handshake(&second);
    int asking = client(&plain);
    send_text(asking, GET("/"));
    HOLDING_TURNS_UNTIL(loop, loop->ready.count == 1 && loop->context.handshakes.count == 1);
    loop->turns.handshakes_again_at = fl_clock() + 60 * SECOND;
    CHECK(!fl_loop_may_shake_hands(loop));
    fl_loop_shake_hands(loop);
    fl_loop_wait(loop, 0);
    CHECK_NUMBER(1, loop->context.handshakes.count);
    CHECK(!has_answer(&second));
    loop->turns.handshakes_again_at = fl_clock() + 20 * MILLISECOND;
    loop->context.timer_stale = true;
    TURN_UNTIL(loop, has_answer(&second)); /* the break has ended */

    tls_client third = tls_client_of(&tls);
    begin_handshake(&third);
    HOLDING_TURNS_UNTIL(loop, loop->context.handshakes.count == 1);
    loop->turns.handshakes_again_at = fl_clock() + 60 * SECOND;
    fl_exchange *exchange = take(loop);
    TURN_UNTIL(loop, has_answer(&third)); /* it runs, or waits: no other is ready */
    answer(exchange, 200, "done");
    CHECK_RECEIVED("HTTP/1.1 200 OK", "done", receive(loop, asking));
    close(asking);
    tls_client_close(&first);
    tls_client_close(&second);
    tls_client_close(&third);
    tls_server_stop(&tls);
    close(plain.listening);
}

static void many_handshakes_leave_further_connections_in_the_backlog(void) {
    tls_server tls = patient_server();
    peer_server plain = plain_address(&tls);
    fl_loop *loop = tls.loop;
    const fl_listener *listener = loop->accepting.listeners->next;
    CHECK(listener->transport == &fl_transport_tls);
    int clients[CROWD];
    for (int i = 0; i < CROWD; i++) {
        clients[i] = client(&tls.server);
        fl_loop_turn(loop);
    }
    for (int i = 0; i < 50; i++) fl_loop_turn(loop);
    CHECK_NUMBER(loop->context.handshakes.count, loop->context.counts.connections);
    CHECK(loop->context.counts.connections > 256);
    CHECK(loop->context.counts.connections <= MOST);
    CHECK(!listener->watched);

    int asking = client(&plain);
    send_text(asking, GET("/"));
    HOLDING_TURNS_UNTIL(loop, loop->ready.count == 1);
    CHECK(loop->context.counts.connections <= MOST + 1);
    CHECK_NUMBER(1, answer_all(loop));
    TURN_UNTIL(loop, loop->context.counts.connections == CROWD + 1); /* the clients are silent, which takes no time */
    CHECK_NUMBER(0, loop->context.handshakes.count);
    CHECK(listener->watched);
    for (int i = 0; i < CROWD; i++) close(clients[i]);
    close(asking);
    tls_server_stop(&tls);
    close(plain.listening);
}

/* A silent client, and one that has begun: both have had a second. */
static void unfinished_handshakes_make_room_for_new_connections(void) {
    tls_server tls = patient_server();
    tls_client clients[3] = {tls_client_of(&tls)};
    begin_handshake(&clients[0]);
    TURN_UNTIL(tls.loop, has_answer(&clients[0]));
    int silent = client(&tls.server);
    TURN_UNTIL(tls.loop, tls.loop->context.counts.connections == 2);
    tls.loop->accepting.most = 2;
    for (int i = 1; i < 3; i++) {
        clients[i] = tls_client_of(&tls);
        CHECK(tls_connect(&clients[i]));
    }
    CHECK_NUMBER(2, tls.loop->context.counts.connections);
    free(receive_to_end(tls.loop, silent).bytes);
    for (int i = 0; i < 3; i++) tls_client_close(&clients[i]);
    close(silent);
    tls_server_stop(&tls);
}

int main(void) {
    TEST(ready_requests_interrupt_handshakes);
    TEST(many_handshakes_leave_further_connections_in_the_backlog);
    TEST(unfinished_handshakes_make_room_for_new_connections);
    return test_summary();
}

#else
int main(void) {
    return test_summary();
}
#endif
