/* Requests of connections that cannot move are relayed to a sibling. The client's transport is the toy one, and carries plain bytes. */
#include "peer.h"
#include "siblings/handoff.h"
#include "siblings/relay.h"
#include "toy_transport.h"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { LARGE = 2 << 20 };

/* Instead of those of the C library: what other threads may do at this moment. */
static bool (*as_it_sends)(void);
static void (*as_it_leaves_the_poll)(void);

ssize_t sendmsg(int socket, const struct msghdr *message, int flags) {
    if (as_it_sends != NULL && !as_it_sends()) {
        errno = EAGAIN;
        return -1;
    }
    return syscall(SYS_sendmsg, socket, message, flags);
}

int epoll_ctl(int poll, int operation, int descriptor, struct epoll_event *event) {
    if (operation == EPOLL_CTL_DEL && as_it_leaves_the_poll != NULL)
        as_it_leaves_the_poll();
    return (int) syscall(SYS_epoll_ctl, poll, operation, descriptor, event);
}

typedef struct pair {
    peer_server owner, sibling;
    fl_shared_page *page;
    int channels[4], client;
} pair;

static pair begin(void) {
    pair pair = {.owner = server_start(), .sibling = server_start()};
    pair.page = make_siblings(&pair.owner, &pair.sibling, pair.channels);
    pair.owner.loop->accepting.listeners->transport = &toy_transport_kind;
    pair.sibling.loop->accepting.listeners->transport = &toy_transport_kind;
    pair.client = client(&pair.owner);
    return pair;
}

static void end(pair *pair) {
    if (pair->client >= 0)
        close(pair->client);
    server_stop(&pair->owner);
    server_stop(&pair->sibling);
    for (int i = 0; i < 4; i++) close(pair->channels[i]);
    fl_shared_page_close(pair->page);
}

static void turn_both(pair *pair) {
    turn(pair->owner.loop);
    turn(pair->sibling.loop);
    turn(pair->owner.loop);
    turn(pair->sibling.loop);
}

/* Sends a request, relays it, and takes it at the sibling. */
static fl_exchange *relay(pair *pair, const char *request) {
    send_text(pair->client, request);
    TURN_UNTIL(pair->owner.loop, pair->owner.loop->ready.count == 1);
    CHECK(fl_handoff_give_request(&pair->owner.loop->siblings, pair->owner.loop->ready.first, 1));
    CHECK_NUMBER(0, pair->owner.loop->ready.count);
    return take(pair->sibling.loop);
}

/* Both loops turn until the client has received this, and nothing else. */
static void check_received(pair *pair, const char *start, const char *last) {
    received_bytes received = {0};
    uint64_t give_up = fl_clock() + 5 * SECOND;
    size_t size = strlen(last);
    while (fl_clock() < give_up && !received.ended && !received.reset &&
           (received.size < size || memcmp(received.bytes + received.size - size, last, size) != 0)) {
        turn_both(pair);
        receive_available(pair->client, &received);
    }
    CHECK_RECEIVED(start, last, received);
}

static void begin_response(fl_exchange *exchange, int code, int64_t length, const char *fields[][2]) {
    fl_exchange_release_head(exchange);
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, code));
    for (int i = 0; fields != NULL && fields[i][0] != NULL; i++)
        CHECK_NUMBER(FL_OK, fl_exchange_header(exchange, fields[i][0], strlen(fields[i][0]), fields[i][1], strlen(fields[i][1])));
    CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, length));
}

static void write_text(fl_exchange *exchange, const char *text) {
    size_t used;
    CHECK_NUMBER(FL_OK, fl_exchange_write(exchange, text, strlen(text), &used));
}

