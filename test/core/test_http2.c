/* HTTP/2 as an fl_protocol, with nghttp2's own client on the other side. */
#ifdef HAVE_NGHTTP2
#include "http2_client.h"
#include "http2/internal.h"

typedef struct scene {
    peer_server server;
    fl_loop *loop;
    h2_client *client;
} scene;

static fl_limits http2_limits(void) {
    fl_limits limits = peer_limits;
    limits.deadlines[FL_DEADLINE_STREAM] = 5 * SECOND;
    return limits;
}

static scene begin_with(fl_limits limits, uint32_t window) {
    scene scene = {.server = server_with(limits)};
    scene.loop = scene.server.loop;
    scene.client = h2_client_new(&scene.server, window);
    return scene;
}

static scene begin(void) {
    return begin_with(http2_limits(), 0);
}

static void end(scene *scene) {
    h2_client_free(scene->client);
    server_stop(&scene->server);
}

static fl_exchange *take_next(scene *scene) {
    fl_exchange *exchange = NULL;
    H2_UNTIL(scene->client, scene->loop, (exchange = fl_loop_take(scene->loop)) != NULL);
    return exchange;
}

static void check_response(scene *scene, int32_t id, int status, const char *body) {
    h2_stream *stream = h2_at(scene->client, id);
    H2_UNTIL(scene->client, scene->loop, stream->closed);
    CHECK_NUMBER(status, stream->status);
    CHECK(stream->ended);
    CHECK_BYTES(body, strlen(body), stream->body == NULL ? "" : stream->body, stream->size);
}

static void begin_response(fl_exchange *exchange, int64_t length) {
    fl_exchange_release_head(exchange);
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 200));
    CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, length));
}

static char *text_of(size_t size) {
    char *text = malloc(size + 1);
    for (size_t i = 0; i < size; i++) text[i] = (char) ('a' + i % 26);
    text[size] = 0;
    return text;
}

static void a_request_is_answered(void) {
    scene scene = begin();
    int32_t id = h2_get(scene.client, "/path?query");
    fl_exchange *exchange = take_next(&scene);
    CHECK_TEXT("/path", path_of(exchange));
    const fl_head *head = exchange->request.head;
    CHECK_NUMBER(2, head->minor);
    CHECK_BYTES("a", 1, fl_exchange_head_bytes(exchange) + head->authority.at, head->authority.size);
    answer(exchange, 201, "hello");
    check_response(&scene, id, 201, "hello");
    CHECK(strstr(h2_at(scene.client, id)->fields, "content-length: 5\n") != NULL);
    CHECK(strstr(h2_at(scene.client, id)->fields, "date: ") != NULL);
    /* WebSockets over HTTP/2 (RFC 8441) are not offered. */
    CHECK_NUMBER(0, nghttp2_session_get_remote_settings(scene.client->session, NGHTTP2_SETTINGS_ENABLE_CONNECT_PROTOCOL));
    end(&scene);
}

static void bytes_may_come_one_by_one(void) {
    static const char *const cookies[] = {"cookie", "a=1", "cookie", "b=2", NULL};
    scene scene = begin();
    scene.client->bytewise = true;
    int32_t first = h2_request(scene.client, "POST", "/one", "the body", false, cookies);
    fl_exchange *exchange = take_next(&scene);
    int32_t second = h2_get(scene.client, "/two");
    const char *bytes;
    size_t size;
    CHECK_TEXT("/one", path_of(exchange));
    CHECK(memmem(fl_exchange_head_bytes(exchange), exchange->request.head->size, "\r\ncookie: a=1; b=2\r\n", 20) != NULL);
    CHECK_NUMBER(FL_OK, fl_exchange_body(exchange, &bytes, &size));
    CHECK_BYTES("the body", 8, bytes, size);
    answer(exchange, 200, "1");
    answer(take_next(&scene), 200, "2");
    check_response(&scene, first, 200, "1");
    check_response(&scene, second, 200, "2");
    end(&scene);
}

