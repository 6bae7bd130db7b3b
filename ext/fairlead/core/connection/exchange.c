#include "exchange.h"
#include "context.h"
#include "event_stream.h"
#include "file_body.h"
#include "https.h"
#include "internal.h"

#include <string.h>

enum {
    MAX_HELD = 32768,   /* bytes of a body of unknown length: if it ends within them, the length is known */
    MAX_STAGED = 65536, /* bytes that wait for the loop's next turn */
    MAX_COPIED = 16384, /* larger parts are offered to the kernel without a copy */
    MAX_AHEAD = 131072, /* bytes that are copied of a part whose writer has to wait */
    LEAST_ROOM = 16384, /* bytes that each response may buffer, however many the connection's others do */
};

void fl_exchange_release_head(fl_exchange *exchange) {
    fl_buffer_free(&exchange->context->slab, &exchange->request.head_bytes);
    fl_exchange_free_head(exchange);
}

fl_status fl_exchange_begin(fl_exchange *exchange, int code) {
    fl_response *response = &exchange->response;
    if (response->committed || exchange->context == NULL)
        return FL_CLOSED;
    if ((code < 200 && code != 101) || code > 999)
        return FL_BAD_STATUS;
    response->out.start = response->out.length = 0;
    response->held.start = response->held.length = 0;
    response->framing = FL_FRAMING_UNDECIDED;
    response->has_length = response->has_date = response->head_complete = response->framing_decided = false;
    response->length_left = response->checked = 0;
    response->switches_protocol = code == 101;
    response->names_protocol = response->has_trailers = response->has_hsts = false;
    if (response->events.coding != NULL)
        fl_event_stream_free(&response->events);
    response->events = (fl_event_stream) {0};
    response->code = code;
    return exchange->protocol->begin(exchange);
}

static bool parse_length(const char *text, size_t size, uint64_t *length) {
    uint64_t value = 0;
    if (size == 0 || size > 18)
        return false;
    for (size_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (uint64_t) (text[i] - '0');
    }
    *length = value;
    return true;
}

static const char EVENT_STREAM[] = "text/event-stream";

#define IS(known) (strncasecmp(name, known, sizeof known - 1) == 0)

fl_status fl_exchange_header(fl_exchange *exchange, const char *name, size_t name_size, const char *value, size_t value_size) {
    fl_response *response = &exchange->response;
    if (exchange->context == NULL)
        return FL_CLOSED;
    switch (name_size) {
    case 4:
        response->has_date |= IS("date");
        break;
    case 25:
        response->has_hsts |= IS("strict-transport-security");
        break;
    case 7:
        response->has_trailers |= IS("trailer");
        break;
    case 12: /* most types differ at this place */
        if (value_size >= sizeof EVENT_STREAM - 1 && (value[5] | 0x20) == 'e')
            response->events.is_one |= IS("content-type") && strncasecmp(value, EVENT_STREAM, sizeof EVENT_STREAM - 1) == 0;
        break;
    case 13:
        response->events.has_cache_control |= IS("cache-control");
        break;
    case 16:
        response->events.encoded |= IS("content-encoding");
        break;
    case 17:
        response->events.has_accel_buffering |= IS("x-accel-buffering");
        response->events.encoded |= IS("transfer-encoding");
        break;
    case 14:
        if (IS("content-length")) {
            uint64_t length;
            if (response->framing != FL_FRAMING_UNDECIDED || !parse_length(value, value_size, &length))
                return FL_BAD_HEADER_VALUE;
            if (response->has_length) /* an app may set Content-Length, and a middleware content-length */
                return length == response->length_left ? FL_OK : FL_BAD_HEADER_VALUE;
            response->has_length = true;
            response->length_left = length;
            if (fl_exchange_has_no_framing(exchange))
                return FL_OK;
        } else if (response->code < 400 && exchange->state != FL_EXCHANGE_RELAYED && IS("mcp-session-id")) {
            exchange->context->calls->session_began(exchange->context, value, value_size);
        }
        break;
    }
    return exchange->protocol->header(exchange, name, name_size, value, value_size);
}

