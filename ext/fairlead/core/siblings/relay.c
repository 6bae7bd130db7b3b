#include "relay.h"
#include "base/characters.h"
#include "base/descriptors.h"
#include "base/list.h"
#include "base/platform.h"
#include "connection/context.h"
#include "handoff.h"
#include "http1/http1.h"
#include "http1/response.h"
#include "internal.h"

#include <stdlib.h>

enum {
    READ_SIZE = 16384,
    READS_A_TURN = 8, /* so that one response does not hold up the others */
};

typedef enum fl_relay_state {
    FL_RELAY_HEAD, /* reads the head, or an interim one */
    FL_RELAY_BODY,
    FL_RELAY_COMPLETE, /* all has come, but `in` may hold some of it */
    FL_RELAY_ENDED,
} fl_relay_state;

struct fl_relay {
    fl_source source;
    uint8_t state;
    bool readable, notified;
    bool half_closed; /* the sibling knows that the client has ended its side */
    int descriptor;
    fl_context *context;
    fl_exchange *exchange;     /* NULL once it has ended */
    fl_relay *previous, *next; /* of the open ones, or of the ended ones */
    fl_relay *notified_next;
    fl_buffer in;       /* of the head, then of the body, without the chunks' lines */
    fl_buffer trailers; /* lines */
    fl_response_head head;
    fl_chunks chunks;
    uint64_t left; /* of a body whose length is known */
};

bool fl_relay_possible(const fl_exchange *exchange) {
    const fl_request *request = &exchange->request;
    struct iovec parts[3];
    return exchange->state == FL_EXCHANGE_QUEUED && fl_handoff_may_move(exchange) && exchange->protocol->serialize != NULL &&
           request->complete && request->head->minor >= 1 && !request->head->upgrade && !request->connect_method &&
           exchange->protocol->serialize(exchange, parts) > 0;
}

/* A forked child closes its copies of both ends: else neither worker would notice that the other was killed. */
static bool open_channel(int ends[2]) {
    if (!fl_socket_pair(ends))
        return false;
    for (int i = 0; i < 2; i++) {
        fl_descriptor_track(ends[i]);
        fl_descriptor_set_relayed(ends[i], true);
    }
    return true;
}

static void close_end(int descriptor) {
    fl_descriptor_set_relayed(descriptor, false);
    close(descriptor);
}

/* Closes the channel to the sibling. shutdown() closes it for the copies in forked children, too. */
static void close_channel(fl_relay *relay) {
    fl_poll_remove(&relay->context->poll, relay->descriptor);
    shutdown(relay->descriptor, SHUT_RDWR);
    close_end(relay->descriptor);
}

static fl_relay *open_relay(fl_context *context, int descriptor) {
    fl_relay *relay = calloc(1, sizeof *relay);
    if (relay == NULL)
        return NULL;
    relay->source = FL_SOURCE_RELAY;
    relay->context = context;
    relay->descriptor = descriptor;
    if (fl_close_on_exec_nonblocking(descriptor) == 0 && fl_poll_add_connection(&context->poll, descriptor, relay) == 0)
        return relay;
    free(relay);
    return NULL;
}

/* The relay becomes the owner of a queued request. */
static void take(fl_relay *relay, fl_exchange *exchange) {
    fl_context *context = relay->context;
    context->calls->dequeue(exchange);
    exchange->state = FL_EXCHANGE_RELAYED;
    exchange->staging = &context->slab;
    exchange->relay = relay;
    relay->exchange = exchange;
    if (exchange->protocol->taken != NULL)
        exchange->protocol->taken(exchange);
    fl_exchange_release_head(exchange);
    fl_buffer_free(&context->slab, &exchange->request.body);
    FL_LIST_PUSH(context->relays.open, relay, previous, next);
    context->relays.count++;
}

bool fl_relay_give(fl_siblings *siblings, fl_exchange *exchange, int sibling) {
    int ends[2];
    if (!open_channel(ends))
        return false;
    fl_relay *relay = open_relay(exchange->context, ends[0]);
    bool given = relay != NULL && fl_handoff_send_request(siblings, exchange, sibling, ends[1]);
    if (given) {
        take(relay, exchange);
        exchange->context->counts.handed++;
        siblings->receiver = sibling;
    } else {
        if (relay != NULL)
            close_channel(relay);
        else
            close_end(ends[0]);
        free(relay);
    }
    close_end(ends[1]); /* last: another thread may poll, and must not get an event for a relay that has been freed */
    return given;
}

