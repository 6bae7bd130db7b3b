#include "exchange.h"
#include "base/descriptors.h"
#include "context.h"

#include <string.h>

enum {
    MOST_HELD = 32768,   /* bytes of a body without a length that are kept, hoping for its end */
    MOST_STAGED = 65536, /* bytes that wait for the loop's next turn */
    MOST_COPIED = 16384, /* larger pieces are offered to the kernel where they lie */
    MOST_AHEAD = 131072, /* bytes that are kept of a piece whose writer has to wait */
};

const char *fl_exchange_head_bytes(const fl_exchange *exchange) {
    return fl_buffer_at(&exchange->head_bytes);
}

void fl_exchange_head_used(fl_exchange *exchange) {
    fl_buffer_free(&exchange->context->slab, &exchange->head_bytes);
    fl_exchange_free_head(exchange);
}

fl_status fl_exchange_body(fl_exchange *exchange, const char **bytes, size_t *size) {
    exchange->awaits_body = false;
    fl_connection *connection = exchange->connection;
    if (exchange->body.length == 0 && !exchange->body_done && connection != NULL) {
        fl_connection_receive(connection);
        connection = exchange->connection;
    }
    *bytes = exchange->body.length > 0 ? fl_buffer_at(&exchange->body) : "";
    *size = exchange->body.length;
    if (exchange->body.length > 0 || exchange->body_done) {
        if (exchange->timed)
            fl_exchange_moves_on(exchange);
        return FL_OK;
    }
    if (exchange->body_failed || connection == NULL)
        return FL_CLOSED;
    exchange->awaits_body = true;
    if (connection->deadline_kind == FL_DEADLINE_NONE) {
        fl_context_update_clock(exchange->context);
        fl_connection_set_deadline(connection, FL_DEADLINE_BODY);
    }
    return FL_AGAIN;
}

void fl_exchange_body_used(fl_exchange *exchange, size_t size) {
    if (exchange->context != NULL)
        fl_buffer_consume(&exchange->context->slab, &exchange->body, size);
}

/* A tunnel begins behind the head of such an answer (RFC 9110, 9.3.6). */
static bool opens_tunnel(const fl_exchange *exchange) {
    return exchange->connect_method && exchange->code >= 200 && exchange->code < 300;
}

/* Where no body can be, no field says how it is framed (RFC 9110, 8.6; RFC 9112, 6.1). A 304 could have the length of what is
 * not sent, but apps say there that of the empty body. */
static bool has_no_framing(const fl_exchange *exchange) {
    return exchange->code < 200 || exchange->code == 204 || exchange->code == 205 || exchange->code == 304 ||
           opens_tunnel(exchange);
}

static bool has_no_body(const fl_exchange *exchange) {
    return exchange->head_method || has_no_framing(exchange);
}