static fl_status decide_framing(fl_exchange *exchange, int64_t length) {
    exchange->response.framing_decided = true;
    return exchange->protocol->head(exchange, length);
}

fl_status fl_exchange_head_end(fl_exchange *exchange, int64_t length) {
    fl_response *response = &exchange->response;
    if (exchange->context == NULL)
        return FL_CLOSED;
    fl_status status = response->events.is_one ? fl_event_stream_add_headers(exchange) : FL_OK;
    if (status == FL_OK && exchange->request.https)
        status = fl_https_add_header(exchange);
    if (status != FL_OK)
        return status;
    response->head_complete = true;
    bool known = response->switches_protocol || response->has_length || response->framing != FL_FRAMING_UNDECIDED;
    if (response->events.is_one && length < 0 && exchange->connection != NULL) /* its head leaves before its first event */
        fl_connection_mark_dirty(exchange->connection);
    if (length < 0 && !known && !fl_exchange_has_no_body(exchange))
        return FL_OK; /* the framing is decided when the body ends, or has to be sent before */
    return decide_framing(exchange, length);
}

static fl_status stage(fl_exchange *exchange, const char *bytes, size_t size) {
    exchange->response.body_sent += size;
    return exchange->protocol->body(exchange, bytes, size);
}

static fl_status decide_framing_and_stage_held(fl_exchange *exchange, int64_t length) {
    fl_response *response = &exchange->response;
    fl_slab *slab = &exchange->context->slab;
    fl_status status = decide_framing(exchange, length);
    if (status == FL_OK && response->held.length > 0 && response->framing != FL_FRAMING_NONE) {
        if (response->framing == FL_FRAMING_LENGTH)
            response->length_left -= response->held.length;
        status = stage(exchange, fl_buffer_at(&response->held), response->held.length);
    }
    fl_buffer_free(slab, &response->held);
    return status;
}

void fl_exchange_flush(fl_exchange *exchange) {
    fl_response *response = &exchange->response;
    if (exchange->connection == NULL || !response->head_complete)
        return;
    if (!response->framing_decided && decide_framing_and_stage_held(exchange, -1) != FL_OK) {
        fl_connection_close(exchange->connection);
        return;
    }
    fl_context_update_clock(exchange->context);
    if (response->events.is_one && !response->committed)
        fl_event_stream_begin(exchange);
    response->committed = true;
    exchange->protocol->flush(exchange);
}

size_t fl_exchange_room(const fl_exchange *exchange) {
    if (exchange->connection == NULL)
        return 0;
    size_t limit = fl_context_buffer_limit(exchange->context, exchange->context->limits.response_buffer);
    if (exchange->connection->retained > limit)
        limit = LEAST_ROOM;
    size_t unsent = (size_t) exchange->response.out.length + exchange->response.held.length;
    if (!exchange->protocol->keeps) /* otherwise it may be another response's */
        unsent += exchange->connection->out.length;
    return unsent < limit ? limit - unsent : 0;
}

/* Sends or stages as many bytes as there is room for. */
static fl_status write_some(fl_exchange *exchange, const char *bytes, size_t size, size_t *taken) {
    fl_response *response = &exchange->response;
    *taken = 0;
    bool directly = size > MAX_COPIED && exchange->protocol->body_directly != NULL && response->framing != FL_FRAMING_CHUNKED;
    if (directly) {
        if (exchange->connection->out.length > 0)
            fl_exchange_flush(exchange);
        if (exchange->connection != NULL)
            *taken = exchange->protocol->body_directly(exchange, bytes, size);
        if (exchange->connection == NULL)
            return FL_CLOSED;
        response->committed = true;
        response->body_sent += *taken;
    }
    size_t room = fl_exchange_room(exchange);
    size_t left = size - *taken;
    /* If the rest fits, the writer need not wait. Otherwise it has to come back anyway, so only enough bytes are copied to keep the
     * kernel busy meanwhile. */
    size_t copied = left <= room ? left : directly && room > MAX_AHEAD ? MAX_AHEAD : room;
    fl_status status = copied > 0 ? stage(exchange, bytes + *taken, copied) : FL_OK;
    if (status == FL_OK)
        *taken += copied;
    if (response->framing == FL_FRAMING_LENGTH)
        response->length_left -= *taken;
    return status;
}

