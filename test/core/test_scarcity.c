/* Where descriptors or memory run short: who gives way. */
#include "peer.h"

#include <sys/resource.h>

#define GET(path) "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"

/* How often the loop turns meanwhile, which waits for so long at most if nothing happens. */
static unsigned turns_within(peer_server *server, uint64_t microseconds, int64_t wait) {
    unsigned turns = 0;
    for (uint64_t ends = fl_clock() + microseconds; fl_clock() < ends; turns++) {
        fl_loop_turn(server->loop);
        fl_loop_wait(server->loop, wait);
    }
    return turns;
}

static void pass(peer_server *server, uint64_t microseconds) {
    turns_within(server, microseconds, 5 * MILLISECOND);
}

static void a_connection_that_has_long_been_silent_makes_room_for_a_new_one(void) {
    peer_server server = server_start();
    int silent = client(&server), asking = client(&server);
    say(asking, GET("/"));
    TURN_UNTIL(server.loop, server.loop->ready.count == 1);
    CHECK(server.loop->accepting.most > 10);
    server.loop->accepting.most = 2;

    int late = client(&server);
    say(late, GET("/late"));
    pass(&server, 300 * MILLISECOND);
    CHECK_NUMBER(1, server.loop->ready.count); /* nobody has been silent for long: it waits in the backlog */
    TURN_UNTIL(server.loop, server.loop->ready.count == 2);
    CHECK_NUMBER(2, server.loop->context.counts.connections);
    free(hear_end(server.loop, silent).bytes);
    CHECK_NUMBER(2, answer_all(server.loop));
    CHECK_HEARD("HTTP/1.1 200 OK", "/late", hear(server.loop, late));
    close(silent);
    close(asking);
    close(late);
    server_stop(&server);
}

static void who_is_busy_makes_no_room_and_who_waits_outside_costs_nothing(void) {
    peer_server server = server_start();
    int busy = client(&server);
    say(busy, GET("/"));
    fl_exchange *exchange = take(server.loop);
    server.loop->accepting.most = 1;
    int late = client(&server);
    say(late, GET("/late"));
    CHECK(turns_within(&server, 1500 * MILLISECOND, 500 * MILLISECOND) < 50);
    CHECK_NUMBER(1, server.loop->context.counts.connections);
    answer(exchange, 200, "done");
    close(busy);
    TURN_UNTIL(server.loop, server.loop->ready.count == 1);
    CHECK_NUMBER(1, answer_all(server.loop));
    CHECK_HEARD("HTTP/1.1 200 OK", "/late", hear(server.loop, late));
    close(late);
    server_stop(&server);
}

/* All descriptors that were left. */
static int hoarded[1024], hoard_count;

static void hoard(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_cur < 1024 ? limit.rlim_cur : 1024;
    setrlimit(RLIMIT_NOFILE, &limit);
    for (int descriptor; (descriptor = dup(STDOUT_FILENO)) >= 0;) hoarded[hoard_count++] = descriptor;
    CHECK_NUMBER(EMFILE, errno);
}

static void give_back(void) {
    while (hoard_count > 0) close(hoarded[--hoard_count]);
}

static void where_no_descriptor_is_left_it_does_not_spin(void) {
    peer_server server = server_start();
    int waiting = client(&server);
    say(waiting, GET("/"));
    hoard();
    CHECK(turns_within(&server, 500 * MILLISECOND, 500 * MILLISECOND) < 50);
    CHECK_NUMBER(0, server.loop->context.counts.connections);
    give_back();
    TURN_UNTIL(server.loop, server.loop->ready.count == 1);
    CHECK_NUMBER(1, answer_all(server.loop));
    CHECK_HEARD("HTTP/1.1 200 OK", "/", hear(server.loop, waiting));
    close(waiting);
    server_stop(&server);
}

/* Two workers, of which the second listens to nothing that is not handed to it, and so many clients of the first. */
typedef struct couple {
    peer_server old, young;
    fl_shared_page *page;
    int channels[4], clients[5], count;
} couple;

