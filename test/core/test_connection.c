/* Connections over real sockets: requests in, responses out, in order; whatever the client does meanwhile. */
#include "peer.h"
#include "siblings/handoff.h"

#include <sys/wait.h>
#include <unistd.h>

#define GET(path) "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"

static void a_request_is_taken_and_answered(void) {
    peer_server server = server_start();
    int socket = client(&server);
    say(socket, GET("/one"));
    fl_exchange *exchange = take(server.loop);
    CHECK_TEXT("/one", path_of(exchange));
    CHECK_NUMBER(1, server.loop->context.counts.in_flight);
    answer(exchange, 200, "hello");
    CHECK_HEARD("HTTP/1.1 200 OK\r\ncontent-length: 5\r\ndate: ", " GMT\r\n\r\nhello", hear(server.loop, socket));
    CHECK_NUMBER(0, server.loop->context.counts.in_flight);
    CHECK_NUMBER(1, server.loop->context.counts.connections);
    close(socket);
    TURN_UNTIL(server.loop, server.loop->context.counts.connections == 0);
    server_stop(&server);
}

static void pipelined_requests_are_answered_in_order(void) {
    peer_server server = server_start();
    int socket = client(&server);
    char expected[40];
    for (int i = 0; i < 20; i++) {
        char request[120];
        snprintf(request, sizeof request, "POST /%02d HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", i);
        say(socket, request);
    }
    turn(server.loop);
    CHECK_NUMBER(1, server.loop->ready.count); /* never two of one connection */
    CHECK_NUMBER(20, answer_all(server.loop));
    fl_heard heard = hear(server.loop, socket);
    const char *at = heard.bytes;
    for (int i = 0; i < 20; i++) {
        snprintf(expected, sizeof expected, "\r\n\r\n/%02d", i);
        at = strstr(at, expected);
        CHECK(at != NULL);
        if (at == NULL)
            break;
    }
    free(heard.bytes);
    close(socket);
    server_stop(&server);
}

/* More than is read at once with the request before it, whose turn takes a while: all of it is here by then. */
static void a_body_behind_another_request_is_read_to_its_end(void) {
    enum { SIZE = 40000 };
    static const char head[] = "GET /first HTTP/1.1\r\nHost: a\r\n\r\n"
                               "POST /second HTTP/1.1\r\nHost: a\r\nContent-Length: 40000\r\n\r\n";
    static char bytes[sizeof head - 1 + SIZE];
    memcpy(bytes, head, sizeof head - 1);
    memset(bytes + sizeof head - 1, 'b', SIZE);
    peer_server server = server_start();
    int socket = client(&server);
    say_bytes(socket, bytes, sizeof bytes);
    turn(server.loop);
    CHECK_NUMBER(2, answer_all(server.loop));
    fl_heard heard = hear(server.loop, socket);
    CHECK(strstr(heard.bytes, "\r\n\r\n/second") != NULL);
    free(heard.bytes);
    close(socket);
    server_stop(&server);
}

static void a_request_in_single_bytes_is_the_same_request(void) {
    peer_server server = server_start();
    int socket = client(&server);
    static const char request[] =
        "POST /slow HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nT: x\r\n\r\n";
    for (size_t i = 0; i + 1 < sizeof request; i++) {
        CHECK_NUMBER(0, server.loop->ready.count);
        say_bytes(socket, request + i, 1);
        fl_loop_wait(server.loop, 100 * MILLISECOND);
        fl_loop_turn(server.loop);
    }
    fl_exchange *exchange = take(server.loop);
    const char *bytes;
    size_t size;
    CHECK_NUMBER(FL_OK, fl_exchange_body(exchange, &bytes, &size));
    CHECK_BYTES("abcde", 5, bytes, size);
    fl_exchange_consume_body(exchange, size);
    CHECK_NUMBER(FL_OK, fl_exchange_body(exchange, &bytes, &size));
    CHECK_NUMBER(0, size);
    answer(exchange, 200, "");
    close(socket);
    server_stop(&server);
}

static void a_chunked_body_ends_where_the_next_request_begins(void) {
    peer_server server = server_start();
    int socket = client(&server);
    say(socket, "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" GET("/b"));
    CHECK_NUMBER(2, answer_all(server.loop));
    CHECK_HEARD("HTTP/1.1 200 OK", "\r\n\r\n/b", hear(server.loop, socket));
    /* the same, with the end of the body read apart from the head */
    say(socket, "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na");
    turn(server.loop);
    say(socket, "bc\r\n0\r\n\r\n" GET("/c"));
    CHECK_NUMBER(2, answer_all(server.loop));
    CHECK_HEARD("HTTP/1.1 200 OK", "\r\n\r\n/c", hear(server.loop, socket));
    close(socket);
    server_stop(&server);
}

