/* Event streams: their headers, the comments that keep them alive, and their end when the server drains. */
#include "responses.h"
#include "connection/event_stream.h"

enum { SILENCE = 30 * MILLISECOND };

#define EVENT_SOURCE "GET / HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n"

static fl_exchange *begin_answer(peer_server *server, int socket, const char *request, const char *name, const char *value) {
    send_text(socket, request);
    fl_exchange *exchange = take(server->loop);
    fl_exchange_release_head(exchange);
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 200));
    header(exchange, "content-type", "text/event-stream; charset=utf-8");
    if (name != NULL)
        header(exchange, name, value);
    CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, -1));
    return exchange;
}

static fl_exchange *begin_stream(peer_server *server, int socket, const char *name, const char *value) {
    return begin_answer(server, socket, EVENT_SOURCE, name, value);
}

static peer_server server_with_silence(uint64_t silence) {
    fl_limits limits = peer_limits;
    limits.deadlines[FL_DEADLINE_EVENTS] = silence;
    return server_with(limits);
}

static bool ends_with(const received_bytes *received, const char *end) {
    size_t size = strlen(end);
    return received->size >= size && memcmp(received->bytes + received->size - size, end, size) == 0;
}

/* What the client has received, once it ends with `end`. */
static received_bytes await_text(peer_server *server, int socket, const char *end) {
    static received_bytes all;
    all.size = 0;
    TURN_UNTIL(server->loop, (receive_available(socket, &all), ends_with(&all, end)));
    return all;
}

static void proxies_are_told_not_to_buffer(void) {
    peer_server server = server_with_silence(0);
    int socket = client(&server);
    fl_exchange *exchange = begin_stream(&server, socket, NULL, NULL);
    received_bytes head = await_text(&server, socket, "\r\n\r\n"); /* before anything was written */
    CHECK_NUMBER(1, occurrences(&head, "\r\ncache-control: no-cache\r\n"));
    CHECK_NUMBER(1, occurrences(&head, "\r\nx-accel-buffering: no\r\n"));
    fl_exchange_finish(exchange);
    close(socket);
    server_stop(&server);
}

static void headers_of_the_app_stay(void) {
    peer_server server = server_with_silence(0);
    int socket = client(&server);
    fl_exchange *exchange = begin_stream(&server, socket, "Cache-Control", "no-store");
    received_bytes head = await_text(&server, socket, "\r\n\r\n");
    CHECK_NUMBER(0, occurrences(&head, "no-cache"));
    CHECK_NUMBER(1, occurrences(&head, "no-store"));
    fl_exchange_finish(exchange);
    close(socket);
    server_stop(&server);
}

static void a_silent_stream_gets_comments_between_lines(void) {
    peer_server server = server_with_silence(SILENCE);
    int socket = client(&server);
    fl_exchange *exchange = begin_stream(&server, socket, NULL, NULL);
    await_text(&server, socket, "\r\n\r\n2\r\n:\n\r\n");
    put(exchange, "data: a\n");
    await_text(&server, socket, "data: a\n\r\n2\r\n:\n\r\n");
    put(exchange, "data: b");
    await_text(&server, socket, "data: b\r\n");
    uint64_t until = fl_clock() + 4 * SILENCE;
    TURN_UNTIL(server.loop, fl_clock() > until);
    CHECK_NOTHING_RECEIVED(receive(server.loop, socket));
    put(exchange, "\n\n");
    fl_exchange_finish(exchange);
    await_text(&server, socket, "2\r\n\n\n\r\n0\r\n\r\n");
    CHECK_NUMBER(1, server.loop->context.counts.requests);
    close(socket);
    server_stop(&server);
}

static void a_comment_does_not_part_a_carriage_return_from_its_line_feed(void) {
    peer_server server = server_with_silence(SILENCE);
    int socket = client(&server);
    fl_exchange *exchange = begin_stream(&server, socket, NULL, NULL);
    put(exchange, "data: a\r");
    await_text(&server, socket, "data: a\r\r\n");
    uint64_t until = fl_clock() + 4 * SILENCE;
    TURN_UNTIL(server.loop, fl_clock() > until);
    CHECK_NOTHING_RECEIVED(receive(server.loop, socket));
    fl_exchange_finish(exchange);
    close(socket);
    server_stop(&server);
}