/* Malformed chunks of the app would garble the next response. Bytes that were not taken are offered again, but checked only once. */
static bool is_well_formed(fl_exchange *exchange, const char *bytes, size_t size) {
    fl_response *response = &exchange->response;
    if (response->framing != FL_FRAMING_RAW || size <= response->checked)
        return true;
    size_t before = response->checked;
    response->checked = size;
    return exchange->protocol->is_well_formed(exchange, bytes + before, size - before);
}

static fl_status write_all(fl_exchange *exchange, const char *bytes, size_t size, size_t *used) {
    fl_response *response = &exchange->response;
    if (exchange->connection == NULL)
        return FL_CLOSED;
    fl_context *context = exchange->context;
    if (exchange->timing.running)
        fl_exchange_restart_time_limit(exchange);
    size_t wanted = size;
    if (response->framing_decided && response->framing == FL_FRAMING_NONE) {
        *used = size;
        return FL_OK;
    }
    if (response->framing_decided && response->framing == FL_FRAMING_LENGTH && size > response->length_left)
        size = (size_t) response->length_left; /* the client would take more for the next response */
    if (!response->framing_decided) {
        if (response->held.length + size <= MAX_HELD) {
            *used = wanted;
            fl_status status = fl_buffer_append(&context->slab, &response->held, bytes, size);
            fl_connection_mark_dirty(exchange->connection);
            return status;
        }
        fl_exchange_flush(exchange);
        if (exchange->connection == NULL)
            return FL_CLOSED;
    }
    for (;;) {
        size_t taken;
        fl_status status = write_some(exchange, bytes + *used, size - *used, &taken);
        *used += taken;
        if (status != FL_OK)
            return status;
        if (*used == size)
            break;
        fl_exchange_flush(exchange);
        if (exchange->connection == NULL)
            return FL_CLOSED;
        if (response->out.length > 0 || exchange->connection->out.length > 0) { /* the poll will report writability */
            response->awaits_room = true;
            return FL_AGAIN;
        }
    }
    *used = wanted;
    if (response->out.length >= MAX_STAGED)
        fl_exchange_flush(exchange);
    else if (response->out.length > 0)
        fl_connection_mark_dirty(exchange->connection);
    return exchange->connection == NULL ? FL_CLOSED : FL_OK;
}

fl_status fl_exchange_write(fl_exchange *exchange, const char *bytes, size_t size, size_t *used) {
    fl_response *response = &exchange->response;
    *used = 0;
    if (!is_well_formed(exchange, bytes, size))
        return FL_BAD_CHUNK;
    fl_status status = write_all(exchange, bytes, size, used);
    if (response->events.is_one)
        fl_event_stream_written(exchange, bytes, *used);
    response->checked -= response->checked < *used ? response->checked : *used;
    return status;
}

fl_status fl_exchange_trailer(fl_exchange *exchange, const char *name, size_t name_size, const char *value, size_t value_size) {
    if (exchange->connection == NULL)
        return FL_CLOSED;
    if (!exchange->response.framing_decided && decide_framing_and_stage_held(exchange, -1) != FL_OK)
        return FL_NO_MEMORY;
    if (!exchange->response.has_trailers || !fl_may_be_trailer(name, name_size))
        return FL_OK;
    return exchange->protocol->trailer(exchange, name, name_size, value, value_size);
}

