#ifdef HAVE_NGHTTP2
/* Requests. The fields of a head become the text that the same request has in HTTP/1, and HTTP/1's parser reads that: what it refuses,
 * HTTP/2 refuses. nghttp2 has refused before what RFC 9113 calls malformed. */
#include "base/characters.h"
#include "internal.h"

#include <string.h>

enum {
    FIELD_OVERHEAD = 32, /* bytes that each field counts for in a header list (RFC 9113, 6.5.2) */
    MANY_STREAMS = 8,    /* while there are more, heads are limited as they are under memory pressure */
};

/* Request heads */

static void refuse(fl_http2_stream *stream, fl_status status) {
    fl_slab *slab = fl_http2_slab(stream);
    stream->refused = status;
    fl_buffer_free(slab, &stream->exchange->request.head_bytes);
    fl_buffer_free(slab, &stream->cookie);
}

static void append(fl_http2_stream *stream, fl_buffer *buffer, const char *bytes, size_t size) {
    if (stream->refused == FL_OK && fl_buffer_append(fl_http2_slab(stream), buffer, bytes, size) != FL_OK)
        refuse(stream, FL_NO_MEMORY);
}
#define APPEND(text) append(stream, &stream->exchange->request.head_bytes, text, sizeof(text) - 1)

static void append_span(fl_http2_stream *stream, fl_span span) {
    append(stream, &stream->exchange->request.head_bytes, fl_buffer_at(&stream->pseudo) + span.at, span.size);
}

static bool is(const fl_http2_stream *stream, fl_span span, const char *text) {
    return span.size == strlen(text) && memcmp(fl_buffer_at(&stream->pseudo) + span.at, text, span.size) == 0;
}

static void add_field(fl_http2_stream *stream, const char *name, size_t name_size, const char *value, size_t value_size) {
    fl_buffer *head = &stream->exchange->request.head_bytes;
    append(stream, head, name, name_size);
    append(stream, head, ": ", 2);
    append(stream, head, value, value_size);
    append(stream, head, "\r\n", 2);
}

/* Writes the request line and the Host header, once the pseudo-headers are complete: other fields follow them (RFC 9113, 8.3). */
static void begin_head(fl_http2_stream *stream) {
    if (stream->begun || stream->refused != FL_OK)
        return;
    stream->begun = true;
    fl_span target = is(stream, stream->method, "CONNECT") ? stream->authority : stream->path;
    const char *bytes = fl_buffer_at(&stream->pseudo);
    if (stream->method.size == 0 || fl_token_size(bytes + stream->method.at, stream->method.size) != stream->method.size) {
        refuse(stream, FL_BAD_METHOD);
        return;
    }
    bool from_root = stream->path.size > 0 && (bytes[stream->path.at] == '/' || is(stream, stream->path, "*"));
    bool known_scheme = is(stream, stream->scheme, "http") || is(stream, stream->scheme, "https");
    if (target.size == 0 || (target.at == stream->path.at && !(from_root && known_scheme))) {
        refuse(stream, FL_BAD_TARGET);
        return;
    }
    append_span(stream, stream->method);
    APPEND(" ");
    append_span(stream, target);
    APPEND(" HTTP/1.1\r\n");
    if (stream->authority.size == 0)
        return;
    APPEND("host: ");
    append_span(stream, stream->authority);
    APPEND("\r\n");
}

static void add_pseudo(fl_http2_stream *stream, const char *name, size_t name_size, const char *value, size_t value_size) {
    fl_span span = {stream->pseudo.length, (uint32_t) value_size};
    append(stream, &stream->pseudo, value, value_size);
    if (stream->refused != FL_OK)
        return; /* the span names no bytes */
    if (FL_EQUALS_WORD(name, name_size, ":method"))
        stream->method = span;
    else if (FL_EQUALS_WORD(name, name_size, ":scheme"))
        stream->scheme = span;
    else if (FL_EQUALS_WORD(name, name_size, ":authority"))
        stream->authority = span;
    else if (FL_EQUALS_WORD(name, name_size, ":path"))
        stream->path = span;
    else
        refuse(stream, FL_BAD_HEADER_NAME);
}

/* A client may send both, if they agree (RFC 9113, 8.3.1). */
static bool is_authority(const fl_http2_stream *stream, const char *value, size_t size) {
    return stream->authority.size == size &&
           strncasecmp(fl_buffer_at(&stream->pseudo) + stream->authority.at, value, size) == 0;
}

