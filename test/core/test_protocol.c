/* The protocol interface with several concurrent requests on a connection. */
#include "peer.h"
#include "toy_protocol.h"

static const fl_protocol *const toys[] = {&toy_protocol, NULL};

typedef struct scene {
    peer_server server;
    fl_loop *loop;
    int client;
} scene;

static scene begin(fl_limits limits) {
    scene scene = {.server = server_with(limits)};
    scene.loop = scene.server.loop;
    scene.loop->accepting.listeners->protocols = toys;
    scene.client = client(&scene.server);
    return scene;
}

static void end(scene *scene) {
    close(scene->client);
    server_stop(&scene->server);
}

/* Checks all that the client receives until the loop is idle. */
static void check_received(scene *scene, const char *expected) {
    received_bytes received = receive(scene->loop, scene->client);
    CHECK_TEXT(expected, received.bytes);
    free(received.bytes);
}

static void requests_of_one_connection_are_answered_in_any_order(void) {
    scene scene = begin(peer_limits);
    send_text(scene.client, "1 /a\n2 /b\n3 /c\n");
    TURN_UNTIL(scene.loop, scene.loop->ready.count == 3);
    fl_exchange *a = take(scene.loop), *b = take(scene.loop);
    CHECK_TEXT("/b", path_of(b));
    CHECK(a->connection == b->connection);
    CHECK_NUMBER(2, scene.loop->context.counts.in_flight);
    answer(b, 200, "B");
    check_received(&scene, "2 200\n2 B\n2 .\n");
    answer(take(scene.loop), 404, "");
    answer(a, 200, "A");
    check_received(&scene, "3 404\n3 .\n1 200\n1 A\n1 .\n");
    CHECK_NUMBER(1, scene.loop->context.counts.connections);
    CHECK(fl_connection_is_idle(scene.loop->context.connections));
    end(&scene);
}

static void responses_may_be_interleaved(void) {
    scene scene = begin(peer_limits);
    send_text(scene.client, "1 /a\n2 /b\n");
    fl_exchange *exchanges[] = {take(scene.loop), take(scene.loop)};
    size_t used;
    for (int i = 0; i < 2; i++) {
        CHECK_NUMBER(FL_OK, fl_exchange_begin(exchanges[i], 200));
        CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchanges[i], -1));
        CHECK_NUMBER(FL_OK, fl_exchange_write(exchanges[i], "now", 3, &used));
    }
    check_received(&scene, "2 200\n2 now\n1 200\n1 now\n"); /* the loop's turn sends both */
    CHECK_NUMBER(FL_OK, fl_exchange_write(exchanges[0], "then", 4, &used));
    fl_exchange_finish(exchanges[1]);
    fl_exchange_finish(exchanges[0]);
    check_received(&scene, "2 .\n1 then\n1 .\n");
    end(&scene);
}

static void request_bodies_may_be_interleaved(void) {
    scene scene = begin(peer_limits);
    send_text(scene.client, "1 +/a\n2 +/b\n1 x\n2 y\n");
    turn(scene.loop);
    CHECK_NUMBER(0, scene.loop->ready.count);
    send_text(scene.client, "2 z\n2 .\n");
    fl_exchange *exchange = take(scene.loop);
    const char *bytes;
    size_t size;
    CHECK_TEXT("/b", path_of(exchange));
    CHECK_NUMBER(FL_OK, fl_exchange_body(exchange, &bytes, &size));
    CHECK_BYTES("yz", 2, bytes, size);
    answer(exchange, 200, "");
    send_text(scene.client, "1 .\n");
    answer(take(scene.loop), 200, "");
    check_received(&scene, "2 200\n2 .\n1 200\n1 .\n");
    end(&scene);
}

static void a_stalled_body_ends_only_its_request(void) {
    fl_limits limits = peer_limits;
    limits.deadlines[FL_DEADLINE_BODY] = 200 * MILLISECOND;
    scene scene = begin(limits);
    send_text(scene.client, "1 +/a\n2 /b\n");
    fl_exchange *exchange = take(scene.loop);
    TURN_UNTIL(scene.loop, scene.loop->context.counts.refused == 1);
    answer(exchange, 200, "");
    check_received(&scene, "1 !408\n2 200\n2 .\n");
    end(&scene);
}

