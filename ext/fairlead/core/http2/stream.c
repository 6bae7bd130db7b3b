#ifdef HAVE_NGHTTP2
/* Streams: their memory, their end, and their deadline. */
#include "base/list.h"
#include "internal.h"

#include <stdlib.h>

enum { COMPLETE = 12 }; /* tokens for a complete response: more than a request and its reset cost */

static void expired(fl_stream_deadline *deadline) {
    fl_http2_stream *stream = (fl_http2_stream *) deadline;
    const fl_connection *connection = stream->owner->connection;
    /* While the socket takes nothing, the connection's own deadline runs. */
    bool progressed =
        connection->out.length > 0 || fl_deadline_has_progressed(connection->context, &deadline->deadline, stream->sent);
    fl_deadline_set(connection->context, &deadline->deadline, FL_DEADLINE_NONE, 0);
    if (progressed)
        fl_http2_stream_watch(stream);
    else
        fl_http2_stream_reset(stream, NGHTTP2_CANCEL);
}

fl_http2_stream *fl_http2_stream_new(fl_http2_session *owner, int32_t id) {
    fl_http2_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        return NULL;
    stream->stalled.expired = expired;
    stream->owner = owner;
    stream->id = id;
    FL_LIST_PUSH(owner->first, stream, previous, next);
    owner->streams++;
    return stream;
}

void fl_http2_stream_watch(fl_http2_stream *stream) {
    fl_deadline *deadline = &stream->stalled.deadline;
    fl_context *context = stream->owner->connection->context;
    bool waits = stream->pending > 0 || stream->finished;
    if (waits && deadline->kind == FL_DEADLINE_NONE)
        fl_deadline_set(context, deadline, FL_DEADLINE_STREAM, stream->sent);
    else if (!waits && deadline->kind != FL_DEADLINE_NONE)
        fl_deadline_set(context, deadline, FL_DEADLINE_NONE, 0);
}

void fl_http2_stream_forget_exchange(fl_http2_stream *stream) {
    if (stream->exchange != NULL)
        fl_http2_exchange_state(stream->exchange)->stream = NULL;
    stream->exchange = NULL;
}

static void lose_exchange(fl_http2_stream *stream) {
    fl_http2_session *own = stream->owner;
    if (stream->exchange == NULL)
        return;
    fl_http2_exchange_state(stream->exchange)->lost = true;
    fl_http2_stream_forget_exchange(stream);
    own->lost = true;
    fl_connection_mark_dirty(own->connection);
}

/* What is pending will not be sent. */
static void drop_pending(fl_http2_stream *stream) {
    stream->owner->connection->retained -= stream->pending;
    stream->pending = 0;
    if (stream->stalled.deadline.kind != FL_DEADLINE_NONE)
        fl_deadline_set(stream->owner->connection->context, &stream->stalled.deadline, FL_DEADLINE_NONE, 0);
    fl_buffer_free(fl_http2_slab(stream), &stream->out);
}

void fl_http2_stream_free(fl_http2_stream *stream) {
    fl_http2_session *own = stream->owner;
    fl_slab *slab = fl_http2_slab(stream);
    drop_pending(stream);
    fl_http2_stream_forget_exchange(stream);
    fl_buffer_free(slab, &stream->pseudo);
    fl_buffer_free(slab, &stream->cookie);
    fl_buffer_free(slab, &stream->trailers);
    FL_LIST_UNLINK(own->first, stream, previous, next);
    own->streams--;
    if (own->head == stream)
        fl_http2_head_ends(own);
    free(stream);
}

void fl_http2_head_ends(fl_http2_session *own) {
    own->head = NULL;
    fl_connection_update_deadline(own->connection);
}

static bool is_skipped(fl_http2_session *own, int32_t id) {
    if (id <= own->last_id)
        return id > own->skipped.after && id < own->skipped.before;
    if (id > own->last_id + 2)
        own->skipped = (fl_http2_gap) {own->last_id, id};
    own->last_id = id;
    return false;
}

bool fl_http2_is_wrong_stream(fl_http2_session *own, const nghttp2_frame_hd *header) {
    if (header->type == NGHTTP2_HEADERS)
        return is_skipped(own, header->stream_id);
    return header->type == NGHTTP2_PRIORITY && header->stream_id == 0;
}

void fl_http2_stream_reset(fl_http2_stream *stream, uint32_t code) {
    lose_exchange(stream);
    drop_pending(stream);
    stream->finished = true;
    nghttp2_submit_rst_stream(stream->owner->session, NGHTTP2_FLAG_NONE, stream->id, code);
    fl_connection_mark_dirty(stream->owner->connection);
}

int fl_http2_on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *data) {
    fl_http2_stream *stream = nghttp2_session_get_stream_user_data(session, id);
    if (stream == NULL)
        return 0;
    if (code == NGHTTP2_NO_ERROR && stream->finished)
        fl_http2_earn(data, COMPLETE);
    lose_exchange(stream);
    fl_http2_stream_free(stream);
    nghttp2_session_set_stream_user_data(session, id, NULL);
    return 0;
}

/* The head is kept as HTTP/1 has it. Without a content-length, its body would have no end there. */
size_t fl_http2_serialize(const fl_exchange *exchange, struct iovec parts[3]) {
    const fl_request *request = &exchange->request;
    const fl_buffer *body = &request->body;
    bool has_end = body->length == 0 || request->head->has_length;
    if (!request->complete || !has_end || request->trailers.length > 0 ||
        request->head_bytes.length + body->length > FL_MAX_SERIALIZED)
        return 0;
    parts[0] = (struct iovec) {fl_buffer_at(&request->head_bytes), request->head_bytes.length};
    if (body->length == 0)
        return 1;
    parts[1] = (struct iovec) {fl_buffer_at(body), body->length};
    return 2;
}
#endif
