#include "exchange.h"
#include "base/list.h"
#include "context.h"
#include "parts.h"

#include <string.h>

enum {
    MOST_HELD = 32768,   /* bytes of a body without a length that are kept, hoping for its end */
    MOST_STAGED = 65536, /* bytes that wait for the loop's next turn */
    MOST_COPIED = 16384, /* larger pieces are offered to the kernel where they lie */
    MOST_AHEAD = 131072, /* bytes that are kept of a piece whose writer has to wait */
};

void fl_exchange_head_used(fl_exchange *exchange) {
    fl_buffer_free(&exchange->context->slab, &exchange->request.head_bytes);
    fl_exchange_free_head(exchange);
}

fl_status fl_exchange_body(fl_exchange *exchange, const char **bytes, size_t *size) {
    exchange->request.awaited = false;
    fl_connection *connection = exchange->connection;
    if (exchange->request.body.length == 0 && !exchange->request.whole && connection != NULL) {
        exchange->protocol->read(exchange);
        connection = exchange->connection;
    }
    *bytes = exchange->request.body.length > 0 ? fl_buffer_at(&exchange->request.body) : "";
    *size = exchange->request.body.length;
    if (exchange->request.body.length > 0 || exchange->request.whole) {
        if (exchange->timing.runs)
            fl_exchange_restart_time(exchange);
        return FL_OK;
    }
    if (exchange->request.failed || connection == NULL)
        return FL_CLOSED;
    exchange->request.awaited = true;
    if (exchange->request.deadline.kind == FL_DEADLINE_NONE) {
        fl_context_update_clock(exchange->context);
        fl_deadline_set(exchange->context, &exchange->request.deadline, FL_DEADLINE_BODY, exchange->request.received);
    }
    return FL_AGAIN;
}

void fl_exchange_body_used(fl_exchange *exchange, size_t size) {
    if (exchange->context != NULL)
        fl_buffer_consume(&exchange->context->slab, &exchange->request.body, size);
}

