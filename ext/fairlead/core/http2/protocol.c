#ifdef HAVE_NGHTTP2
/* HTTP/2 connections: opening, reading, sending, draining, closing. */
#include "protocol.h"
#include "internal.h"

#include <stdlib.h>

enum {
    READ_SIZE = 16384,
    TURN = 4,               /* times FL_HTTP2_MAX_OUT bytes are sent before it is another connection's turn */
    MAX_OUTBOUND_ACKS = 64, /* a client that does not read them floods the server */
    MAX_SETTINGS = 32,
};

/* The same for all sessions, which copy them. */
static nghttp2_session_callbacks *callbacks;
static nghttp2_option *options;

__attribute__((constructor)) static void prepare(void) {
    if (nghttp2_session_callbacks_new(&callbacks) != 0 || nghttp2_option_new(&options) != 0)
        abort();
    nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, fl_http2_on_begin_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, fl_http2_on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, fl_http2_on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, fl_http2_on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, fl_http2_on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, fl_http2_on_stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, fl_http2_on_frame_sent);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(callbacks, fl_http2_on_frame_not_sent);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, fl_http2_on_send_data);
    nghttp2_option_set_no_auto_window_update(options, 1);
    nghttp2_option_set_no_closed_streams(options, 1);
    nghttp2_option_set_max_outbound_ack(options, MAX_OUTBOUND_ACKS);
    nghttp2_option_set_max_settings(options, MAX_SETTINGS);
#if NGHTTP2_VERSION_NUM >= 0x013200
    nghttp2_option_set_builtin_recv_extension_type(options, NGHTTP2_PRIORITY_UPDATE);
#endif
}

static void free_session(fl_connection *connection, fl_http2_session *own) {
    while (own->first != NULL) fl_http2_stream_free(own->first);
    fl_buffer_free(&connection->context->slab, &own->rest);
    nghttp2_session_del(own->session);
    free(own);
    *(fl_http2_session **) (void *) connection->protocol_state = NULL;
}

static void close_session(fl_connection *connection) {
    fl_http2_session *own = fl_http2_session_of(connection);
    if (own == NULL)
        return;
    if (own->busy)
        own->closed = true;
    else
        free_session(connection, own);
}

/* A connection has one such head at most: nothing else may come within it (RFC 9113, 4.3). */
static void count_unfinished_head(const fl_http2_session *own) {
    const fl_http2_stream *stream = own->head;
    if (stream != NULL && stream->exchange != NULL)
        fl_exchange_count_unfinished(stream->exchange, own->allocated + stream->pseudo.capacity + stream->cookie.capacity);
}

/* Passes input to nghttp2, and keeps what is for the next turn. Takes the buffer. May close the connection. */
static void feed(fl_connection *connection, fl_buffer bytes) {
    fl_http2_session *own = fl_http2_session_of(connection);
    fl_slab *slab = &connection->context->slab;
    own->paused = false;
    own->busy = true;
    ssize_t count = nghttp2_session_mem_recv(own->session, (const uint8_t *) fl_buffer_at(&bytes), bytes.length);
    own->busy = false;
    if (own->closed) {
        fl_buffer_free(slab, &bytes);
        free_session(connection, own);
        return;
    }
    size_t size = count < 0 ? bytes.length : (size_t) count;
    fl_http2_received(own, size);
    own->paused &= !own->ending;
    fl_buffer_consume(slab, &bytes, own->paused ? size : bytes.length);
    own->rest = bytes;
    count_unfinished_head(own);
    if (own->paused)
        fl_connection_mark_dirty(connection); /* goes on at the next turn */
    if (count == NGHTTP2_ERR_NOMEM)
        fl_connection_close(connection);
    else if (count < 0)
        fl_http2_end(own, count == NGHTTP2_ERR_BAD_CLIENT_MAGIC ? NGHTTP2_PROTOCOL_ERROR : NGHTTP2_ENHANCE_YOUR_CALM);
}