static bool is_connection_specific(fl_header_id id, const char *name, size_t name_size, const char *value, size_t value_size) {
    if (id == FL_HEADER_TE)
        return !FL_EQUALS_WORD(value, value_size, "trailers");
    return id == FL_HEADER_CONNECTION || id == FL_HEADER_TRANSFER_ENCODING || id == FL_HEADER_UPGRADE ||
           FL_EQUALS_WORD(name, name_size, "keep-alive") || FL_EQUALS_WORD(name, name_size, "proxy-connection");
}

static bool is_lower_case_token(const char *name, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (name[i] >= 'A' && name[i] <= 'Z')
            return false;
    return size > 0 && fl_token_size(name, size) == size;
}

static void add_header(fl_http2_stream *stream, const char *name, size_t name_size, const char *value, size_t value_size) {
    fl_header_id id = fl_header_lookup(name, name_size);
    begin_head(stream);
    if (!is_lower_case_token(name, name_size) || is_connection_specific(id, name, name_size, value, value_size)) {
        refuse(stream, FL_BAD_HEADER_NAME);
    } else if (id == FL_HEADER_COOKIE) { /* clients split it (RFC 9113, 8.2.3) */
        if (stream->cookie.length > 0)
            append(stream, &stream->cookie, "; ", 2);
        append(stream, &stream->cookie, value, value_size);
    } else if (id == FL_HEADER_HOST && stream->authority.size > 0) {
        if (!is_authority(stream, value, value_size))
            refuse(stream, FL_BAD_HOST);
    } else {
        add_field(stream, name, name_size, value, value_size);
    }
}

/* How many bytes the header list of a request may have. */
static size_t most_bytes(const fl_http2_session *own) {
    const fl_context *context = own->connection->context;
    uint32_t most = fl_context_buffer_limit(context, context->limits.head.head);
    if (own->streams > MANY_STREAMS && most > FL_BUFFER_UNDER_PRESSURE)
        most = FL_BUFFER_UNDER_PRESSURE;
    return (size_t) most + (size_t) context->limits.head.headers * FIELD_OVERHEAD;
}

static void add_to_head(fl_http2_stream *stream, const char *name, size_t name_size, const char *value, size_t value_size) {
    if (stream->owner->list_size > most_bytes(stream->owner))
        refuse(stream, FL_HEAD_TOO_LARGE);
    if (stream->refused != FL_OK)
        return;
    bool blank_around = value_size > 0 &&
                        (value[0] == ' ' || value[0] == '\t' || value[value_size - 1] == ' ' || value[value_size - 1] == '\t');
    if (blank_around || !fl_is_text(value, value_size))
        refuse(stream, FL_BAD_HEADER_VALUE);
    else if (name_size > 0 && name[0] == ':')
        add_pseudo(stream, name, name_size, value, value_size);
    else
        add_header(stream, name, name_size, value, value_size);
}

static fl_status end_head(fl_http2_stream *stream) {
    fl_exchange *exchange = stream->exchange;
    const fl_context *context = exchange->context;
    fl_request *request = &exchange->request;
    begin_head(stream);
    request->head_method = is(stream, stream->method, "HEAD");
    if (stream->cookie.length > 0)
        add_field(stream, "cookie", 6, fl_buffer_at(&stream->cookie), stream->cookie.length);
    APPEND("\r\n");
    fl_buffer_free(fl_http2_slab(stream), &stream->pseudo);
    fl_buffer_free(fl_http2_slab(stream), &stream->cookie);
    if (stream->refused != FL_OK)
        return stream->refused;
    fl_head_limits limits = context->limits.head;
    return fl_http1_parse(request->head, fl_buffer_at(&request->head_bytes), request->head_bytes.length, &limits);
}

static void head_is_complete(fl_http2_stream *stream, bool ends) {
    fl_exchange *exchange = stream->exchange;
    fl_request *request = &exchange->request;
    fl_head *head = request->head;
    fl_status status = end_head(stream);
    fl_http2_head_ends(stream->owner);
    exchange->state = FL_EXCHANGE_BODY;
    head->minor = 2;
    request->connect_method = head->form == FL_TARGET_AUTHORITY;
    request->content_length = head->has_length ? head->content_length : 0;
    request->complete = ends || (status == FL_OK && request->connect_method);
    request->chunked = !request->complete; /* its length is known at its end only, and trailers may follow */
    if (status == FL_OK && ends && request->content_length > 0)
        status = FL_BAD_LENGTH;
    if (status == FL_OK && request->content_length > exchange->context->limits.body_size)
        status = FL_BODY_TOO_LARGE;
    if (status != FL_OK) {
        fl_exchange_reject(exchange, status);
        return;
    }
    if (request->complete) {
        fl_exchange_submit(exchange);
        return;
    }
    if (head->expect_continue)
        fl_http2_submit_interim(stream, 100, "", 0);
    fl_exchange_body_received(exchange);
}

