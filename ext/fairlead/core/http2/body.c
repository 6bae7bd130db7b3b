#ifdef HAVE_NGHTTP2
/* Request bodies, and how much of them a client may send ahead. */
#include "internal.h"

enum {
    GRANTED_FROM = 32768,   /* bytes that were received: the client gets a new window for that many at once */
    MAX_AHEAD = 1 << 20,    /* bytes that all streams of a connection may read ahead beyond their first window */
    LARGE_WINDOW = 1 << 19, /* for a body that the app reads as it arrives */
    MAX_LARGE_WINDOWS = 4,
};

static uint32_t bytes_ahead(const fl_connection *connection) {
    uint32_t sum = 0;
    for (const fl_exchange *exchange = connection->exchanges; exchange != NULL; exchange = exchange->stream_next)
        sum += exchange->request.body.length;
    return sum;
}

static void grant(fl_http2_stream *stream) {
    nghttp2_session_consume_stream(stream->owner->session, stream->id, stream->held_back);
    stream->held_back = 0;
}

static bool is_held(const fl_exchange *exchange) {
    const fl_http2_stream *stream = fl_http2_stream_of(exchange);
    return exchange->state == FL_EXCHANGE_BODY && stream != NULL && stream->held_back >= GRANTED_FROM;
}

/* The oldest always gets its window, so that one after the other completes. */
void fl_http2_grant_held(fl_http2_session *own) {
    const fl_exchange *oldest = NULL;
    bool room = bytes_ahead(own->connection) < MAX_AHEAD;
    own->holds = false;
    for (fl_exchange *exchange = own->connection->exchanges; exchange != NULL; exchange = exchange->stream_next) {
        if (!is_held(exchange))
            continue;
        if (room) {
            grant(fl_http2_stream_of(exchange));
            continue;
        }
        own->holds |= oldest != NULL;
        oldest = exchange;
    }
    if (oldest != NULL)
        grant(fl_http2_stream_of(oldest));
}

static void add_to_body(fl_http2_stream *stream, const char *bytes, size_t size) {
    fl_exchange *exchange = stream->exchange;
    fl_request *request = &exchange->request;
    request->received += size;
    if (request->received > exchange->context->limits.body_size) {
        fl_exchange_reject(exchange, FL_BODY_TOO_LARGE);
        return;
    }
    if (fl_buffer_append(fl_http2_slab(stream), &request->body, bytes, size) != FL_OK) {
        fl_exchange_reject(exchange, FL_NO_MEMORY);
        return;
    }
    stream->owner->holds |= is_held(exchange);
    fl_exchange_body_received(exchange);
}

bool fl_http2_reads_body(const fl_http2_stream *stream) {
    return stream->exchange != NULL && !stream->exchange->request.complete && !stream->exchange->request.failed;
}

void fl_http2_body_is_complete(fl_http2_stream *stream) {
    stream->read_ended = true;
    if (!fl_http2_reads_body(stream))
        return;
    stream->exchange->request.complete = true;
    fl_exchange_body_received(stream->exchange);
}

static bool uses_large_window(const fl_http2_stream *stream) {
    return nghttp2_session_get_stream_effective_local_window_size(stream->owner->session, stream->id) >= LARGE_WINDOW;
}

/* A body that the app reads as it arrives gets a larger window, since the client waits for each. */
static void enlarge_window(fl_http2_stream *stream) {
    int large = 0;
    for (const fl_http2_stream *other = stream->owner->first; other != NULL; other = other->next)
        large += uses_large_window(other);
    if (large < MAX_LARGE_WINDOWS && !uses_large_window(stream))
        nghttp2_session_set_local_window_size(stream->owner->session, NGHTTP2_FLAG_NONE, stream->id, LARGE_WINDOW);
}

void fl_http2_read_body(fl_exchange *exchange) {
    fl_http2_stream *stream = fl_http2_stream_of(exchange);
    if (stream == NULL || stream->held_back == 0)
        return;
    grant(stream);
    enlarge_window(stream);
    fl_http2_pump(exchange->connection);
}

/* Streams that were held back may get their windows. */
void fl_http2_body_consumed(fl_exchange *exchange) {
    if (fl_http2_session_of(exchange->connection)->holds)
        fl_connection_mark_dirty(exchange->connection);
}

int fl_http2_on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes, size_t size, void *data) {
    (void) flags;
    fl_http2_session *own = data;
    fl_http2_stream *stream = nghttp2_session_get_stream_user_data(session, id);
    nghttp2_session_consume_connection(session, size);
    if (stream == NULL || own->closed || !fl_http2_reads_body(stream)) {
        nghttp2_session_consume_stream(session, id, size);
        return 0;
    }
    own->body_bytes += size;
    stream->held_back += (uint32_t) size;
    add_to_body(stream, (const char *) bytes, size);
    return 0;
}
#endif
