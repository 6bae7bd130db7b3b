/* A lack of descriptors: which connections are closed, forwarded, or left in the backlog. */
#include "peer.h"

#include <sys/resource.h>

/* Turns the loop for some time, with waits of at most `wait`, and returns how often. */
static unsigned turns_within(peer_server *server, uint64_t microseconds, int64_t wait) {
    unsigned turns = 0;
    for (uint64_t ends = fl_clock() + microseconds; fl_clock() < ends; turns++) {
        fl_loop_turn(server->loop);
        fl_loop_wait(server->loop, wait);
    }
    return turns;
}

static void a_long_idle_connection_is_closed_for_a_new_one(void) {
    peer_server server = server_start();
    int silent = client(&server), asking = client(&server);
    send_text(asking, GET("/"));
    TURN_UNTIL(server.loop, server.loop->ready.count == 1);
    CHECK(server.loop->accepting.most > 10);
    server.loop->accepting.most = 2;

    int late = client(&server);
    send_text(late, GET("/late"));
    turns_within(&server, 300 * MILLISECOND, 5 * MILLISECOND);
    CHECK_NUMBER(1, server.loop->ready.count); /* no connection has been idle for long: it waits in the backlog */
    TURN_UNTIL(server.loop, server.loop->ready.count == 2);
    CHECK_NUMBER(2, server.loop->context.counts.connections);
    free(receive_to_end(server.loop, silent).bytes);
    CHECK_NUMBER(2, answer_all(server.loop));
    CHECK_RECEIVED("HTTP/1.1 200 OK", "/late", receive(server.loop, late));
    close(silent);
    close(asking);
    close(late);
    server_stop(&server);
}

static void busy_connections_stay_and_the_backlog_costs_no_cpu_time(void) {
    peer_server server = server_start();
    int busy = client(&server);
    send_text(busy, GET("/"));
    fl_exchange *exchange = take(server.loop);
    server.loop->accepting.most = 1;
    int late = client(&server);
    send_text(late, GET("/late"));
    CHECK(turns_within(&server, 1500 * MILLISECOND, 500 * MILLISECOND) < 50);
    CHECK_NUMBER(1, server.loop->context.counts.connections);
    answer(exchange, 200, "done");
    close(busy);
    TURN_UNTIL(server.loop, server.loop->ready.count == 1);
    CHECK_NUMBER(1, answer_all(server.loop));
    CHECK_RECEIVED("HTTP/1.1 200 OK", "/late", receive(server.loop, late));
    close(late);
    server_stop(&server);
}

static int occupied[1024], occupied_count;

static void occupy_descriptors(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_cur < 1024 ? limit.rlim_cur : 1024;
    setrlimit(RLIMIT_NOFILE, &limit);
    for (int descriptor; (descriptor = dup(STDOUT_FILENO)) >= 0;) occupied[occupied_count++] = descriptor;
    CHECK_NUMBER(EMFILE, errno);
}

static void free_descriptors(void) {
    while (occupied_count > 0) close(occupied[--occupied_count]);
}

static void the_loop_does_not_spin_without_free_descriptors(void) {
    peer_server server = server_start();
    int waiting = client(&server);
    send_text(waiting, GET("/"));
    occupy_descriptors();
    CHECK(turns_within(&server, 500 * MILLISECOND, 500 * MILLISECOND) < 50);
    CHECK_NUMBER(0, server.loop->context.counts.connections);
    free_descriptors();
    TURN_UNTIL(server.loop, server.loop->ready.count == 1);
    CHECK_NUMBER(1, answer_all(server.loop));
    CHECK_RECEIVED("HTTP/1.1 200 OK", "/", receive(server.loop, waiting));
    close(waiting);
    server_stop(&server);
}

/* Two workers, and clients of the first one; the second one gets connections only from the first one. */
typedef struct worker_pair {
    peer_server first, second;
    fl_shared_page *page;
    int channels[4], clients[5], count;
} worker_pair;

static worker_pair pair_start(int count) {
    worker_pair pair = {.first = server_start(), .second = server_start(), .count = count};
    pair.page = make_siblings(&pair.first, &pair.second, pair.channels);
    for (int i = 0; i < count; i++) pair.clients[i] = client(&pair.first);
    return pair;
}

static void pair_stop(worker_pair *pair) {
    server_stop(&pair->first);
    server_stop(&pair->second);
    fl_shared_page_close(pair->page);
    for (int i = 0; i < 4; i++) close(pair->channels[i]);
    for (int i = 0; i < pair->count; i++) close(pair->clients[i]);
}

static int64_t slot_value(const worker_pair *pair, int worker, fl_slot_field field) {
    return fl_slot_get(&pair->page->slots[worker], field);
}

static void without_free_descriptors_a_worker_forwards_new_connections_with_its_reserve(void) {
    worker_pair pair = pair_start(1);
    CHECK(slot_value(&pair, 0, FL_SLOT_room) > 0);
    occupy_descriptors();
    fl_loop_turn(pair.first.loop);
    CHECK_NUMBER(1, slot_value(&pair, 1, FL_SLOT_incoming_connections));
    CHECK_NUMBER(0, slot_value(&pair, 0, FL_SLOT_room));
    free_descriptors();
    turn(pair.second.loop);
    CHECK_NUMBER(1, pair.second.loop->context.counts.connections);
    TURN_UNTIL(pair.first.loop, slot_value(&pair, 0, FL_SLOT_room) > 0);
    pair_stop(&pair);
}

