#ifdef HAVE_NGHTTP2
/* Responses. The head is staged as text, as in HTTP/1, and goes to nghttp2 when the response is flushed: until then the app may replace
 * it. The body is staged behind it. */
#include "base/characters.h"
#include "connection/error_page.h"
#include "internal.h"

#include <stdio.h>
#include <string.h>

fl_status fl_http2_begin(fl_exchange *exchange) {
    fl_http2_exchange *own = fl_http2_exchange_state(exchange);
    own->response_chunks = (fl_chunks) {0};
    own->head_size = 0;
    return exchange->response.code == 101 ? FL_BAD_STATUS : FL_OK; /* HTTP/2 has none (RFC 9113, 8.6) */
}

#define IS(known) FL_EQUALS_WORD(name, name_size, known)

/* Headers of HTTP/1's connections are dropped. A body that the app has coded in chunks is decoded. */
fl_status fl_http2_header(fl_exchange *exchange, const char *name, size_t name_size, const char *value, size_t value_size) {
    fl_response *response = &exchange->response;
    if (IS("connection") || IS("keep-alive") || IS("proxy-connection") || IS("upgrade"))
        return FL_OK;
    if (IS("transfer-encoding")) {
        if (fl_exchange_has_no_framing(exchange) || FL_EQUALS_WORD(value, value_size, "identity"))
            return FL_OK;
        if (response->has_length || !FL_EQUALS_WORD(value, value_size, "chunked"))
            return FL_BAD_HEADER_VALUE;
        response->framing = FL_FRAMING_RAW;
        return FL_OK;
    }
    return fl_http1_write_header(exchange->staging, &response->out, name, name_size, value, value_size);
}

static fl_status add_length(fl_exchange *exchange, uint64_t length) {
    return fl_http1_write_length(&exchange->context->slab, &exchange->response.out, length);
}

fl_status fl_http2_end_head(fl_exchange *exchange, int64_t length) {
    fl_response *response = &exchange->response;
    fl_context *context = exchange->context;
    fl_status status = FL_OK;
    bool no_body = fl_exchange_has_no_body(exchange);
    if (response->has_trailers)
        length = -1;
    if (response->framing == FL_FRAMING_RAW) {
        response->framing = no_body ? FL_FRAMING_NONE : FL_FRAMING_RAW;
    } else if (response->has_length) {
        response->framing = no_body ? FL_FRAMING_NONE : FL_FRAMING_LENGTH;
    } else if (no_body) {
        response->framing = FL_FRAMING_NONE;
        if (response->code == 205)
            status = add_length(exchange, 0);
        else if (length > 0 && response->code == 200 && !fl_exchange_has_no_framing(exchange))
            status = add_length(exchange, (uint64_t) length); /* HEAD: the length that GET would have */
    } else if (length >= 0) {
        response->framing = FL_FRAMING_LENGTH;
        response->length_left = (uint64_t) length;
        status = add_length(exchange, (uint64_t) length);
    } else {
        response->framing = FL_FRAMING_CHUNKED;
    }
    if (status == FL_OK && !response->has_date)
        status = fl_buffer_append(&context->slab, &response->out, fl_context_date(context), FL_DATE_SIZE);
    fl_http2_exchange_state(exchange)->head_size = response->out.length;
    return status;
}

/* fl_http2_body finds out. */
bool fl_http2_is_well_formed(fl_exchange *exchange, const char *bytes, size_t size) {
    (void) exchange, (void) bytes, (void) size;
    return true;
}

fl_status fl_http2_body(fl_exchange *exchange, const char *bytes, size_t size) {
    fl_buffer *out = &exchange->response.out;
    fl_slab *slab = &exchange->context->slab;
    if (exchange->response.framing != FL_FRAMING_RAW)
        return fl_buffer_append(slab, out, bytes, size);
    if (fl_buffer_reserve(slab, out, size) != FL_OK)
        return FL_NO_MEMORY;
    char *room = fl_buffer_room(out);
    size_t used, decoded;
    memcpy(room, bytes, size);
    fl_status status = fl_chunks_decode(&fl_http2_exchange_state(exchange)->response_chunks, room, size, &used, &decoded);
    if (status == FL_BAD_CHUNK || used < size)
        return FL_BAD_CHUNK;
    fl_buffer_added(out, decoded);
    return FL_OK;
}

fl_status fl_http2_trailer(fl_exchange *exchange, const char *name, size_t name_size, const char *value, size_t value_size) {
    fl_http2_stream *stream = fl_http2_stream_of(exchange);
    if (stream == NULL || exchange->response.framing == FL_FRAMING_NONE)
        return FL_OK;
    return fl_http1_write_header(fl_http2_slab(stream), &stream->trailers, name, name_size, value, value_size);
}