static couple meet(int count) {
    couple couple = {.old = server_start(), .young = server_start(), .count = count};
    couple.page = make_siblings(&couple.old, &couple.young, couple.channels);
    for (int i = 0; i < count; i++) couple.clients[i] = client(&couple.old);
    return couple;
}

static void part(couple *couple) {
    server_stop(&couple->old);
    server_stop(&couple->young);
    fl_shared_page_close(couple->page);
    for (int i = 0; i < 4; i++) close(couple->channels[i]);
    for (int i = 0; i < couple->count; i++) close(couple->clients[i]);
}

static int64_t shown(const couple *couple, int worker, fl_slot_field field) {
    return fl_slot_get(&couple->page->slots[worker], field);
}

static void who_has_no_descriptor_left_takes_the_reserve_to_pass_new_ones_on(void) {
    couple couple = meet(1);
    CHECK(shown(&couple, 0, FL_SLOT_room) > 0);
    hoard();
    fl_loop_turn(couple.old.loop);
    CHECK_NUMBER(1, shown(&couple, 1, FL_SLOT_incoming_connections));
    CHECK_NUMBER(0, shown(&couple, 0, FL_SLOT_room));
    give_back();
    turn(couple.young.loop);
    CHECK_NUMBER(1, couple.young.loop->context.counts.connections);
    TURN_UNTIL(couple.old.loop, shown(&couple, 0, FL_SLOT_room) > 0);
    part(&couple);
}

static void who_has_as_many_as_may_be_passes_new_ones_on(void) {
    couple couple = meet(1);
    turn(couple.old.loop);
    CHECK_NUMBER(1, couple.old.loop->context.counts.connections);
    couple.old.loop->accepting.most = 1;
    couple.clients[couple.count++] = client(&couple.old);
    turn(couple.old.loop);
    CHECK_NUMBER(1, couple.old.loop->context.counts.connections);
    CHECK_NUMBER(1, shown(&couple, 1, FL_SLOT_incoming_connections));
    part(&couple);
}

static void nobody_is_given_more_than_it_has_room_for(void) {
    couple couple = meet(5);
    fl_slot_set(&couple.page->slots[1], FL_SLOT_room, 1);
    turn(couple.old.loop);
    CHECK_NUMBER(1, shown(&couple, 1, FL_SLOT_incoming_connections)); /* else it would be two */
    CHECK_NUMBER(4, couple.old.loop->context.counts.connections);
    part(&couple);
}

static void what_is_given_to_who_has_no_descriptor_left_is_passed_on(void) {
    couple couple = meet(5);
    turn(couple.old.loop);
    CHECK_NUMBER(2, shown(&couple, 1, FL_SLOT_incoming_connections));
    hoard();
    fl_loop_turn(couple.young.loop);
    CHECK_NUMBER(0, shown(&couple, 1, FL_SLOT_incoming_connections));
    CHECK_NUMBER(0, shown(&couple, 1, FL_SLOT_room));
    CHECK_NUMBER(2, shown(&couple, 0, FL_SLOT_incoming_connections));
    give_back();
    turn(couple.old.loop);
    CHECK_NUMBER(0, shown(&couple, 0, FL_SLOT_incoming_connections));
    CHECK_NUMBER(5, couple.old.loop->context.counts.connections);
    part(&couple);
}

static void what_nobody_has_told_of_is_taken_in_all_the_same(void) {
    couple couple = meet(5);
    turn(couple.old.loop);
    CHECK_NUMBER(2, shown(&couple, 1, FL_SLOT_incoming_connections));
    fl_slot_set(&couple.page->slots[1], FL_SLOT_incoming_connections, 0);
    turn(couple.young.loop);
    CHECK_NUMBER(2, couple.young.loop->context.counts.connections);
    part(&couple);
}