static void requests_go_with_their_bodies_and_clients(void) {
    pair pair = begin();
    fl_exchange *exchange = relay(&pair, "POST /a?b HTTP/1.1\r\nHost: x\r\nX-Y: z\r\nContent-Length: 3\r\n\r\nabcGET /next HTTP/1.1\r\nHost: x\r\n\r\n");
    const char *bytes;
    size_t size;
    CHECK_TEXT("/a", path_of(exchange));
    CHECK_NUMBER(FL_OK, fl_exchange_body(exchange, &bytes, &size));
    CHECK_BYTES("abc", 3, bytes, size);
    CHECK_NUMBER(AF_INET, exchange->client.family);
    CHECK_BYTES("\x7f\0\0\1", 4, (const char *) exchange->client.address, 4);
    CHECK_NUMBER(1, exchange->queueing.hand_overs);
    CHECK(exchange->request.complete);
    fl_exchange_consume_body(exchange, size);
    answer(exchange, 201, "done");
    check_received(&pair, "HTTP/1.1 201 Created\r\ncontent-length: 4\r\n", "\r\n\r\ndone");
    TURN_UNTIL(pair.owner.loop, pair.owner.loop->ready.count == 1); /* the next one stays on the connection */
    CHECK_TEXT("/next", path_of(pair.owner.loop->ready.first));
    answer(take(pair.owner.loop), 200, "here");
    check_received(&pair, "HTTP/1.1 200 OK\r\n", "here");
    TURN_UNTIL(pair.sibling.loop, pair.sibling.loop->context.counts.connections == 0);
    CHECK_NUMBER(1, pair.owner.loop->context.counts.handed);
    CHECK_NUMBER(1, pair.owner.loop->context.counts.requests);
    CHECK_NUMBER(0, pair.owner.loop->context.counts.in_flight);
    CHECK_NUMBER(0, pair.owner.loop->context.relays.count);
    end(&pair);
}

/* What the client has shown goes along, also when the sibling hands the request on. */
static void certificates_of_clients_go_along(void) {
    static const char texts[] = "CN=a\0CN=b\0001\0PEM";
    pair pair = begin();
    send_text(pair.client, GET("/"));
    TURN_UNTIL(pair.owner.loop, pair.owner.loop->ready.count == 1);
    pair.owner.loop->context.connections->transport.identity = fl_identity_new(texts, sizeof texts);
    CHECK(fl_handoff_give_request(&pair.owner.loop->siblings, pair.owner.loop->ready.first, 1));
    TURN_UNTIL(pair.sibling.loop, pair.sibling.loop->ready.count == 1);
    CHECK(fl_handoff_give_request(&pair.sibling.loop->siblings, pair.sibling.loop->ready.first, 0));
    fl_exchange *exchange = take(pair.owner.loop);
    CHECK(exchange->identity != NULL);
    if (exchange->identity != NULL) {
        CHECK_TEXT("CN=b", fl_identity_get(exchange->identity, FL_IDENTITY_ISSUER));
        CHECK_TEXT("PEM", fl_identity_get(exchange->identity, FL_IDENTITY_CERTIFICATE));
    }
    CHECK_TEXT("/", path_of(exchange));
    answer(exchange, 200, "done");
    check_received(&pair, "HTTP/1.1 200 OK\r\n", "done");
    CHECK(fl_identity_new(texts, sizeof texts - 1) == NULL && fl_identity_new(texts, 10) == NULL);
    end(&pair);
}