/* Moves frames to `out`. False: out of memory. */
static bool fill(fl_connection *connection, fl_http2_session *own) {
    const uint8_t *bytes;
    while (connection->out.length < FL_HTTP2_MAX_OUT) {
        own->busy = true;
        ssize_t count = nghttp2_session_mem_send(own->session, &bytes);
        own->busy = false;
        if (count == 0)
            break;
        if (count < 0 ||
            fl_buffer_append(&connection->context->slab, &connection->out, (const char *) bytes, (size_t) count) != FL_OK)
            return false;
    }
    return true;
}

void fl_http2_pump(fl_connection *connection) {
    fl_http2_session *own = fl_http2_session_of(connection);
    if (connection->state != FL_CONNECTION_OPEN || own->busy || own->pumping)
        return;
    own->pumping = true;
    for (int i = 0; i < TURN; i++) {
        bool waits = connection->out.length > 0;
        if (!fill(connection, own)) {
            fl_connection_close(connection);
            return;
        }
        if (connection->out.length == 0 || waits)
            break;
        fl_connection_send(connection, NULL);
        if (connection->state == FL_CONNECTION_CLOSED)
            return;
        if (connection->out.length > 0)
            break;
    }
    own->pumping = false;
    if (connection->out.length == 0 && nghttp2_session_want_write(own->session))
        fl_connection_mark_dirty(connection); /* goes on at the next turn */
}

/* `all`: also those whose streams are open. */
static void lose_exchanges(fl_connection *connection, fl_http2_session *own, bool all) {
    own->lost = false;
    for (fl_exchange *exchange = connection->exchanges, *next; exchange != NULL; exchange = next) {
        next = exchange->stream_next;
        fl_http2_exchange *state = fl_http2_exchange_state(exchange);
        if (!all && !state->lost)
            continue;
        if (state->stream != NULL)
            fl_http2_stream_forget_exchange(state->stream);
        fl_exchange_detach(exchange);
        fl_exchange_connection_lost(exchange, true);
    }
}

void fl_http2_settle(fl_connection *connection) {
    fl_http2_session *own = fl_http2_session_of(connection);
    if (connection->state != FL_CONNECTION_OPEN || own->busy || own->pumping)
        return;
    if (own->lost)
        lose_exchanges(connection, own, false);
    bool over = (!own->draining || own->last_named) && !nghttp2_session_want_read(own->session) &&
                !nghttp2_session_want_write(own->session);
    if (own->ending || over) {
        lose_exchanges(connection, own, true);
        connection->readable = true; /* lingers, so that the client reads why before it sees a reset */
        fl_connection_end(connection);
    } else {
        fl_connection_update_deadline(connection);
    }
}

static fl_deadline_kind awaits(const fl_connection *connection) {
    const fl_http2_session *own = fl_http2_session_of(connection);
    if (own->head != NULL)
        return FL_DEADLINE_HEAD;
    if (own->streams > 0 || connection->exchanges != NULL)
        return FL_DEADLINE_NONE;
    return own->draining ? FL_DEADLINE_LINGER : FL_DEADLINE_IDLE;
}

/* Sends and frees what is due. May close the connection. */
static void advance(fl_connection *connection) {
    fl_http2_session *own = fl_http2_session_of(connection);
    if (connection->state == FL_CONNECTION_OPEN && own->holds)
        fl_http2_grant_held(own);
    fl_http2_pump(connection);
    fl_http2_settle(connection);
}

/* In two steps, so that no request is lost that is on its way: first the client learns that the connection will end, and when it has
 * answered a PING, which was its last request (RFC 9113, 6.8). */
static void drain(fl_connection *connection) {
    fl_http2_session *own = fl_http2_session_of(connection);
    if (!own->draining) {
        own->draining = true;
        nghttp2_submit_shutdown_notice(own->session);
    }
    advance(connection);
}

