/* Responses as the one who answers writes them: framing, backpressure, what becomes of the connection. */
#include "http1/http1.h"
#include "peer.h"

#define GET(path) "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"

static char large[1500001];

static void header(fl_exchange *exchange, const char *name, const char *value) {
    CHECK_NUMBER(FL_OK, fl_exchange_header(exchange, name, strlen(name), value, strlen(value)));
}

static fl_exchange *begin(fl_loop *loop, int code, int64_t length) {
    fl_exchange *exchange = take(loop);
    fl_exchange_release_head(exchange);
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, code));
    header(exchange, "date", "now");
    CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, length));
    return exchange;
}

static void put(fl_exchange *exchange, const char *text) {
    size_t used;
    CHECK_NUMBER(FL_OK, fl_exchange_write(exchange, text, strlen(text), &used));
    CHECK_NUMBER(strlen(text), used);
}

#define CHECK_ALL(expected, said)                                                                              \
    do {                                                                                                       \
        fl_heard all_ = (said);                                                                                \
        CHECK_BYTES(expected, strlen(expected), all_.bytes, all_.size);                                        \
        free(all_.bytes);                                                                                      \
    } while (0)

/* What one request gets, when the body is written in these parts, with a turn of the loop after each or with none. */
static void exchange_of(const char *request, int code, bool turns, const char *const *parts, const char *expected,
                        bool stays_open) {
    peer_server server = server_start();
    int socket = client(&server);
    say(socket, request);
    fl_exchange *exchange = begin(server.loop, code, -1);
    for (; *parts != NULL; parts++) {
        put(exchange, *parts);
        if (turns)
            fl_loop_turn(server.loop);
    }
    fl_exchange_finish(exchange);
    if (stays_open) {
        CHECK_ALL(expected, hear(server.loop, socket));
        say(socket, GET("/next"));
        CHECK_NUMBER(1, answer_all(server.loop));
        CHECK_HEARD("HTTP/1.1 200 OK", "\r\n\r\n/next", hear(server.loop, socket));
    } else {
        CHECK_ALL(expected, hear_end(server.loop, socket));
    }
    close(socket);
    server_stop(&server);
}

static void a_body_is_framed_by_length_if_it_ends_in_time_else_in_chunks(void) {
    const char *parts[] = {"ab", "", "cde", NULL};
    exchange_of(GET("/"), 200, false, parts, "HTTP/1.1 200 OK\r\ndate: now\r\ncontent-length: 5\r\n\r\nabcde", true);
    exchange_of(GET("/"), 200, true, parts,
                "HTTP/1.1 200 OK\r\ndate: now\r\ntransfer-encoding: chunked\r\n\r\n"
                "2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n",
                true);
}

static void an_old_client_gets_no_chunks(void) {
    const char *parts[] = {"ab", "cde", NULL};
    exchange_of("GET / HTTP/1.0\r\n\r\n", 200, true, parts,
                "HTTP/1.1 200 OK\r\ndate: now\r\nconnection: close\r\n\r\nabcde", false);
    exchange_of("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 200, true, parts,
                "HTTP/1.1 200 OK\r\ndate: now\r\nconnection: close\r\n\r\nabcde", false);
    exchange_of("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 200, false, parts,
                "HTTP/1.1 200 OK\r\ndate: now\r\ncontent-length: 5\r\nconnection: keep-alive\r\n\r\nabcde", true);
}

static void a_response_without_a_body_carries_none(void) {
    const char *parts[] = {"ab", "cde", NULL};
    for (int turns = 0; turns < 2; turns++) {
        exchange_of("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", 200, turns, parts, "HTTP/1.1 200 OK\r\ndate: now\r\n\r\n", true);
        exchange_of(GET("/"), 205, turns, parts, "HTTP/1.1 205 Reset Content\r\ndate: now\r\ncontent-length: 0\r\n\r\n", true);
        exchange_of("CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n", 200, turns, parts,
                    "HTTP/1.1 200 OK\r\ndate: now\r\nconnection: close\r\n\r\n", false);
        exchange_of(GET("/"), 204, turns, parts, "HTTP/1.1 204 No Content\r\ndate: now\r\n\r\n", true);
        exchange_of(GET("/"), 304, turns, parts, "HTTP/1.1 304 Not Modified\r\ndate: now\r\n\r\n", true);
    }
}