fl_status fl_exchange_begin(fl_exchange *exchange, int code) {
    if (exchange->response.committed || exchange->context == NULL)
        return FL_CLOSED;
    if ((code < 200 && code != 101) || code > 999)
        return FL_BAD_STATUS;
    exchange->response.out.start = exchange->response.out.length = 0;
    exchange->response.held.start = exchange->response.held.length = 0;
    exchange->response.framing = FL_FRAMING_UNDECIDED;
    exchange->response.has_length = exchange->response.has_date = exchange->response.head_given = exchange->response.head_done =
        false;
    exchange->response.length_left = exchange->response.checked = 0;
    exchange->response.takes_over = code == 101;
    exchange->response.upgrades = exchange->response.has_trailers = false;
    exchange->response.code = code;
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

#define IS(known) (strncasecmp(name, known, sizeof known - 1) == 0)

fl_status fl_exchange_header(fl_exchange *exchange, const char *name, size_t name_size, const char *value, size_t value_size) {
    if (exchange->context == NULL)
        return FL_CLOSED;
    switch (name_size) {
    case 4:
        exchange->response.has_date |= IS("date");
        break;
    case 7:
        exchange->response.has_trailers |= IS("trailer");
        break;
    case 14:
        if (IS("content-length")) {
            uint64_t length;
            if (exchange->response.framing != FL_FRAMING_UNDECIDED || !parse_length(value, value_size, &length))
                return FL_BAD_HEADER_VALUE;
            if (exchange->response.has_length) /* "Content-Length" of the app, and "content-length" of a newer middleware */
                return length == exchange->response.length_left ? FL_OK : FL_BAD_HEADER_VALUE;
            exchange->response.has_length = true;
            exchange->response.length_left = length;
            if (fl_exchange_has_no_framing(exchange))
                return FL_OK;
        }
        break;
    }
    return exchange->protocol->header(exchange, name, name_size, value, value_size);
}

static fl_status decide(fl_exchange *exchange, int64_t length) {
    exchange->response.head_done = true;
    return exchange->protocol->head(exchange, length);
}

fl_status fl_exchange_head_end(fl_exchange *exchange, int64_t length) {
    if (exchange->context == NULL)
        return FL_CLOSED;
    exchange->response.head_given = true;
    bool known =
        exchange->response.takes_over || exchange->response.has_length || exchange->response.framing != FL_FRAMING_UNDECIDED;
    if (length < 0 && !known && !fl_exchange_has_no_body(exchange))
        return FL_OK; /* decided when the body ends, or has to be sent before */
    return decide(exchange, length);
}

/* Body bytes in the framing that has been decided. */
static fl_status stage(fl_exchange *exchange, const char *bytes, size_t size) {
    exchange->response.body_sent += size;
    return exchange->protocol->body(exchange, bytes, size);
}

static fl_status decide_now(fl_exchange *exchange, int64_t length) {
    fl_slab *slab = &exchange->context->slab;
    fl_status status = decide(exchange, length);
    if (status == FL_OK && exchange->response.held.length > 0 && exchange->response.framing != FL_FRAMING_NONE) {
        if (exchange->response.framing == FL_FRAMING_LENGTH)
            exchange->response.length_left -= exchange->response.held.length;
        status = stage(exchange, fl_buffer_at(&exchange->response.held), exchange->response.held.length);
    }
    fl_buffer_free(slab, &exchange->response.held);
    return status;
}

void fl_exchange_flush(fl_exchange *exchange) {
    if (exchange->connection == NULL || !exchange->response.head_given)
        return;
    if (!exchange->response.head_done && decide_now(exchange, -1) != FL_OK) {
        fl_connection_close(exchange->connection);
        return;
    }
    exchange->response.committed = true;
    fl_context_update_clock(exchange->context);
    exchange->protocol->flush(exchange);
}

size_t fl_exchange_room(const fl_exchange *exchange) {
    if (exchange->connection == NULL)
        return 0;
    size_t limit = fl_context_buffer_limit(exchange->context, exchange->context->limits.response_buffer);
    size_t unsent = (size_t) exchange->response.out.length + exchange->response.held.length + exchange->connection->out.length;
    return unsent < limit ? limit - unsent : 0;
}

/* Sends or stages as much as there is room for, in the framing that has been decided. */
static fl_status write_some(fl_exchange *exchange, const char *bytes, size_t size, size_t *taken) {
    *taken = 0;
    bool directly =
        size > MOST_COPIED && exchange->protocol->body_directly != NULL && exchange->response.framing != FL_FRAMING_PIECES;
    if (directly) {
        if (exchange->connection->out.length > 0)
            fl_exchange_flush(exchange);
        if (exchange->connection != NULL)
            *taken = exchange->protocol->body_directly(exchange, bytes, size);
        if (exchange->connection == NULL)
            return FL_CLOSED;
        exchange->response.committed = true;
        exchange->response.body_sent += *taken;
    }
    size_t room = fl_exchange_room(exchange);
    size_t left = size - *taken;
    /* The end of a piece is kept, so that nobody has to wait for it. Of one that is longer only as much as keeps the kernel
     * busy meanwhile: its writer comes back in any case, and what is offered again may go without a copy. */
    size_t copied = left <= room ? left : directly && room > MOST_AHEAD ? MOST_AHEAD : room;
    fl_status status = copied > 0 ? stage(exchange, bytes + *taken, copied) : FL_OK;
    if (status == FL_OK)
        *taken += copied;
    if (exchange->response.framing == FL_FRAMING_LENGTH)
        exchange->response.length_left -= *taken;
    return status;
}

/* A connection that stays open must be in step behind a body that the app has framed. What could not be taken comes again. */
static bool is_sound(fl_exchange *exchange, const char *bytes, size_t size) {
    if (exchange->response.framing != FL_FRAMING_RAW || size <= exchange->response.checked)
        return true;
    size_t before = exchange->response.checked;
    exchange->response.checked = size;
    return exchange->protocol->is_sound(exchange, bytes + before, size - before);
}

static fl_status write_all(fl_exchange *exchange, const char *bytes, size_t size, size_t *used) {
    exchange->response.awaits_room = false;
    if (exchange->connection == NULL)
        return FL_CLOSED;
    fl_context *context = exchange->context;
    if (exchange->timing.runs)
        fl_exchange_restart_time(exchange);
    size_t wanted = size;
    if (exchange->response.head_done && exchange->response.framing == FL_FRAMING_NONE) {
        *used = size;
        return FL_OK;
    }
    if (exchange->response.head_done && exchange->response.framing == FL_FRAMING_LENGTH &&
        size > exchange->response.length_left)
        size = (size_t) exchange->response.length_left; /* what goes beyond the announced length would be the next response */
    if (!exchange->response.head_done) {
        if (exchange->response.held.length + size <= MOST_HELD) {
            *used = wanted;
            fl_status status = fl_buffer_append(&context->slab, &exchange->response.held, bytes, size);
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
        if (exchange->response.out.length > 0 || exchange->connection->out.length > 0) { /* there will be word of room */
            exchange->response.awaits_room = true;
            return FL_AGAIN;
        }
    }
    *used = wanted;
    if (exchange->response.out.length >= MOST_STAGED)
        fl_exchange_flush(exchange);
    else if (exchange->response.out.length > 0)
        fl_connection_mark_dirty(exchange->connection);
    return exchange->connection == NULL ? FL_CLOSED : FL_OK;
}

fl_status fl_exchange_write(fl_exchange *exchange, const char *bytes, size_t size, size_t *used) {
    *used = 0;
    if (!is_sound(exchange, bytes, size))
        return FL_BAD_CHUNK;
    fl_status status = write_all(exchange, bytes, size, used);
    exchange->response.checked -= exchange->response.checked < *used ? exchange->response.checked : *used;
    return status;
}

fl_status fl_exchange_trailer(fl_exchange *exchange, const char *name, size_t name_size, const char *value, size_t value_size) {
    if (exchange->connection == NULL)
        return FL_CLOSED;
    if (!exchange->response.head_done && decide_now(exchange, -1) != FL_OK)
        return FL_NO_MEMORY;
    if (!exchange->response.has_trailers || !fl_may_be_trailer(name, name_size))
        return FL_OK;
    return exchange->protocol->trailer(exchange, name, name_size, value, value_size);
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
    const fl_protocol *protocol = exchange->protocol;
    if (connection == NULL) {
        release(exchange);
        return;
    }
    fl_context *context = exchange->context;
    fl_context_update_clock(context); /* the app may have taken long since the last turn */
    fl_exchange_head_used(exchange);
    fl_status status = exchange->response.head_done ? FL_OK : decide_now(exchange, exchange->response.held.length);
    bool cut_short = exchange->response.framing == FL_FRAMING_LENGTH && exchange->response.length_left > 0;
    if (status != FL_OK || cut_short || !protocol->finish(exchange)) {
        fl_exchange_abandon(exchange);
        return;
    }
    bool open = exchange->connection != NULL;
    release(exchange);
    if (open)
        protocol->finished(connection);
    context->calls->answered(context);
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

fl_status fl_exchange_inform(fl_exchange *exchange, int code, const char *fields, size_t size) {
    if (exchange->connection == NULL)
        return FL_CLOSED;
    if (exchange->response.committed || exchange->connection->out.length >= MOST_STAGED) /* its client can do without */
        return FL_OK;
    return exchange->protocol->inform(exchange, code, fields, size);
}

int fl_exchange_hijack(fl_exchange *exchange, fl_buffer *unsent, fl_buffer *ahead) {
    const fl_connection *connection = exchange->connection;
    if (connection == NULL || !connection->transport.kind->raw || exchange->protocol->hijack == NULL ||
        (!exchange->response.takes_over && exchange->response.committed))
        return -1;
    return exchange->protocol->hijack(exchange, unsent, ahead);
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
    if (exchange->woken || !(exchange->request.awaited || exchange->response.awaits_room))
        return;
    exchange->woken = true;
    FL_LIST_APPEND(&context->woken, exchange, woken_before, woken_next);
}

void fl_exchange_stop_waking(fl_exchange *exchange) {
    fl_context *context = exchange->context;
    FL_LIST_REMOVE(&context->woken, exchange, woken_before, woken_next);
    exchange->woken = false;
}

uint64_t fl_context_next_woken(fl_context *context) {
    fl_exchange *exchange = context->woken.first;
    if (exchange == NULL)
        return 0;
    fl_exchange_stop_waking(exchange);
    return exchange->id;
}

void fl_exchange_disown(fl_exchange *exchange) {
    exchange->context = NULL;
    exchange->connection = NULL;
    exchange->request.failed = true;
    exchange->request.whole = false;
    exchange->next = exchange->previous = NULL;
    exchange->timing.before = exchange->timing.after = exchange->timing.below = NULL;
    exchange->timing.runs = exchange->timing.expired = false;
}

void fl_exchange_abandon_later(fl_exchange *exchange) {
    fl_context *context = exchange->context;
    exchange->abandoned_next = atomic_load(&context->abandoned);
    while (!atomic_compare_exchange_weak(&context->abandoned, &exchange->abandoned_next, exchange)) continue;
}

void fl_exchange_lost(fl_exchange *exchange, bool gone) {
    if (exchange->state != FL_EXCHANGE_SERVED) {
        if (exchange->state == FL_EXCHANGE_QUEUED)
            exchange->context->calls->dequeue(exchange);
        fl_exchange_free(exchange);
        return;
    }
    if (gone)
        fl_exchange_client_left(exchange);
    exchange->request.failed = !exchange->request.whole;
    fl_exchange_wake(exchange); /* what it has staged is still its owner's */
}
