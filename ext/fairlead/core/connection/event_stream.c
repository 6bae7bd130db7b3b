/* Event streams: responses of type text/event-stream (WHATWG HTML, 9.2). The core keeps silent ones alive without waking their fiber. When
 * the server drains, it ends those of an EventSource in order: their clients connect again, elsewhere, with Last-Event-ID. Others, like
 * the answer to a POST, are asked for once: they run on. */
#include "context.h"
#include "event_stream.h"
#include "exchange.h"
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SILENT_WHEN_DRAINING = 1000000, /* microseconds after which a silent stream of a draining worker ends */
    RETRY = 500,                    /* milliseconds after which its client connects again, at least, */
    RETRY_SPREAD = 2000,            /* and up to this much later, so that not all come at once */
};

typedef struct fl_event_coding {
    uint8_t nothing_size, end_size; /* 0: nothing may be added now */
    char nothing[FL_MAX_EVENT_NOTHING], end[FL_MAX_EVENT_END];
} fl_event_coding;

#define ADD(name, value) exchange->protocol->header(exchange, name, sizeof name - 1, value, sizeof value - 1)

fl_status fl_event_stream_add_headers(fl_exchange *exchange) {
    fl_status status = exchange->response.events.has_cache_control ? FL_OK : ADD("cache-control", "no-cache");
    if (status == FL_OK && !exchange->response.events.has_accel_buffering)
        status = ADD("x-accel-buffering", "no"); /* nginx would hold events back */
    return status;
}

/* Whether the core may add to the body. */
static bool is_open(const fl_exchange *exchange) {
    const fl_response *response = &exchange->response;
    return response->events.is_one && (!response->events.encoded || response->events.coding != NULL) &&
           !response->switches_protocol && response->framing_decided &&
           (response->framing == FL_FRAMING_CHUNKED || response->framing == FL_FRAMING_CLOSE);
}

void fl_event_stream_begin(fl_exchange *exchange) {
    fl_context *context = exchange->context;
    if (is_open(exchange) && exchange->request.complete && context->limits.deadlines[FL_DEADLINE_EVENTS] != 0)
        fl_deadline_set(context, &exchange->request.deadline,
                        context->draining && exchange->request.reconnects ? FL_DEADLINE_END : FL_DEADLINE_EVENTS,
                        exchange->response.body_sent);
}

static bool has_begun(const fl_exchange *exchange) {
    return exchange->request.deadline.kind == FL_DEADLINE_EVENTS || exchange->request.deadline.kind == FL_DEADLINE_END;
}

bool fl_event_stream_set_coding(fl_exchange *exchange, const char *nothing, size_t nothing_size, const char *end,
                                size_t end_size) {
    fl_event_stream *events = &exchange->response.events;
    if (nothing_size > FL_MAX_EVENT_NOTHING || end_size > FL_MAX_EVENT_END)
        return false;
    if (events->coding == NULL && (events->coding = malloc(sizeof *events->coding)) == NULL)
        return false;
    events->coding->nothing_size = (uint8_t) nothing_size;
    events->coding->end_size = (uint8_t) end_size;
    memcpy(events->coding->nothing, nothing, nothing_size);
    memcpy(events->coding->end, end, end_size);
    if (exchange->response.committed && exchange->connection != NULL && !has_begun(exchange))
        fl_event_stream_begin(exchange);
    return true;
}

void fl_event_stream_free(fl_event_stream *events) {
    free(events->coding);
    events->coding = NULL;
}

void fl_event_stream_written(fl_exchange *exchange, const char *bytes, size_t size) {
    fl_event_coding *coding = exchange->response.events.coding;
    if (coding != NULL)
        coding->nothing_size = coding->end_size = 0;
    for (size_t i = size < 4 ? 0 : size - 4; i < size; i++)
        exchange->response.events.tail = exchange->response.events.tail << 8 | (unsigned char) bytes[i];
}

/* Not after a carriage return: its line feed may follow. */
static bool at_line_start(const fl_response *response) {
    if (response->events.encoded)
        return response->events.coding->nothing_size > 0;
    return response->body_sent == 0 || (response->events.tail & 0xff) == '\n';
}