static void only_the_request_that_waits_too_long_is_rejected(void) {
    fl_limits limits = peer_limits;
    limits.in_flight = 1;
    limits.queue_timeout = 300 * MILLISECOND;
    scene scene = begin(limits);
    send_text(scene.client, "1 /a\n2 /b\n");
    fl_exchange *exchange = take(scene.loop);
    TURN_UNTIL(scene.loop, scene.loop->context.counts.refused == 1);
    send_text(scene.client, "3 /c\n");
    answer(exchange, 200, "");
    answer(take(scene.loop), 200, "");
    check_received(&scene, "2 !503\n1 200\n1 .\n3 200\n3 .\n");
    end(&scene);
}

static void only_the_request_that_takes_too_long_times_out(void) {
    scene scene = begin(peer_limits);
    send_text(scene.client, "1 /a\n2 /b\n3 /c\n");
    fl_exchange *a = take(scene.loop), *b = take(scene.loop), *c = take(scene.loop);
    CHECK_NUMBER(FL_OK, fl_exchange_begin(b, 200));
    CHECK_NUMBER(FL_OK, fl_exchange_head_end(b, -1));
    fl_exchange_flush(b);
    fl_exchange_set_time_limit(a, 1);
    fl_exchange_set_time_limit(b, 2);
    TURN_UNTIL(scene.loop, a->connection == NULL && b->connection == NULL);
    fl_exchange_abandon(a);
    fl_exchange_finish(b);
    answer(c, 200, "");
    check_received(&scene, "2 200\n1 !504\n2 x\n3 200\n3 .\n");
    CHECK_NUMBER(0, scene.loop->context.counts.in_flight);
    end(&scene);
}

static void only_an_abandoned_response_is_truncated(void) {
    scene scene = begin(peer_limits);
    send_text(scene.client, "1 /a\n2 /b\n");
    fl_exchange *a = take(scene.loop), *b = take(scene.loop);
    fl_exchange_abandon(a);
    answer(b, 200, "");
    check_received(&scene, "1 x\n2 200\n2 .\n");
    end(&scene);
}

static void a_disconnecting_client_wakes_all_owners(void) {
    scene scene = begin(peer_limits);
    send_text(scene.client, "1 /a\n2 /b\n3 /c\n4 +/d\n");
    TURN_UNTIL(scene.loop, scene.loop->ready.count == 3);
    fl_exchange *a = take(scene.loop), *b = take(scene.loop);
    close(scene.client);
    fl_connection_close(scene.loop->context.connections);
    CHECK(a->connection == NULL && b->connection == NULL);
    CHECK_NUMBER(0, scene.loop->ready.count);
    answer(a, 200, "");
    fl_exchange_abandon(b);
    CHECK_NUMBER(0, scene.loop->context.counts.in_flight);
    scene.client = client(&scene.server);
    end(&scene);
}

static void all_writers_wait_for_room_and_are_woken(void) {
    static char much[2 << 20];
    memset(much, 'm', sizeof much);
    scene scene = begin(peer_limits);
    send_text(scene.client, "1 /a\n2 /b\n");
    fl_exchange *exchanges[] = {take(scene.loop), take(scene.loop)};
    for (int i = 0; i < 2; i++) {
        CHECK_NUMBER(FL_OK, fl_exchange_begin(exchanges[i], 200));
        CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchanges[i], -1));
        for (size_t used = 1; used > 0 && !exchanges[i]->response.awaits_room;)
            CHECK(fl_exchange_write(exchanges[i], much, sizeof much, &used) != FL_CLOSED);
    }
    received_bytes received = {0};
    uint64_t woken[2] = {0};
    TURN_UNTIL(scene.loop, (receive_available(scene.client, &received), woken[0] = fl_context_next_woken(&scene.loop->context)) != 0);
    TURN_UNTIL(scene.loop, (receive_available(scene.client, &received), woken[1] = fl_context_next_woken(&scene.loop->context)) != 0);
    CHECK_NUMBER(exchanges[0]->id + exchanges[1]->id, woken[0] + woken[1]);
    for (int i = 0; i < 2; i++) fl_exchange_abandon(exchanges[i]);
    free(received.bytes);
    end(&scene);
}

static void a_draining_connection_closes_after_its_last_response(void) {
    for (int drains = 0; drains < 2; drains++) {
        scene scene = begin(peer_limits);
        send_text(scene.client, "1 /a\n2 /b\n");
        fl_exchange *a = take(scene.loop), *b = take(scene.loop);
        if (drains)
            fl_loop_drain(scene.loop, false);
        else
            shutdown(scene.client, SHUT_WR);
        turn(scene.loop);
        answer(b, 200, "");
        answer(a, 200, "");
        received_bytes received = receive_to_end(scene.loop, scene.client);
        CHECK_TEXT("2 200\n2 .\n1 200\n1 .\n", received.bytes);
        free(received.bytes);
        end(&scene);
    }
}