static void an_announced_length_is_kept(void) {
    peer_server server = server_start();
    int socket = client(&server);
    say(socket, GET("/"));
    fl_exchange *exchange = take(server.loop);
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 200));
    header(exchange, "Content-Length", "4");
    header(exchange, "content-length", "4"); /* once is enough */
    CHECK_NUMBER(FL_BAD_HEADER_VALUE, fl_exchange_header(exchange, "content-length", 14, "5", 1));
    CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, -1));
    put(exchange, "abcdef"); /* what is beyond would be taken for the next response */
    put(exchange, "g");
    fl_exchange_finish(exchange);
    CHECK_HEARD("HTTP/1.1 200 OK\r\nContent-Length: 4\r\ndate: ", "\r\n\r\nabcd", hear(server.loop, socket));

    say(socket, GET("/"));
    exchange = begin(server.loop, 200, 4);
    put(exchange, "ab");
    fl_exchange_finish(exchange); /* too little: only the end of the connection can tell */
    CHECK_HEARD("HTTP/1.1 200 OK\r\n", "\r\n\r\nab", hear_end(server.loop, socket));
    close(socket);
    server_stop(&server);
}

static void a_response_may_start_over_until_something_has_left(void) {
    peer_server server = server_start();
    int socket = client(&server);
    say(socket, GET("/") GET("/"));
    fl_exchange *exchange = begin(server.loop, 200, -1);
    put(exchange, "secret");
    CHECK_NUMBER(FL_BAD_HEADER_VALUE, fl_exchange_header(exchange, "x", 1, "a\r\nb: c", 7));
    CHECK_NUMBER(FL_BAD_HEADER_NAME, fl_exchange_header(exchange, "x y", 3, "a", 1));
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 500));
    header(exchange, "date", "now");
    CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, 2));
    put(exchange, "no");
    fl_exchange_finish(exchange);
    CHECK_ALL("HTTP/1.1 500 Internal Server Error\r\ndate: now\r\ncontent-length: 2\r\n\r\nno",
              hear(server.loop, socket));
    exchange = begin(server.loop, 200, -1);
    put(exchange, "first");
    turn(server.loop);
    CHECK_NUMBER(FL_CLOSED, fl_exchange_begin(exchange, 500));
    fl_exchange_abandon(exchange);
    CHECK_HEARD("HTTP/1.1 200 OK\r\n", "5\r\nfirst\r\n", hear_end(server.loop, socket)); /* no last chunk */
    close(socket);
    server_stop(&server);
}