static void a_preface_that_is_wrong_is_refused(void) {
    scene scene = begin();
    int wrong = client(&scene.server);
    send_text(wrong, "PRI * HTTP/2.0\r\n\r\nSM\r\n\rX");
    CHECK_RECEIVED("HTTP/1.1 505 ", "\n", receive_to_end(scene.loop, wrong));
    close(wrong);
    int late = client(&scene.server);
    send_text(late, GET("/") "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    answer(take(scene.loop), 200, "");
    CHECK_RECEIVED("HTTP/1.1 200 ", "supported\n", receive_to_end(scene.loop, late));
    close(late);
    end(&scene);
}

static void responses_may_be_interleaved(void) {
    scene scene = begin();
    int32_t ids[] = {h2_get(scene.client, "/a"), h2_get(scene.client, "/b"), h2_get(scene.client, "/c")};
    fl_exchange *exchanges[] = {take_next(&scene), take_next(&scene), take_next(&scene)};
    size_t used;
    for (int i = 0; i < 3; i++) {
        begin_response(exchanges[i], -1);
        CHECK_NUMBER(FL_OK, fl_exchange_write(exchanges[i], "now", 3, &used));
    }
    H2_UNTIL(scene.client, scene.loop, h2_at(scene.client, ids[0])->size == 3 && h2_at(scene.client, ids[2])->size == 3);
    for (int i = 2; i >= 0; i--) {
        CHECK_NUMBER(FL_OK, fl_exchange_write(exchanges[i], "then", 4, &used));
        fl_exchange_finish(exchanges[i]);
    }
    for (int i = 0; i < 3; i++) check_response(&scene, ids[i], 200, "nowthen");
    CHECK_NUMBER(0, scene.loop->context.counts.in_flight);
    CHECK(scene.loop->context.connections->exchanges == NULL);
    end(&scene);
}

static void a_response_waits_for_the_window(void) {
    enum { SIZE = 3 << 20, WINDOW = 1000 };
    scene scene = begin_with(http2_limits(), WINDOW);
    char *text = text_of(SIZE);
    int32_t id = h2_get(scene.client, "/"), other = h2_get(scene.client, "/other");
    fl_exchange *exchange = take_next(&scene);
    size_t used;
    begin_response(exchange, SIZE);
    CHECK_NUMBER(FL_AGAIN, fl_exchange_write(exchange, text, SIZE, &used));
    CHECK(exchange->response.awaits_room);
    h2_stream *stream = h2_at(scene.client, id);
    H2_UNTIL(scene.client, scene.loop, stream->size == WINDOW);
    CHECK(fl_exchange_room(exchange) < 65536);
    answer(take_next(&scene), 200, "fits"); /* another response is not held up */
    check_response(&scene, other, 200, "fits");
    nghttp2_session_set_local_window_size(scene.client->session, NGHTTP2_FLAG_NONE, 0, 1 << 30);
    nghttp2_session_set_local_window_size(scene.client->session, NGHTTP2_FLAG_NONE, id, 1 << 30);
    for (size_t sent = used; sent < SIZE; sent += used) {
        H2_UNTIL(scene.client, scene.loop, fl_context_next_woken(&scene.loop->context) == exchange->id);
        fl_status status = fl_exchange_write(exchange, text + sent, SIZE - sent, &used);
        CHECK(status == FL_OK || status == FL_AGAIN);
    }
    fl_exchange_finish(exchange);
    check_response(&scene, id, 200, text);
    CHECK_NUMBER(0, scene.loop->context.connections->retained);
    free(text);
    end(&scene);
}

/* What one response has left in the socket's way takes no room from another: a small buffer holds less than that. */
static void a_response_has_room_beside_a_large_one(void) {
    enum { SIZE = 1 << 20, WINDOW = 1 << 30 };
    fl_limits limits = http2_limits();
    limits.response_buffer = FL_BUFFER_UNDER_PRESSURE;
    scene scene = begin_with(limits, WINDOW);
    char *text = text_of(SIZE);
    nghttp2_session_set_local_window_size(scene.client->session, NGHTTP2_FLAG_NONE, 0, WINDOW);
    h2_get(scene.client, "/large");
    fl_exchange *large = take_next(&scene);
    fl_connection *connection = large->connection;
    int32_t id = h2_get(scene.client, "/small");
    fl_exchange *small = take_next(&scene);
    size_t used;
    begin_response(large, -1);
    begin_response(small, -1);
    fl_exchange_flush(small);
    for (int i = 0; i < 10000 && connection->out.length < FL_BUFFER_UNDER_PRESSURE; i++) /* its client does not read */
        fl_exchange_write(large, text, SIZE, &used);
    CHECK(connection->out.length >= FL_BUFFER_UNDER_PRESSURE);
    for (int i = 0; i < 3; i++) CHECK_NUMBER(FL_OK, fl_exchange_write(small, "piece", 5, &used));
    for (int i = 0; i < 100; i++) fl_exchange_write(small, text, SIZE, &used);
    CHECK(small->response.awaits_room);
    CHECK(small->response.out.length <= FL_BUFFER_UNDER_PRESSURE);
    fl_exchange_abandon(large);
    fl_exchange_finish(small);
    h2_stream *stream = h2_at(scene.client, id);
    H2_UNTIL(scene.client, scene.loop, stream->closed);
    CHECK(stream->ended && stream->size > 15 && memcmp(stream->body, "piecepiecepieceabc", 18) == 0);
    free(text);
    end(&scene);
}

/* The rest of a response needs no exchange. */
static void a_finished_response_waits_for_the_window(void) {
    enum { SIZE = 300000, WINDOW = 10 };
    scene scene = begin_with(http2_limits(), WINDOW);
    char *text = text_of(SIZE);
    int32_t ids[] = {h2_get(scene.client, "/"), h2_get(scene.client, "/")};
    for (int i = 0; i < 2; i++) answer(take_next(&scene), 200, text);
    CHECK_NUMBER(0, scene.loop->context.counts.in_flight);
    H2_UNTIL(scene.client, scene.loop, h2_at(scene.client, ids[1])->size == WINDOW);
    CHECK(scene.loop->context.connections->retained > SIZE);
    nghttp2_submit_rst_stream(scene.client->session, NGHTTP2_FLAG_NONE, ids[1], NGHTTP2_CANCEL);
    H2_UNTIL(scene.client, scene.loop, scene.loop->context.connections->retained <= SIZE);
    nghttp2_session_set_local_window_size(scene.client->session, NGHTTP2_FLAG_NONE, 0, 1 << 30);
    nghttp2_session_set_local_window_size(scene.client->session, NGHTTP2_FLAG_NONE, ids[0], 1 << 30);
    check_response(&scene, ids[0], 200, text);
    free(text);
    end(&scene);
}

static void a_stalled_response_is_reset(void) {
    fl_limits limits = http2_limits();
    limits.deadlines[FL_DEADLINE_STREAM] = 30 * MILLISECOND;
    scene scene = begin_with(limits, 10);
    int32_t stalled = h2_get(scene.client, "/"), finished = h2_get(scene.client, "/");
    fl_exchange *exchange = take_next(&scene);
    size_t used;
    begin_response(exchange, -1);
    char *text = text_of(40000);
    CHECK_NUMBER(FL_OK, fl_exchange_write(exchange, text, 40000, &used));
    answer(take_next(&scene), 200, "more than ten bytes");
    H2_UNTIL(scene.client, scene.loop, h2_at(scene.client, stalled)->closed && h2_at(scene.client, finished)->closed);
    CHECK_NUMBER(NGHTTP2_CANCEL, h2_at(scene.client, stalled)->code);
    CHECK_NUMBER(NGHTTP2_CANCEL, h2_at(scene.client, finished)->code);
    CHECK(exchange->connection == NULL);
    CHECK_NUMBER(FL_CLOSED, fl_exchange_write(exchange, "x", 1, &used));
    fl_exchange_abandon(exchange);
    int32_t id = h2_get(scene.client, "/");
    answer(take_next(&scene), 200, "goes on");
    check_response(&scene, id, 200, "goes on");
    free(text);
    end(&scene);
}

/* A client that reads slowly, and has a response that waits for it. */
static fl_exchange *begin_with_waiting_output(scene *scene, const char *path) {
    char *text = text_of(30000);
    int32_t id = h2_get(scene->client, path);
    fl_exchange *exchange = take_next(scene);
    size_t used;
    nghttp2_session_set_local_window_size(scene->client->session, NGHTTP2_FLAG_NONE, id, 1 << 20);
    h2_turn(scene->client, scene->loop);
    begin_response(exchange, -1);
    CHECK_NUMBER(FL_OK, fl_exchange_write(exchange, text, 30000, &used));
    fl_exchange_flush(exchange);
    fl_loop_turn(scene->loop);
    CHECK(exchange->connection->out.length > 0);
    free(text);
    return exchange;
}

static scene begin_narrow(fl_limits limits, uint32_t window) {
    scene scene = begin_with(limits, window);
    close(scene.client->descriptor);
    scene.client->descriptor = narrow_client(&scene.server);
    return scene;
}

static void expire(scene *scene, fl_deadline *deadline) {
    deadline->at = 0;
    scene->loop->context.timer_stale = true;
    fl_loop_turn(scene->loop);
}

static void an_event_stream_is_kept_alive_while_others_wait(void) {
    fl_limits limits = http2_limits();
    limits.deadlines[FL_DEADLINE_EVENTS] = 100 * SECOND;
    scene scene = begin_narrow(limits, 10000);
    int32_t id = h2_get(scene.client, "/events");
    fl_exchange *events = take_next(&scene);
    size_t used;
    fl_exchange_release_head(events);
    CHECK_NUMBER(FL_OK, fl_exchange_begin(events, 200));
    CHECK_NUMBER(FL_OK, fl_exchange_header(events, "content-type", 12, "text/event-stream", 17));
    CHECK_NUMBER(FL_OK, fl_exchange_head_end(events, -1));
    CHECK_NUMBER(FL_OK, fl_exchange_write(events, "data: a\n\n", 9, &used));
    fl_exchange_flush(events);
    H2_UNTIL(scene.client, scene.loop, h2_at(scene.client, id)->size == 9);
    fl_exchange *other = begin_with_waiting_output(&scene, "/other");
    CHECK_NUMBER(FL_DEADLINE_EVENTS, events->request.deadline.kind);
    expire(&scene, &events->request.deadline);
    CHECK(other->connection->out.length > 0);
    H2_UNTIL(scene.client, scene.loop, h2_at(scene.client, id)->size == 11);
    CHECK_BYTES("data: a\n\n:\n", 11, h2_at(scene.client, id)->body, h2_at(scene.client, id)->size);
    fl_exchange_abandon(events);
    fl_exchange_abandon(other);
    end(&scene);
}

#ifndef FL_FALLBACKS
/* Its client was idle for long, has not acknowledged the last response, and keeps its socket open whatever the server says. */
static void what_ends_lingers_though_its_client_still_receives(bool drains) {
    fl_limits limits = http2_limits();
    limits.deadlines[FL_DEADLINE_IDLE] = 20 * MILLISECOND;
    limits.deadlines[FL_DEADLINE_WRITE] = 300 * MILLISECOND;
    limits.deadlines[FL_DEADLINE_LINGER] = 50 * MILLISECOND;
    scene scene = begin_narrow(limits, 10000);
    fl_loop *loop = scene.loop;
    h2_get(scene.client, "/");
    fl_connection *connection = loop->context.connections;
    answer(take_next(&scene), 200, "hello");
    TURN_UNTIL(loop, connection->deadline.kind == FL_DEADLINE_WRITE);
    CHECK_NUMBER(0, connection->out.length);
    static const uint8_t of_no_stream[14] = {0, 0, 5, NGHTTP2_PRIORITY};
    if (drains)
        fl_loop_drain(loop, false);
    else
        send_bytes(scene.client->descriptor, (const char *) of_no_stream, sizeof of_no_stream);
    TURN_UNTIL(loop, connection->deadline.kind == FL_DEADLINE_LINGER);
    char room[65536];
    while (recv(scene.client->descriptor, room, sizeof room, 0) > 0) continue;
    TURN_UNTIL(loop, loop->context.connections == NULL);
    end(&scene);
}

static void a_draining_connection_lingers_though_its_client_still_receives(void) {
    what_ends_lingers_though_its_client_still_receives(true);
}

static void a_failed_connection_lingers_though_its_client_still_receives(void) {
    what_ends_lingers_though_its_client_still_receives(false);
}
#endif

static void bodies_may_be_interleaved(void) {
    scene scene = begin();
    int32_t first = h2_request(scene.client, "POST", "/1", "x", true, NULL);
    int32_t second = h2_request(scene.client, "POST", "/2", "y", true, NULL);
    h2_turn(scene.client, scene.loop);
    CHECK_NUMBER(0, scene.loop->ready.count);
    h2_continue(scene.client, second, "z", false);
    fl_exchange *exchange = take_next(&scene);
    const char *bytes;
    size_t size;
    CHECK_TEXT("/2", path_of(exchange));
    CHECK_NUMBER(FL_OK, fl_exchange_body(exchange, &bytes, &size));
    CHECK_BYTES("yz", 2, bytes, size);
    answer(exchange, 200, "");
    h2_continue(scene.client, first, "", false);
    answer(take_next(&scene), 200, "");
    check_response(&scene, first, 200, "");
    check_response(&scene, second, 200, "");
    end(&scene);
}

static void a_large_body_arrives_as_it_is_read(void) {
    enum { SIZE = 2 << 20 };
    scene scene = begin();
    char *text = text_of(SIZE);
    int32_t id = h2_request(scene.client, "POST", "/", text, false, NULL);
    fl_exchange *exchange = take_next(&scene);
    h2_turn(scene.client, scene.loop);
    CHECK(exchange->request.body.length < 4 * 65536); /* the client waits */
    size_t sum = 0, size;
    bool same = true;
    while (sum < SIZE) {
        const char *bytes;
        fl_status status = fl_exchange_body(exchange, &bytes, &size);
        if (status == FL_AGAIN)
            H2_UNTIL(scene.client, scene.loop, fl_context_next_woken(&scene.loop->context) == exchange->id);
        else if (status != FL_OK || size == 0)
            break;
        same = same && memcmp(text + sum, bytes, size) == 0;
        sum += size;
        fl_exchange_consume_body(exchange, size);
    }
    CHECK_NUMBER(SIZE, sum);
    CHECK(same);
    answer(exchange, 200, "");
    check_response(&scene, id, 200, "");
    free(text);
    end(&scene);
}

static void a_body_that_differs_from_its_length_is_reset(void) {
    static const char *const longer[] = {"content-length", "3", NULL}, *const shorter[] = {"content-length", "1", NULL};
    scene scene = begin();
    int32_t ids[] = {h2_request(scene.client, "POST", "/", "xy", false, longer),
                     h2_request(scene.client, "POST", "/", "xy", false, shorter),
                     h2_request(scene.client, "GET", "/", NULL, false, longer)};
    for (int i = 0; i < 3; i++) {
        h2_stream *stream = h2_at(scene.client, ids[i]);
        H2_UNTIL(scene.client, scene.loop, stream->closed);
        CHECK(stream->status >= 400 || stream->code == NGHTTP2_PROTOCOL_ERROR);
    }
    CHECK_NUMBER(0, scene.loop->ready.count);
    CHECK(scene.loop->context.connections->exchanges == NULL);
    end(&scene);
}

static void a_response_may_end_before_its_request(void) {
    scene scene = begin();
    char *text = text_of(70000);
    int32_t id = h2_request(scene.client, "POST", "/", text, true, NULL);
    answer(take_next(&scene), 200, "enough");
    check_response(&scene, id, 200, "enough");
    CHECK_NUMBER(NGHTTP2_NO_ERROR, h2_at(scene.client, id)->code);
    free(text);
    end(&scene);
}

static void what_http1_refuses_is_refused(void) {
    static const char *const cases[][2] = {
        {":path", "/a b"}, {":path", "/a\tb"}, {":path", "/<"}, {":path", "http://b/"}, {":path", ""}, {":path", "*"},
        {":method", "GE T"}, {":method", "G\r\nX:"}, {":method", ""}, {":authority", "a b"}, {":authority", "a@b"},
        {":authority", "a:99999"}, {":scheme", "ftp"}, {"x y", "1"}, {"x", "a\rb"}, {"x", "a\nb"},
        {"x", " a"}, {"x", "a "}, {"host", "b"}, {"connection", "close"}, {"keep-alive", "1"}, {"proxy-connection", "1"},
        {"transfer-encoding", "chunked"}, {"upgrade", "h2c"}, {"te", "gzip"}, {"content-length", "+1"},
        {"content-length", "1, 1"}, {"expect", "200-ok"}, {":other", "x"}, {"", "x"}, {":path", "/\x7f"}, {"x", "\x01"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scene scene = begin();
        const char *names[] = {":method", ":scheme", ":authority", ":path", "x"};
        const char *values[] = {"GET", "http", "a", "/", "1"};
        nghttp2_nv fields[6];
        size_t count = 0;
        bool used = false;
        for (int j = 0; j < 5; j++) {
            bool same = strcmp(names[j], cases[i][0]) == 0;
            used |= same;
            fields[count++] = H2_FIELD(names[j], same ? cases[i][1] : values[j]);
        }
        if (!used)
            fields[count++] = H2_FIELD(cases[i][0], cases[i][1]);
        int32_t id = nghttp2_submit_request(scene.client->session, NULL, fields, count, NULL, NULL);
        h2_stream *stream = h2_at(scene.client, id);
        H2_UNTIL(scene.client, scene.loop, stream->closed || scene.client->goaways > 0 || scene.loop->ready.count > 0);
        if (scene.loop->ready.count > 0 || (stream->status < 400 && stream->code == NGHTTP2_NO_ERROR && scene.client->goaways == 0))
            test_fail(__FILE__, __LINE__, "accepted %s: %s", cases[i][0], cases[i][1]);
        end(&scene);
    }
}

static void a_head_that_is_too_large_is_refused(void) {
    fl_limits limits = http2_limits();
    limits.head.headers = 10;
    scene scene = begin_with(limits, 0);
    char *value = text_of(20000);
    const char *const one[] = {"x", value, NULL}, *const two[] = {"x", value, "y", value, NULL};
    int32_t fits = h2_request(scene.client, "GET", "/", NULL, false, one);
    answer(take_next(&scene), 200, "");
    check_response(&scene, fits, 200, "");
    int32_t id = h2_request(scene.client, "GET", "/", NULL, false, two);
    h2_stream *stream = h2_at(scene.client, id);
    H2_UNTIL(scene.client, scene.loop, stream->closed);
    CHECK_NUMBER(431, stream->status);
    free(value);
    end(&scene);
}

static void a_reset_frees_a_waiting_request_and_tells_a_served_one(void) {
    scene scene = begin();
    int32_t served = h2_get(scene.client, "/served"), waiting = h2_get(scene.client, "/waiting");
    int32_t body = h2_request(scene.client, "POST", "/body", "x", true, NULL), kept = h2_get(scene.client, "/kept");
    fl_exchange *exchange = take_next(&scene);
    H2_UNTIL(scene.client, scene.loop, scene.loop->ready.count == 2);
    for (int i = 0; i < 3; i++)
        nghttp2_submit_rst_stream(scene.client->session, NGHTTP2_FLAG_NONE, i == 0 ? served : i == 1 ? waiting : body, NGHTTP2_CANCEL);
    H2_UNTIL(scene.client, scene.loop, scene.loop->ready.count == 1 && exchange->connection == NULL);
    CHECK(scene.loop->context.connections->exchanges->stream_next == NULL);
    fl_exchange *other = take_next(&scene);
    CHECK_TEXT("/kept", path_of(other));
    answer(other, 200, "");
    check_response(&scene, kept, 200, "");
    size_t used;
    begin_response(exchange, -1);
    CHECK_NUMBER(FL_CLOSED, fl_exchange_write(exchange, "x", 1, &used));
    fl_exchange_finish(exchange);
    end(&scene);
}

/* What happens to a response, to its stream and to its connection, in all orders. */
static void nothing_is_lost_or_freed_twice(void) {
    enum { STEPS = 6, ORDERS = 720 };
    for (int order = 0; order < ORDERS; order++) {
        scene scene = begin_with(http2_limits(), 100);
        int32_t ids[] = {h2_get(scene.client, "/1"), h2_get(scene.client, "/2"),
                         h2_request(scene.client, "POST", "/3", "x", true, NULL)};
        fl_exchange *exchange = take_next(&scene), *second = take_next(&scene);
        char *text = text_of(5000);
        size_t used;
        begin_response(exchange, -1);
        begin_response(second, -1);
        int left[STEPS] = {0, 1, 2, 3, 4, 5}, code = order;
        for (int step = 0; step < STEPS; step++) {
            int at = code % (STEPS - step), what = left[at];
            code /= STEPS - step;
            left[at] = left[STEPS - step - 1];
            switch (what) {
            case 0:
                nghttp2_submit_rst_stream(scene.client->session, NGHTTP2_FLAG_NONE, ids[0], NGHTTP2_CANCEL);
                h2_exchange_bytes(scene.client, scene.loop);
                fl_loop_wait(scene.loop, 0);
                break;
            case 1:
                if (exchange == NULL)
                    break;
                fl_exchange_write(exchange, text, 5000, &used);
                fl_exchange_flush(exchange);
                break;
            case 2:
                order % 2 == 0 ? fl_exchange_finish(exchange) : fl_exchange_abandon(exchange);
                exchange = NULL;
                break;
            case 3:
                fl_loop_drain(scene.loop, false);
                break;
            case 4:
                nghttp2_submit_rst_stream(scene.client->session, NGHTTP2_FLAG_NONE, ids[2], NGHTTP2_CANCEL);
                nghttp2_session_terminate_session(scene.client->session, NGHTTP2_NO_ERROR);
                h2_exchange_bytes(scene.client, scene.loop);
                fl_loop_wait(scene.loop, 0);
                if (order % 3 == 0)
                    close(scene.client->descriptor), scene.client->descriptor = -1;
                break;
            default:
                fl_exchange_write(second, text, 50, &used);
                fl_exchange_finish(second);
            }
            if (order % 4 < 2)
                fl_loop_turn(scene.loop);
        }
        turn(scene.loop);
        CHECK_NUMBER(0, scene.loop->context.counts.in_flight);
        free(text);
        end(&scene);
    }
}

static void a_drain_loses_no_request(void) {
    scene scene = begin();
    int32_t first = h2_get(scene.client, "/first");
    fl_exchange *exchange = take_next(&scene);
    fl_loop_drain(scene.loop, false);
    int32_t third = h2_get(scene.client, "/third");
    H2_UNTIL(scene.client, scene.loop, scene.client->goaways > 0);
    answer(exchange, 200, "1");
    fl_exchange *late = take_next(&scene);
    CHECK_TEXT("/third", path_of(late));
    answer(late, 200, "3");
    check_response(&scene, first, 200, "1");
    check_response(&scene, third, 200, "3");
    H2_UNTIL(scene.client, scene.loop, scene.client->ended);
    CHECK_NUMBER(NGHTTP2_NO_ERROR, scene.client->goaway_code);
    H2_UNTIL(scene.client, scene.loop, fl_loop_is_drained(scene.loop));
    end(&scene);
}

/* nghttp2 does not answer the PING: it has nothing more to do. */
static void an_idle_connection_ends_with_goaway_when_draining(void) {
    fl_limits limits = http2_limits();
    limits.deadlines[FL_DEADLINE_LINGER] = 30 * MILLISECOND;
    scene scene = begin_with(limits, 0);
    h2_turn(scene.client, scene.loop);
    fl_loop_drain(scene.loop, false);
    H2_UNTIL(scene.client, scene.loop, scene.client->ended);
    CHECK_NUMBER(1, scene.client->goaways);
    CHECK_NUMBER(NGHTTP2_NO_ERROR, scene.client->goaway_code);
    end(&scene);
}

static void heads_without_a_body(void) {
    scene scene = begin();
    int32_t head = h2_request(scene.client, "HEAD", "/", NULL, false, NULL), none = h2_get(scene.client, "/");
    answer(take_next(&scene), 200, "hidden");
    fl_exchange *exchange = take_next(&scene);
    fl_exchange_send_interim(exchange, 103, "link: </x>\r\n", 12);
    answer(exchange, 204, "");
    check_response(&scene, head, 200, "");
    check_response(&scene, none, 204, "");
    CHECK(strstr(h2_at(scene.client, head)->fields, "content-length: 6\n") != NULL);
    CHECK_NUMBER(103, h2_at(scene.client, none)->interim);
    CHECK(strstr(h2_at(scene.client, none)->fields, "link: </x>\n") != NULL);
    end(&scene);
}

static void trailers_follow_the_body(void) {
    scene scene = begin();
    int32_t id = h2_get(scene.client, "/");
    fl_exchange *exchange = take_next(&scene);
    size_t used;
    fl_exchange_begin(exchange, 200);
    fl_exchange_header(exchange, "Trailer", 7, "X-Sum", 5);
    fl_exchange_header(exchange, "Connection", 10, "close", 5);
    fl_exchange_head_end(exchange, -1);
    fl_exchange_write(exchange, "body", 4, &used);
    CHECK_NUMBER(FL_OK, fl_exchange_trailer(exchange, "X-Sum", 5, "1", 1));
    fl_exchange_finish(exchange);
    check_response(&scene, id, 200, "body");
    CHECK(strstr(h2_at(scene.client, id)->fields, "x-sum: 1\n") != NULL);
    CHECK(strstr(h2_at(scene.client, id)->fields, "connection") == NULL);
    end(&scene);
}

static void chunks_of_the_app_are_decoded(void) {
    scene scene = begin();
    int32_t id = h2_get(scene.client, "/"), malformed = h2_get(scene.client, "/");
    fl_exchange *exchanges[] = {take_next(&scene), take_next(&scene)};
    size_t used;
    for (int i = 0; i < 2; i++) {
        fl_exchange_begin(exchanges[i], 200);
        CHECK_NUMBER(FL_OK, fl_exchange_header(exchanges[i], "transfer-encoding", 17, "chunked", 7));
        fl_exchange_head_end(exchanges[i], -1);
        fl_exchange_write(exchanges[i], "4\r\nbo", 5, &used);
    }
    CHECK_NUMBER(FL_OK, fl_exchange_write(exchanges[0], "dy\r\n0\r\n\r\n", 9, &used));
    fl_exchange_finish(exchanges[0]);
    CHECK_NUMBER(FL_BAD_CHUNK, fl_exchange_write(exchanges[1], "dyX", 3, &used));
    fl_exchange_abandon(exchanges[1]);
    check_response(&scene, id, 200, "body");
    H2_UNTIL(scene.client, scene.loop, h2_at(scene.client, malformed)->closed);
    CHECK_NUMBER(NGHTTP2_INTERNAL_ERROR, h2_at(scene.client, malformed)->code);
    end(&scene);
}

static void the_core_answers_for_one_stream(void) {
    fl_limits limits = http2_limits();
    limits.deadlines[FL_DEADLINE_BODY] = 30 * MILLISECOND;
    limits.body_size = 100000;
    strcpy(limits.health_path, "/up");
    static const char *const large[] = {"content-length", "100001", NULL};
    scene scene = begin_with(limits, 0);
    int32_t stalled = h2_request(scene.client, "POST", "/", "x", true, NULL), healthy = h2_get(scene.client, "/up");
    int32_t too_large = h2_request(scene.client, "POST", "/", "x", true, large), served = h2_get(scene.client, "/");
    fl_exchange *exchange = take_next(&scene);
    check_response(&scene, healthy, 200, "ok\n");
    check_response(&scene, stalled, 408, "the request body took too long\n");
    check_response(&scene, too_large, 413, "the request body is larger than allowed\n");
    fl_exchange_set_time_limit(exchange, 10 * MILLISECOND);
    check_response(&scene, served, 504, "the request took too long\n");
    CHECK(exchange->connection == NULL);
    fl_exchange_abandon(exchange);
    end(&scene);
}

static void check_priorities(const char *const *low, const char *const *high, const char *update) {
    enum { SIZE = 100000 };
    scene scene = begin_with(http2_limits(), 1 << 20);
    char *text = text_of(SIZE);
    int32_t slow = h2_request(scene.client, "GET", "/", NULL, false, low), fast = h2_request(scene.client, "GET", "/", NULL, false, high);
    for (int i = 0; i < 2; i++) answer(take_next(&scene), 200, text); /* the connection's window is 65535 bytes */
    if (update != NULL)
        CHECK(nghttp2_submit_priority_update(scene.client->session, NGHTTP2_FLAG_NONE, fast, (const uint8_t *) update, strlen(update)) == 0);
    H2_UNTIL(scene.client, scene.loop, h2_at(scene.client, slow)->size + h2_at(scene.client, fast)->size == 65535);
    unsigned before = scene.client->order_count;
    nghttp2_session_set_local_window_size(scene.client->session, NGHTTP2_FLAG_NONE, 0, 1 << 30);
    H2_UNTIL(scene.client, scene.loop, h2_at(scene.client, fast)->closed && h2_at(scene.client, slow)->closed);
    bool urgent_first = true, others = false;
    for (unsigned i = before; i < scene.client->order_count; i++) {
        others |= scene.client->order[i] == slow;
        urgent_first = urgent_first && !(others && scene.client->order[i] == fast);
    }
    CHECK(urgent_first);
    free(text);
    end(&scene);
}

/* RFC 9218: by a field of the request, or by a frame that follows. */
static void urgent_responses_go_first(void) {
    static const char *const low[] = {"priority", "u=6", NULL}, *const high[] = {"priority", "u=1", NULL};
    check_priorities(low, high, NULL);
    check_priorities(low, low, "u=1");
}

static void a_flood_ends_the_connection(void) {
    scene scene = begin();
    h2_get(scene.client, "/");
    fl_exchange *exchange = take_next(&scene);
    for (int i = 0; i < 3000 && scene.client->goaways == 0; i++) {
        nghttp2_submit_ping(scene.client->session, NGHTTP2_FLAG_NONE, NULL);
        h2_exchange_bytes(scene.client, scene.loop);
        if (i % 20 == 0)
            fl_loop_turn(scene.loop);
    }
    H2_UNTIL(scene.client, scene.loop, scene.client->ended || scene.client->goaways > 0);
    CHECK_NUMBER(NGHTTP2_ENHANCE_YOUR_CALM, scene.client->goaway_code);
    turn(scene.loop);
    CHECK(exchange->connection == NULL);
    fl_exchange_abandon(exchange);
    end(&scene);
}

/* Frames as a client of nghttp2 does not send them. */
static void send_frame(scene *scene, uint8_t type, uint8_t flags, uint8_t id, const char *payload, uint8_t size) {
    uint8_t bytes[9 + 255] = {0, 0, size, type, flags, 0, 0, 0, id};
    memcpy(bytes + 9, payload, size);
    h2_exchange_bytes(scene->client, scene->loop); /* what the session has comes first */
    h2_write(scene->client, bytes, 9u + size);
}

/* GET http://a/ */
static void send_head(scene *scene, uint8_t flags, uint8_t id) {
    send_frame(scene, NGHTTP2_HEADERS, flags, id,
               "\x82\x86\x84\x41\x01"
               "a",
               6);
}

/* What is answered in place of the app, or is malformed, must not leave the deadline of its head behind. */
static void a_refused_request_ends_no_other(void) {
    static const char *const large[] = {"content-length", "101", NULL}, *const malformed[] = {"connection", "close", NULL};
    fl_limits limits = http2_limits();
    limits.deadlines[FL_DEADLINE_HEAD] = 20 * MILLISECOND;
    limits.body_size = 100;
    strcpy(limits.health_path, "/up");
    for (int i = 0; i < 3; i++) {
        scene scene = begin_with(limits, 0);
        int32_t id = h2_get(scene.client, "/");
        fl_exchange *exchange = take_next(&scene);
        int32_t other =
            i == 0 ? h2_get(scene.client, "/up") : h2_request(scene.client, "POST", "/", "x", true, i == 1 ? large : malformed);
        H2_UNTIL(scene.client, scene.loop, h2_at(scene.client, other)->closed);
        CHECK_NUMBER(i == 0 ? 200 : i == 1 ? 413 : 0, h2_at(scene.client, other)->status);
        uint64_t later = fl_clock() + 60 * MILLISECOND;
        H2_UNTIL(scene.client, scene.loop, fl_clock() > later);
        CHECK(exchange->connection != NULL);
        answer(exchange, 200, "goes on");
        check_response(&scene, id, 200, "goes on");
        end(&scene);
    }
}

/* It begins while a response waits for the socket, whose deadline is another one. */
static void a_head_that_stops_is_not_waited_for(void) {
    fl_limits limits = http2_limits();
    limits.deadlines[FL_DEADLINE_HEAD] = 30 * MILLISECOND;
    scene scene = begin_with(limits, 40000); /* the client sends nothing by itself */
    close(scene.client->descriptor);
    scene.client->descriptor = narrow_client(&scene.server);
    char *text = text_of(30000);
    int32_t id = h2_get(scene.client, "/");
    fl_exchange *exchange = take_next(&scene);
    fl_connection *connection = exchange->connection;
    h2_turn(scene.client, scene.loop); /* the settings of both are acknowledged */
    answer(exchange, 200, text);
    fl_loop_turn(scene.loop);
    CHECK_NUMBER(FL_DEADLINE_WRITE, connection->deadline.kind);
    h2_write(scene.client, (const uint8_t *) "\0\0\1\1\1\0\0\0\3\x82", 10);
    fl_loop_wait(scene.loop, 0);
    fl_loop_turn(scene.loop);
    CHECK_NUMBER(FL_EXCHANGE_HEAD, connection->exchanges->state);
    check_response(&scene, id, 200, text);
    H2_UNTIL(scene.client, scene.loop, scene.client->ended);
    CHECK_NUMBER(1, scene.client->goaways);
    CHECK_NUMBER(NGHTTP2_NO_ERROR, scene.client->goaway_code);
    free(text);
    end(&scene);
}

/* Of which all buffers count, those of nghttp2 too. */
static void a_head_that_does_not_end_counts_among_the_unfinished_requests(void) {
    char value[200];
    memset(value, 'v', sizeof value);
    memcpy(value, "\x40\x01"
                  "a\x7f\x41",
           5); /* a: and 192 bytes */
    for (int sheds = 0; sheds < 2; sheds++) {
        scene scene = begin();
        fl_context *context = &scene.loop->context;
        int32_t id = h2_get(scene.client, "/"); /* the settings of both are acknowledged */
        answer(take_next(&scene), 200, "first");
        check_response(&scene, id, 200, "first");
        send_head(&scene, NGHTTP2_FLAG_END_STREAM, 3);
        H2_UNTIL(scene.client, scene.loop, context->unfinished.first != NULL);
        uint64_t bytes = context->unfinished.bytes;
        CHECK(bytes > sizeof(fl_exchange) + sizeof(fl_head) + fl_http2_session_of(context->unfinished.first->connection)->allocated);
        for (int i = 0; i < 6; i++) send_frame(&scene, NGHTTP2_CONTINUATION, 0, 3, value, 197);
        H2_UNTIL(scene.client, scene.loop, context->unfinished.bytes > bytes + 6 * 192);
        CHECK(context->unfinished.first == context->unfinished.last);
        if (sheds) {
            uint64_t others = FL_MAX_UNFINISHED + 1 - context->unfinished.bytes;
            context->unfinished.bytes += others;
            H2_UNTIL(scene.client, scene.loop, scene.client->ended);
            CHECK_NUMBER(1, scene.client->goaways);
            context->unfinished.bytes -= others;
        } else {
            send_frame(&scene, NGHTTP2_CONTINUATION, NGHTTP2_FLAG_END_HEADERS, 3, "", 0);
            fl_exchange_abandon(take_next(&scene));
        }
        CHECK(context->unfinished.bytes == 0 && context->unfinished.first == NULL);
        end(&scene);
    }
}

/* The client has taken all bytes, and its window has no room for the frame that ends them. */
static void the_end_of_a_response_is_not_waited_for(void) {
    fl_limits limits = http2_limits();
    limits.deadlines[FL_DEADLINE_STREAM] = 30 * MILLISECOND;
    scene scene = begin_with(limits, 1000);
    char *text = text_of(1000);
    int32_t id = h2_get(scene.client, "/");
    fl_exchange *exchange = take_next(&scene);
    size_t used;
    begin_response(exchange, -1);
    CHECK_NUMBER(FL_OK, fl_exchange_write(exchange, text, 1000, &used));
    fl_exchange_flush(exchange);
    H2_UNTIL(scene.client, scene.loop, h2_at(scene.client, id)->size == 1000);
    fl_exchange_finish(exchange);
    H2_UNTIL(scene.client, scene.loop, h2_at(scene.client, id)->closed);
    CHECK_NUMBER(NGHTTP2_CANCEL, h2_at(scene.client, id)->code);
    CHECK(!h2_at(scene.client, id)->ended);
    free(text);
    end(&scene);
}

static void frames_of_streams_that_have_ended_are_ignored(void) {
    scene scene = begin();
    int32_t first = h2_get(scene.client, "/");
    answer(take_next(&scene), 200, "first");
    check_response(&scene, first, 200, "first");
    send_frame(&scene, NGHTTP2_DATA, 0, (uint8_t) first, "late", 4);
    send_head(&scene, 5, (uint8_t) first);
    int32_t second = h2_get(scene.client, "/");
    answer(take_next(&scene), 200, "second");
    check_response(&scene, second, 200, "second");
    CHECK_NUMBER(0, scene.client->goaways);
    end(&scene);
}

static void frames_of_no_stream_end_the_connection(void) {
    for (int i = 0; i < 3; i++) {
        scene scene = begin();
        nghttp2_session_set_next_stream_id(scene.client->session, 7);
        int32_t id = h2_get(scene.client, "/");
        answer(take_next(&scene), 200, "");
        check_response(&scene, id, 200, "");
        CHECK_NUMBER(7, id);
        if (i == 0)
            send_frame(&scene, NGHTTP2_PRIORITY, 0, 0, "\0\0\0\0\x0f", 5);
        else
            send_head(&scene, 5, i == 1 ? 1 : 5); /* both were skipped */
        H2_UNTIL(scene.client, scene.loop, scene.client->goaways > 0);
        CHECK_NUMBER(NGHTTP2_PROTOCOL_ERROR, scene.client->goaway_code);
        end(&scene);
    }
}

/* A head of GET http://a/ with a field of 3,000 bytes, which is named once more by each further byte. */
static void send_large_head(scene *scene, int id, bool first, unsigned repeated) {
    static uint8_t bytes[20000];
    size_t size = 9;
    memcpy(bytes + size, "\x82\x86\x84\x01\x01" "a", 6);
    size += 6;
    if (first) {
        memcpy(bytes + size, "\x40\x01x\x7f\xb9\x16", 6);
        memset(bytes + size + 6, 'y', 3000);
        size += 3006;
    }
    memset(bytes + size, 0x80 | 62, repeated);
    size += repeated;
    size_t payload = size - 9;
    memcpy(bytes, (uint8_t[]) {0, (uint8_t) (payload >> 8), (uint8_t) payload, NGHTTP2_HEADERS, 5, 0, 0, (uint8_t) (id >> 8), (uint8_t) id}, 9);
    h2_write(scene->client, bytes, size);
}

/* Requests that the core answers bring it no pause, so a connection has its turn as others have; also while Ruby is stuck in a request. */
static void a_connection_with_endless_input_lets_others_go_on(void) {
    enum { HEADS = 600, SIZE = 9 + 165, A_TURN = FL_HTTP2_A_TURN / FL_HTTP2_HEAD };
    fl_limits limits = http2_limits();
    CHECK(A_TURN <= 400);
    strcpy(limits.health_path, "/up");
    for (int stuck = 0; stuck < 2; stuck++) {
        scene scene = begin_with(limits, 0);
        h2_get(scene.client, "/");
        fl_exchange *exchange = take_next(&scene);
        fl_context *context = &scene.loop->context;
        int room = 1 << 20;
        setsockopt(scene.client->descriptor, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
        h2_turn(scene.client, scene.loop);
        uint64_t before = context->last_id;
        for (int i = 0; i < HEADS; i++) {
            int id = 3 + 2 * i;
            uint8_t head[SIZE];
            memset(head, 'x', SIZE);
            memcpy(head, (uint8_t[]) {0, 0, SIZE - 9, NGHTTP2_HEADERS, 5, 0, 0, (uint8_t) (id >> 8), (uint8_t) id}, 9);
            memcpy(head + 9, "\x82\x86\x04\x03/up\x01\x01" "a\x00\x01x\x7f\x17", 15);
            h2_write(scene.client, head, SIZE);
        }
        send_large_head(&scene, 3 + 2 * HEADS, true, 0); /* one for the app is the last */
        fl_loop_wait(scene.loop, 0);
        stuck ? fl_loop_turn_for_reactor(scene.loop) : (void) fl_loop_turn(scene.loop);
        CHECK(context->last_id > before && context->last_id <= before + 2 * A_TURN);
        for (int i = 0; i < 100 && scene.loop->ready.count == 0; i++) {
            if (stuck) {
                fl_loop_flush_complete(scene.loop, 0);
            } else {
                fl_loop_prepare_wait(scene.loop, true, false);
                CHECK(fl_loop_wait(scene.loop, 5 * SECOND)); /* nothing else would wake it */
            }
        }
        CHECK_NUMBER(1, scene.loop->ready.count);
        CHECK_NUMBER(before + HEADS + 1, context->last_id);
        CHECK(exchange->connection != NULL);
        fl_exchange_abandon(exchange);
        end(&scene);
    }
}

/* Its input came at once, and its turn was over before it was read. Then the driver flushes, or the watch thread does, or another request
 * of the connection reads its body. */
static void what_comes_beside_the_poll_is_not_slept_over(void) {
    enum { DRIVER, WATCH, READER, SIZE = 70000 };
    char *text = text_of(SIZE);
    for (int who = DRIVER; who <= READER; who++) {
        scene scene = begin();
        h2_request(scene.client, "POST", "/", text, true, NULL);
        fl_exchange *reader = take_next(&scene);
        const char *bytes;
        size_t size;
        h2_turn(scene.client, scene.loop);
        for (; fl_exchange_body(reader, &bytes, &size) == FL_OK; h2_turn(scene.client, scene.loop))
            fl_exchange_consume_body(reader, size);
        fl_connection *connection = scene.loop->context.connections;
        h2_get(scene.client, "/");
        h2_exchange_bytes(scene.client, scene.loop);
        fl_event events[FL_POLL_EVENTS];
        bool woken = false;
        CHECK_NUMBER(1, fl_poll_wait(&scene.loop->context.poll, events, 5 * SECOND, &woken)); /* does not come again */
        connection->readable = true;
        fl_connection_mark_dirty(connection);
        if (who == WATCH)
            fl_loop_flush_complete(scene.loop, 0);
        else if (who == READER)
            CHECK_NUMBER(FL_AGAIN, fl_exchange_body(reader, &bytes, &size));
        fl_loop_prepare_wait(scene.loop, true, false);
        CHECK_NUMBER(1, scene.loop->ready.count);
        CHECK(scene.loop->context.dirty == NULL);
        CHECK(fl_loop_wait(scene.loop, SECOND)); /* nothing else would wake it */
        fl_exchange_abandon(fl_loop_take(scene.loop));
        fl_exchange_abandon(reader);
        end(&scene);
    }
    free(text);
}

/* The kernel still has bytes for a client that was idle for long, so a deadline of output runs though no output waits. */
static void a_response_leaves_while_the_last_one_is_on_its_way(void) {
    fl_limits limits = http2_limits();
    limits.deadlines[FL_DEADLINE_IDLE] = 20 * MILLISECOND;
    scene scene = begin_with(limits, 0);
    int pair[2];
    close(scene.client->descriptor);
    CHECK_NUMBER(0, socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    fl_close_on_exec_nonblocking(pair[0]);
    scene.client->descriptor = client_socket(pair[1]);
    fl_connection *connection = fl_connection_open(&scene.loop->context, scene.loop->accepting.listeners, pair[0], "", 0);
    int32_t first = h2_get(scene.client, "/");
    answer(take_next(&scene), 200, "first");
    TURN_UNTIL(scene.loop, connection->deadline.kind == FL_DEADLINE_WRITE);
    CHECK_NUMBER(0, connection->out.length);
    check_response(&scene, first, 200, "first");
    CHECK(connection->deadline.kind == FL_DEADLINE_WRITE);
    int32_t second = h2_get(scene.client, "/");
    answer(take_next(&scene), 200, "second");
    check_response(&scene, second, 200, "second");
    end(&scene);
}

/* Bodies that wait for the app take all that a connection may read ahead. Of the uploads that cannot go on, the oldest gets a window in
 * each turn, but may have nothing to send. */
static void check_upload_goes_on(bool read) {
    enum { OTHERS = 20, OLDER = 3, WINDOW = 65535, SIZE = 60000, ALMOST = 32000, MORE = 1000, PART = 15000 };
    scene scene = begin();
    char *text = text_of(WINDOW + 1);
    for (int i = 0; i < OTHERS; i++) h2_request(scene.client, "POST", "/other", text + WINDOW + 1 - SIZE, false, NULL);
    int32_t older[OLDER], id;
    for (int i = 0; i < OLDER; i++) older[i] = h2_request(scene.client, "POST", "/older", text + WINDOW + 1 - ALMOST, true, NULL);
    id = h2_request(scene.client, "POST", "/last", text + WINDOW + 1 - ALMOST, true, NULL);
    h2_turn(scene.client, scene.loop);
    CHECK_NUMBER(OTHERS, scene.loop->ready.count);
    int sent = ALMOST;
    for (int i = 0; i < OLDER; i++) {
        int part = i < OLDER - 1 ? PART : WINDOW - sent;
        h2_continue(scene.client, older[i], text + WINDOW + 1 - MORE, true);
        h2_continue(scene.client, id, text + WINDOW + 1 - part, true);
        sent += part;
        h2_turn(scene.client, scene.loop);
    }
    h2_continue(scene.client, id, "the end", false);
    h2_turn(scene.client, scene.loop);
    CHECK_NUMBER(OTHERS, scene.loop->ready.count);
    CHECK_NUMBER(7, h2_at(scene.client, id)->left); /* it has no window */
    for (int i = 0; i < OTHERS; i++) {
        fl_exchange *exchange = take_next(&scene);
        if (read)
            fl_exchange_consume_body(exchange, exchange->request.body.length);
        answer(exchange, 200, "");
    }
    fl_exchange *exchange = take_next(&scene);
    CHECK_TEXT("/last", path_of(exchange));
    fl_exchange_abandon(exchange);
    free(text);
    end(&scene);
}

static void an_upload_goes_on_once_others_are_read(void) {
    check_upload_goes_on(true);
    check_upload_goes_on(false); /* but dropped */
}

static void what_follows_the_end_is_dropped_in_turns(void) {
    enum { SIZE = 3 << 16, A_TURN = 1 << 14, ONE_READ = 1 << 14 };
    static const uint8_t wrong[SIZE] = {0, 0, 5, NGHTTP2_PRIORITY}; /* of no stream */
    scene scene = begin();
    int room = 1 << 20;
    setsockopt(scene.client->descriptor, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    h2_turn(scene.client, scene.loop);
    fl_connection *connection = scene.loop->context.connections;
    h2_write(scene.client, wrong, SIZE);
    uint64_t start = connection->received, before = start;
    CHECK(fl_loop_wait(scene.loop, 5 * SECOND));
    CHECK_NUMBER(FL_CONNECTION_LINGERING, connection->state);
    CHECK(connection->received - before < A_TURN + 2 * ONE_READ);
    for (int i = 0; i < 20 && connection->received - start < SIZE; i++) {
        before = connection->received;
        fl_loop_prepare_wait(scene.loop, true, false);
        CHECK(connection->received - before <= A_TURN);
        CHECK(fl_loop_wait(scene.loop, 5 * SECOND));
    }
    CHECK(connection->received - start >= SIZE);
    CHECK_NUMBER(FL_CONNECTION_LINGERING, connection->state);
    end(&scene);
}

/* Its pseudo-headers have filled the largest buffer. */
static void a_head_for_which_there_is_no_memory_is_refused(void) {
    scene scene = begin();
    h2_turn(scene.client, scene.loop);
    fl_context *context = &scene.loop->context;
    const fl_http2_session *own = fl_http2_session_of(context->connections);
    send_frame(&scene, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_STREAM, 1, "\x86", 1); /* a scheme */
    TURN_UNTIL(scene.loop, own->head != NULL && own->head->pseudo.length > 0);
    fl_buffer *pseudo = &own->head->pseudo;
    context->slab.in_use += (1u << 31) - pseudo->capacity;
    pseudo->length = pseudo->capacity = 1u << 31;
    send_frame(&scene, NGHTTP2_CONTINUATION, NGHTTP2_FLAG_END_HEADERS, 1, "\x83\x84\x41\x01" "a", 5); /* POST http://a/ */
    TURN_UNTIL(scene.loop, own->head == NULL && own->streams == 0);
    CHECK_NUMBER(0, scene.loop->ready.count);
    CHECK_NUMBER(FL_CONNECTION_OPEN, context->connections->state);
    end(&scene);
}

/* Its turn ends within the list, at its end, or with the request. */
static void a_header_list_is_decoded_in_turns(void) {
    enum { FIELD = 3000 + 1 + 32, A_TURN = FL_HTTP2_A_TURN / FL_HTTP2_HEAVY };
    scene scene = begin();
    h2_turn(scene.client, scene.loop);
    const fl_http2_session *own = fl_http2_session_of(scene.loop->context.connections);
    for (int repeated = 0; repeated < 10; repeated++) {
        send_large_head(&scene, 1 + 2 * repeated, repeated == 0, (unsigned) repeated);
        for (size_t before = 0; scene.loop->ready.count == 0; before = own->list_size) {
            CHECK(fl_loop_wait(scene.loop, 5 * SECOND)); /* nothing else would wake it */
            CHECK(own->list_size <= before + A_TURN + FIELD);
            if (scene.loop->ready.count == 0)
                fl_loop_prepare_wait(scene.loop, true, false);
        }
        fl_exchange *exchange = fl_loop_take(scene.loop);
        CHECK_NUMBER(1 + (repeated == 0 ? 1 : repeated), exchange->request.head->count);
        fl_exchange_abandon(exchange);
    }
    end(&scene);
}

/* They are refused, and cost more than a response brings. */
static void heads_that_unpack_to_much_end_the_connection(void) {
    scene scene = begin();
    h2_turn(scene.client, scene.loop);
    const fl_connection *connection = scene.loop->context.connections;
    for (int i = 0; i < 500; i++) send_large_head(&scene, 1 + 2 * i, i == 0, 46);
    for (int i = 0; i < 10000 && connection->state == FL_CONNECTION_OPEN; i++) {
        fl_loop_prepare_wait(scene.loop, true, false);
        CHECK(fl_loop_wait(scene.loop, 5 * SECOND)); /* nothing else would wake it */
    }
    CHECK_NUMBER(FL_CONNECTION_LINGERING, connection->state);
    CHECK(fl_http2_session_of(connection)->tokens < 0);
    CHECK_NUMBER(0, scene.loop->ready.count);
    end(&scene);
}

static void a_head_that_unpacks_to_megabytes_is_not_decoded(void) {
    scene scene = begin();
    h2_turn(scene.client, scene.loop);
    fl_connection *connection = scene.loop->context.connections;
    send_large_head(&scene, 1, true, 10000);
    TURN_UNTIL(scene.loop, connection->state == FL_CONNECTION_LINGERING);
    CHECK(fl_http2_session_of(connection)->list_size < 5 * peer_limits.head.head);
    H2_UNTIL(scene.client, scene.loop, scene.client->goaways > 0);
    CHECK_NUMBER(NGHTTP2_ENHANCE_YOUR_CALM, scene.client->goaway_code);
    end(&scene);
}

int main(void) {
    TEST(a_request_is_answered);
    TEST(bytes_may_come_one_by_one);
    TEST(a_preface_that_is_wrong_is_refused);
    TEST(responses_may_be_interleaved);
    TEST(a_response_waits_for_the_window);
    TEST(a_response_has_room_beside_a_large_one);
    TEST(a_finished_response_waits_for_the_window);
    TEST(a_stalled_response_is_reset);
#ifndef FL_FALLBACKS
    TEST(a_draining_connection_lingers_though_its_client_still_receives);
    TEST(a_failed_connection_lingers_though_its_client_still_receives);
#endif
    TEST(an_event_stream_is_kept_alive_while_others_wait);
    TEST(bodies_may_be_interleaved);
    TEST(a_large_body_arrives_as_it_is_read);
    TEST(a_body_that_differs_from_its_length_is_reset);
    TEST(a_response_may_end_before_its_request);
    TEST(what_http1_refuses_is_refused);
    TEST(a_head_that_is_too_large_is_refused);
    TEST(a_reset_frees_a_waiting_request_and_tells_a_served_one);
    TEST(nothing_is_lost_or_freed_twice);
    TEST(a_drain_loses_no_request);
    TEST(an_idle_connection_ends_with_goaway_when_draining);
    TEST(heads_without_a_body);
    TEST(trailers_follow_the_body);
    TEST(chunks_of_the_app_are_decoded);
    TEST(the_core_answers_for_one_stream);
    TEST(urgent_responses_go_first);
    TEST(a_flood_ends_the_connection);
    TEST(a_refused_request_ends_no_other);
    TEST(a_head_that_stops_is_not_waited_for);
    TEST(a_head_that_does_not_end_counts_among_the_unfinished_requests);
    TEST(the_end_of_a_response_is_not_waited_for);
    TEST(frames_of_streams_that_have_ended_are_ignored);
    TEST(frames_of_no_stream_end_the_connection);
    TEST(a_connection_with_endless_input_lets_others_go_on);
    TEST(what_comes_beside_the_poll_is_not_slept_over);
    TEST(a_response_leaves_while_the_last_one_is_on_its_way);
    TEST(an_upload_goes_on_once_others_are_read);
    TEST(what_follows_the_end_is_dropped_in_turns);
    TEST(a_head_for_which_there_is_no_memory_is_refused);
    TEST(a_header_list_is_decoded_in_turns);
    TEST(heads_that_unpack_to_much_end_the_connection);
    TEST(a_head_that_unpacks_to_megabytes_is_not_decoded);
    return test_summary();
}
#else
#include "test.h"

int main(void) {
    return test_summary();
}
#endif