static void an_encoded_stream_gets_none(const char *name) {
    peer_server server = server_with_silence(SILENCE);
    int socket = client(&server);
    fl_exchange *exchange = begin_stream(&server, socket, name, "gzip");
    await_text(&server, socket, "\r\n\r\n");
    CHECK_NUMBER(FL_DEADLINE_NONE, exchange->request.deadline.kind);
    fl_exchange_finish(exchange);
    close(socket);
    server_stop(&server);
}

static void an_encoded_stream_gets_no_comments(void) {
    an_encoded_stream_gets_none("content-encoding");
    an_encoded_stream_gets_none("transfer-encoding");
}

/* With what the app says of its coding, the core adds to the stream; once it has written more, not until it says so again. */
static void an_encoded_stream_is_kept_alive_as_its_coding_allows(void) {
    peer_server server = server_with_silence(SILENCE);
    int socket = client(&server);
    fl_exchange *exchange = begin_stream(&server, socket, "content-encoding", "gzip");
    await_text(&server, socket, "\r\n\r\n");
    put(exchange, "coded");
    CHECK(fl_event_stream_set_coding(exchange, "NO", 2, "", 0));
    await_text(&server, socket, "coded\r\n2\r\nNO\r\n2\r\nNO\r\n");
    put(exchange, "more");
    await_text(&server, socket, "more\r\n");
    uint64_t until = fl_clock() + 4 * SILENCE;
    TURN_UNTIL(server.loop, fl_clock() > until);
    CHECK_NOTHING_RECEIVED(receive(server.loop, socket));
    char large[FL_MAX_EVENT_END + 1] = {0};
    CHECK(!fl_event_stream_set_coding(exchange, "NO", 2, large, sizeof large));
    CHECK(!fl_event_stream_set_coding(exchange, large, FL_MAX_EVENT_NOTHING + 1, "", 0));
    fl_exchange_finish(exchange);
    close(socket);
    server_stop(&server);
}

static void an_encoded_stream_ends_in_order_between_events(void) {
    peer_server server = server_with_silence(5 * SECOND);
    int ends = client(&server), within = client(&server), unknown = client(&server);
    fl_exchange *first = begin_stream(&server, ends, "content-encoding", "gzip");
    fl_exchange *second = begin_stream(&server, within, "content-encoding", "gzip");
    fl_exchange *third = begin_stream(&server, unknown, "content-encoding", "gzip");
    put(first, "a\n\n");
    CHECK(fl_event_stream_set_coding(first, "NO", 2, "END", 3));
    put(second, "b\n\n");
    CHECK(fl_event_stream_set_coding(second, "NO", 2, "", 0));
    put(third, "c\n\n");
    fl_loop_drain(server.loop, false);
    await_text(&server, ends, "3\r\nEND\r\n0\r\n\r\n");
    CHECK(first->connection == NULL);
    CHECK(second->connection != NULL);
    CHECK(third->connection != NULL);
    fl_exchange_abandon(first);
    fl_exchange_abandon(second);
    fl_exchange_abandon(third);
    close(ends);
    close(within);
    close(unknown);
    server_stop(&server);
}

static void a_stream_beyond_their_limit_expires_with_its_client(void) {
    fl_limits limits = peer_limits;
    limits.streams = 0;
    limits.cancel_streams = true;
    peer_server server = server_with(limits);
    int socket = client(&server);
    fl_exchange *exchange = begin_stream(&server, socket, NULL, NULL);
    fl_exchange_mark_long_lived(exchange);
    CHECK_NUMBER(0, server.loop->context.counts.streams);
    TURN_UNTIL(server.loop, exchange->response.committed);
    close(socket); /* with unread input: its kernel resets the connection */
    TURN_UNTIL(server.loop, exchange->connection == NULL);
    CHECK_NUMBER(exchange->id, fl_context_next_expired(&server.loop->context));
    fl_exchange_abandon(exchange);
    server_stop(&server);
}