static void an_unread_body_ends_the_connection(void) {
    fl_limits limits = peer_limits;
    limits.body_buffer = 1000;
    peer_server server = server_with(limits);
    int socket = client(&server);
    say(socket, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 900000\r\n\r\n");
    say_bytes(socket, large, 100000);
    turn(server.loop);
    say(socket, GET("/smuggled"));
    answer(take(server.loop), 200, "early");
    fl_heard heard = {0};
    TURN_UNTIL(server.loop, (hear_now(socket, &heard), heard.ended));
    CHECK(strstr(heard.bytes, "\r\nconnection: close\r\n") != NULL);
    CHECK(!heard.reset && occurrences(&heard, "HTTP/1.1 ") == 1);
    CHECK_HEARD("HTTP/1.1 200 OK\r\n", "\r\n\r\nearly", heard);
    say_bytes(socket, large, 10); /* what still comes is dropped */
    turn(server.loop);
    CHECK_NUMBER(0, server.loop->ready.count);
    close(socket);
    TURN_UNTIL(server.loop, server.loop->context.counts.connections == 0);
    server_stop(&server);
}

static peer_server server_buffering(uint32_t response_buffer) {
    fl_limits limits = peer_limits;
    limits.response_buffer = response_buffer;
    return server_with(limits);
}

/* A large body to a slow reader: however it is framed, every byte arrives once, and the writer waits in between. */
static void a_large_body_arrives_whole(const char *request, int64_t length, size_t piece, uint32_t response_buffer) {
    peer_server server = server_buffering(response_buffer);
    int socket = narrow_client(&server);
    say(socket, request);
    fl_exchange *exchange = begin(server.loop, 200, length);
    size_t size = sizeof large - 1, written = 0;
    unsigned waits = 0;
    fl_heard heard = {0};
    while (written < size) {
        size_t used, now = size - written < piece ? size - written : piece;
        fl_status status = fl_exchange_write(exchange, large + written, now, &used);
        written += used;
        CHECK(exchange->connection->out.length + exchange->response.out.length <= response_buffer + 65536 + 40);
        if (status == FL_AGAIN) {
            waits++;
            TURN_UNTIL(server.loop, (hear_now(socket, &heard), fl_context_next_woken(&server.loop->context) == exchange->id));
        } else if (status != FL_OK) {
            CHECK_NUMBER(FL_OK, status);
            break;
        }
    }
    CHECK(waits > 0);
    fl_exchange_finish(exchange);
    CHECK_NUMBER(0, server.loop->context.counts.in_flight);
    /* Closed, it is heard to be a little later where another thread asks the kernel about it. */
    TURN_UNTIL(server.loop, (hear_now(socket, &heard), heard.ended || (server.loop->context.connections != NULL &&
                                                                       server.loop->context.connections->out.length == 0)));
    hear_now(socket, &heard);
    char *body = strstr(heard.bytes, "\r\n\r\n");
    body = body == NULL ? heard.bytes : body + 4;
    size_t got = heard.size - (size_t) (body - heard.bytes);
    if (strstr(heard.bytes, "chunked") != NULL) {
        fl_chunks chunks = {0};
        size_t used;
        CHECK_NUMBER(FL_OK, fl_chunks_decode(&chunks, body, got, &used, &got));
    }
    CHECK_BYTES(large, size, body, got);
    free(heard.bytes);
    close(socket);
    server_stop(&server);
}

static void a_large_body_arrives_whole_however_it_is_framed(void) {
    for (size_t i = 0; i + 1 < sizeof large; i++) large[i] = (char) (' ' + i % 89);
    int64_t size = sizeof large - 1;
    for (int small = 0; small < 2; small++)
        for (int i = 0; i < 3; i++) {
            size_t piece = i == 0 ? sizeof large : i == 1 ? 100000 : 999;
            uint32_t buffer = small ? 4096 : 1 << 20;
            a_large_body_arrives_whole(GET("/"), size, piece, buffer);
            a_large_body_arrives_whole(GET("/"), -1, piece, buffer);
            a_large_body_arrives_whole("GET / HTTP/1.0\r\n\r\n", -1, piece, buffer);
        }
}

/* Its writer has to come back with the rest in any case. */
static void of_a_piece_that_is_longer_than_may_be_kept_little_is_copied(void) {
    peer_server server = server_buffering(1 << 20);
    int socket = narrow_client(&server);
    say(socket, GET("/"));
    fl_exchange *exchange = begin(server.loop, 200, sizeof large - 1);
    size_t used;
    CHECK_NUMBER(FL_AGAIN, fl_exchange_write(exchange, large, sizeof large - 1, &used));
    CHECK(used < sizeof large - 1);
    CHECK(exchange->connection->out.length > 0 && exchange->connection->out.length <= 131072);
    fl_exchange_abandon(exchange);
    close(socket);
    server_stop(&server);
}

#ifndef FL_FALLBACKS /* there the system keeps what it likes */
/* A client who never reads costs what is copied for it, and others wait meanwhile. */
static void of_what_nobody_reads_little_is_copied_to_the_kernel(void) {
    peer_server server = server_buffering(65536);
    int socket = client(&server);
    say(socket, GET("/"));
    fl_exchange *exchange = begin(server.loop, 200, sizeof large - 1);
    size_t used;
    CHECK_NUMBER(FL_AGAIN, fl_exchange_write(exchange, large, sizeof large - 1, &used));
    CHECK(used < 1000000);
    fl_exchange_abandon(exchange);
    close(socket);
    server_stop(&server);
}
#endif

static unsigned writes;

static ssize_t counted_write(fl_transport *transport, const struct iovec *parts, int count) {
    writes++;
    return fl_transport_plain.write(transport, parts, count);
}

static void a_head_leaves_with_the_body_behind_it(void) {
    fl_transport_kind counted = fl_transport_plain;
    counted.write = counted_write;
    peer_server server = server_start();
    int socket = client(&server);
    say(socket, GET("/"));
    fl_exchange *exchange = begin(server.loop, 200, 60000);
    exchange->connection->transport.kind = &counted;
    size_t used;
    writes = 0;
    CHECK_NUMBER(FL_OK, fl_exchange_write(exchange, large, 60000, &used));
    fl_exchange_finish(exchange);
    CHECK_NUMBER(1, writes);
    fl_heard heard = hear(server.loop, socket);
    CHECK(heard.size > 60000 && memcmp(heard.bytes + heard.size - 60000, large, 60000) == 0);
    CHECK_HEARD("HTTP/1.1 200 OK\r\n", "", heard);
    close(socket);
    server_stop(&server);
}

/* The kernel takes all that fits into a small buffer: nobody will tell of room later. */
static void a_write_does_not_wait_for_room_that_is_there(void) {
    peer_server server = server_buffering(4096);
    int socket = client(&server);
    say(socket, GET("/"));
    fl_exchange *exchange = begin(server.loop, 200, -1);
    put(exchange, "x");
    turn(server.loop);
    size_t used;
    CHECK_NUMBER(FL_OK, fl_exchange_write(exchange, large, 60000, &used));
    CHECK_NUMBER(60000, used);
    fl_exchange_finish(exchange);
    CHECK_HEARD("HTTP/1.1 200 OK\r\n", "0\r\n\r\n", hear(server.loop, socket));
    close(socket);
    server_stop(&server);
}

static void a_body_that_is_not_read_is_not_received(void) {
    fl_limits limits = peer_limits;
    limits.body_buffer = 0;
    peer_server server = server_with(limits);
    int socket = client(&server);
    say(socket, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1500000\r\n\r\n");
    fl_exchange *exchange = take(server.loop);
    fl_exchange_release_head(exchange);
    size_t sent = 0, received = 0, most = 0;
    while (received < 1500000) {
        ssize_t count = sent < 1500000 ? send(socket, large + sent, 1500000 - sent, MSG_NOSIGNAL) : 0;
        if (count > 0)
            sent += (size_t) count;
        turn(server.loop);
        most = exchange->request.body.length > most ? exchange->request.body.length : most;
        const char *bytes;
        size_t size;
        fl_status status = fl_exchange_body(exchange, &bytes, &size);
        if (status == FL_AGAIN)
            continue;
        if (status != FL_OK || size == 0 || memcmp(bytes, large + received, size) != 0) {
            CHECK_NUMBER(FL_OK, status);
            CHECK(size > 0);
            break;
        }
        received += size;
        fl_exchange_consume_body(exchange, size);
    }
    CHECK_NUMBER(1500000, received);
    CHECK(most <= 65536);
    answer(exchange, 200, "");
    CHECK_HEARD("HTTP/1.1 200 OK\r\n", "\r\n\r\n", hear(server.loop, socket));
    CHECK_NUMBER(1, server.loop->context.counts.connections);
    close(socket);
    server_stop(&server);
}

static void a_body_that_breaks_off_is_told(void) {
    static const char *const ends[] = {"", "zz\r\n", "5\r\nabcdeX"};
    for (size_t i = 0; i < 3; i++) {
        fl_limits limits = peer_limits;
        limits.body_buffer = 2;
        peer_server server = server_with(limits);
        int socket = client(&server);
        say(socket, "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n");
        fl_exchange *exchange = take(server.loop);
        fl_exchange_release_head(exchange);
        const char *bytes;
        size_t size;
        CHECK_NUMBER(FL_OK, fl_exchange_body(exchange, &bytes, &size));
        CHECK_BYTES("ab", 2, bytes, size);
        fl_exchange_consume_body(exchange, size);
        CHECK_NUMBER(FL_AGAIN, fl_exchange_body(exchange, &bytes, &size));
        say(socket, ends[i]);
        if (ends[i][0] == 0)
            shutdown(socket, SHUT_WR);
        TURN_UNTIL(server.loop, fl_context_next_woken(&server.loop->context) == exchange->id);
        CHECK_NUMBER(FL_CLOSED, fl_exchange_body(exchange, &bytes, &size));
        answer(exchange, 400, "bad");
        CHECK_HEARD("HTTP/1.1 400 Bad Request\r\n", "\r\n\r\nbad", hear_end(server.loop, socket));
        close(socket);
        server_stop(&server);
    }
}

/* Whether it waits for more, has read what has come, or has only begun. */
static void a_reader_is_told_that_its_client_has_gone(void) {
    enum { WAITS, HAS_READ, HAS_BEGUN, CASES };
    for (int does = 0; does < CASES; does++) {
        fl_limits limits = peer_limits;
        limits.body_buffer = 2;
        peer_server server = server_with(limits);
        int socket = client(&server);
        say(socket, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nab");
        fl_exchange *exchange = take(server.loop);
        fl_exchange_release_head(exchange);
        const char *bytes;
        size_t size;
        if (does != HAS_BEGUN) {
            CHECK_NUMBER(FL_OK, fl_exchange_body(exchange, &bytes, &size));
            fl_exchange_consume_body(exchange, size);
        }
        if (does == WAITS)
            CHECK_NUMBER(FL_AGAIN, fl_exchange_body(exchange, &bytes, &size));
        struct linger resets = {1, 0};
        setsockopt(socket, SOL_SOCKET, SO_LINGER, &resets, sizeof resets);
        close(socket);
        TURN_UNTIL(server.loop, server.loop->context.counts.connections == 0);
        CHECK_NUMBER(does == WAITS ? exchange->id : 0, fl_context_next_woken(&server.loop->context));
        if (does == HAS_BEGUN) {
            CHECK_NUMBER(FL_OK, fl_exchange_body(exchange, &bytes, &size));
            CHECK_BYTES("ab", 2, bytes, size);
            fl_exchange_consume_body(exchange, size);
        }
        CHECK_NUMBER(FL_CLOSED, fl_exchange_body(exchange, &bytes, &size));
        fl_exchange_abandon(exchange);
        CHECK_NUMBER(0, server.loop->context.counts.in_flight);
        server_stop(&server);
    }
}

static void a_request_at_fault_is_refused_if_the_app_has_nothing_to_say(void) {
    for (int says = 0; says < 2; says++) {
        fl_limits limits = peer_limits;
        limits.body_buffer = 2;
        peer_server server = server_with(limits);
        int socket = client(&server);
        say(socket, "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n");
        fl_exchange *exchange = take(server.loop);
        fl_exchange_release_head(exchange);
        say(socket, "zz\r\n" GET("/smuggled"));
        turn(server.loop);
        size_t used;
        if (says) {
            fl_exchange_begin(exchange, 200);
            fl_exchange_head_end(exchange, -1);
            fl_exchange_write(exchange, "said", 4, &used);
            fl_exchange_flush(exchange);
        }
        fl_exchange_abandon(exchange);
        CHECK_NUMBER(0, server.loop->context.counts.in_flight);
        CHECK(server.loop->context.served == NULL);
        fl_heard heard = hear_end(server.loop, socket);
        CHECK_NUMBER(1, occurrences(&heard, "HTTP/1.1 "));
        if (says)
            CHECK_HEARD("HTTP/1.1 200 OK\r\n", "4\r\nsaid\r\n", heard);
        else
            CHECK_HEARD("HTTP/1.1 400 Bad Request\r\n", "a chunk is malformed\n", heard);
        close(socket);
        server_stop(&server);
    }
}

static void what_could_be_read_in_two_ways_is_not_sent(void) {
    peer_server server = server_start();
    int socket = client(&server);
    say(socket, GET("/"));
    fl_exchange *exchange = take(server.loop);
    fl_exchange_release_head(exchange);
    CHECK_NUMBER(FL_BAD_STATUS, fl_exchange_begin(exchange, 199));
    CHECK_NUMBER(FL_BAD_STATUS, fl_exchange_begin(exchange, 1000));
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 200));
    header(exchange, "Transfer-Encoding", "chunked");
    CHECK_NUMBER(FL_BAD_HEADER_VALUE, fl_exchange_header(exchange, "content-length", 14, "1", 1));
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 200));
    header(exchange, "content-length", "1");
    CHECK_NUMBER(FL_BAD_HEADER_VALUE, fl_exchange_header(exchange, "transfer-encoding", 17, "chunked", 7));
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 200));
    header(exchange, "connection", "x ,\tClose");
    header(exchange, "transfer-encoding", "chunked");
    CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, -1));
    put(exchange, "1\r\na\r\n0\r\n\r\n");
    fl_exchange_finish(exchange);
    CHECK_HEARD("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n", "1\r\na\r\n0\r\n\r\n",
                hear_end(server.loop, socket));
    close(socket);
    server_stop(&server);
}