static void release(fl_exchange *exchange) {
    fl_context *context = exchange->context;
    if (context == NULL)
        return;
    if (exchange->state == FL_EXCHANGE_RELAYED) { /* the sibling counts it */
        fl_exchange_free(exchange);
        return;
    }
    if (exchange->connection == NULL)
        fl_context_update_clock(context);
    if (exchange->state == FL_EXCHANGE_SERVED) {
        fl_exchange_record(exchange);
        if (exchange->stream)
            context->counts.streams--;
        else
            context->counts.in_flight--;
    } else if (!exchange->queueing.recorded) {
        fl_context_record_code(context, exchange->response.code);
    }
    context->counts.requests++;
    fl_exchange_free(exchange);
}

void fl_exchange_finish(fl_exchange *exchange) {
    fl_response *response = &exchange->response;
    fl_connection *connection = exchange->connection;
    const fl_protocol *protocol = exchange->protocol;
    if (connection == NULL) {
        release(exchange);
        return;
    }
    fl_context *context = exchange->context;
    fl_context_update_clock(context); /* the app may have run for long since the last turn */
    fl_exchange_release_head(exchange);
    fl_status status = response->framing_decided ? FL_OK : decide_framing_and_stage_held(exchange, response->held.length);
    bool truncated = response->framing == FL_FRAMING_LENGTH && response->length_left > 0;
    if (status != FL_OK || truncated || !protocol->finish(exchange)) {
        fl_exchange_abandon(exchange);
        return;
    }
    bool open = exchange->connection != NULL, served = exchange->state == FL_EXCHANGE_SERVED;
    release(exchange);
    if (open)
        protocol->finished(connection);
    if (served) /* others are finished without the GVL, which flushing served requests takes */
        context->calls->response_finished(context);
}

void fl_exchange_abandon(fl_exchange *exchange) {
    if (exchange->connection != NULL && exchange->request.rejection != FL_OK && !exchange->response.committed)
        fl_exchange_reject_served(exchange);
    else
        fl_exchange_flush(exchange);
    if (exchange->connection != NULL)
        exchange->protocol->reset(exchange);
    release(exchange);
}

fl_status fl_exchange_send_interim(fl_exchange *exchange, int code, const char *fields, size_t size) {
    if (exchange->connection == NULL)
        return FL_CLOSED;
    if (exchange->response.committed || exchange->connection->out.length >= MAX_STAGED) /* interim responses are optional */
        return FL_OK;
    return exchange->protocol->send_interim(exchange, code, fields, size);
}

int fl_exchange_hijack(fl_exchange *exchange, fl_buffer *unsent, fl_buffer *ahead) {
    const fl_connection *connection = exchange->connection;
    if (connection == NULL || exchange->protocol->hijack == NULL ||
        (!exchange->response.switches_protocol && exchange->response.committed))
        return -1;
    int descriptor = exchange->protocol->hijack(exchange, unsent, ahead);
    exchange->long_lived |= descriptor >= 0;
    return descriptor;
}

void fl_exchange_mark_long_lived(fl_exchange *exchange) {
    fl_context *context = exchange->context;
    if (context == NULL)
        return;
    fl_exchange_record_stream(exchange);
    exchange->long_lived = true;
    if (exchange->stream || context->counts.streams >= context->limits.streams)
        return;
    exchange->stream = true;
    context->counts.streams++;
    context->counts.in_flight--;
    context->calls->stream_began(context);
}

void fl_exchange_connection_lost(fl_exchange *exchange, bool client_gone) {
    if (exchange->state == FL_EXCHANGE_FILE) {
        fl_file_body_lost(exchange);
        return;
    }
    if (exchange->state < FL_EXCHANGE_SERVED) {
        if (exchange->state == FL_EXCHANGE_QUEUED)
            exchange->context->calls->dequeue(exchange);
        fl_exchange_free(exchange);
        return;
    }
    if (client_gone && exchange->state == FL_EXCHANGE_SERVED)
        fl_exchange_client_gone(exchange);
    exchange->request.failed = !exchange->request.complete;
    fl_exchange_wake(exchange);
}