static void a_silent_stream_ends_in_order_when_the_server_drains(void) {
    peer_server server = server_with_silence(5 * SECOND);
    int silent = client(&server), within = client(&server);
    fl_exchange *first = begin_stream(&server, silent, NULL, NULL), *second = begin_stream(&server, within, NULL, NULL);
    put(first, "data: a\n\n");
    put(second, "data: a\n");
    fl_loop_drain(server.loop, false);
    received_bytes last = await_text(&server, silent, "\n\n\r\n0\r\n\r\n");
    CHECK_NUMBER(1, occurrences(&last, "\r\nretry: "));
    CHECK(first->connection == NULL);
    CHECK(second->connection != NULL);
    put(second, "\n");
    last = await_text(&server, within, "\n\n\r\n0\r\n\r\n");
    CHECK_NUMBER(1, occurrences(&last, "\r\nretry: "));
    size_t used;
    CHECK_NUMBER(FL_CLOSED, fl_exchange_write(second, "data: b\n\n", 9, &used));
    fl_exchange_abandon(first);
    fl_exchange_abandon(second);
    TURN_UNTIL(server.loop, fl_loop_is_drained(server.loop));
    close(silent);
    close(within);
    server_stop(&server);
}

/* Drains until the stream of an EventSource has ended in order: the others have been silent for as long. */
static void drain(peer_server *server) {
    int socket = client(server);
    fl_exchange *exchange = begin_stream(server, socket, NULL, NULL);
    fl_loop_drain(server->loop, false);
    await_text(server, socket, "0\r\n\r\n");
    fl_exchange_abandon(exchange);
    close(socket);
}

/* Its client would not ask for the rest again: the response runs on, and is cut off in a way that shows. */
static void runs_on_and_is_cut(const char *request) {
    peer_server server = server_with_silence(5 * SECOND);
    int socket = client(&server);
    fl_exchange *exchange = begin_answer(&server, socket, request, NULL, NULL);
    put(exchange, "data: a\n\n");
    fl_exchange_mark_long_lived(exchange);
    drain(&server);
    CHECK(exchange->connection != NULL);
    put(exchange, "data: b\n\n");
    await_text(&server, socket, "data: b\n\n\r\n");
    fl_loop_stop(server.loop, false);
    CHECK(exchange->connection != NULL);
    fl_loop_stop(server.loop, true);
    CHECK(exchange->connection == NULL);
    CHECK(exchange->timing.timed_out);
    CHECK(exchange->timing.stopped);
    received_bytes last = receive_to_end(server.loop, socket);
    CHECK_NUMBER(0, occurrences(&last, "retry:"));
    CHECK_NUMBER(0, occurrences(&last, "0\r\n\r\n"));
    CHECK_NUMBER(0, occurrences(&last, "\r\n:\n"));
    free(last.bytes);
    fl_exchange_abandon(exchange);
    close(socket);
    server_stop(&server);
}

static void a_stream_that_is_asked_for_once_runs_on_when_the_server_drains(void) {
    runs_on_and_is_cut("POST / HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\nContent-Length: 0\r\n\r\n");
    runs_on_and_is_cut("GET / HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n");
    runs_on_and_is_cut("GET / HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream;q=0\r\n\r\n");
}

static void a_stream_to_a_POST_that_has_said_nothing_runs_on(void) {
    peer_server server = server_with_silence(5 * SECOND);
    int socket = client(&server);
    fl_exchange *exchange =
        begin_answer(&server, socket, "POST / HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\nContent-Length: 0\r\n\r\n", NULL, NULL);
    drain(&server);
    CHECK(exchange->connection != NULL);
    put(exchange, "data: a\n\n");
    fl_exchange_finish(exchange);
    await_text(&server, socket, "data: a\n\n\r\n0\r\n\r\n");
    close(socket);
    server_stop(&server);
}