/* Gives nghttp2 what is staged: the head, if it does not have it yet, and how much of the body there is. */
static bool submit_staged(fl_exchange *exchange, fl_http2_stream *stream) {
    fl_response *response = &exchange->response;
    fl_http2_exchange *own = fl_http2_exchange_state(exchange);
    fl_slab *slab = &exchange->context->slab;
    if (!stream->submitted) {
        bool empty = stream->finished && response->out.length == own->head_size && stream->trailers.length == 0;
        bool has_body = response->framing != FL_FRAMING_NONE && !empty;
        if (!fl_http2_submit_head(stream, response->code, fl_buffer_at(&response->out), own->head_size, has_body))
            return false;
        fl_buffer_consume(slab, &response->out, own->head_size);
        own->head_size = 0;
    }
    exchange->connection->retained += response->out.length - stream->pending;
    stream->pending = response->out.length;
    return true;
}

static void continue_stream(fl_http2_stream *stream) {
    if (stream->pending > 0 || stream->finished)
        fl_http2_resume(stream);
    fl_http2_stream_watch(stream);
}

void fl_http2_flush(fl_exchange *exchange) {
    fl_http2_stream *stream = fl_http2_stream_of(exchange);
    fl_connection *connection = exchange->connection;
    if (stream == NULL)
        return;
    bool changed = !stream->submitted || exchange->response.out.length != stream->pending;
    if (!submit_staged(exchange, stream)) {
        fl_http2_stream_reset(stream, NGHTTP2_INTERNAL_ERROR);
        return;
    }
    continue_stream(stream);
    if (changed && !connection->flushing)
        fl_http2_pump(connection);
}

bool fl_http2_finish(fl_exchange *exchange) {
    fl_http2_stream *stream = fl_http2_stream_of(exchange);
    fl_connection *connection = exchange->connection;
    if (stream == NULL) /* the client has reset it */
        return true;
    if (exchange->response.framing == FL_FRAMING_RAW && !fl_http2_exchange_state(exchange)->response_chunks.done)
        return false;
    stream->finished = true;
    if (!submit_staged(exchange, stream)) {
        stream->finished = false;
        return false;
    }
    stream->out = exchange->response.out;
    exchange->response.out = (fl_buffer) {0};
    fl_http2_stream_forget_exchange(stream);
    continue_stream(stream);
    if (exchange->request.body.length > 0)
        fl_http2_body_consumed(exchange); /* the rest is dropped */
    if (exchange->context->calls->batches_responses(exchange->context) && connection->retained < FL_HTTP2_MAX_OUT)
        fl_connection_mark_dirty(connection);
    else
        fl_http2_pump(connection);
    return true;
}

void fl_http2_reset(fl_exchange *exchange) {
    fl_http2_stream *stream = fl_http2_stream_of(exchange);
    fl_connection *connection = exchange->connection;
    if (stream == NULL)
        return;
    fl_http2_stream_forget_exchange(stream);
    fl_http2_stream_reset(stream, NGHTTP2_INTERNAL_ERROR);
    fl_http2_pump(connection);
}

void fl_http2_canned_response(fl_exchange *exchange, int code, const char *text, bool may_keep_alive) {
    (void) may_keep_alive;
    fl_http2_stream *stream = fl_http2_stream_of(exchange);
    fl_connection *connection = exchange->connection;
    bool in_head = exchange->state == FL_EXCHANGE_HEAD, with_body = !exchange->request.head_method;
    fl_exchange_detach(exchange);
    if (stream == NULL)
        return;
    fl_http2_stream_forget_exchange(stream);
    if (in_head) { /* the rest of the head would have to follow first */
        fl_http2_end(stream->owner, NGHTTP2_NO_ERROR);
        return;
    }
    fl_context *context = connection->context;
    fl_canned_body body = fl_canned_body_of(exchange, code, text);
    char lines[256];
    int length = snprintf(lines, sizeof lines, "%.*s%s%scontent-length: %zu\r\n", FL_DATE_SIZE, fl_context_date(context),
                          code == 503 ? "retry-after: 1\r\n" : "", body.fields, body.size);
    const fl_buffer *more = context->canned_lines;
    fl_buffer all = {0};
    bool staged = fl_buffer_reserve(&context->slab, &stream->out, body.size) == FL_OK &&
                  fl_buffer_append(&context->slab, &all, lines, (size_t) length) == FL_OK &&
                  (more == NULL || fl_buffer_append(&context->slab, &all, fl_buffer_at(more), more->length) == FL_OK);
    if (staged && with_body) {
        fl_buffer_append(&context->slab, &stream->out, body.text, body.text_size);
        fl_buffer_append(&context->slab, &stream->out, body.end, strlen(body.end));
        stream->pending = stream->out.length;
        connection->retained += stream->pending;
    }
    stream->finished = true;
    if (!staged || !fl_http2_submit_head(stream, code, fl_buffer_at(&all), all.length, with_body))
        fl_http2_stream_reset(stream, NGHTTP2_INTERNAL_ERROR);
    fl_buffer_free(&context->slab, &all);
    fl_http2_stream_watch(stream);
    fl_connection_mark_dirty(connection);
    fl_http2_pump(connection);
}

fl_status fl_http2_send_interim(fl_exchange *exchange, int code, const char *fields, size_t size) {
    fl_http2_stream *stream = fl_http2_stream_of(exchange);
    if (stream == NULL)
        return FL_OK;
    if (!fl_http2_submit_interim(stream, code, fields, size))
        return FL_NO_MEMORY;
    fl_http2_pump(exchange->connection);
    return FL_OK;
}
#endif