/* One takes the reserve, the other finds nothing. */
static void one_that_nobody_has_a_descriptor_for_is_lost_and_counts_no_more(void) {
    couple couple = meet(5);
    turn(couple.old.loop);
    fl_slot_set(&couple.page->slots[0], FL_SLOT_room, 0);
    CHECK_NUMBER(2, shown(&couple, 1, FL_SLOT_incoming_connections));
    hoard();
    fl_loop_turn(couple.young.loop);
    CHECK_NUMBER(0, shown(&couple, 1, FL_SLOT_incoming_connections));
    CHECK_NUMBER(1, couple.young.loop->context.counts.connections);
    give_back();
    turn(couple.old.loop);
    int closed = 0;
    for (int i = 0; i < couple.count; i++) {
        fl_heard heard = {0};
        hear_now(couple.clients[i], &heard);
        closed += heard.ended || heard.reset;
        free(heard.bytes);
    }
    CHECK_NUMBER(1, closed);
    part(&couple);
}

static void once_much_is_kept_for_all_little_is_kept_for_each(void) {
    fl_limits limits = peer_limits;
    limits.body_buffer = 200000;
    peer_server server = server_with(limits);
    fl_loop *loop = server.loop;
    int reader = narrow_client(&server), upload = client(&server);
    char body[100000];
    memset(body, 'x', sizeof body);

    say(upload, "PUT /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 150000\r\n\r\n");
    say_bytes(upload, body, 90000);
    turn(loop);
    CHECK_NUMBER(0, loop->ready.count); /* the rest is awaited */

    size_t before = loop->context.slab.in_use, used;
    loop->context.slab.in_use += FL_MEMORY_PRESSURE;
    say_bytes(upload, body, 10);
    fl_exchange *exchange = take(loop); /* the app may do better with it */
    CHECK_TEXT("/upload", path_of(exchange));
    fl_exchange_abandon(exchange);

    say(reader, GET("/"));
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

/* It is staged without the lock, from a slab of its own, and freed with the lock. */
static void a_long_head_of_a_response_counts_for_as_long_as_it_is_kept(void) {
    peer_server server = server_start();
    int asks = client(&server);
    char value[3000];
    memset(value, 'x', sizeof value);
    for (int i = 0; i < 20; i++) {
        say(asks, GET("/"));
        fl_exchange *exchange = take(server.loop);
        CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 200));
        CHECK_NUMBER(FL_OK, fl_exchange_header(exchange, "x-long", 6, value, sizeof value));
        CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, 0));
        fl_exchange_finish(exchange);
        free(hear(server.loop, asks).bytes);
    }
    CHECK_NUMBER(peer_limits.response_buffer, fl_context_buffer_limit(&server.loop->context, peer_limits.response_buffer));
    close(asks);
    TURN_UNTIL(server.loop, server.loop->context.counts.connections == 0);
    CHECK_NUMBER(0, fl_context_buffered(&server.loop->context));
    server_stop(&server);
}

/* What it has not taken is dropped at once, also by the kernel. */
static void a_reader_that_stalls_is_reset(void) {
    fl_limits limits = peer_limits;
    limits.deadlines[FL_DEADLINE_WRITE] = 50 * MILLISECOND;
    peer_server server = server_with(limits);
    int reader = client(&server), size = 4096;
    setsockopt(reader, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    say(reader, GET("/"));
    fl_exchange *exchange = take(server.loop);
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 200));
    CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, 100000000));
    static char body[1000000];
    size_t used;
    while (fl_exchange_write(exchange, body, sizeof body, &used) == FL_OK) continue;
    TURN_UNTIL(server.loop, server.loop->context.counts.connections == 0);
    fl_exchange_abandon(exchange);
    fl_heard heard = hear_end(server.loop, reader);
    CHECK(heard.reset);
    CHECK(heard.size < 10000000);
    free(heard.bytes);
    close(reader);
    server_stop(&server);
}

/* The kernel has all of its answer, but nobody takes it. The other takes some at a time; its kernel tells ours of room when
 * there is much of it, and a busy machine may let neither of us do anything for a while. */