static void a_writer_is_told_that_its_client_has_gone(void) {
    peer_server server = server_start();
    int socket = narrow_client(&server);
    say(socket, GET("/"));
    fl_exchange *exchange = begin(server.loop, 200, -1);
    size_t used;
    CHECK_NUMBER(FL_AGAIN, fl_exchange_write(exchange, large, sizeof large - 1, &used));
    close(socket);
    TURN_UNTIL(server.loop, fl_context_next_woken(&server.loop->context) == exchange->id);
    CHECK_NUMBER(FL_CLOSED, fl_exchange_write(exchange, "x", 1, &used));
    fl_exchange_abandon(exchange);
    CHECK_NUMBER(0, server.loop->context.counts.in_flight + server.loop->context.counts.connections);
    server_stop(&server);
}

static void an_interim_response_goes_before_the_final_one(void) {
    peer_server server = server_start();
    int socket = client(&server), old = client(&server);
    static const char hint[] = "link: a\r\n";
    say(socket, "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n");
    fl_exchange *exchange = take(server.loop);
    CHECK_NUMBER(FL_OK, fl_exchange_send_interim(exchange, 103, hint, sizeof hint - 1));
    CHECK_HEARD("HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n", "", hear(server.loop, socket));
    answer(exchange, 200, "x");
    CHECK_HEARD("HTTP/1.1 200 OK\r\n", "x", hear(server.loop, socket));
    say(old, "GET /1 HTTP/1.0\r\n\r\n");
    exchange = take(server.loop);
    CHECK_NUMBER(FL_OK, fl_exchange_send_interim(exchange, 103, hint, sizeof hint - 1));
    CHECK_SILENT(hear(server.loop, old));
    answer(exchange, 200, "x");
    CHECK_HEARD("HTTP/1.1 200 OK\r\n", "x", hear_end(server.loop, old));
    close(socket);
    close(old);
    server_stop(&server);
}

