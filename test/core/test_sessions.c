/* Which worker gets the requests of a session. */
#include "siblings.h"
#include "siblings/handoff.h"
#include "watch/balance.h"

static const char whole[] = "POST /1 HTTP/1.1\r\nHost: a\r\nMCP-Session-ID: abc\r\nContent-Length: 2\r\n\r\n{}";
static const char begun[] = "POST /1 HTTP/1.1\r\nHost: a\r\nMcp-Session-Id: abc\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{";

static void asks(scene *scene, const char *text) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
        abort();
    scene->clients[scene->client_count++] = pair[1];
    fl_connection_open(&scene->loop->context, scene->loop->accepting.listeners, client_socket(pair[0]), text, strlen(text));
}

static void keeps(scene *scene, int worker) { fl_sessions_began(&scene->page->sessions, "abc", 3, worker, fl_clock()); }

/* The bytes of the connection that a sibling has been sent; "": none was. */
static const char *bytes_sent_to(scene *scene, int sibling) {
    static char bytes[FL_HANDOFF_BYTES + 1];
    fl_siblings receiver = {.receiving = scene->receiving[sibling]};
    fl_handover handover;
    if (!fl_handoff_receive(&receiver, bytes, &handover))
        return "";
    close(handover.descriptor);
    bytes[handover.size] = 0;
    return bytes;
}

static void a_request_goes_to_the_worker_that_keeps_its_session(void) {
    scene scene = begin(3);
    keeps(&scene, 2);
    asks(&scene, whole);
    CHECK_TEXT(whole, bytes_sent_to(&scene, 2));
    CHECK_TEXT("", bytes_sent_to(&scene, 1));
    CHECK_NUMBER(0, scene.loop->ready.count);
    CHECK_NUMBER(1, scene.loop->context.counts.handed);
    CHECK_NUMBER(1, fl_slot_get(&scene.page->slots[2], FL_SLOT_incoming_requests));
    end(&scene);
}

static void it_goes_before_its_body_has_come(void) {
    scene scene = begin(2);
    keeps(&scene, 1);
    asks(&scene, begun);
    CHECK_TEXT(begun, bytes_sent_to(&scene, 1));
    end(&scene);
}

static void a_query_names_a_session_too(void) {
    static const char *const found[] = {"session_id=abc", "sessionId=abc", "a=b&session_id=abc&c"};
    static const char *const others[] = {"session_id=", "session_id=abcd", "session_id=ab", "my_session_id=abc", "a&&", "session_i"};
    for (size_t i = 0; i < sizeof found / sizeof *found + sizeof others / sizeof *others; i++) {
        bool known = i < sizeof found / sizeof *found;
        scene scene = begin(2);
        char text[128];
        snprintf(text, sizeof text, "GET /1?%s HTTP/1.1\r\nHost: a\r\n\r\n", known ? found[i] : others[i - sizeof found / sizeof *found]);
        keeps(&scene, 1);
        asks(&scene, text);
        CHECK_TEXT(known ? text : "", bytes_sent_to(&scene, 1));
        end(&scene);
    }
}

static void also_where_that_worker_is_stuck_or_serves_a_lane(void) {
    scene scene = begin(2);
    keeps(&scene, 1);
    publish(&scene, 1, FL_SLOT_stall, FL_STALL_STUCK);
    publish(&scene, 1, FL_SLOT_lane, 1);
    asks(&scene, whole);
    CHECK_TEXT(whole, bytes_sent_to(&scene, 1));
    end(&scene);
}

static void it_stays_where_that_worker_ends_or_has_no_room(void) {
    scene scene = begin(3);
    keeps(&scene, 1);
    publish(&scene, 1, FL_SLOT_state, FL_WORKER_DRAINING);
    asks(&scene, whole);
    keeps(&scene, 2);
    publish(&scene, 2, FL_SLOT_room, 0);
    asks(&scene, whole);
    keeps(&scene, 200); /* no such worker */
    asks(&scene, whole);
    CHECK_NUMBER(3, scene.loop->ready.count);
    end(&scene);
}

static void a_request_without_a_known_session_stays(void) {
    scene scene = begin(2);
    keeps(&scene, 1);
    asks(&scene, "GET /1 HTTP/1.1\r\nHost: a\r\nMcp-Session-Id: abcd\r\n\r\n");
    asks(&scene, "GET /1 HTTP/1.1\r\nHost: a\r\nMcp-Session-Id:\r\n\r\n");
    asks(&scene, "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n");
    CHECK_NUMBER(3, scene.loop->ready.count);
    end(&scene);
}

static void nobody_takes_it_from_the_worker_that_keeps_its_session(void) {
    scene scene = begin(2);
    publish(&scene, 1, FL_SLOT_idle, 1);
    keeps(&scene, OURS);
    asks(&scene, whole);
    CHECK_NUMBER(1, fl_balance(scene.loop, true, 0));
    CHECK_TEXT("", bytes_sent_to(&scene, 1));
    end(&scene);
}