static void responses_keep_their_meaning(void) {
    static const struct {
        const char *request;
        int code;
        int64_t length;
        const char *body, *start, *last;
    } rows[] = {
        {GET("/"), 200, 2, "ok", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n", "\r\n\r\nok"},
        {GET("/"), 200, 0, "", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n", "\r\n\r\n"},
        {GET("/"), 204, -1, "", "HTTP/1.1 204 No Content\r\ndate", "\r\n\r\n"},
        {GET("/"), 304, -1, "", "HTTP/1.1 304 Not Modified\r\ndate", "\r\n\r\n"},
        {GET("/"), 205, -1, "", "HTTP/1.1 205 Reset Content\r\n", "\r\n\r\n"},
        {"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", 200, 7, "", "HTTP/1.1 200 OK\r\ncontent-length: 7\r\n", "\r\n\r\n"},
    };
    pair pair = begin();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fl_exchange *exchange = relay(&pair, rows[i].request);
        begin_response(exchange, rows[i].code, rows[i].length, NULL);
        if (rows[i].body[0] != 0)
            write_text(exchange, rows[i].body);
        fl_exchange_finish(exchange);
        check_received(&pair, rows[i].start, rows[i].last);
        CHECK_NUMBER(1, pair.owner.loop->context.counts.connections);
    }
    end(&pair);
}

static void streams_pass_as_they_are_written_with_trailers_and_interim_responses(void) {
    pair pair = begin();
    const char *fields[][2] = {{"trailer", "x-sum"}, {"x-a", "1"}, {"x-a", "2"}, {NULL, NULL}};
    fl_exchange *exchange = relay(&pair, GET("/"));
    CHECK_NUMBER(FL_OK, fl_exchange_send_interim(exchange, 103, "link: </a>\r\n", 12));
    check_received(&pair, "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n", "\r\n\r\n");
    begin_response(exchange, 200, -1, fields);
    write_text(exchange, "one");
    fl_exchange_flush(exchange);
    check_received(&pair, "HTTP/1.1 200 OK\r\ntrailer: x-sum\r\nx-a: 1\r\nx-a: 2\r\n", "3\r\none\r\n");
    write_text(exchange, "two");
    fl_exchange_flush(exchange);
    check_received(&pair, "3\r\ntwo\r\n", "two\r\n");
    CHECK_NUMBER(FL_OK, fl_exchange_trailer(exchange, "x-sum", 5, "6", 1));
    fl_exchange_finish(exchange);
    check_received(&pair, "0\r\nx-sum: 6\r\n", "\r\n");
    end(&pair);
}

static void a_slow_client_slows_down_the_sibling(void) {
    pair pair = begin();
    close(pair.client);
    pair.client = narrow_client(&pair.owner);
    fl_exchange *exchange = relay(&pair, GET("/"));
    char *bytes = malloc(8 * LARGE);
    received_bytes received = {0};
    for (size_t i = 0; i < 8 * LARGE; i++) bytes[i] = (char) (i * 7 + i / 251);
    begin_response(exchange, 200, 8 * LARGE, NULL);
    size_t done = 0, used = 0;
    bool waited = false;
    uint64_t give_up = fl_clock() + 20 * SECOND;
    while (done < 8 * LARGE && fl_clock() < give_up) {
        fl_status status = fl_exchange_write(exchange, bytes + done, 8 * LARGE - done, &used);
        done += used;
        if (status == FL_OK)
            continue;
        CHECK_NUMBER(FL_AGAIN, status);
        if (!waited)
            for (int i = 0; i < 20; i++) turn_both(&pair);
        waited = true;
        CHECK(done < 8 * LARGE);
        CHECK(fl_context_buffered(&pair.owner.loop->context) < 2 * LARGE); /* of its blocks, not all of which are filled */
        while (fl_context_next_woken(&pair.sibling.loop->context) == 0 && fl_clock() < give_up) {
            receive_available(pair.client, &received);
            fl_loop_turn(pair.owner.loop);
            fl_loop_turn(pair.sibling.loop);
        }
    }
    CHECK(waited);
    fl_exchange_finish(exchange);
    while (received.size < 8 * LARGE && !received.ended && fl_clock() < give_up) {
        receive_available(pair.client, &received);
        fl_loop_turn(pair.owner.loop);
        fl_loop_turn(pair.sibling.loop);
    }
    while (received.size > 0 && fl_clock() < give_up && pair.owner.loop->context.relays.count > 0) {
        receive_available(pair.client, &received);
        turn_both(&pair);
    }
    receive_available(pair.client, &received);
    CHECK(received.size > 8 * LARGE && memcmp(received.bytes + received.size - 8 * LARGE, bytes, 8 * LARGE) == 0);
    free(bytes);
    free(received.bytes);
    end(&pair);
}

static void a_client_that_goes_is_gone_for_the_sibling(void) {
    pair pair = begin();
    fl_exchange *exchange = relay(&pair, GET("/"));
    begin_response(exchange, 200, -1, NULL);
    write_text(exchange, "one");
    fl_exchange_flush(exchange);
    check_received(&pair, "HTTP/1.1 200 OK\r\n", "one\r\n");
    struct linger none = {.l_onoff = 1};
    setsockopt(pair.client, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    close(pair.client);
    pair.client = -1;
    TURN_UNTIL(pair.owner.loop, pair.owner.loop->context.relays.count == 0);
    CHECK_NUMBER(0, pair.owner.loop->context.counts.connections);
    TURN_UNTIL(pair.sibling.loop, exchange->connection == NULL);
    fl_exchange_finish(exchange);
    end(&pair);
}

/* One that ends its side may still read: the sibling asks, over the relay. */
static void a_client_that_ends_its_side_is_probed(void) {
    pair pair = begin();
    fl_exchange *exchange = relay(&pair, GET("/"));
    pair.sibling.loop->context.limits.cancel_abandoned = true;
    shutdown(pair.client, SHUT_WR);
    check_received(&pair, "HTTP/1.1 102 Processing\r\n", "\r\n\r\n");
    answer(exchange, 200, "late");
    check_received(&pair, "HTTP/1.1 200 OK\r\n", "late");
    end(&pair);
}

static void a_response_that_is_cut_off_is_cut_off_for_the_client(void) {
    pair pair = begin();
    fl_exchange *exchange = relay(&pair, GET("/"));
    begin_response(exchange, 200, -1, NULL);
    write_text(exchange, "half");
    fl_exchange_abandon(exchange);
    received_bytes received = {0};
    uint64_t give_up = fl_clock() + 5 * SECOND;
    while (!received.ended && !received.reset && fl_clock() < give_up) {
        turn_both(&pair);
        receive_available(pair.client, &received);
    }
    CHECK(received.ended || received.reset);
    CHECK(strstr(received.bytes, "half") != NULL && strstr(received.bytes, "\r\n0\r\n") == NULL);
    free(received.bytes);
    end(&pair);
}

static void a_sibling_that_dies_cuts_off_its_responses(void) {
    pair pair = begin();
    fl_exchange *exchange = relay(&pair, GET("/"));
    fl_exchange_release_head(exchange);
    server_stop(&pair.sibling);
    free(exchange);
    TURN_UNTIL(pair.owner.loop, pair.owner.loop->context.counts.connections == 0);
    CHECK_NUMBER(0, pair.owner.loop->context.relays.count);
    pair.sibling = server_start();
    end(&pair);
}

static fl_loop *owners;

/* How many of the Unix stream sockets remain in the child of a fork: no others than of relays are open here. */
static int streams_in_child(void) {
    pid_t child = fork();
    if (child == 0) {
        int streams = 0;
        fl_loop_forget(owners);
        for (int descriptor = 3; descriptor < 256; descriptor++) {
            struct sockaddr_storage address = {0};
            socklen_t size = sizeof address, type_size = sizeof(int);
            int type = 0;
            streams += getsockname(descriptor, (struct sockaddr *) &address, &size) == 0 && address.ss_family == AF_UNIX &&
                       getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &type_size) == 0 && type == SOCK_STREAM;
        }
        _exit(streams);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int streams_as_it_sent = -1;

static bool fork_as_it_sends(void) {
    streams_as_it_sent = streams_in_child();
    return true;
}

/* Else a worker would wait for one that was killed, as long as a child of its app lives. */
static void the_child_of_a_fork_has_no_end_of_a_relay(void) {
    pair pair = begin();
    owners = pair.owner.loop;
    as_it_sends = fork_as_it_sends;
    streams_as_it_sent = -1;
    fl_exchange *exchange = relay(&pair, GET("/"));
    as_it_sends = NULL;
    CHECK_NUMBER(0, streams_as_it_sent);
    CHECK_NUMBER(0, streams_in_child());
    answer(exchange, 200, "done");
    check_received(&pair, "HTTP/1.1 200 OK\r\n", "done");
    end(&pair);
}

static bool cannot_send(void) {
    return false;
}

static int events_of_relays;

static void poll_as_another_thread(void) {
    fl_event events[FL_POLL_EVENTS];
    bool woken;
    int count = fl_poll_wait(&owners->context.poll, events, 0, &woken);
    for (int i = 0; i < count; i++) events_of_relays += *(fl_source *) events[i].data == FL_SOURCE_RELAY;
}

/* The relay is freed at once, and the leading reactor polls without the lock. */
static void a_relay_that_cannot_be_given_causes_no_event(void) {
    pair pair = begin();
    owners = pair.owner.loop;
    send_text(pair.client, GET("/"));
    TURN_UNTIL(pair.owner.loop, pair.owner.loop->ready.count == 1);
    as_it_sends = cannot_send;
    as_it_leaves_the_poll = poll_as_another_thread;
    CHECK(!fl_handoff_give_request(&pair.owner.loop->siblings, pair.owner.loop->ready.first, 1));
    as_it_sends = NULL;
    as_it_leaves_the_poll = NULL;
    CHECK_NUMBER(0, events_of_relays);
    CHECK_NUMBER(0, pair.owner.loop->context.relays.count);
    answer(take(pair.owner.loop), 200, "here");
    check_received(&pair, "HTTP/1.1 200 OK\r\n", "here");
    end(&pair);
}

static void canned_responses_are_relayed_and_the_connection_stays(void) {
    pair pair = begin();
    send_text(pair.client, GET("/"));
    TURN_UNTIL(pair.owner.loop, pair.owner.loop->ready.count == 1);
    CHECK(fl_handoff_give_request(&pair.owner.loop->siblings, pair.owner.loop->ready.first, 1));
    TURN_UNTIL(pair.sibling.loop, pair.sibling.loop->ready.count == 1);
    fl_exchange_reject(pair.sibling.loop->ready.first, FL_OVERLOADED);
    check_received(&pair, "HTTP/1.1 503 Service Unavailable\r\n", "the server is overloaded\n");
    send_text(pair.client, GET("/again"));
    answer(take(pair.owner.loop), 200, "again");
    check_received(&pair, "HTTP/1.1 200 OK\r\n", "again");
    end(&pair);
}

static void a_drain_waits_for_relays_and_a_stop_ends_them(void) {
    pair pair = begin();
    fl_exchange *exchange = relay(&pair, GET("/"));
    fl_loop_drain(pair.owner.loop, false);
    turn(pair.owner.loop);
    CHECK(!fl_loop_is_drained(pair.owner.loop));
    fl_loop_stop(pair.owner.loop, true);
    check_received(&pair, "HTTP/1.1 503 Service Unavailable\r\n", "the server is shutting down\n");
    CHECK_NUMBER(0, pair.owner.loop->context.relays.count);
    TURN_UNTIL(pair.sibling.loop, exchange->connection == NULL);
    fl_exchange_finish(exchange);
    end(&pair);
}

/* What is not HTTP/1.1, or switches protocols, stays; so does one that has been passed around. */
static void some_requests_stay(void) {
    static const char *const requests[] = {
        "GET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        pair pair = begin();
        send_text(pair.client, requests[i]);
        TURN_UNTIL(pair.owner.loop, pair.owner.loop->ready.count == 1);
        CHECK(!fl_handoff_give_request(&pair.owner.loop->siblings, pair.owner.loop->ready.first, 1));
        CHECK_NUMBER(1, pair.owner.loop->ready.count);
        end(&pair);
    }
}

/* A relayed request may go on to another worker with its connection: here, back to the first one. */
static void relayed_requests_can_be_handed_on(void) {
    pair pair = begin();
    send_text(pair.client, GET("/"));
    TURN_UNTIL(pair.owner.loop, pair.owner.loop->ready.count == 1);
    CHECK(fl_handoff_give_request(&pair.owner.loop->siblings, pair.owner.loop->ready.first, 1));
    TURN_UNTIL(pair.sibling.loop, pair.sibling.loop->ready.count == 1);
    CHECK(fl_handoff_give_request(&pair.sibling.loop->siblings, pair.sibling.loop->ready.first, 0));
    CHECK_NUMBER(0, pair.sibling.loop->context.counts.connections);
    fl_exchange *exchange = take(pair.owner.loop);
    CHECK_NUMBER(AF_INET, exchange->client.family);
    CHECK_NUMBER(2, exchange->queueing.hand_overs);
    answer(exchange, 200, "back");
    check_received(&pair, "HTTP/1.1 200 OK\r\n", "back");
    end(&pair);
}

/* What does not speak HTTP any more, as an app that has hijacked its connection, ends the client's. */
static void malformed_responses_are_cut_off(void) {
    static const char *const responses[] = {
        "nonsense\r\n\r\n",
        "HTTP/1.1 20x OK\r\n\r\n",
        "HTTP/1.1 101 Switching\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n",
        "HTTP/1.1 200 OK\r\nbad name: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\n",
        "",
    };
    for (size_t i = 0; i < sizeof responses / sizeof *responses; i++) {
        pair pair = begin();
        fl_exchange *exchange = relay(&pair, GET("/"));
        fl_buffer unsent = {0}, ahead = {0};
        int socket = fl_exchange_hijack(exchange, &unsent, &ahead);
        fl_exchange_finish(exchange);
        send_text(socket, responses[i]);
        close(socket);
        TURN_UNTIL(pair.owner.loop, pair.owner.loop->context.counts.connections == 0);
        end(&pair);
    }
}

int main(void) {
    TEST(requests_go_with_their_bodies_and_clients);
    TEST(certificates_of_clients_go_along);
    TEST(responses_keep_their_meaning);
    TEST(streams_pass_as_they_are_written_with_trailers_and_interim_responses);
    TEST(a_slow_client_slows_down_the_sibling);
    TEST(a_client_that_goes_is_gone_for_the_sibling);
    TEST(a_client_that_ends_its_side_is_probed);
    TEST(a_response_that_is_cut_off_is_cut_off_for_the_client);
    TEST(a_sibling_that_dies_cuts_off_its_responses);
    TEST(the_child_of_a_fork_has_no_end_of_a_relay);
    TEST(a_relay_that_cannot_be_given_causes_no_event);
    TEST(canned_responses_are_relayed_and_the_connection_stays);
    TEST(a_drain_waits_for_relays_and_a_stop_ends_them);
    TEST(some_requests_stay);
    TEST(relayed_requests_can_be_handed_on);
    TEST(malformed_responses_are_cut_off);
    return test_summary();
}