/* Ends the relay, but not the exchange: the caller may end that. */
static fl_exchange *end(fl_relay *relay) {
    fl_context *context = relay->context;
    fl_exchange *exchange = relay->exchange;
    close_channel(relay);
    relay->state = FL_RELAY_ENDED;
    relay->exchange = NULL;
    exchange->relay = NULL;
    fl_buffer_free(&context->slab, &relay->in);
    fl_buffer_free(&context->slab, &relay->trailers);
    FL_LIST_UNLINK(context->relays.open, relay, previous, next);
    relay->next = context->relays.ended;
    context->relays.ended = relay;
    context->relays.count--;
    return exchange;
}

static void cut_off(fl_relay *relay) {
    fl_exchange_abandon(end(relay));
}

/* Fields between the sibling and this worker, which frames the response anew. */
static bool is_of_the_channel(const char *name, size_t size) {
    return FL_EQUALS_WORD(name, size, "connection") || FL_EQUALS_WORD(name, size, "keep-alive") ||
           FL_EQUALS_WORD(name, size, "transfer-encoding");
}

static fl_status write_head(fl_exchange *exchange, const fl_response_head *head, const char *bytes) {
    fl_span name, value;
    fl_status status = fl_exchange_begin(exchange, head->code);
    for (size_t at = head->fields; status == FL_OK && fl_http1_next_field(bytes, head->size, &at, &name, &value);)
        if (!is_of_the_channel(bytes + name.at, name.size))
            status = fl_exchange_header(exchange, bytes + name.at, name.size, bytes + value.at, value.size);
    return status == FL_OK ? fl_exchange_head_end(exchange, -1) : status;
}

/* Of `size` bytes that have come, those of the body move to the front. Returns how many; -1: they are malformed. */
static ssize_t decode(fl_relay *relay, char *bytes, size_t size) {
    size_t used = size, decoded = size;
    if (relay->head.chunked) {
        fl_status status = fl_chunks_decode(&relay->chunks, bytes, size, &used, &decoded);
        size_t trailers = relay->chunks.trailers;
        if ((status != FL_OK && status != FL_AGAIN) ||
            (used > trailers &&
             fl_buffer_append(&relay->context->slab, &relay->trailers, bytes + trailers, used - trailers) != FL_OK))
            return -1;
        if (status == FL_OK)
            relay->state = FL_RELAY_COMPLETE;
    } else if (relay->head.has_length) {
        decoded = size < relay->left ? size : (size_t) relay->left;
        relay->left -= decoded;
        if (relay->left == 0)
            relay->state = FL_RELAY_COMPLETE;
    }
    return (ssize_t) decoded;
}

/* The head is complete: its response begins, and what has come of the body remains in `in`. */
static fl_status begin_response(fl_relay *relay) {
    fl_exchange *exchange = relay->exchange;
    fl_buffer *in = &relay->in;
    fl_status status = write_head(exchange, &relay->head, fl_buffer_at(in));
    if (status != FL_OK)
        return status;
    fl_buffer_consume(&relay->context->slab, in, relay->head.size);
    relay->left = relay->head.length;
    bool empty = relay->head.has_length && relay->head.length == 0;
    relay->state = empty || fl_exchange_has_no_body(exchange) ? FL_RELAY_COMPLETE : FL_RELAY_BODY;
    if (relay->state == FL_RELAY_COMPLETE || in->length == 0)
        return FL_OK;
    ssize_t decoded = decode(relay, fl_buffer_at(in), in->length);
    if (decoded >= 0)
        in->length = (uint32_t) decoded;
    return decoded < 0 ? FL_BAD_CHUNK : FL_OK;
}

static fl_status read_heads(fl_relay *relay) {
    fl_response_head *head = &relay->head;
    while (relay->state == FL_RELAY_HEAD) {
        const char *bytes = fl_buffer_at(&relay->in);
        fl_status status = relay->in.length == 0 ? FL_AGAIN : fl_http1_read_response(head, bytes, relay->in.length);
        if (status != FL_OK)
            return status;
        if (head->code >= 200)
            return begin_response(relay);
        if (head->code == 101)
            return FL_BAD_STATUS;
        if (head->code != 100) /* the request has its body already */
            fl_exchange_send_interim(relay->exchange, head->code, bytes + head->fields, head->size - head->fields - 2);
        fl_buffer_consume(&relay->context->slab, &relay->in, head->size);
        if (relay->exchange->connection == NULL)
            return FL_CLOSED;
    }
    return FL_OK;
}

/* Writes what has come of the body. FL_AGAIN: the client has no room. */
static fl_status write_body(fl_relay *relay) {
    fl_buffer *in = &relay->in;
    fl_status status = FL_OK;
    while (in->length > 0 && status == FL_OK) {
        size_t used = 0;
        status = fl_exchange_write(relay->exchange, fl_buffer_at(in), in->length, &used);
        fl_buffer_consume(&relay->context->slab, in, used);
    }
    return status;
}