/* MCP, Streamable HTTP: "Disconnection SHOULD NOT be interpreted as the client cancelling its request." */
static void a_call_by_MCP_is_not_cancelled_when_its_client_goes(void) {
    static const struct {
        const char *request;
        bool cancelled;
    } calls[] = {
        {"POST / HTTP/1.1\r\nHost: a\r\nMcp-Session-Id: s\r\nContent-Length: 0\r\n\r\n", false},
        {"POST / HTTP/1.1\r\nHost: a\r\nMCP-Protocol-Version: 2025-06-18\r\nContent-Length: 0\r\n\r\n", false},
        {"GET / HTTP/1.1\r\nHost: a\r\nMcp-Session-Id: s\r\nAccept: text/event-stream\r\n\r\n", true},
        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", true},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        fl_limits limits = peer_limits;
        limits.cancel_abandoned = true;
        peer_server server = server_with(limits);
        int socket = client(&server);
        fl_exchange *exchange = begin_answer(&server, socket, calls[i].request, NULL, NULL);
        put(exchange, "data: a\n\n");
        TURN_UNTIL(server.loop, exchange->response.committed);
        close(socket); /* with unread input: its kernel resets the connection */
        TURN_UNTIL(server.loop, exchange->connection == NULL);
        CHECK_NUMBER(calls[i].cancelled ? exchange->id : 0, fl_context_next_expired(&server.loop->context));
        fl_exchange_abandon(exchange);
        server_stop(&server);
    }
}

static void a_call_by_MCP_that_lives_long_has_the_time_of_a_request_once_its_client_has_gone(void) {
    fl_limits limits = peer_limits;
    limits.request_timeout = 20 * MILLISECOND;
    peer_server server = server_with(limits);
    int socket = client(&server);
    fl_exchange *exchange = begin_answer(
        &server, socket, "POST / HTTP/1.1\r\nHost: a\r\nMcp-Session-Id: s\r\nContent-Length: 0\r\n\r\n", NULL, NULL);
    fl_exchange_mark_long_lived(exchange);
    fl_exchange_set_time_limit(exchange, 0);
    put(exchange, "data: a\n\n");
    TURN_UNTIL(server.loop, exchange->response.committed);
    close(socket); /* with unread input: its kernel resets the connection */
    TURN_UNTIL(server.loop, exchange->connection == NULL);
    TURN_UNTIL(server.loop, exchange->timing.timed_out);
    CHECK_NUMBER(exchange->id, fl_context_next_expired(&server.loop->context));
    fl_exchange_abandon(exchange);
    server_stop(&server);
}

static void busy_streams_end_in_order_when_the_server_stops(void) {
    fl_limits limits = peer_limits;
    limits.deadlines[FL_DEADLINE_EVENTS] = 5 * SECOND;
    limits.cancel_streams = true;
    peer_server server = server_with(limits);
    int socket = client(&server);
    fl_exchange *exchange = begin_stream(&server, socket, NULL, NULL);
    fl_exchange_mark_long_lived(exchange);
    put(exchange, "data: a\r\n\r\n");
    await_text(&server, socket, "\r\n\r\n\r\n");
    put(exchange, "data: b\n\n");
    fl_loop_drain(server.loop, false);
    fl_loop_stop(server.loop, true);
    received_bytes last = await_text(&server, socket, "0\r\n\r\n");
    CHECK_NUMBER(1, occurrences(&last, "data: b\n\n"));
    CHECK_NUMBER(1, occurrences(&last, "retry: "));
    CHECK(exchange->connection == NULL);
    CHECK(!exchange->timing.timed_out);
    fl_exchange_abandon(exchange);
    close(socket);
    server_stop(&server);
}

int main(void) {
    TEST(proxies_are_told_not_to_buffer);
    TEST(headers_of_the_app_stay);
    TEST(a_silent_stream_gets_comments_between_lines);
    TEST(a_comment_does_not_part_a_carriage_return_from_its_line_feed);
    TEST(an_encoded_stream_gets_no_comments);
    TEST(an_encoded_stream_is_kept_alive_as_its_coding_allows);
    TEST(an_encoded_stream_ends_in_order_between_events);
    TEST(a_stream_beyond_their_limit_expires_with_its_client);
    TEST(a_silent_stream_ends_in_order_when_the_server_drains);
    TEST(a_stream_that_is_asked_for_once_runs_on_when_the_server_drains);
    TEST(a_stream_to_a_POST_that_has_said_nothing_runs_on);
    TEST(a_call_by_MCP_is_not_cancelled_when_its_client_goes);
    TEST(a_call_by_MCP_that_lives_long_has_the_time_of_a_request_once_its_client_has_gone);
    TEST(busy_streams_end_in_order_when_the_server_stops);
    return test_summary();
}