static void a_client_that_ends_its_side_gets_all_its_answers(void) {
    peer_server server = server_start();
    int socket = client(&server);
    say(socket, GET("/1") GET("/2") GET("/3"));
    shutdown(socket, SHUT_WR);
    CHECK_NUMBER(3, answer_all(server.loop));
    fl_heard heard = hear_end(server.loop, socket);
    CHECK_NUMBER(3, occurrences(&heard, "HTTP/1.1 200 OK"));
    CHECK(heard.ended);
    CHECK_HEARD("HTTP/1.1 ", "\r\n\r\n/3", heard);
    CHECK_NUMBER(0, server.loop->context.counts.connections);
    close(socket);
    server_stop(&server);
}

static void a_refusal_is_read_by_a_client_that_is_still_sending(void) {
    peer_server server = server_start();
    int socket = client(&server);
    say(socket, "GET / HTTP/1.1\r\nHost : a\r\n\r\n");
    static char more[200000];
    memset(more, 'x', sizeof more);
    say_bytes(socket, more, sizeof more);
    turn(server.loop);
    say(socket, GET("/never"));
    shutdown(socket, SHUT_WR);
    fl_heard heard = hear_end(server.loop, socket);
    CHECK(heard.ended && !heard.reset);
    CHECK_NUMBER(1, occurrences(&heard, "HTTP/1.1 "));
    CHECK_HEARD("HTTP/1.1 400 Bad Request\r\n", "\n", heard);
    CHECK_NUMBER(0, server.loop->ready.count);
    CHECK_NUMBER(1, server.loop->context.counts.refused);
    CHECK_NUMBER(0, server.loop->context.counts.turned_away);
    close(socket);
    server_stop(&server);
}

static void a_refused_HEAD_has_no_body(void) {
    peer_server server = server_start();
    int socket = client(&server);
    say(socket, "HEAD / HTTP/1.1\r\nHost: a\r\nExpect: a miracle\r\n\r\n");
    CHECK_HEARD("HTTP/1.1 417 Expectation Failed\r\n", "\r\n\r\n", hear_end(server.loop, socket));
    close(socket);
    server_stop(&server);
}

static void a_client_may_go_at_every_stage(void) {
    static const char *const beginnings[] = {
        "", "\r\n", "GET / HT", GET("/"), GET("/") GET("/"),
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        "GET / HTTP/1.1\r\n\r\n"};
    struct linger now = {1, 0};
    for (size_t i = 0; i < sizeof beginnings / sizeof beginnings[0]; i++)
        for (int stage = 0; stage < 4; stage++)
            for (int reset = 0; reset < 2; reset++) {
                peer_server server = server_start();
                int socket = client(&server);
                say(socket, beginnings[i]);
                if (stage > 0)
                    turn(server.loop);
                fl_exchange *exchange = stage > 1 ? fl_loop_take(server.loop) : NULL;
                if (exchange != NULL && stage > 2) {
                    size_t used;
                    fl_exchange_release_head(exchange);
                    fl_exchange_begin(exchange, 200);
                    fl_exchange_head_end(exchange, -1);
                    fl_exchange_write(exchange, "part", 4, &used);
                }
                if (reset)
                    setsockopt(socket, SOL_SOCKET, SO_LINGER, &now, sizeof now);
                close(socket);
                turn(server.loop);
                if (exchange != NULL)
                    fl_exchange_finish(exchange);
                while ((exchange = fl_loop_take(server.loop)) != NULL) answer(exchange, 200, "late");
                TURN_UNTIL(server.loop, server.loop->context.counts.connections == 0);
                CHECK_NUMBER(0, server.loop->context.counts.in_flight);
                CHECK_NUMBER(0, server.loop->ready.count);
                CHECK(server.loop->context.served == NULL && server.loop->context.woken.first == NULL);
                server_stop(&server);
            }
}