static void a_hijacked_socket_is_the_callers_with_all_that_was_read(void) {
    peer_server server = server_start();
    int socket = client(&server);
    fl_buffer unsent = {0}, ahead = {0};
    say(socket, "POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcahead");
    fl_exchange *exchange = take(server.loop);
    int descriptor = fl_exchange_hijack(exchange, &unsent, &ahead);
    CHECK(descriptor >= 0);
    CHECK_NUMBER(0, unsent.length);
    CHECK_BYTES("abcahead", 8, fl_buffer_at(&ahead), ahead.length);
    CHECK_NUMBER(0, server.loop->context.counts.connections);
    CHECK_NUMBER(1, server.loop->context.counts.in_flight);
    CHECK_NUMBER(-1, fl_exchange_hijack(exchange, &unsent, &ahead));
    fl_buffer_free(&server.loop->context.slab, &ahead);
    fl_loop_drain(server.loop, false);
    CHECK(!fl_loop_is_drained(server.loop));
    fl_exchange_finish(exchange);
    turn(server.loop);
    CHECK(fl_loop_is_drained(server.loop));
    say(descriptor, "by hand");
    CHECK_HEARD("by hand", "", hear(server.loop, socket));
    close(descriptor);
    close(socket);
    server_stop(&server);
}