static bool at_event_start(const fl_response *response) {
    if (response->events.encoded)
        return response->events.coding->end_size > 0;
    uint32_t tail = response->events.tail;
    return response->body_sent == 0 || (tail & 0xffff) == 0x0a0a || (tail & 0xffff) == 0x0d0d || tail == 0x0d0a0d0a;
}

/* Whether nothing waits that was written before. The output of a connection whose protocol keeps responses may be others'. */
static bool is_sent(const fl_exchange *exchange) {
    if (exchange->response.out.length > 0 || exchange->response.awaits_room)
        return false;
    return exchange->protocol->keeps || exchange->connection->out.length == 0;
}

static bool send_text(fl_exchange *exchange, const char *text, size_t size) {
    if (exchange->protocol->body(exchange, text, size) != FL_OK)
        return false;
    exchange->protocol->flush(exchange);
    return exchange->connection != NULL;
}

/* A comment is no event, and may stand between the lines of one. */
static void send_comment(fl_exchange *exchange) {
    const fl_event_stream *events = &exchange->response.events;
    if (events->encoded)
        send_text(exchange, events->coding->nothing, events->coding->nothing_size);
    else
        send_text(exchange, ":\n", 2);
}

size_t fl_event_stream_last_text(const fl_exchange *exchange, char text[FL_MAX_LAST_TEXT]) {
    return (size_t) snprintf(text, FL_MAX_LAST_TEXT, "retry: %u\n\n", (unsigned) (RETRY + exchange->id * 7919 % RETRY_SPREAD));
}

static bool send_end(fl_exchange *exchange) {
    const fl_event_stream *events = &exchange->response.events;
    if (events->encoded)
        return send_text(exchange, events->coding->end, events->coding->end_size);
    char text[FL_MAX_LAST_TEXT];
    return send_text(exchange, text, fl_event_stream_last_text(exchange, text));
}

/* Whether the response may end here, as nothing is lost by that. */
static bool may_end(const fl_exchange *exchange) {
    return exchange->request.reconnects && is_sent(exchange) && at_event_start(&exchange->response);
}

static void end_in_order(fl_exchange *exchange) {
    const fl_protocol *protocol = exchange->protocol;
    fl_connection *connection = exchange->connection;
    if (!send_end(exchange))
        return;
    if (!protocol->finish(exchange))
        protocol->reset(exchange);
    bool open = exchange->connection != NULL;
    if (open) {
        exchange->timing.stopped = true;
        fl_exchange_detach(exchange);
        fl_exchange_connection_lost(exchange, true);
        protocol->finished(connection);
    }
}

void fl_event_stream_expired(fl_exchange *exchange) {
    fl_deadline *deadline = &exchange->request.deadline;
    bool silent = deadline->progress == exchange->response.body_sent, ends = deadline->kind == FL_DEADLINE_END;
    fl_deadline_set(exchange->context, deadline, deadline->kind, exchange->response.body_sent);
    if (!silent || !is_sent(exchange))
        return;
    if (ends && may_end(exchange))
        end_in_order(exchange);
    else if (at_line_start(&exchange->response))
        send_comment(exchange);
}

void fl_event_stream_probe(fl_exchange *exchange) {
    if (has_begun(exchange) && is_sent(exchange) && at_line_start(&exchange->response))
        send_comment(exchange);
}

void fl_event_streams_drain(fl_context *context) {
    context->limits.deadlines[FL_DEADLINE_END] = SILENT_WHEN_DRAINING;
    for (fl_deadline *deadline = context->deadlines[FL_DEADLINE_EVENTS].first, *next; deadline != NULL; deadline = next) {
        const fl_exchange *exchange = fl_exchange_of_deadline(deadline);
        next = deadline->after;
        if (exchange->request.reconnects)
            fl_deadline_set(context, deadline, FL_DEADLINE_END, exchange->response.body_sent);
    }
}

void fl_event_streams_end(fl_context *context) {
    for (fl_exchange *exchange = context->served; exchange != NULL; exchange = exchange->next)
        if (is_open(exchange) && exchange->connection != NULL && may_end(exchange))
            end_in_order(exchange);
}