static void who_does_not_take_what_the_kernel_has_is_reset_too(void) {
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
        say(sockets[i], GET("/"));
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
        pass(&server, 4 * MILLISECOND);
    }
    CHECK_NUMBER(1, server.loop->context.counts.connections);
    fl_heard heard = hear_end(server.loop, stalled);
    CHECK(heard.reset);
    free(heard.bytes);
    heard = hear_end(server.loop, slow);
    CHECK(heard.ended && !heard.reset);
    CHECK(taken + heard.size > sizeof body);
    free(heard.bytes);
    close(stalled);
    close(slow);
    server_stop(&server);
}

/* The kernel may refuse to watch a listener again, for want of memory. */
static void a_listener_that_could_not_be_watched_again_is_tried_again(void) {
    peer_server server = server_start();
    fl_loop_pause_accepting(server.loop, true);
    CHECK_NUMBER(0, fl_poll_add_listener(&server.loop->context.poll, server.listening, server.loop->accepting.listeners));
    fl_loop_pause_accepting(server.loop, false); /* it is there: EEXIST */
    CHECK(!server.loop->accepting.listeners->watched);
    fl_poll_remove(&server.loop->context.poll, server.listening);
    int socket = client(&server);
    say(socket, GET("/"));
    TURN_UNTIL(server.loop, server.loop->ready.count == 1);
    CHECK(server.loop->accepting.listeners->watched);
    CHECK_NUMBER(1, answer_all(server.loop));
    close(socket);
    server_stop(&server);
}

static void a_burst_costs_no_memory_for_ever(void) {
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

static void answers_that_nobody_reads_are_not_kept_without_bound(void) {
    static const char request[] = GET("/");
    peer_server server = server_start();
    int socket = narrow_client(&server);
    fl_connection *connection = server.loop->context.connections;
    unsigned refused = 0;
    for (int i = 0; i < 5000; i++) {
        if (send(socket, request, sizeof request - 1, MSG_NOSIGNAL) < 0)
            break; /* it is read no more */
        for (int j = 0; j < 3 && server.loop->ready.first == NULL; j++) fl_loop_turn(server.loop);
        if (server.loop->ready.first != NULL) {
            fl_exchange_turn_away(connection->exchanges, FL_OVERLOADED);
            refused++;
        }
    }
    CHECK(refused > 100);
    if (connection->out.length > 70000)
        test_fail(__FILE__, __LINE__, "%u bytes are kept, of %u answers", connection->out.length, refused);
    fl_heard heard = {0};
    for (int i = 0; i < 2000; i++) {
        hear_now(socket, &heard);
        fl_loop_turn(server.loop);
        if (server.loop->ready.first != NULL) {
            fl_exchange_turn_away(connection->exchanges, FL_OVERLOADED);
            refused++;
        }
    }
    CHECK_NUMBER(refused, occurrences(&heard, "HTTP/1.1 503"));
    free(heard.bytes);
    close(socket);
    server_stop(&server);
}

int main(void) {
    TEST(a_connection_that_has_long_been_silent_makes_room_for_a_new_one);
    TEST(who_is_busy_makes_no_room_and_who_waits_outside_costs_nothing);
    TEST(where_no_descriptor_is_left_it_does_not_spin);
    TEST(who_has_no_descriptor_left_takes_the_reserve_to_pass_new_ones_on);
    TEST(who_has_as_many_as_may_be_passes_new_ones_on);
    TEST(nobody_is_given_more_than_it_has_room_for);
    TEST(what_is_given_to_who_has_no_descriptor_left_is_passed_on);
    TEST(what_nobody_has_told_of_is_taken_in_all_the_same);
    TEST(one_that_nobody_has_a_descriptor_for_is_lost_and_counts_no_more);
    TEST(once_much_is_kept_for_all_little_is_kept_for_each);
    TEST(a_long_head_of_a_response_counts_for_as_long_as_it_is_kept);
    TEST(a_reader_that_stalls_is_reset);
    TEST(who_does_not_take_what_the_kernel_has_is_reset_too);
    TEST(a_listener_that_could_not_be_watched_again_is_tried_again);
    TEST(a_burst_costs_no_memory_for_ever);
    TEST(answers_that_nobody_reads_are_not_kept_without_bound);
    return test_summary();
}