static void a_response_that_has_begun_cannot_be_hijacked(void) {
    peer_server server = server_with(peer_limits);
    int socket = client(&server);
    fl_buffer unsent = {0}, ahead = {0};
    say(socket, "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n");
    fl_exchange *exchange = take(server.loop);
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 200));
    CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, -1));
    fl_exchange_flush(exchange);
    CHECK_NUMBER(-1, fl_exchange_hijack(exchange, &unsent, &ahead));
    fl_exchange_finish(exchange);
    CHECK_HEARD("HTTP/1.1 200 OK\r\n", "0\r\n\r\n", hear(server.loop, socket));
    CHECK_NUMBER(1, server.loop->context.counts.connections);
    close(socket);
    server_stop(&server);
}

static void what_follows_101_is_the_apps(void) {
    peer_server server = server_start();
    int socket = client(&server);
    fl_buffer unsent = {0}, ahead = {0};
    say(socket, "GET /1 HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: b\r\n\r\nahead");
    fl_exchange *exchange = take(server.loop);
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 101));
    CHECK_NUMBER(FL_OK, fl_exchange_header(exchange, "upgrade", 7, "b", 1));
    CHECK_NUMBER(FL_OK, fl_exchange_header(exchange, "connection", 10, "upgrade", 7));
    CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, -1));
    int descriptor = fl_exchange_hijack(exchange, &unsent, &ahead);
    CHECK_BYTES("ahead", 5, fl_buffer_at(&ahead), ahead.length);
    fl_buffer_free(&server.loop->context.slab, &ahead);
    fl_exchange_finish(exchange);
    CHECK_HEARD("HTTP/1.1 101 Switching Protocols\r\nupgrade: b\r\nconnection: upgrade\r\ndate: ", "GMT\r\n\r\n",
                hear(server.loop, socket));
    close(descriptor);
    close(socket);
    server_stop(&server);
}