static void those_behind_it_go_to_an_idle_worker(void) {
    scene scene = begin(2);
    publish(&scene, 1, FL_SLOT_idle, 1);
    keeps(&scene, OURS);
    asks(&scene, whole);
    asks(&scene, whole);
    asks(&scene, "GET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
    CHECK_NUMBER(2, fl_balance(scene.loop, false, 0));
    CHECK_TEXT("2", sent_to(&scene, 1));
    end(&scene);
}

static void a_slowly_sent_head_has_not_waited(void) {
    static const char rest[] = "-Id: abc\r\n\r\n";
    scene scene = begin(2);
    uint64_t arrived = 0, before;
    keeps(&scene, 1);
    asks(&scene, "GET /1 HTTP/1.1\r\nHost: a\r\nMcp-Session");
    before = fl_clock();
    CHECK_NUMBER(sizeof rest - 1, write(scene.clients[0], rest, sizeof rest - 1));
    TURN_UNTIL(scene.loop, recv(scene.receiving[1], &arrived, sizeof arrived, 0) > 0);
    CHECK(arrived >= before);
    end(&scene);
}

static void one_that_has_been_around_stays(void) {
    scene scene = begin(2);
    keeps(&scene, 1);
    scene.loop->context.handed = (fl_handed) {.arrived = fl_clock(), .hand_overs = 3};
    asks(&scene, whole);
    CHECK_NUMBER(1, scene.loop->ready.count);
    end(&scene);
}

/* The response to the request before it has not been sent whole. */
static void a_pipelined_request_goes_once_the_client_has_room(void) {
    scene scene = begin(2);
    int socket = narrow_client(&scene.server);
    scene.clients[scene.client_count++] = socket;
    keeps(&scene, 1);
    send_text(socket, GET("/first"));
    send_text(socket, whole);
    char large[20000];
    memset(large, 'x', sizeof large);
    large[sizeof large - 1] = 0;
    answer(take(scene.loop), 200, large);
    turn(scene.loop);
    CHECK(scene.loop->context.connections->out.length > 0);
    CHECK_NUMBER(0, scene.loop->ready.count);
    CHECK_TEXT("", bytes_sent_to(&scene, 1));
    received_bytes received = {0};
    TURN_UNTIL(scene.loop, (receive_available(socket, &received), scene.loop->context.counts.handed == 1));
    CHECK_TEXT(whole, bytes_sent_to(&scene, 1));
    CHECK_RECEIVED("HTTP/1.1 200 OK", "xxx", received);
    end(&scene);
}

static void one_that_cannot_be_sent_there_is_turned_away(void) {
    scene scene = begin(2);
    keeps(&scene, 1);
    shutdown(scene.sending[1], SHUT_WR);
    asks(&scene, whole);
    CHECK_NUMBER(0, scene.loop->ready.count);
    CHECK_RECEIVED("HTTP/1.1 503 Service Unavailable\r\n", "\n", receive(scene.loop, client_socket(scene.clients[0])));
    end(&scene);
}

static void the_worker_that_names_a_session_keeps_it(void) {
    scene scene = begin(2);
    for (int code = 404; code >= 200; code -= 204) { /* one that it does not know is no session */
        asks(&scene, "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n");
        fl_exchange *exchange = fl_loop_take(scene.loop);
        fl_exchange_begin(exchange, code);
        fl_exchange_header(exchange, "Mcp-Session-Id", 14, "abc", 3);
        CHECK_NUMBER(code == 200 ? OURS : -1, fl_sessions_owner(&scene.page->sessions, "abc", 3, fl_clock()));
        fl_exchange_abandon(exchange);
    }
    end(&scene);
}

static int number_of(fl_sessions *sessions, int number, uint64_t now) {
    return fl_sessions_owner(sessions, (char *) &number, sizeof number, now);
}

static void what_is_not_used_is_forgotten_first(void) {
    enum { ALL = 4 * FL_MAX_SESSIONS, LAST = 1000 };
    fl_sessions *sessions = calloc(1, sizeof *sessions);
    int forgotten = 0;
    for (int i = 1; i <= ALL; i++) {
        fl_sessions_began(sessions, (char *) &i, sizeof i, i % 256, (uint64_t) i);
        number_of(sessions, 1, (uint64_t) i);
    }
    CHECK_NUMBER(1, number_of(sessions, 1, ALL));
    for (int i = ALL - LAST; i <= ALL; i++)
        if (number_of(sessions, i, ALL) != i % 256)
            test_fail(__FILE__, __LINE__, "%d is not known", i);
    for (int i = 2; i <= ALL; i++) forgotten += number_of(sessions, i, ALL) == -1;
    CHECK(forgotten >= ALL - FL_MAX_SESSIONS);
    free(sessions);
}

static void a_session_may_move(void) {
    fl_sessions *sessions = calloc(1, sizeof *sessions);
    fl_sessions_began(sessions, "abc", 3, 3, 1);
    fl_sessions_began(sessions, "abc", 3, 255, 2);
    CHECK_NUMBER(255, fl_sessions_owner(sessions, "abc", 3, 3));
    free(sessions);
}

int main(void) {
    TEST(a_request_goes_to_the_worker_that_keeps_its_session);
    TEST(it_goes_before_its_body_has_come);
    TEST(a_query_names_a_session_too);
    TEST(also_where_that_worker_is_stuck_or_serves_a_lane);
    TEST(it_stays_where_that_worker_ends_or_has_no_room);
    TEST(a_request_without_a_known_session_stays);
    TEST(nobody_takes_it_from_the_worker_that_keeps_its_session);
    TEST(those_behind_it_go_to_an_idle_worker);
    TEST(a_slowly_sent_head_has_not_waited);
    TEST(one_that_has_been_around_stays);
    TEST(a_pipelined_request_goes_once_the_client_has_room);
    TEST(one_that_cannot_be_sent_there_is_turned_away);
    TEST(the_worker_that_names_a_session_keeps_it);
    TEST(what_is_not_used_is_forgotten_first);
    TEST(a_session_may_move);
    return test_summary();
}