static fl_status write_trailers(fl_relay *relay) {
    fl_status status = FL_OK;
    fl_span name, value;
    const char *bytes = fl_buffer_at(&relay->trailers);
    for (size_t at = 0; status == FL_OK && at < relay->trailers.length &&
                        fl_http1_next_field(bytes, relay->trailers.length, &at, &name, &value);)
        status = fl_exchange_trailer(relay->exchange, bytes + name.at, name.size, bytes + value.at, value.size);
    return status;
}

/* Writes to the exchange what has come. FL_AGAIN: it needs room there, or more from the sibling. */
static fl_status forward(fl_relay *relay) {
    fl_status status = read_heads(relay);
    if (status == FL_OK && relay->state != FL_RELAY_HEAD)
        status = write_body(relay);
    if (status == FL_OK && relay->state == FL_RELAY_COMPLETE)
        status = write_trailers(relay);
    return status;
}

/* Reads what the sibling has sent. Returns false at its end. */
static bool read_more(fl_relay *relay) {
    fl_buffer *in = &relay->in;
    if (fl_buffer_reserve(&relay->context->slab, in, READ_SIZE) != FL_OK)
        return false;
    char *bytes = fl_buffer_room(in);
    ssize_t count = recv(relay->descriptor, bytes, READ_SIZE, 0);
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        relay->readable = false;
        fl_buffer_consume(&relay->context->slab, in, 0);
        return true;
    }
    if (count > 0 && relay->state == FL_RELAY_BODY)
        count = decode(relay, bytes, (size_t) count);
    else if (count == 0 && relay->state == FL_RELAY_BODY && !relay->head.chunked && !relay->head.has_length) {
        relay->state = FL_RELAY_COMPLETE; /* its end ends the body */
        return true;
    } else if (count == 0)
        return false;
    if (count > 0)
        fl_buffer_added(in, (size_t) count);
    return count >= 0;
}

/* The sibling learns that the client has ended its side: the client may have gone. */
static void end_side(fl_relay *relay) {
    relay->half_closed = true;
    shutdown(relay->descriptor, SHUT_WR);
}

static void go_on(fl_relay *relay) {
    fl_exchange *exchange = relay->exchange;
    exchange->response.awaits_room = false;
    for (int reads = 0;; reads++) {
        fl_status status = exchange->connection == NULL ? FL_CLOSED : forward(relay);
        if (exchange->connection == NULL || (status != FL_OK && status != FL_AGAIN)) {
            cut_off(relay);
            return;
        }
        if (status == FL_OK && relay->state == FL_RELAY_COMPLETE) {
            fl_exchange_finish(end(relay));
            return;
        }
        if (exchange->response.awaits_room || !relay->readable)
            break;
        if (reads == READS_A_TURN) {
            fl_relay_notify(exchange);
            break;
        }
        if (!read_more(relay)) {
            cut_off(relay);
            return;
        }
    }
    if (exchange->response.head_complete && !exchange->response.awaits_room)
        fl_exchange_flush(exchange);
    if (exchange->connection != NULL && exchange->connection->half_closed && !relay->half_closed)
        end_side(relay);
}

void fl_relay_event(fl_relay *relay, uint32_t ready) {
    (void) ready;
    if (relay->state == FL_RELAY_ENDED)
        return;
    relay->readable = true;
    go_on(relay);
}

void fl_relay_notify(fl_exchange *exchange) {
    fl_relay *relay = exchange->relay;
    if (relay == NULL || relay->notified)
        return;
    relay->notified = true;
    relay->notified_next = relay->context->relays.notified;
    relay->context->relays.notified = relay;
    fl_poll_wake(&relay->context->poll);
}

void fl_relays_continue(fl_context *context) {
    fl_relay *relay = context->relays.notified, *next;
    context->relays.notified = NULL;
    for (; relay != NULL; relay = next) {
        next = relay->notified_next;
        relay->notified = false;
        if (relay->state != FL_RELAY_ENDED)
            go_on(relay);
    }
}

void fl_relays_stop(fl_context *context) {
    while (context->relays.open != NULL) {
        fl_exchange *exchange = end(context->relays.open);
        exchange->request.rejection = FL_ENDING;
        fl_exchange_abandon(exchange);
    }
}

void fl_relays_free_ended(fl_context *context) {
    fl_relay **link = &context->relays.ended;
    while (*link != NULL) {
        fl_relay *relay = *link;
        if (relay->notified) {
            link = &relay->next;
            continue;
        }
        *link = relay->next;
        free(relay);
    }
}