enum { MOST_AT_ONCE = 5 };

/* Responses to requests that are ready at once: whether the first is kept, and all leave when that has lasted. */
static void responses_of(peer_server *server, int count, int64_t usual, bool kept) {
    fl_loop *loop = server->loop;
    loop->pace.interval = usual;
    int sockets[MOST_AT_ONCE];
    fl_heard heard[MOST_AT_ONCE] = {0};
    for (int i = 0; i < count; i++) {
        sockets[i] = client(server);
        say(sockets[i], GET("/"));
    }
    TURN_UNTIL(loop, loop->ready.count == (uint32_t) count);
    for (int i = 0; i < count; i++) {
        fl_exchange_finish(begin(loop, 204, -1));
        if (i > 0)
            continue;
        fl_loop_flush_complete(loop, 5 * SECOND); /* not due yet */
        hear_now(sockets[0], &heard[0]);
        CHECK((heard[0].size > 0) == !kept);
    }
    fl_loop_flush_complete(loop, 0);
    for (int i = 0; i < count; i++) {
        hear_now(sockets[i], &heard[i]);
        CHECK(heard[i].size > 0);
        free(heard[i].bytes);
        close(sockets[i]);
    }
}

static void responses_of_short_requests_leave_together_if_somebody_watches(void) {
    peer_server server = server_start();
    responses_of(&server, 3, 5, false);
    server.loop->watched = true;
    responses_of(&server, 3, 5, true);
    responses_of(&server, 3, 500, false);
    responses_of(&server, MOST_AT_ONCE, 500, true);
    responses_of(&server, MOST_AT_ONCE, 5000, false);
    server_stop(&server);
}

static void who_watches_leaves_alone_what_a_request_is_still_at(void) {
    peer_server server = server_start();
    int socket = client(&server);
    say(socket, GET("/"));
    fl_exchange *exchange = begin(server.loop, 200, -1);
    put(exchange, "part");
    fl_loop_flush_complete(server.loop, 0);
    CHECK(!exchange->response.committed);
    turn(server.loop);
    CHECK(exchange->response.committed);
    CHECK_HEARD("HTTP/1.1 200 OK\r\n", "4\r\npart\r\n", hear(server.loop, socket));
    fl_exchange_finish(exchange);
    close(socket);
    server_stop(&server);
}

int main(void) {
    TEST(responses_of_short_requests_leave_together_if_somebody_watches);
    TEST(who_watches_leaves_alone_what_a_request_is_still_at);
    TEST(a_body_is_framed_by_length_if_it_ends_in_time_else_in_chunks);
    TEST(an_old_client_gets_no_chunks);
    TEST(a_response_without_a_body_carries_none);
    TEST(an_announced_length_is_kept);
    TEST(a_response_may_start_over_until_something_has_left);
    TEST(an_unread_body_ends_the_connection);
    TEST(a_large_body_arrives_whole_however_it_is_framed);
    TEST(of_a_piece_that_is_longer_than_may_be_kept_little_is_copied);
#ifndef FL_FALLBACKS
    TEST(of_what_nobody_reads_little_is_copied_to_the_kernel);
#endif
    RAW_TEST(a_head_leaves_with_the_body_behind_it);
    TEST(a_write_does_not_wait_for_room_that_is_there);
    TEST(a_body_that_is_not_read_is_not_received);
    RAW_TEST(a_body_that_breaks_off_is_told);
    TEST(a_reader_is_told_that_its_client_has_gone);
    TEST(a_request_at_fault_is_refused_if_the_app_has_nothing_to_say);
    TEST(what_could_be_read_in_two_ways_is_not_sent);
    TEST(a_writer_is_told_that_its_client_has_gone);
    TEST(an_interim_response_goes_before_the_final_one);
    RAW_TEST(a_hijacked_socket_is_the_callers_with_all_that_was_read);
    TEST(a_response_that_has_begun_cannot_be_hijacked);
    RAW_TEST(what_follows_101_is_the_apps);
    return test_summary();
}
