#ifdef HAVE_NGHTTP2
/* Frames of responses: from staged text to nghttp2, and from there to the connection's `out`. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    USUAL_FIELDS = 64,
    FRAME_HEADER = 9, /* bytes */
    DRIBBLE = 1024,   /* bytes: smaller pieces because of the client's window cost tokens */
    VIOLATION = 20,   /* tokens for an error of the client that resets a stream */
};

static size_t count_lines(const char *lines, size_t size) {
    size_t count = 0;
    for (const char *at = lines, *end = lines + size; at < end && (at = memchr(at, '\n', (size_t) (end - at))) != NULL; at++)
        count++;
    return count;
}

/* Fills `fields` with the lines "name: value" CR LF. Returns how many. nghttp2 makes the names lower case. */
static size_t read_lines(nghttp2_nv *fields, const char *lines, size_t size) {
    size_t count = 0;
    for (const char *at = lines, *end = lines + size, *line_end; at < end; at = line_end + 1) {
        line_end = memchr(at, '\n', (size_t) (end - at));
        const char *colon = line_end == NULL ? NULL : memchr(at, ':', (size_t) (line_end - at));
        if (colon == NULL)
            break;
        const char *value = colon + 1, *value_end = line_end;
        while (value < value_end && (*value == ' ' || *value == '\t')) value++;
        while (value_end > value && (value_end[-1] == ' ' || value_end[-1] == '\t' || value_end[-1] == '\r')) value_end--;
        fields[count++] = (nghttp2_nv) {.name = (uint8_t *) at,
                                        .namelen = (size_t) (colon - at),
                                        .value = (uint8_t *) value,
                                        .valuelen = (size_t) (value_end - value)};
    }
    return count;
}

static ssize_t read_data(nghttp2_session *session, int32_t id, uint8_t *room, size_t most, uint32_t *flags,
                         nghttp2_data_source *source, void *data);

typedef enum what { RESPONSE, INTERIM, TRAILERS } what;

static bool submit(fl_http2_stream *stream, what what, int code, const char *lines, size_t size, bool has_body) {
    nghttp2_nv usual[USUAL_FIELDS], *fields = usual;
    size_t room = count_lines(lines, size) + 1, count = 0;
    char status[12];
    if (room > USUAL_FIELDS && (fields = malloc(room * sizeof *fields)) == NULL)
        return false;
    if (what != TRAILERS) {
        int digits = snprintf(status, sizeof status, "%d", code);
        fields[count++] = (nghttp2_nv) {
            .name = (uint8_t *) ":status", .namelen = 7, .value = (uint8_t *) status, .valuelen = (size_t) digits};
    }
    count += read_lines(fields + count, lines, size);
    nghttp2_session *session = stream->owner->session;
    nghttp2_data_provider provider = {.source.ptr = stream, .read_callback = read_data};
    int error;
    if (what == RESPONSE)
        error = nghttp2_submit_response(session, stream->id, fields, count, has_body ? &provider : NULL);
    else if (what == TRAILERS)
        error = nghttp2_submit_trailer(session, stream->id, fields, count);
    else
        error = nghttp2_submit_headers(session, NGHTTP2_FLAG_NONE, stream->id, NULL, fields, count, NULL);
    if (fields != usual)
        free(fields);
    return error >= 0;
}

bool fl_http2_submit_head(fl_http2_stream *stream, int code, const char *lines, size_t size, bool has_body) {
    stream->submitted = true;
    return submit(stream, RESPONSE, code, lines, size, has_body);
}

bool fl_http2_submit_interim(fl_http2_stream *stream, int code, const char *lines, size_t size) {
    return stream->submitted || submit(stream, INTERIM, code, lines, size, false);
}

void fl_http2_resume(fl_http2_stream *stream) {
    if (!stream->deferred)
        return;
    stream->deferred = false;
    nghttp2_session_resume_data(stream->owner->session, stream->id);
}

static fl_buffer *body_of(fl_http2_stream *stream) {
    return stream->exchange != NULL ? &stream->exchange->response.out : &stream->out;
}

/* nghttp2 asks how much it may send: at most a frame, then it is another stream's turn. */
static ssize_t read_data(nghttp2_session *session, int32_t id, uint8_t *room, size_t most, uint32_t *flags,
                         nghttp2_data_source *source, void *data) {
    (void) session, (void) id, (void) room;
    fl_http2_stream *stream = source->ptr;
    if (stream->pending == 0 && !stream->finished) {
        stream->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (stream->pending > most) {
        if (most < DRIBBLE)
            fl_http2_spend(data, 1);
        return (ssize_t) most;
    }
    fl_http2_earn(data, 2);
    if (stream->finished) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        const fl_buffer *trailers = &stream->trailers;
        if (trailers->length > 0 && submit(stream, TRAILERS, 0, fl_buffer_at(trailers), trailers->length, false))
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
    }
    return (ssize_t) stream->pending;
}

int fl_http2_on_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *header, size_t size,
                          nghttp2_data_source *source, void *data) {
    (void) session, (void) frame;
    fl_connection *connection = ((fl_http2_session *) data)->connection;
    fl_http2_stream *stream = source->ptr;
    fl_slab *slab = fl_http2_slab(stream);
    fl_buffer *body = body_of(stream);
    if (fl_buffer_reserve(slab, &connection->out, FRAME_HEADER + size) != FL_OK)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    fl_buffer_append(slab, &connection->out, (const char *) header, FRAME_HEADER);
    if (size > 0) {
        fl_buffer_append(slab, &connection->out, fl_buffer_at(body), size);
        fl_buffer_consume(slab, body, size);
    }
    stream->pending -= (uint32_t) size;
    stream->sent += size;
    connection->retained -= (uint32_t) size;
    if (stream->pending == 0) {
        fl_http2_stream_watch(stream);
        if (stream->exchange != NULL && stream->exchange->response.awaits_room)
            fl_exchange_wake(stream->exchange);
    }
    return connection->out.length >= FL_HTTP2_MAX_OUT ? NGHTTP2_ERR_PAUSE : 0;
}

static bool is_violation(uint32_t code) {
    return code != NGHTTP2_NO_ERROR && code != NGHTTP2_INTERNAL_ERROR && code != NGHTTP2_CANCEL;
}

/* A response may end before its request: then the client need not send the rest (RFC 9113, 8.1). */
int fl_http2_on_frame_not_sent(nghttp2_session *session, const nghttp2_frame *frame, int error, void *data) {
    (void) data;
    if (frame->hd.type == NGHTTP2_HEADERS && error != NGHTTP2_ERR_STREAM_CLOSED && error != NGHTTP2_ERR_STREAM_CLOSING)
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_INTERNAL_ERROR);
    return 0;
}

int fl_http2_on_frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *data) {
    if (frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.last_stream_id == INT32_MAX) /* see drain */
        nghttp2_submit_ping(session, NGHTTP2_FLAG_NONE, NULL);
    if (frame->hd.type == NGHTTP2_RST_STREAM && is_violation(frame->rst_stream.error_code))
        fl_http2_spend(data, VIOLATION);
    bool ends =
        (frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS) && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM);
    const fl_http2_stream *stream = ends ? nghttp2_session_get_stream_user_data(session, frame->hd.stream_id) : NULL;
    if (stream != NULL && !stream->read_ended)
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR);
    return 0;
}
#endif