/* Trailers */

static void add_to_trailers(fl_http2_stream *stream, const char *name, size_t name_size, const char *value, size_t value_size) {
    fl_buffer *trailers = &stream->exchange->request.trailers;
    fl_slab *slab = fl_http2_slab(stream);
    if (trailers->length + name_size + value_size > FL_HTTP2_MAX_TRAILERS)
        fl_exchange_reject(stream->exchange, FL_HEAD_TOO_LARGE);
    else if (fl_http1_write_header(slab, trailers, name, name_size, value, value_size) != FL_OK)
        fl_exchange_reject(stream->exchange, FL_BAD_HEADER_VALUE);
}

/* Callbacks */

int fl_http2_on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *data) {
    fl_http2_session *own = data;
    fl_connection *connection = own->connection;
    own->list_size = 0;
    own->turn += FL_HTTP2_HEAD;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST || own->closed || own->ending)
        return 0;
    fl_http2_stream *stream = fl_http2_stream_new(own, frame->hd.stream_id);
    fl_exchange *exchange = stream == NULL ? NULL : fl_exchange_new(connection->context, connection);
    if (exchange == NULL) {
        if (stream != NULL)
            fl_http2_stream_free(stream);
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    *fl_http2_exchange_state(exchange) = (fl_http2_exchange) {.stream = stream};
    stream->exchange = exchange;
    exchange->state = FL_EXCHANGE_HEAD;
    nghttp2_session_set_stream_user_data(session, stream->id, stream);
    own->head = stream;
    fl_connection_update_deadline(connection);
    return 0;
}

int fl_http2_on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_size,
                       const uint8_t *value, size_t value_size, uint8_t flags, void *data) {
    (void) flags;
    fl_http2_session *own = data;
    size_t field_size = name_size + value_size + FIELD_OVERHEAD;
    own->list_size += field_size;
    own->turn += FL_HTTP2_HEAVY * (uint32_t) field_size;
    own->paused = own->turn >= FL_HTTP2_A_TURN;
    int outcome = own->paused ? NGHTTP2_ERR_PAUSE : 0;
    if (own->list_size > 4 * most_bytes(own)) /* a few bytes of HPACK may name megabytes */
        fl_http2_end(own, NGHTTP2_ENHANCE_YOUR_CALM);
    if (own->ending)
        return NGHTTP2_ERR_PAUSE; /* the rest is not decoded */
    fl_http2_stream *stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (stream == NULL || stream->exchange == NULL)
        return outcome;
    if (frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        add_to_head(stream, (const char *) name, name_size, (const char *) value, value_size);
    else if (fl_http2_reads_body(stream))
        add_to_trailers(stream, (const char *) name, name_size, (const char *) value, value_size);
    return outcome;
}

static void headers_are_complete(fl_http2_stream *stream, const nghttp2_frame *frame) {
    bool ends = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    if (frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
        stream->read_ended = ends;
        head_is_complete(stream, ends);
        return;
    }
    if (fl_http2_reads_body(stream) && stream->exchange->request.trailers.length > 0)
        fl_buffer_append(fl_http2_slab(stream), &stream->exchange->request.trailers, "\r\n", 2);
    if (ends)
        fl_http2_body_is_complete(stream);
}

int fl_http2_on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *data) {
    fl_http2_session *own = data;
    if (frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK) && own->draining && !own->last_named) {
        int32_t last = nghttp2_session_get_last_proc_stream_id(session);
        own->last_named =
            nghttp2_submit_goaway(session, NGHTTP2_FLAG_NONE, last, NGHTTP2_NO_ERROR, NULL, 0) == 0; /* see drain */
    }
    if (frame->hd.type == NGHTTP2_DATA && frame->data.padlen > 0 && frame->hd.length <= frame->data.padlen)
        fl_http2_spend(own, FL_HTTP2_EMPTY_FRAME); /* nothing but padding */
    if (frame->hd.type == NGHTTP2_HEADERS)
        fl_http2_unpacked(own);
    fl_http2_stream *stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (stream == NULL || stream->exchange == NULL || own->closed) {
        if (stream != NULL)
            stream->read_ended |= (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
        return 0;
    }
    if (frame->hd.type == NGHTTP2_HEADERS)
        headers_are_complete(stream, frame);
    else if (frame->hd.type == NGHTTP2_DATA && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        fl_http2_body_is_complete(stream);
    return 0;
}
#endif