/* The response to its first request has been kept for too long: it is sent when the second is about to be taken. */
static void a_client_may_have_gone_when_its_next_request_is_taken(void) {
    struct linger now = {1, 0};
    peer_server server = server_start();
    fl_loop *loop = server.loop;
    loop->watched = true; /* responses of very short requests leave together */
    loop->pace.interval = 0;
    int socket = client(&server), other = client(&server);
    say(socket, GET("/first") GET("/second"));
    TURN_UNTIL(loop, loop->ready.count == 1);
    say(other, GET("/other"));
    TURN_UNTIL(loop, loop->ready.count == 2);
    answer(fl_loop_take(loop), 200, "first");
    atomic_store(&loop->context.staged_at, fl_clock()); /* just now, however slow this machine is */
    answer(fl_loop_take(loop), 200, "other");
    CHECK_NUMBER(1, loop->ready.count);
    setsockopt(socket, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(socket);
    atomic_store(&loop->context.staged_at, fl_clock() - SECOND);
    CHECK(fl_loop_take(loop) == NULL);
    CHECK_NUMBER(0, loop->context.counts.in_flight);
    CHECK_HEARD("HTTP/1.1 200 ", "other", hear(loop, other));
    close(other);
    server_stop(&server);
}

static void an_event_of_a_connection_closed_meanwhile_is_passed_over(void) {
    peer_server server = server_start();
    int sockets[20];
    fl_exchange *exchanges[20];
    for (int i = 0; i < 20; i++) {
        sockets[i] = client(&server);
        say(sockets[i], GET("/"));
        exchanges[i] = take(server.loop);
    }
    for (int i = 0; i < 20; i++) say(sockets[i], GET("/next"));
    fl_loop_wait(server.loop, SECOND); /* their events are fetched … */
    for (int i = 0; i < 20; i++) fl_exchange_abandon(exchanges[i]); /* … and they go before the turn */
    turn(server.loop);
    CHECK_NUMBER(0, server.loop->context.counts.connections);
    for (int i = 0; i < 20; i++) close(sockets[i]);
    server_stop(&server);
}

static void a_request_that_comes_soon_is_awaited_awake_as_long_as_that_succeeds(void) {
    peer_server server = server_start();
    int socket = client(&server);
    turn(server.loop);
    CHECK(fl_loop_may_spin(server.loop));
    for (int round = 0; round < 3; round++) {
        say(socket, GET("/"));
        atomic_store(&server.loop->driver.resting, true);
        CHECK(fl_loop_spin(server.loop));
        CHECK(!atomic_load(&server.loop->driver.resting)); /* else it would keep the lead however long it is away */
        CHECK_NUMBER(1, answer_all(server.loop));
        int vain = 0, idle = 0;
        for (; vain < 100 && fl_loop_may_spin(server.loop); vain++) CHECK(!fl_loop_spin(server.loop));
        for (; idle < 100 && !fl_loop_may_spin(server.loop); idle++) continue;
        CHECK_NUMBER(8, vain);
        CHECK(idle > 40 && idle < 100); /* tried again, seldom */
    }
    close(socket);
    server_stop(&server);
}

static void what_a_wait_finds_it_takes_in(void) {
    peer_server server = server_start();
    int socket = client(&server);
    turn(server.loop);
    say(socket, GET("/"));
    CHECK(fl_loop_wait(server.loop, SECOND));
    CHECK_NUMBER(1, fl_loop_takeable(server.loop));
    CHECK(!fl_loop_wait(server.loop, 0));
    CHECK_NUMBER(1, fl_loop_turn(server.loop));
    close(socket);
    server_stop(&server);
}

static void requests_over_the_limit_wait_their_turn(void) {
    fl_limits limits = peer_limits;
    limits.in_flight = 2;
    peer_server server = server_with(limits);
    int sockets[5];
    for (int i = 0; i < 5; i++) {
        char request[80];
        snprintf(request, sizeof request, "GET /%d HTTP/1.1\r\nHost: a\r\n\r\n", i);
        sockets[i] = client(&server);
        say(sockets[i], request);
        turn(server.loop);
    }
    CHECK_NUMBER(2, fl_loop_takeable(server.loop));
    fl_exchange *first = fl_loop_take(server.loop), *second = fl_loop_take(server.loop);
    CHECK(first != NULL && second != NULL && fl_loop_take(server.loop) == NULL);
    CHECK_TEXT("/1", path_of(second));
    answer(first, 200, "");
    fl_exchange *third = fl_loop_take(server.loop);
    CHECK_TEXT("/2", path_of(third));
    CHECK(fl_loop_take(server.loop) == NULL);
    fl_exchange_mark_long_lived(second); /* long-lived: does not count */
    fl_exchange *fourth = fl_loop_take(server.loop);
    CHECK_TEXT("/3", path_of(fourth));
    CHECK_NUMBER(1, server.loop->context.counts.streams);
    CHECK(fl_loop_take(server.loop) == NULL);
    for (int i = 0; i < 5; i++) close(sockets[i]);
    turn(server.loop);
    fl_exchange_finish(second);
    fl_exchange_finish(third);
    fl_exchange_finish(fourth);
    CHECK_NUMBER(0, server.loop->context.counts.streams + server.loop->context.counts.in_flight);
    server_stop(&server);
}

static void a_request_that_waits_too_long_is_told_so(void) {
    fl_limits limits = peer_limits;
    limits.in_flight = 1;
    limits.queue_timeout = 30 * MILLISECOND;
    peer_server server = server_with(limits);
    int busy = client(&server), late = client(&server);
    say(busy, GET("/"));
    fl_exchange *exchange = take(server.loop);
    say(late, GET("/"));
    uint64_t before = fl_clock();
    fl_heard heard = hear_end(server.loop, late);
    CHECK(fl_clock() - before < SECOND);
    CHECK(strstr(heard.bytes, "\r\nretry-after: ") != NULL);
    CHECK_HEARD("HTTP/1.1 503 Service Unavailable\r\n", "\n", heard);
    answer(exchange, 200, "");
    CHECK_NUMBER(1, server.loop->context.counts.refused);
    close(busy);
    close(late);
    server_stop(&server);
}

enum { MANY = 300 };

/* A turn has been made since: some of them have been refused. */
static void have_many_wait_too_long(peer_server *server, int sockets[MANY]) {
    for (int i = 0; i < MANY; i++) {
        sockets[i] = client(server);
        say(sockets[i], GET("/"));
        TURN_UNTIL(server->loop, server->loop->ready.count == (uint32_t) i + 1);
    }
    server->loop->context.limits.queue_timeout = 1;
    server->loop->context.timer_stale = true; /* it has been set for the limit before */
    fl_loop_turn(server->loop);
}

static void many_that_wait_too_long_are_told_so_in_order_over_several_turns(void) {
    peer_server server = server_start();
    int sockets[MANY];
    have_many_wait_too_long(&server, sockets);
    CHECK(server.loop->context.counts.refused > MANY / 2 && server.loop->context.counts.refused < MANY);
    fl_heard first = {0}, last = {0};
    hear_now(sockets[0], &first);
    hear_now(sockets[MANY - 1], &last);
    CHECK_HEARD("HTTP/1.1 503 Service Unavailable\r\n", "\n", first);
    CHECK_SILENT(last);
    uint64_t since = fl_clock();
    fl_loop_wait(server.loop, SECOND);
    CHECK(fl_clock() < since + SECOND / 2); /* the rest is due now */
    CHECK_NUMBER(MANY, server.loop->context.counts.refused);
    for (int i = 0; i < MANY; i++) close(sockets[i]);
    server_stop(&server);
}

static void a_request_that_waits_too_long_is_not_run(void) {
    peer_server server = server_start();
    int sockets[MANY];
    have_many_wait_too_long(&server, sockets);
    CHECK(server.loop->context.counts.refused < MANY);
    CHECK(fl_loop_take(server.loop) == NULL);
    CHECK_NUMBER(MANY, server.loop->context.counts.refused);
    for (int i = 0; i < MANY; i++) close(sockets[i]);
    server_stop(&server);
}

static void a_request_whose_client_has_gone_is_not_run(void) {
    fl_limits limits = peer_limits;
    limits.in_flight = 1;
    peer_server server = server_with(limits);
    int busy = client(&server), gone = client(&server);
    say(busy, GET("/"));
    fl_exchange *exchange = take(server.loop);
    say(gone, GET("/gone"));
    turn(server.loop);
    CHECK_NUMBER(1, server.loop->ready.count);
    struct linger now = {1, 0};
    setsockopt(gone, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(gone);
    TURN_UNTIL(server.loop, server.loop->ready.count == 0);
    answer(exchange, 200, "");
    CHECK(fl_loop_take(server.loop) == NULL);
    close(busy);
    server_stop(&server);
}

static void deadlines_end_what_stalls(void) {
    static const struct { const char *name, *request, *answer; } stalls[] = {
        {"idle", "", ""},
        {"empty lines", "\r\n", ""},
        {"head", "GET / HTTP/1.1\r\nHo", "HTTP/1.1 408 Request Timeout\r\n"},
        {"body", "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab", "HTTP/1.1 408 Request Timeout\r\n"},
    };
    fl_limits limits = peer_limits;
    for (int kind = 1; kind < FL_DEADLINE_KINDS; kind++) limits.deadlines[kind] = 20 * MILLISECOND;
    peer_server server = server_with(limits);
    for (size_t i = 0; i < sizeof stalls / sizeof stalls[0]; i++) {
        int socket = client(&server);
        say(socket, stalls[i].request);
        fl_heard heard = hear_end(server.loop, socket);
        if (heard.size < strlen(stalls[i].answer) || (stalls[i].answer[0] == 0 && heard.size > 0))
            test_fail(__FILE__, __LINE__, "%s: %s", stalls[i].name, heard.bytes);
        CHECK_HEARD(stalls[i].answer, "", heard);
        close(socket);
    }
    TURN_UNTIL(server.loop, server.loop->context.counts.connections == 0);
    server_stop(&server);
}

/* Each end takes some microseconds, which whoever waits for an answer would have to wait. */
static void many_that_end_together_end_over_several_turns(void) {
    fl_limits limits = peer_limits;
    limits.deadlines[FL_DEADLINE_IDLE] = SECOND;
    peer_server server = server_with(limits);
    int sockets[MANY];
    for (int i = 0; i < MANY; i++) {
        sockets[i] = client(&server);
        fl_loop_turn(server.loop);
    }
    TURN_UNTIL(server.loop, server.loop->context.counts.connections == MANY);
    usleep(1100000);
    fl_loop_turn(server.loop);
    uint32_t left = server.loop->context.counts.connections;
    CHECK(left < MANY && left > MANY / 2);
    uint64_t since = fl_clock();
    fl_loop_wait(server.loop, SECOND);
    CHECK(fl_clock() < since + SECOND / 2); /* the rest is due now */
    TURN_UNTIL(server.loop, server.loop->context.counts.connections == 0);
    for (int i = 0; i < MANY; i++) close(sockets[i]);
    server_stop(&server);
}

/* A deadline belongs to what the client owes, and never strikes while the app takes its time. */
static void no_deadline_runs_while_the_app_has_the_request(void) {
    fl_limits limits = peer_limits;
    for (int kind = 1; kind < FL_DEADLINE_KINDS; kind++) limits.deadlines[kind] = 20 * MILLISECOND;
    limits.body_buffer = 4;
    peer_server server = server_with(limits);
    int socket = client(&server);
    say(socket, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nabcd");
    fl_exchange *exchange = take(server.loop);
    fl_exchange_release_head(exchange);
    const char *bytes;
    size_t size;
    CHECK_NUMBER(FL_OK, fl_exchange_body(exchange, &bytes, &size));
    fl_exchange_consume_body(exchange, size);
    CHECK_NUMBER(FL_AGAIN, fl_exchange_body(exchange, &bytes, &size));
    say(socket, "efg");
    TURN_UNTIL(server.loop, fl_context_next_woken(&server.loop->context) == exchange->id);
    for (uint64_t end = fl_clock() + 80 * MILLISECOND; fl_clock() < end;) {
        fl_loop_wait(server.loop, 10 * MILLISECOND);
        fl_loop_turn(server.loop);
    }
    CHECK(!exchange->request.failed && exchange->connection != NULL);
    CHECK_NUMBER(FL_OK, fl_exchange_body(exchange, &bytes, &size));
    CHECK_BYTES("efg", 3, bytes, size);
    fl_exchange_consume_body(exchange, size);
    CHECK_NUMBER(FL_AGAIN, fl_exchange_body(exchange, &bytes, &size)); /* now the client owes the rest */
    TURN_UNTIL(server.loop, fl_context_next_woken(&server.loop->context) == exchange->id);
    CHECK_NUMBER(FL_CLOSED, fl_exchange_body(exchange, &bytes, &size));
    answer(exchange, 408, "");
    close(socket);
    server_stop(&server);
}

/* The answer before was slow to leave; then the app of the next one takes long. */
static void a_write_deadline_ends_when_all_is_written(void) {
    peer_server server = server_start();
    int socket = narrow_client(&server);
    say(socket, GET("/large") GET("/long"));
    fl_exchange *exchange = take(server.loop);
    char large[20000];
    memset(large, 'x', sizeof large);
    large[sizeof large - 1] = 0;
    answer(exchange, 200, large);
    turn(server.loop);
    CHECK_NUMBER(1, server.loop->ready.count); /* the next one waits, and part of the first answer too */
    CHECK(server.loop->context.connections->out.length > 0);
    CHECK_NUMBER(FL_DEADLINE_WRITE, server.loop->context.connections->deadline.kind);
    fl_heard heard = {0};
    TURN_UNTIL(server.loop, (hear_now(socket, &heard), server.loop->context.connections->out.length == 0));
    CHECK_NUMBER(FL_DEADLINE_NONE, server.loop->context.connections->deadline.kind);
    CHECK_NUMBER(1, server.loop->ready.count);
    CHECK_NUMBER(1, answer_all(server.loop));
    hear_now(socket, &heard);
    CHECK_NUMBER(2, occurrences(&heard, "HTTP/1.1 200 OK"));
    CHECK_HEARD("HTTP/1.1 200 OK", "\r\n\r\n/long", heard);
    close(socket);
    server_stop(&server);
}

static void a_client_that_reads_nothing_is_dropped(void) {
    fl_limits limits = peer_limits;
    limits.deadlines[FL_DEADLINE_WRITE] = 30 * MILLISECOND;
    peer_server server = server_with(limits);
    int socket = narrow_client(&server);
    say(socket, GET("/"));
    fl_exchange *exchange = take(server.loop);
    char *large = calloc(1, 500001);
    memset(large, 'x', 500000);
    answer(exchange, 200, large);
    free(large);
    CHECK_NUMBER(0, server.loop->context.counts.in_flight); /* it is buffered: nobody waits for this client */
    CHECK_NUMBER(1, server.loop->context.counts.connections);
    TURN_UNTIL(server.loop, server.loop->context.counts.connections == 0);
    close(socket);
    server_stop(&server);
}

static void a_drained_loop_answers_what_it_has_and_closes_the_rest(void) {
    peer_server server = server_start();
    int idle = client(&server), busy = client(&server), sent = client(&server);
    say(busy, GET("/busy"));
    fl_exchange *exchange = take(server.loop);
    say(sent, GET("/sent"));
    fl_loop_drain(server.loop, false);
    turn(server.loop);
    CHECK(!fl_loop_is_drained(server.loop));
    CHECK_HEARD("", "", hear_end(server.loop, idle));
    answer(exchange, 200, "b");
    fl_heard last = hear_end(server.loop, busy);
    CHECK(strstr(last.bytes, "\r\nconnection: close\r\n") != NULL);
    CHECK_HEARD("HTTP/1.1 200 OK", "\r\n\r\nb", last);
    CHECK_NUMBER(1, answer_all(server.loop));
    CHECK_HEARD("HTTP/1.1 200 OK", "\r\n\r\n/sent", hear_end(server.loop, sent));
    CHECK(fl_loop_is_drained(server.loop));
    close(idle);
    close(busy);
    close(sent);
    server_stop(&server);
}

static void what_waits_when_there_is_no_more_time_is_refused(void) {
    peer_server server = server_start();
    int served = client(&server), waiting[] = {client(&server), client(&server), client(&server)};
    say(served, GET("/served"));
    fl_exchange *exchange = take(server.loop);
    say(waiting[0], GET("/1") GET("/2"));
    say(waiting[1], "PUT /3 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab");
    say(waiting[2], "GET /4 HTTP/1.1\r\nHo");
    turn(server.loop);
    fl_loop_drain(server.loop, false);
    CHECK_NUMBER(1, server.loop->ready.count);
    fl_loop_give_up(server.loop);
    CHECK_HEARD("HTTP/1.1 504 ", "the request took too long\n", hear_end(server.loop, served));
    for (int i = 0; i < 3; i++) {
        fl_heard refused = hear_end(server.loop, waiting[i]);
        CHECK_NUMBER(1, occurrences(&refused, "HTTP/1.1 "));
        CHECK_NUMBER(1, occurrences(&refused, "\r\nretry-after: 1\r\n"));
        CHECK_NUMBER(1, occurrences(&refused, "\r\nconnection: close\r\n"));
        CHECK_HEARD("HTTP/1.1 503 ", "the server is shutting down\n", refused);
        close(waiting[i]);
    }
    CHECK_NUMBER(3, server.loop->context.counts.turned_away);
    fl_exchange_abandon(exchange);
    close(served);
    TURN_UNTIL(server.loop, fl_loop_is_drained(server.loop));
    server_stop(&server);
}

static void an_idle_connection_goes_to_the_sibling(void) {
    peer_server old = server_start(), young = server_start();
    int channels[4];
    fl_shared_page *page = make_siblings(&old, &young, channels);
    fl_slot_set(&page->slots[1], FL_SLOT_state, FL_WORKER_BOOTING); /* else it would get one of these */
    int idle = client(&old), busy = client(&old);
    say(idle, GET("/before"));
    CHECK_NUMBER(1, answer_all(old.loop));
    CHECK_HEARD("HTTP/1.1 200 OK", "/before", hear(old.loop, idle));
    say(busy, GET("/busy"));
    fl_exchange *exchange = take(old.loop);
    fl_slot_set(&page->slots[1], FL_SLOT_state, FL_WORKER_SERVING);

    fl_loop_drain(old.loop, true);
    turn(old.loop);
    turn(young.loop);
    CHECK_NUMBER(1, old.loop->context.counts.connections);
    CHECK_NUMBER(1, young.loop->context.counts.connections);
    say(idle, GET("/after"));
    CHECK_NUMBER(1, answer_all(young.loop));
    CHECK_HEARD("HTTP/1.1 200 OK", "/after", hear(young.loop, idle));
    answer(exchange, 200, "b"); /* keeps its connection too */
    turn(old.loop);
    CHECK_HEARD("HTTP/1.1 200 OK", "\r\n\r\nb", hear(old.loop, busy));
    TURN_UNTIL(old.loop, fl_loop_is_drained(old.loop));
    say(busy, GET("/again"));
    CHECK_NUMBER(1, answer_all(young.loop));
    CHECK_HEARD("HTTP/1.1 200 OK", "/again", hear(young.loop, busy));
    server_stop(&old);
    server_stop(&young);
    for (int i = 0; i < 4; i++) close(channels[i]);
    close(idle);
    close(busy);
}

static uint64_t cpu_time(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t) time.tv_sec * 1000000 + (uint64_t) time.tv_nsec / 1000;
}

static void who_drains_looks_only_at_those_that_could_go(void) {
    enum { STREAMS = 400, TIMES = 4000 };
    fl_limits limits = peer_limits;
    limits.in_flight = STREAMS;
    peer_server server = server_with(limits);
    static int streams[STREAMS];
    static fl_exchange *exchanges[STREAMS];
    fl_shared_page *page = fl_shared_page_open(1);
    int none = -1;
    CHECK_NUMBER(FL_OK, fl_loop_join(server.loop, page, 0, -1, &none, 1));
    uint64_t began = cpu_time();
    for (int i = 0; i < TIMES; i++) fl_loop_hand_over_idle(server.loop);
    uint64_t alone = cpu_time() - began;
    for (int i = 0; i < STREAMS; i++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
            abort();
        streams[i] = pair[1];
        fl_close_on_exec_nonblocking(pair[0]);
        CHECK(fl_connection_open(&server.loop->context, server.loop->accepting.listeners, pair[0], GET("/"), sizeof GET("/") - 1) != NULL);
        CHECK((exchanges[i] = fl_loop_take(server.loop)) != NULL);
    }
    began = cpu_time();
    for (int i = 0; i < TIMES; i++) fl_loop_hand_over_idle(server.loop);
    uint64_t beside = cpu_time() - began;
    if (beside > 10 * alone + 300)
        test_fail(__FILE__, __LINE__, "%lu us beside streams, %lu alone", (unsigned long) beside, (unsigned long) alone);
    for (int i = 0; i < STREAMS; i++) {
        fl_exchange_abandon(exchanges[i]);
        close(streams[i]);
    }
    server_stop(&server);
    fl_shared_page_close(page);
}

static void one_that_has_ended_its_side_is_answered_by_the_sibling(void) {
    for (int minor = 0; minor <= 1; minor++) {
        peer_server old = server_start(), young = server_start();
        int channels[4], waiting = client(&old);
        fl_shared_page *page = make_siblings(&old, &young, channels);
        (void) page;
        say(waiting, minor == 0 ? "GET /half HTTP/1.0\r\n\r\n" : GET("/half"));
        TURN_UNTIL(old.loop, old.loop->ready.count == 1);
        shutdown(waiting, SHUT_WR);
        turn(old.loop);
        old.loop->ready.first->queueing.ready_at -= SECOND; /* it has waited for so long */
        TURN_UNTIL(old.loop, fl_handoff_give(&old.loop->siblings, old.loop->context.connections, 1));
        turn(old.loop);
        CHECK_NUMBER(1, answer_all(young.loop));
        CHECK_HEARD("HTTP/1.1 ", "/half", hear(young.loop, waiting));
        server_stop(&old);
        server_stop(&young);
        for (int i = 0; i < 4; i++) close(channels[i]);
        close(waiting);
    }
}

static void new_connections_go_to_the_sibling_that_has_fewer(void) {
    peer_server old = server_start(), young = server_start();
    int channels[4], clients[5];
    fl_shared_page *page = make_siblings(&old, &young, channels);
    for (int i = 0; i < 5; i++) clients[i] = client(&old);
    turn(old.loop); /* five come at once, and none has asked for anything yet */
    CHECK_NUMBER(3, old.loop->context.counts.connections);
    CHECK_NUMBER(3, fl_slot_get(&page->slots[0], FL_SLOT_fresh));
    CHECK_NUMBER(2, fl_slot_get(&page->slots[1], FL_SLOT_incoming_connections));
    turn(young.loop);
    CHECK_NUMBER(2, fl_slot_get(&page->slots[1], FL_SLOT_connections));
    CHECK_NUMBER(2, fl_slot_get(&page->slots[1], FL_SLOT_fresh));
    CHECK_NUMBER(0, fl_slot_get(&page->slots[1], FL_SLOT_incoming_connections));
    for (int i = 0; i < 5; i++) {
        fl_loop *loop = i % 2 == 0 ? old.loop : young.loop;
        say(clients[i], GET("/first"));
        CHECK_NUMBER(1, answer_all(loop));
        CHECK_HEARD("HTTP/1.1 200 OK", "/first", hear(loop, clients[i]));
    }
    CHECK_NUMBER(0, fl_slot_get(&page->slots[0], FL_SLOT_fresh) + fl_slot_get(&page->slots[1], FL_SLOT_fresh));
    server_stop(&old);
    server_stop(&young);
    for (int i = 0; i < 4; i++) close(channels[i]);
    for (int i = 0; i < 5; i++) close(clients[i]);
}

static void a_loop_that_closes_leaves_taken_requests_to_their_owners(void) {
    peer_server server = server_start();
    int socket = client(&server);
    say(socket, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab");
    fl_exchange *exchange = take(server.loop);
    fl_exchange_release_head(exchange);
    server_stop(&server);
    const char *bytes;
    size_t size, used;
    CHECK_NUMBER(FL_CLOSED, fl_exchange_body(exchange, &bytes, &size));
    CHECK_NUMBER(FL_CLOSED, fl_exchange_begin(exchange, 200));
    CHECK_NUMBER(FL_CLOSED, fl_exchange_header(exchange, "a", 1, "b", 1));
    CHECK_NUMBER(FL_CLOSED, fl_exchange_head_end(exchange, 2));
    CHECK_NUMBER(FL_CLOSED, fl_exchange_write(exchange, "ab", 2, &used));
    fl_exchange_flush(exchange);
    free(exchange);
    close(socket);
}

static bool is_open(int descriptor) {
    return fcntl(descriptor, F_GETFD) >= 0;
}

/* Another thread may be at work on the loop as the process is copied: its lock is held for ever, and its lists are torn. What
 * is freed later must not write to, or close, files that have come since. */
static void the_child_of_a_fork_lets_go_whatever_it_finds(void) {
    peer_server server = server_start();
    int socket = client(&server), hijacked = client(&server);
    say(socket, GET("/"));
    fl_exchange *exchange = take(server.loop);
    say(hijacked, GET("/"));
    fl_exchange *second = take(server.loop);
    fl_buffer unsent = {0}, ahead = {0};
    int ours = exchange->connection->transport.descriptor, apps = fl_exchange_hijack(second, &unsent, &ahead);
    int listener = server.loop->accepting.listeners->descriptor, other = dup(0);
    pthread_mutex_lock(&server.loop->context.lock);
    fl_connection *torn = server.loop->context.connections;
    server.loop->context.connections = (fl_connection *) 1;
    pid_t child = fork();
    if (child == 0) {
        fl_loop_forget(server.loop);
        fl_exchange_disown(exchange);
        size_t used;
        bool lets_go = !is_open(ours) && is_open(apps) && is_open(other);
        int accepts = 0;
        socklen_t size = sizeof accepts;
        bool keeps_number = is_open(listener) && getsockopt(listener, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &size) < 0;
        bool finds_client_gone = fl_exchange_write(exchange, "ab", 2, &used) == FL_CLOSED;
        _exit((lets_go ? 0 : 1) | (keeps_number ? 0 : 2) | (finds_client_gone ? 0 : 4));
    }
    server.loop->context.connections = torn;
    pthread_mutex_unlock(&server.loop->context.lock);
    int status = -1;
    waitpid(child, &status, 0);
    CHECK_NUMBER(0, status);
    fl_exchange_finish(second);
    close(apps);
    close(other);
    close(hijacked);
    fl_exchange_begin(exchange, 200);
    fl_exchange_head_end(exchange, 0);
    fl_exchange_finish(exchange); /* the parent goes on */
    fl_context_flush(&server.loop->context);
    char answer[256];
    CHECK(recv(socket, answer, sizeof answer, 0) > 0);
    close(socket);
    server_stop(&server);
}

int main(void) {
    TEST(a_request_is_taken_and_answered);
    TEST(pipelined_requests_are_answered_in_order);
    TEST(a_body_behind_another_request_is_read_to_its_end);
    TEST(a_request_in_single_bytes_is_the_same_request);
    TEST(a_chunked_body_ends_where_the_next_request_begins);
    TEST(a_client_that_ends_its_side_gets_all_its_answers);
    RAW_TEST(who_drains_looks_only_at_those_that_could_go);
    RAW_TEST(one_that_has_ended_its_side_is_answered_by_the_sibling);
    TEST(a_refusal_is_read_by_a_client_that_is_still_sending);
    TEST(a_refused_HEAD_has_no_body);
    TEST(a_client_may_go_at_every_stage);
    TEST(a_client_may_have_gone_when_its_next_request_is_taken);
    TEST(an_event_of_a_connection_closed_meanwhile_is_passed_over);
    TEST(a_request_that_comes_soon_is_awaited_awake_as_long_as_that_succeeds);
    RAW_TEST(what_a_wait_finds_it_takes_in);
    TEST(requests_over_the_limit_wait_their_turn);
    TEST(a_request_that_waits_too_long_is_told_so);
    TEST(many_that_wait_too_long_are_told_so_in_order_over_several_turns);
    TEST(a_request_that_waits_too_long_is_not_run);
    TEST(a_request_whose_client_has_gone_is_not_run);
    TEST(deadlines_end_what_stalls);
    TEST(many_that_end_together_end_over_several_turns);
    TEST(no_deadline_runs_while_the_app_has_the_request);
    TEST(a_write_deadline_ends_when_all_is_written);
    TEST(a_client_that_reads_nothing_is_dropped);
    RAW_TEST(a_drained_loop_answers_what_it_has_and_closes_the_rest);
    TEST(what_waits_when_there_is_no_more_time_is_refused);
    RAW_TEST(an_idle_connection_goes_to_the_sibling);
    RAW_TEST(new_connections_go_to_the_sibling_that_has_fewer);
    TEST(a_loop_that_closes_leaves_taken_requests_to_their_owners);
    RAW_TEST(the_child_of_a_fork_lets_go_whatever_it_finds);
    return test_summary();
}