fl_status fl_exchange_begin(fl_exchange *exchange, int code) {
    if (exchange->committed || exchange->context == NULL)
        return FL_CLOSED;
    if ((code < 200 && code != 101) || code > 999 || (code == 101 && exchange->minor == 0))
        return FL_BAD_STATUS;
    exchange->out.start = exchange->out.length = 0;
    exchange->held.start = exchange->held.length = 0;
    exchange->framing = FL_FRAMING_UNDECIDED;
    exchange->has_length = exchange->has_date = exchange->head_given = exchange->head_done = false;
    exchange->length_left = exchange->checked = 0;
    exchange->own_chunks = (fl_chunks){0};
    exchange->takes_over = code == 101;
    exchange->upgrades = exchange->has_trailers = exchange->trailers_begun = false;
    exchange->code = code;
    return fl_http1_write_status(&exchange->context->staging, &exchange->out, code);
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

static bool equal(const char *name, size_t size, const char *known, size_t known_size) {
    return size == known_size && strncasecmp(name, known, size) == 0;
}

/* Whether it is one of a comma-separated list. */
static bool has_token(const char *list, size_t size, const char *token, size_t token_size) {
    for (size_t at = 0, end; at < size; at = end + 1) {
        for (end = at; end < size && list[end] != ',';) end++;
        size_t from = at, to = end;
        while (from < to && (list[from] == ' ' || list[from] == '\t')) from++;
        while (to > from && (list[to - 1] == ' ' || list[to - 1] == '\t')) to--;
        if (equal(list + from, to - from, token, token_size))
            return true;
    }
    return false;
}

#define IS(known) equal(name, name_size, known, sizeof known - 1)

/* No coding at all: we frame the body. */
static bool is_identity(const char *codings, size_t size) {
    return has_token(codings, size, "identity", 8) && memchr(codings, ',', size) == NULL;
}

/* Whether chunked is the last coding: any other one ends with the connection (RFC 9112, 6.3). */
static bool ends_in_chunked(const char *codings, size_t size) {
    size_t last = size;
    while (last > 0 && codings[last - 1] != ',') last--;
    return has_token(codings + last, size - last, "chunked", 7);
}

fl_status fl_exchange_header(fl_exchange *exchange, const char *name, size_t name_size, const char *value,
                             size_t value_size) {
    if (exchange->context == NULL)
        return FL_CLOSED;
    switch (name_size) {
    case 4:
        exchange->has_date |= IS("date");
        break;
    case 7:
        exchange->has_trailers |= IS("trailer");
        break;
    case 10:
        if (IS("connection")) { /* ours to say; an app can only ask to end the connection */
            if (has_token(value, value_size, "close", 5))
                exchange->close = true;
            if (exchange->close || has_token(value, value_size, "keep-alive", 10))
                return FL_OK;
        } else if (IS("keep-alive")) {
            return FL_OK;
        }
        break;
    case 14:
        if (IS("content-length")) {
            uint64_t length;
            if (exchange->framing != FL_FRAMING_UNDECIDED || !parse_length(value, value_size, &length))
                return FL_BAD_HEADER_VALUE;
            if (exchange->has_length) /* "Content-Length" of the app, and "content-length" of a newer middleware */
                return length == exchange->length_left ? FL_OK : FL_BAD_HEADER_VALUE;
            exchange->has_length = true;
            exchange->length_left = length;
            if (has_no_framing(exchange))
                return FL_OK;
        }
        break;
    case 17:
        if (IS("transfer-encoding")) {
            if (has_no_framing(exchange) || is_identity(value, value_size))
                return FL_OK;
            if (exchange->has_length || exchange->minor == 0) /* could be read in two ways, or in none */
                return FL_BAD_HEADER_VALUE;
            exchange->framing = ends_in_chunked(value, value_size) ? FL_FRAMING_RAW : FL_FRAMING_CLOSE;
        }
        break;
    }
    return fl_http1_write_header(&exchange->context->staging, &exchange->out, name, name_size, value, value_size);
}

static fl_status append(fl_exchange *exchange, const char *text, size_t size) {
    return fl_buffer_append(&exchange->context->slab, &exchange->out, text, size);
}
#define APPEND(text) append(exchange, text, sizeof text - 1)

/* The framing headers and the end of the head. `length` is -1 when it is not known and nothing can wait for it. */
static fl_status decide(fl_exchange *exchange, int64_t length) {
    fl_slab *slab = &exchange->context->slab;
    fl_connection *connection = exchange->connection;
    fl_status status = FL_OK;
    bool no_body = has_no_body(exchange);
    if (exchange->has_trailers && exchange->minor >= 1)
        length = -1; /* they need chunks */
    if (exchange->takes_over) {
        exchange->framing = FL_FRAMING_CLOSE;
        exchange->close = exchange->code != 101 && !opens_tunnel(exchange);
    } else if (exchange->framing != FL_FRAMING_UNDECIDED) { /* the app has framed it */
        exchange->close |= exchange->framing == FL_FRAMING_CLOSE;
        if (no_body)
            exchange->framing = FL_FRAMING_NONE;
    } else if (exchange->code == 205) { /* RFC 9110, 15.3.6 */
        exchange->framing = FL_FRAMING_NONE;
        status = fl_http1_write_length(slab, &exchange->out, 0);
    } else if (exchange->has_length) {
        exchange->framing = no_body ? FL_FRAMING_NONE : FL_FRAMING_LENGTH;
    } else if (no_body) {
        exchange->framing = FL_FRAMING_NONE;
        if (length > 0 && exchange->code == 200 && !has_no_framing(exchange)) /* of HEAD: what GET would have had */
            status = fl_http1_write_length(slab, &exchange->out, (uint64_t) length);
    } else if (length >= 0) {
        exchange->framing = FL_FRAMING_LENGTH;
        exchange->length_left = (uint64_t) length;
        status = fl_http1_write_length(slab, &exchange->out, (uint64_t) length);
    } else if (exchange->minor >= 1) {
        exchange->framing = FL_FRAMING_CHUNKED;
        status = APPEND("transfer-encoding: chunked\r\n");
    } else {
        exchange->framing = FL_FRAMING_CLOSE;
        exchange->close = true;
    }
    if (connection != NULL && !exchange->takes_over &&
        (!connection->keep_alive || !exchange->body_done || exchange->context->calls->is_ending(exchange->context)))
        exchange->close = true;
    if (status == FL_OK && exchange->close)
        status = APPEND("connection: close\r\n");
    else if (status == FL_OK && exchange->minor == 0 && !exchange->takes_over)
        status = APPEND("connection: keep-alive\r\n");
    if (status == FL_OK && !exchange->has_date)
        status = append(exchange, fl_context_date(exchange->context), FL_DATE_SIZE);
    if (status == FL_OK)
        status = APPEND("\r\n");
    exchange->head_done = true;
    return status;
}

fl_status fl_exchange_head_end(fl_exchange *exchange, int64_t length) {
    if (exchange->context == NULL)
        return FL_CLOSED;
    exchange->head_given = true;
    bool known = exchange->takes_over || exchange->has_length || exchange->framing != FL_FRAMING_UNDECIDED;
    if (length < 0 && !known && !has_no_body(exchange))
        return FL_OK; /* decided when the body ends, or has to be sent before */
    return decide(exchange, length);
}

/* Body bytes in the framing that has been decided. */
static fl_status stage(fl_exchange *exchange, const char *bytes, size_t size) {
    exchange->body_sent += size;
    if (exchange->framing == FL_FRAMING_CHUNKED)
        return fl_http1_write_chunk(&exchange->context->slab, &exchange->out, bytes, size);
    return append(exchange, bytes, size);
}

static fl_status decide_now(fl_exchange *exchange, int64_t length) {
    fl_slab *slab = &exchange->context->slab;
    fl_status status = decide(exchange, length);
    if (status == FL_OK && exchange->held.length > 0 && exchange->framing != FL_FRAMING_NONE) {
        if (exchange->framing == FL_FRAMING_LENGTH)
            exchange->length_left -= exchange->held.length;
        status = stage(exchange, fl_buffer_at(&exchange->held), exchange->held.length);
    }
    fl_buffer_free(slab, &exchange->held);
    return status;
}

void fl_exchange_flush(fl_exchange *exchange) {
    if (exchange->connection == NULL || !exchange->head_given)
        return;
    if (!exchange->head_done && decide_now(exchange, -1) != FL_OK) {
        fl_connection_close(exchange->connection);
        return;
    }
    exchange->committed = true;
    fl_context_update_clock(exchange->context);
    fl_connection_send(exchange->connection, &exchange->out);
}

size_t fl_exchange_room(const fl_exchange *exchange) {
    if (exchange->connection == NULL)
        return 0;
    size_t limit = fl_context_keeps(exchange->context, exchange->context->limits.response_buffer);
    size_t unsent = (size_t) exchange->out.length + exchange->held.length + exchange->connection->out.length;
    return unsent < limit ? limit - unsent : 0;
}

/* Sends or stages as much as there is room for, in the framing that has been decided. */
static fl_status write_some(fl_exchange *exchange, const char *bytes, size_t size, size_t *taken) {
    *taken = 0;
    bool directly = size > MOST_COPIED && exchange->framing != FL_FRAMING_CHUNKED;
    if (directly) {
        if (exchange->connection->out.length > 0)
            fl_exchange_flush(exchange);
        if (exchange->connection != NULL)
            *taken = fl_connection_send_directly(exchange->connection, &exchange->out, bytes, size);
        if (exchange->connection == NULL)
            return FL_CLOSED;
        exchange->committed = true;
        exchange->body_sent += *taken;
    }
    size_t room = fl_exchange_room(exchange);
    size_t left = size - *taken;
    /* The end of a piece is kept, so that nobody has to wait for it. Of one that is longer only as much as keeps the kernel
     * busy meanwhile: its writer comes back in any case, and what is offered again may go without a copy. */
    size_t copied = left <= room ? left : directly && room > MOST_AHEAD ? MOST_AHEAD : room;
    fl_status status = copied > 0 ? stage(exchange, bytes + *taken, copied) : FL_OK;
    if (status == FL_OK)
        *taken += copied;
    if (exchange->framing == FL_FRAMING_LENGTH)
        exchange->length_left -= *taken;
    return status;
}

/* A connection that stays open must be in step behind chunks that the app has made. What could not be taken comes again. */
static bool chunks_are_sound(fl_exchange *exchange, const char *bytes, size_t size) {
    if (exchange->framing != FL_FRAMING_RAW || size <= exchange->checked)
        return true;
    size_t before = exchange->checked;
    exchange->checked = size;
    return fl_chunks_check(&exchange->own_chunks, bytes + before, size - before) != FL_BAD_CHUNK;
}

static fl_status write_all(fl_exchange *exchange, const char *bytes, size_t size, size_t *used) {
    exchange->awaits_room = false;
    if (exchange->connection == NULL)
        return FL_CLOSED;
    fl_context *context = exchange->context;
    if (exchange->timed)
        fl_exchange_moves_on(exchange);
    size_t wanted = size;
    if (exchange->head_done && exchange->framing == FL_FRAMING_NONE) {
        *used = size;
        return FL_OK;
    }
    if (exchange->head_done && exchange->framing == FL_FRAMING_LENGTH && size > exchange->length_left)
        size = (size_t) exchange->length_left; /* what goes beyond the announced length would be the next response */
    if (!exchange->head_done) {
        if (exchange->held.length + size <= MOST_HELD) {
            *used = wanted;
            fl_status status = fl_buffer_append(&context->slab, &exchange->held, bytes, size);
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
        if (exchange->connection->out.length > 0) { /* there will be word of room */
            exchange->awaits_room = true;
            return FL_AGAIN;
        }
    }
    *used = wanted;
    if (exchange->out.length >= MOST_STAGED)
        fl_exchange_flush(exchange);
    else if (exchange->out.length > 0)
        fl_connection_mark_dirty(exchange->connection);
    return exchange->connection == NULL ? FL_CLOSED : FL_OK;
}

fl_status fl_exchange_write(fl_exchange *exchange, const char *bytes, size_t size, size_t *used) {
    *used = 0;
    if (!chunks_are_sound(exchange, bytes, size))
        return FL_BAD_CHUNK;
    fl_status status = write_all(exchange, bytes, size, used);
    exchange->checked -= exchange->checked < *used ? exchange->checked : *used;
    return status;
}

fl_status fl_exchange_trailer(fl_exchange *exchange, const char *name, size_t name_size, const char *value,
                              size_t value_size) {
    if (exchange->connection == NULL)
        return FL_CLOSED;
    if (!exchange->head_done && decide_now(exchange, -1) != FL_OK)
        return FL_NO_MEMORY;
    if (!exchange->has_trailers || exchange->framing != FL_FRAMING_CHUNKED || !fl_http1_may_be_trailer(name, name_size))
        return FL_OK;
    fl_slab *slab = &exchange->context->slab;
    fl_status status = FL_OK;
    if (!exchange->trailers_begun)
        status = fl_buffer_append(slab, &exchange->out, "0\r\n", 3);
    exchange->trailers_begun = true;
    return status != FL_OK ? status : fl_http1_write_header(slab, &exchange->out, name, name_size, value, value_size);
}

static void release(fl_exchange *exchange) {
    fl_context *context = exchange->context;
    if (context == NULL)
        return;
    if (exchange->stream)
        context->counts.streams--;
    else
        context->counts.in_flight--;
    context->counts.requests++;
    fl_exchange_free(exchange);
}

void fl_exchange_finish(fl_exchange *exchange) {
    fl_connection *connection = exchange->connection;
    if (connection == NULL) {
        release(exchange);
        return;
    }
    fl_context *context = exchange->context;
    fl_context_update_clock(context); /* the app may have taken long since the last turn */
    fl_exchange_head_used(exchange);
    bool body_unread = !exchange->body_done;
    fl_status status = FL_OK;
    if (!exchange->head_done)
        status = decide_now(exchange, exchange->held.length);
    if (status == FL_OK && exchange->framing == FL_FRAMING_CHUNKED)
        status = exchange->trailers_begun ? APPEND("\r\n") : fl_http1_write_last_chunk(&context->slab, &exchange->out);
    bool cut_short = (exchange->framing == FL_FRAMING_LENGTH && exchange->length_left > 0) ||
                     (exchange->framing == FL_FRAMING_RAW && !exchange->own_chunks.done);
    if (status != FL_OK || cut_short) {
        fl_exchange_abandon(exchange);
        return;
    }
    if (exchange->close)
        connection->keep_alive = false;
    /* Responses to pipelined requests, and to short ones, go out together. */
    bool gathers = connection->keep_alive && (connection->in.length > 0 || context->calls->gathers(context));
    if (gathers && connection->out.length + exchange->out.length < MOST_STAGED)
        fl_connection_stage(connection, &exchange->out);
    else
        fl_connection_send(connection, &exchange->out);
    connection = exchange->connection;
    release(exchange);
    if (connection != NULL)
        fl_connection_answered(connection, body_unread);
    context->calls->answered(context);
}

void fl_exchange_abandon(fl_exchange *exchange) {
    fl_connection *connection = exchange->connection;
    if (connection != NULL && exchange->refusal != FL_OK && !exchange->committed) {
        fl_status refusal = (fl_status) exchange->refusal;
        bool head_method = exchange->head_method;
        release(exchange);
        fl_connection_refuse_served(connection, refusal, head_method);
        return;
    }
    if (connection != NULL) {
        fl_exchange_flush(exchange);
        if (exchange->connection != NULL && exchange->framing == FL_FRAMING_CLOSE)
            connection->transport.kind->reset(&connection->transport);
        if (exchange->connection != NULL)
            fl_connection_close(connection);
    }
    release(exchange);
}

fl_status fl_exchange_inform(fl_exchange *exchange, const char *bytes, size_t size) {
    fl_connection *connection = exchange->connection;
    if (connection == NULL)
        return FL_CLOSED;
    if (exchange->minor == 0 || exchange->committed) /* RFC 9110, 15.2 */
        return FL_OK;
    if (connection->out.length >= MOST_STAGED) /* its client takes nothing, and can do without */
        return FL_OK;
    fl_status status = fl_buffer_append(&exchange->context->slab, &connection->out, bytes, size);
    if (status == FL_OK)
        fl_connection_send(connection, NULL);
    return status;
}

int fl_exchange_hijack(fl_exchange *exchange, fl_buffer *unsent, fl_buffer *ahead) {
    fl_connection *connection = exchange->connection;
    if (connection == NULL || (exchange->chunked && !exchange->body_done) ||
        (!exchange->takes_over && exchange->committed))
        return -1;
    fl_slab *slab = &exchange->context->slab;
    fl_exchange_flush(exchange);
    if (exchange->connection == NULL)
        return -1;
    *unsent = connection->out;
    connection->out = (fl_buffer){0};
    *ahead = exchange->body;
    exchange->body = (fl_buffer){0};
    if (ahead->length == 0) {
        fl_buffer_free(slab, ahead);
        *ahead = connection->in;
        connection->in = (fl_buffer){0};
    } else if (connection->in.length > 0 &&
               fl_buffer_append(slab, ahead, fl_buffer_at(&connection->in), connection->in.length) != FL_OK) {
        fl_connection_close(connection);
        return -1;
    }
    exchange->committed = true;
    fl_exchange_limit_time(exchange, 0);
    int descriptor = fl_connection_give_away(connection);
    fl_descriptor_gives_away(descriptor);
    return descriptor;
}

void fl_exchange_becomes_stream(fl_exchange *exchange) {
    fl_context *context = exchange->context;
    if (context == NULL || exchange->stream || context->counts.streams >= context->limits.streams)
        return;
    exchange->stream = true;
    context->counts.streams++;
    context->counts.in_flight--;
    context->calls->stream_began(context);
}

void fl_exchange_wake(fl_exchange *exchange) {
    fl_context *context = exchange->context;
    if (exchange->woken || !(exchange->awaits_body || exchange->awaits_room))
        return;
    exchange->woken = true;
    exchange->woken_next = NULL;
    exchange->woken_before = context->last_woken;
    if (context->last_woken != NULL)
        context->last_woken->woken_next = exchange;
    else
        context->first_woken = exchange;
    context->last_woken = exchange;
}

void fl_exchange_stop_waking(fl_exchange *exchange) {
    fl_context *context = exchange->context;
    if (exchange->woken_before != NULL)
        exchange->woken_before->woken_next = exchange->woken_next;
    else
        context->first_woken = exchange->woken_next;
    if (exchange->woken_next != NULL)
        exchange->woken_next->woken_before = exchange->woken_before;
    else
        context->last_woken = exchange->woken_before;
    exchange->woken = false;
}

uint64_t fl_context_next_woken(fl_context *context) {
    fl_exchange *exchange = context->first_woken;
    if (exchange == NULL)
        return 0;
    fl_exchange_stop_waking(exchange);
    return exchange->id;
}

void fl_exchange_disown(fl_exchange *exchange) {
    exchange->context = NULL;
    exchange->connection = NULL;
    exchange->body_failed = true;
    exchange->body_done = false;
    exchange->next = exchange->previous = NULL;
    exchange->timed_before = exchange->timed_after = exchange->timed_below = NULL;
    exchange->timed = exchange->overdue = false;
}

void fl_exchange_abandon_later(fl_exchange *exchange) {
    fl_context *context = exchange->context;
    exchange->abandoned_next = atomic_load(&context->abandoned);
    while (!atomic_compare_exchange_weak(&context->abandoned, &exchange->abandoned_next, exchange))
        continue;
}

void fl_exchange_lost(fl_exchange *exchange) {
    exchange->connection = NULL;
    exchange->body_failed = !exchange->body_done;
    fl_exchange_wake(exchange); /* what it has staged is still its owner's */
}