static void a_worker_at_its_limit_forwards_new_connections(void) {
    worker_pair pair = pair_start(1);
    turn(pair.first.loop);
    CHECK_NUMBER(1, pair.first.loop->context.counts.connections);
    pair.first.loop->accepting.most = 1;
    pair.clients[pair.count++] = client(&pair.first);
    turn(pair.first.loop);
    CHECK_NUMBER(1, pair.first.loop->context.counts.connections);
    CHECK_NUMBER(1, slot_value(&pair, 1, FL_SLOT_incoming_connections));
    pair_stop(&pair);
}

static void a_sibling_gets_no_more_connections_than_it_has_room_for(void) {
    worker_pair pair = pair_start(5);
    fl_slot_set(&pair.page->slots[1], FL_SLOT_room, 1);
    turn(pair.first.loop);
    CHECK_NUMBER(1, slot_value(&pair, 1, FL_SLOT_incoming_connections)); /* balanced, it would be two */
    CHECK_NUMBER(4, pair.first.loop->context.counts.connections);
    pair_stop(&pair);
}

static void a_worker_without_free_descriptors_forwards_received_connections(void) {
    worker_pair pair = pair_start(5);
    turn(pair.first.loop);
    CHECK_NUMBER(2, slot_value(&pair, 1, FL_SLOT_incoming_connections));
    occupy_descriptors();
    fl_loop_turn(pair.second.loop);
    CHECK_NUMBER(0, slot_value(&pair, 1, FL_SLOT_incoming_connections));
    CHECK_NUMBER(0, slot_value(&pair, 1, FL_SLOT_room));
    CHECK_NUMBER(2, slot_value(&pair, 0, FL_SLOT_incoming_connections));
    free_descriptors();
    turn(pair.first.loop);
    CHECK_NUMBER(0, slot_value(&pair, 0, FL_SLOT_incoming_connections));
    CHECK_NUMBER(5, pair.first.loop->context.counts.connections);
    pair_stop(&pair);
}

static void uncounted_connections_are_received_too(void) {
    worker_pair pair = pair_start(5);
    turn(pair.first.loop);
    CHECK_NUMBER(2, slot_value(&pair, 1, FL_SLOT_incoming_connections));
    fl_slot_set(&pair.page->slots[1], FL_SLOT_incoming_connections, 0);
    turn(pair.second.loop);
    CHECK_NUMBER(2, pair.second.loop->context.counts.connections);
    pair_stop(&pair);
}

/* Two connections arrive, and the worker has only its reserve. */
static void a_connection_without_a_free_descriptor_anywhere_is_lost_and_not_counted(void) {
    worker_pair pair = pair_start(5);
    turn(pair.first.loop);
    fl_slot_set(&pair.page->slots[0], FL_SLOT_room, 0);
    CHECK_NUMBER(2, slot_value(&pair, 1, FL_SLOT_incoming_connections));
    occupy_descriptors();
    fl_loop_turn(pair.second.loop);
    CHECK_NUMBER(0, slot_value(&pair, 1, FL_SLOT_incoming_connections));
    CHECK_NUMBER(1, pair.second.loop->context.counts.connections);
    free_descriptors();
    turn(pair.first.loop);
    int closed = 0;
    for (int i = 0; i < pair.count; i++) {
        received_bytes received = {0};
        receive_available(pair.clients[i], &received);
        closed += received.ended || received.reset;
        free(received.bytes);
    }
    CHECK_NUMBER(1, closed);
    pair_stop(&pair);
}

/* The kernel may be out of memory, for example. */
static void watching_a_listener_is_tried_again_after_an_error(void) {
    peer_server server = server_start();
    fl_loop_pause_accepting(server.loop, true);
    CHECK_NUMBER(0, fl_poll_add_listener(&server.loop->context.poll, server.listening, server.loop->accepting.listeners));
    fl_loop_pause_accepting(server.loop, false); /* EEXIST */
    CHECK(!server.loop->accepting.listeners->watched);
    fl_poll_remove(&server.loop->context.poll, server.listening);
    int socket = client(&server);
    send_text(socket, GET("/"));
    TURN_UNTIL(server.loop, server.loop->ready.count == 1);
    CHECK(server.loop->accepting.listeners->watched);
    CHECK_NUMBER(1, answer_all(server.loop));
    close(socket);
    server_stop(&server);
}

int main(void) {
    TEST(a_long_idle_connection_is_closed_for_a_new_one);
    TEST(busy_connections_stay_and_the_backlog_costs_no_cpu_time);
    TEST(the_loop_does_not_spin_without_free_descriptors);
    TEST(without_free_descriptors_a_worker_forwards_new_connections_with_its_reserve);
    TEST(a_worker_at_its_limit_forwards_new_connections);
    TEST(a_sibling_gets_no_more_connections_than_it_has_room_for);
    TEST(a_worker_without_free_descriptors_forwards_received_connections);
    TEST(uncounted_connections_are_received_too);
    TEST(a_connection_without_a_free_descriptor_anywhere_is_lost_and_not_counted);
    TEST(watching_a_listener_is_tried_again_after_an_error);
    return test_summary();
}