/* Parses as nghttp2 does: in place, and consumes what it has parsed at the end. */
static void receive_in_place(fl_connection *connection) {
    fl_buffer *in = &connection->in;
    ssize_t count = fl_connection_read(connection, in, 4096);
    if (count <= 0)
        return;
    fl_buffer_added(in, (size_t) count);
    const char *at = fl_buffer_at(in), *stop = at + in->length, *end;
    for (; at < stop && (end = memchr(at, '\n', (size_t) (stop - at))) != NULL; at = end + 1)
        toy_begin_request(connection, at[0], at + 2, (size_t) (end - at) - 2, false);
    fl_buffer_consume(&connection->context->slab, in, (size_t) (at - fl_buffer_at(in)));
}

static void input_stays_in_place_while_many_requests_wait(void) {
    fl_protocol in_place = toy_protocol;
    in_place.receive = receive_in_place;
    const fl_protocol *const protocols[] = {&in_place, NULL};
    scene scene = begin(peer_limits);
    scene.loop->accepting.listeners->protocols = protocols;
    for (unsigned i = 1; i <= 75; i++) {
        send_text(scene.client, "1 /a\n2 /b\n3 /c\n4 /d\n");
        TURN_UNTIL(scene.loop, scene.loop->ready.count == 4 * i);
    }
    close(scene.client);
    scene.client = client(&scene.server);
    end(&scene);
}

/* A client that sends faster than the loop reads: `piece` bytes at a time, until `left` is 0. */
static struct {
    size_t piece, left;
} flood;

static ssize_t read_flood(fl_transport *transport, void *bytes, size_t size) {
    size_t count = flood.piece < size ? flood.piece : size;
    transport->drained = false;
    if (flood.left == 0)
        return FL_TRANSPORT_WAIT;
    count = count < flood.left ? count : flood.left;
    for (size_t i = 0; i < count; i++) ((char *) bytes)[i] = "1 +/a\n"[(i + flood.left) % 6];
    flood.left -= count;
    return (ssize_t) count;
}

static void a_flood_takes_turns(void) {
    static const size_t pieces[] = {SIZE_MAX, 1};
    for (int i = 0; i < 2; i++) {
        fl_transport_kind transport = fl_transport_plain;
        transport.read = read_flood;
        scene scene = begin(peer_limits);
        scene.loop->accepting.listeners->transport = &transport;
        flood.left = i == 0 ? 3 << 20 : 12 << 10;
        flood.piece = pieces[i];
        size_t most = flood.left / 3;
        send_text(scene.client, "causes an event");
        for (size_t before = flood.left; flood.left > 0; before = flood.left) {
            fl_loop_prepare_wait(scene.loop, true, false);
            if (!fl_loop_wait(scene.loop, 20 * SECOND))
                break;
            CHECK(before - flood.left <= most);
        }
        CHECK_NUMBER(0, flood.left);
        end(&scene);
    }
}

/* Whether its transport has shaken hands, which is awaited, or not. */
static void a_protocol_that_awaits_nothing_has_no_deadline(void) {
    scene scene = begin(peer_limits);
    TURN_UNTIL(scene.loop, scene.loop->context.connections != NULL);
    fl_connection *connection = scene.loop->context.connections;
    TURN_UNTIL(scene.loop, connection->state == FL_CONNECTION_OPEN);
    CHECK_NUMBER(FL_DEADLINE_NONE, connection->deadline.kind);
    end(&scene);
}

int main(void) {
    TEST(a_protocol_that_awaits_nothing_has_no_deadline);
    TEST(requests_of_one_connection_are_answered_in_any_order);
    TEST(responses_may_be_interleaved);
    TEST(request_bodies_may_be_interleaved);
    TEST(a_stalled_body_ends_only_its_request);
    TEST(only_the_request_that_waits_too_long_is_rejected);
    TEST(only_the_request_that_takes_too_long_times_out);
    TEST(only_an_abandoned_response_is_truncated);
    TEST(a_disconnecting_client_wakes_all_owners);
    TEST(all_writers_wait_for_room_and_are_woken);
    TEST(a_draining_connection_closes_after_its_last_response);
    TEST(input_stays_in_place_while_many_requests_wait);
    TEST(a_flood_takes_turns);
    return test_summary();
}