static bool start(fl_connection *connection, fl_http2_session *own) {
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, FL_HTTP2_MAX_STREAMS},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, connection->context->limits.head.head},
#if NGHTTP2_VERSION_NUM >= 0x013200
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
#endif
    };
    own->connection = connection;
    own->last_id = -1;
    fl_http2_budget_open(own);
    return nghttp2_session_server_new3(&own->session, callbacks, own, options, &own->memory) == 0 &&
           nghttp2_submit_settings(own->session, NGHTTP2_FLAG_NONE, settings, sizeof settings / sizeof *settings) == 0 &&
           nghttp2_session_set_local_window_size(own->session, NGHTTP2_FLAG_NONE, 0, FL_HTTP2_CONNECTION_WINDOW) == 0;
}

static void open_session(fl_connection *connection) {
    fl_http2_session *own = calloc(1, sizeof *own);
    fl_buffer first = connection->in;
    connection->in = (fl_buffer) {0};
    *(fl_http2_session **) (void *) connection->protocol_state = own;
    if (own == NULL || !start(connection, own)) {
        fl_buffer_free(&connection->context->slab, &first);
        fl_connection_close(connection);
        return;
    }
    if (first.length > 0)
        feed(connection, first);
    if (connection->state == FL_CONNECTION_OPEN && connection->context->draining)
        drain(connection); /* it was accepted before */
    else
        advance(connection);
}

static void receive(fl_connection *connection) {
    fl_http2_session *own = fl_http2_session_of(connection);
    if (own->ending || own->paused || connection->out.length >= FL_HTTP2_MAX_OUT)
        return; /* a client that does not read its responses sends no more requests; see send_staged */
    if (own->turn >= FL_HTTP2_A_TURN) {
        own->turn = 0;
        fl_connection_mark_dirty(connection); /* goes on at the next turn */
        return;
    }
    fl_buffer bytes = {0};
    ssize_t count = fl_connection_read(connection, &bytes, READ_SIZE);
    if (connection->state == FL_CONNECTION_OPEN && !connection->readable)
        own->turn = 0;
    if (count > 0) {
        fl_buffer_added(&bytes, (size_t) count);
        feed(connection, bytes);
    } else {
        fl_buffer_free(&connection->context->slab, &bytes);
    }
    if (count < 0)
        fl_connection_close(connection); /* no client ends its side only: it could not even acknowledge */
    else
        advance(connection);
}

static void sent(fl_connection *connection) {
    if (fl_http2_session_of(connection)->pumping)
        return;
    fl_http2_pump(connection);
    if (connection->state == FL_CONNECTION_OPEN)
        fl_connection_mark_dirty(connection);
}

static void send_staged(fl_connection *connection) {
    fl_http2_session *own = fl_http2_session_of(connection);
    if (own->paused && connection->out.length < FL_HTTP2_MAX_OUT) { /* before a long response fills it again */
        fl_buffer rest = own->rest;
        own->rest = (fl_buffer) {0};
        own->turn = 0;
        feed(connection, rest);
    }
    advance(connection);
}

static void exchange_freed(fl_exchange *exchange) {
    fl_http2_stream *stream = fl_http2_stream_of(exchange);
    if (stream == NULL)
        return;
    fl_http2_stream_forget_exchange(stream);
    fl_http2_stream_reset(stream, NGHTTP2_INTERNAL_ERROR);
}

const fl_protocol fl_http2_protocol = {
    .name = "h2",
    .keeps = true,
    .open = open_session,
    .receive = receive,
    .sent = sent,
    .send_staged = send_staged,
    .awaits = awaits,
    .drain = drain,
    .close = close_session,
    .exchange_freed = exchange_freed,
    .read = fl_http2_read_body,
    .consumed = fl_http2_body_consumed,
    .canned_response = fl_http2_canned_response,
    .serialize = fl_http2_serialize,
    .begin = fl_http2_begin,
    .header = fl_http2_header,
    .head = fl_http2_end_head,
    .is_well_formed = fl_http2_is_well_formed,
    .body = fl_http2_body,
    .trailer = fl_http2_trailer,
    .flush = fl_http2_flush,
    .finish = fl_http2_finish,
    .finished = fl_http2_settle,
    .reset = fl_http2_reset,
    .send_interim = fl_http2_send_interim,
};
#endif
