/* A connection's states: its begin and its end, what the kernel and the clock tell it, what it answers itself. */
#include "connection.h"
#include "parts.h"
#include "exchange.h"
#include "base/descriptors.h"
#include "context.h"
#include "canned_response.h"
#include "base/platform.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEAST_PROGRESS = 4096,  /* bytes that must move within a deadline's time, or the client has stalled */
    MOST_UNSENT_BEFORE_NEXT = 65536,
    MOST_OWN_ANSWERS = 200, /* in a row on one connection: nobody keeps the loop to himself */
    HAS_WAITED = 5000,      /* microseconds, for its turn: not at once */
};

static void next_request(fl_connection *connection);

static void remember_address(fl_connection *connection) {
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    if (getpeername(connection->transport.descriptor, (struct sockaddr *) &address, &size) < 0)
        return;
    fl_client *client = &connection->client;
    const struct in6_addr *six = &((struct sockaddr_in6 *) &address)->sin6_addr;
    client->family = (uint8_t) address.ss_family;
    if (address.ss_family == AF_INET) {
        memcpy(client->address, &((struct sockaddr_in *) &address)->sin_addr, 4);
    } else if (address.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(six)) { /* [::] serves IPv4 too */
        client->family = AF_INET;
        memcpy(client->address, six->s6_addr + 12, 4);
    } else if (address.ss_family == AF_INET6) {
        memcpy(client->address, six, 16);
    }
}

static void count(fl_context *context, int connections, int fresh) {
    context->counts.connections += (uint32_t) connections;
    context->counts.fresh += (uint32_t) fresh;
    context->calls->counted(context);
}

fl_connection *fl_connection_open(fl_context *context, fl_listener *listener, int descriptor, const char *bytes,
                                  size_t size) {
    fl_connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL || fl_buffer_append(&context->slab, &connection->in, bytes, size) != FL_OK ||
        fl_poll_add_connection(&context->poll, descriptor, connection) < 0) {
        if (connection != NULL)
            fl_buffer_free(&context->slab, &connection->in);
        free(connection);
        close(descriptor);
        return NULL;
    }
    connection->source = FL_SOURCE_CONNECTION;
    connection->transport = (fl_transport){&fl_transport_plain, descriptor};
    connection->context = context;
    connection->listener = listener;
    connection->state = FL_CONNECTION_IDLE;
    connection->next = context->connections;
    if (context->connections != NULL)
        context->connections->previous = connection;
    context->connections = connection;
    connection->fresh = true;
    fl_descriptor_is_used(descriptor);
    count(context, 1, 1);
    remember_address(connection);
    next_request(connection);
    return connection;
}

/* The loop has nothing to do with it any more; its socket may live on without us. */
static void leave(fl_connection *connection) {
    fl_context *context = connection->context;
    fl_connection_set_deadline(connection, FL_DEADLINE_NONE);
    fl_exchange *exchange = connection->exchange;
    connection->exchange = NULL;
    uint8_t state = connection->state;
    connection->state = FL_CONNECTION_CLOSED;
    if (exchange != NULL) {
        if (state == FL_CONNECTION_QUEUED)
            context->calls->dequeue(exchange);
        if (state == FL_CONNECTION_SERVED)
            fl_exchange_lost(exchange);
        else
            fl_exchange_free(exchange);
    }
    fl_buffer_free(&context->slab, &connection->in);
    fl_buffer_free(&context->slab, &connection->out);
    /* A process forked by the app may hold the socket too: closing alone would leave it in the poll. */
    fl_poll_remove(&context->poll, connection->transport.descriptor);

    if (connection->previous != NULL)
        connection->previous->next = connection->next;
    else
        context->connections = connection->next;
    if (connection->next != NULL)
        connection->next->previous = connection->previous;
    connection->previous = NULL;
    connection->next = context->graveyard;
    context->graveyard = connection;
    count(context, -1, connection->fresh ? -1 : 0);
}

void fl_connection_close(fl_connection *connection) {
    if (connection->state == FL_CONNECTION_CLOSED)
        return;
    if (connection->state == FL_CONNECTION_SERVED && connection->exchange != NULL)
        fl_exchange_client_left(connection->exchange);
    leave(connection);
    connection->transport.kind->close(&connection->transport);
}

int fl_connection_give_away(fl_connection *connection) {
    int descriptor = connection->transport.descriptor;
    leave(connection);
    connection->transport.descriptor = -1;
    return descriptor;
}

/* All is sent that will ever be. Closing with unread input would reset the connection, and the client might then never
 * see the answer. */
static void linger(fl_connection *connection) {
    if (!connection->readable && (connection->half_closed || connection->in.length == 0)) {
        fl_connection_close(connection);
        return;
    }
    connection->state = FL_CONNECTION_LINGERING;
    fl_buffer_free(&connection->context->slab, &connection->in);
    connection->transport.kind->finish(&connection->transport);
    fl_connection_set_deadline(connection, FL_DEADLINE_LINGER);
    fl_connection_receive(connection);
}

void fl_connection_all_sent(fl_connection *connection) {
    switch (connection->state) {
    case FL_CONNECTION_IDLE:
        fl_connection_set_deadline(connection, FL_DEADLINE_IDLE);
        break;
    case FL_CONNECTION_HEAD:
        fl_connection_set_deadline(connection, FL_DEADLINE_HEAD);
        break;
    case FL_CONNECTION_SENDING:
        next_request(connection);
        break;
    case FL_CONNECTION_ENDING:
        linger(connection);
        break;
    case FL_CONNECTION_BODY:
        fl_connection_set_deadline(connection, FL_DEADLINE_BODY);
        break;
    case FL_CONNECTION_QUEUED:
        fl_connection_set_deadline(connection, FL_DEADLINE_NONE);
        break;
    case FL_CONNECTION_SERVED:
        fl_connection_set_deadline(connection, connection->exchange->awaits_body ? FL_DEADLINE_BODY : FL_DEADLINE_NONE);
        if (connection->exchange->awaits_room)
            fl_exchange_wake(connection->exchange);
        break;
    default:
        break;
    }
}

void fl_connection_end(fl_connection *connection) {
    connection->state = FL_CONNECTION_ENDING;
    fl_connection_send(connection, NULL);
}

static void count_refusal(fl_connection *connection, fl_status status) {
    fl_counts *counts = &connection->context->counts;
    counts->refused++;
    if (fl_status_http(status) == 503)
        counts->turned_away++;
    fl_rejection_note(connection, status);
}

/* Its exchange has been taken from it. */
static void refuse(fl_connection *connection, fl_status status, bool head_method) {
    if (!fl_canned_response(connection, fl_status_http(status), fl_status_text(status), head_method, true)) {
        fl_connection_close(connection);
        return;
    }
    connection->readable = true; /* there may be more: let the client read the answer before it sees a reset */
    fl_connection_end(connection);
}

void fl_connection_refuse_served(fl_connection *connection, fl_status status, bool head_method) {
    connection->exchange = NULL;
    connection->state = FL_CONNECTION_IDLE;
    count_refusal(connection, status);
    refuse(connection, status, head_method);
}

/* Of what has not been parsed the first bytes tell: the answer to HEAD has no body (RFC 9110, 9.3.2). */
static bool asks_with_head(const fl_connection *connection) {
    const fl_http1_head *head = connection->exchange == NULL ? NULL : connection->exchange->head;
    if (head != NULL && head->started)
        return head->head_method;
    uint32_t at = head == NULL ? 0 : head->line;
    const fl_buffer *in = &connection->in;
    return in->length >= at + 5 && memcmp(fl_buffer_at(in) + at, "HEAD ", 5) == 0;
}

void fl_connection_refuse(fl_connection *connection, fl_status status) {
    fl_context *context = connection->context;
    fl_exchange *exchange = connection->exchange;
    if (connection->state == FL_CONNECTION_SERVED) { /* the app is answering: it is told, and the connection ends */
        exchange->body_failed = true;
        exchange->close = true;
        exchange->refusal = (uint8_t) status;
        fl_exchange_wake(exchange);
        return;
    }
    count_refusal(connection, status);
    if (connection->state == FL_CONNECTION_QUEUED)
        context->calls->dequeue(exchange);
    bool head_method = asks_with_head(connection);
    connection->exchange = NULL;
    if (exchange != NULL)
        fl_exchange_free(exchange);
    refuse(connection, status, head_method);
}

void fl_connection_time_out(fl_connection *connection) {
    fl_exchange *exchange = connection->exchange;
    if (exchange->committed) { /* the client must see that it is not whole */
        if (exchange->framing == FL_FRAMING_CLOSE)
            connection->transport.kind->reset(&connection->transport);
        fl_connection_close(connection);
        return;
    }
    exchange->refusal = FL_REQUEST_TIMEOUT;
    fl_exchange_lost(exchange);
    connection->exchange = NULL;
    refuse(connection, FL_REQUEST_TIMEOUT, exchange->head_method);
}

/* It has been answered by us, and may ask again: once it has taken most of what there is for it. */
static void stay_open(fl_connection *connection) {
    connection->state = FL_CONNECTION_IDLE;
    fl_connection_send(connection, NULL);
    if (connection->state == FL_CONNECTION_IDLE && connection->out.length > MOST_UNSENT_BEFORE_NEXT)
        connection->state = FL_CONNECTION_SENDING;
    if (connection->state == FL_CONNECTION_IDLE && connection->out.length == 0)
        fl_connection_set_deadline(connection, FL_DEADLINE_IDLE);
}

/* Whoever asks how we are must not wait for an app. */
static void answer_health(fl_connection *connection) {
    fl_context *context = connection->context;
    fl_exchange *exchange = connection->exchange;
    if (context->calls->is_ending(context) || connection->own_answers++ >= MOST_OWN_ANSWERS)
        connection->keep_alive = false;
    fl_buffer_consume(&context->slab, &connection->in, exchange->head->size);
    bool answered = fl_answer_health(exchange, !connection->keep_alive);
    connection->exchange = NULL;
    fl_exchange_free(exchange);
    if (!answered)
        fl_connection_close(connection);
    else if (connection->keep_alive)
        stay_open(connection);
    else
        fl_connection_end(connection);
}

void fl_connection_turn_away(fl_connection *connection, fl_status status) {
    fl_context *context = connection->context;
    fl_exchange *exchange = connection->exchange;
    bool whole = exchange->body_done && connection->in.length == exchange->head->size && !connection->half_closed;
    /* To connect anew would cost both of us more than the answer. */
    if (!whole || !connection->keep_alive || exchange->minor == 0 || context->calls->is_ending(context)) {
        fl_connection_refuse(connection, status);
        return;
    }
    count_refusal(connection, status);
    bool head_method = exchange->head_method;
    context->calls->dequeue(exchange);
    connection->exchange = NULL;
    fl_exchange_free(exchange);
    fl_buffer_free(&context->slab, &connection->in);
    if (!fl_canned_response(connection, fl_status_http(status), fl_status_text(status), head_method, false)) {
        fl_connection_close(connection);
        return;
    }
    stay_open(connection);
    fl_connection_receive(connection);
}

/* TCP does not tell a client that has said all and still reads from one that has gone: both have ended their side. But
 * the system of one that has gone answers whatever is sent to it with a reset. An interim response is something that may
 * be sent (RFC 9110, 15.2). */
static void ask_whether_it_reads(fl_connection *connection) {
    static const char processing[] = "HTTP/1.1 102 Processing\r\n\r\n";
    connection->asked = true;
    if (fl_buffer_append(&connection->context->slab, &connection->out, processing, sizeof processing - 1) == FL_OK)
        fl_connection_send(connection, NULL);
}

bool fl_connection_is_read(fl_connection *connection) {
    const fl_exchange *exchange = connection->exchange;
    if (!connection->asked && exchange->minor >= 1 && connection->context->now - exchange->ready_at > HAS_WAITED)
        ask_whether_it_reads(connection);
    if (connection->state != FL_CONNECTION_CLOSED && fl_socket_is_broken(connection->transport.descriptor))
        fl_connection_close(connection);
    return connection->state != FL_CONNECTION_CLOSED;
}

void fl_connection_request_is_ready(fl_connection *connection) {
    fl_exchange *exchange = connection->exchange;
    fl_context *context = connection->context;
    if (fl_asks_for_health(exchange)) {
        answer_health(connection);
        return;
    }
    connection->own_answers = 0;
    if (connection->deadline_kind != FL_DEADLINE_WRITE)
        fl_connection_set_deadline(connection, FL_DEADLINE_NONE);
    connection->state = FL_CONNECTION_QUEUED;
    if (connection->fresh)
        count(context, 0, -1);
    connection->fresh = false;
    exchange->ready_at = context->handed.arrived != 0 ? context->handed.arrived : context->now;
    bool waits = context->calls->enqueue(exchange);
    if (waits && connection->half_closed && !connection->asked && exchange->minor >= 1)
        ask_whether_it_reads(connection); /* it will have to wait: the answer may be here before its turn */
}

/* It has ended its side, and if it has gone nobody shall go on for it. A client of HTTP/1.0 cannot be asked: it may read. */
static bool would_be_told_in_vain(const fl_connection *connection) {
    const fl_exchange *exchange = connection->exchange;
    if (exchange == NULL || exchange->minor == 0)
        return false;
    if (connection->state == FL_CONNECTION_QUEUED)
        return true;
    return connection->state == FL_CONNECTION_SERVED && connection->context->limits.cancel_abandoned &&
           exchange->body_done && !exchange->committed && !exchange->takes_over;
}

void fl_connection_event(fl_connection *connection, uint32_t ready) {
    if (connection->state == FL_CONNECTION_CLOSED)
        return;
    if (ready & FL_BROKEN) {
        fl_connection_close(connection);
        return;
    }
    if (ready & FL_HALF_CLOSED)
        connection->half_closed = true;
    if (ready & (FL_READABLE | FL_HALF_CLOSED))
        connection->readable = true;
    if (connection->half_closed && !connection->asked && would_be_told_in_vain(connection)) {
        ask_whether_it_reads(connection);
        if (connection->state == FL_CONNECTION_CLOSED)
            return;
    }
    if ((ready & FL_WRITABLE) && connection->out.length > 0)
        fl_connection_send(connection, NULL);
    if (connection->state != FL_CONNECTION_CLOSED)
        fl_connection_receive(connection);
}

static void next_request(fl_connection *connection) {
    connection->state = FL_CONNECTION_IDLE;
    if (connection->out.length == 0 || connection->dirty)
        fl_connection_set_deadline(connection, FL_DEADLINE_IDLE);
    fl_connection_parse(connection);
    fl_connection_receive(connection); /* what came while it was busy is no event any more */
    if (connection->context->draining && !connection->context->handing_over && fl_connection_is_idle(connection))
        fl_connection_close(connection);
}

void fl_connection_answered(fl_connection *connection, bool body_unread) {
    connection->exchange = NULL;
    if (!connection->keep_alive || body_unread) {
        connection->readable |= body_unread;
        fl_connection_end(connection);
    } else if (connection->out.length > MOST_UNSENT_BEFORE_NEXT) {
        connection->state = FL_CONNECTION_SENDING;
    } else {
        next_request(connection);
    }
}

bool fl_connection_is_idle(const fl_connection *connection) {
    return connection->state == FL_CONNECTION_IDLE && connection->in.length == 0 && connection->out.length == 0 &&
           !connection->readable && !connection->half_closed;
}

bool fl_connection_begins_to_ask(const fl_connection *connection) {
    if (connection->state != FL_CONNECTION_HEAD)
        return false;
    const fl_http1_head *head = connection->exchange->head;
    return head->started || head->line < connection->in.length;
}

/* The kernel tells of room only when a third of its buffer is free, which may be megabytes: a slow client is told from a
 * stalled one by what has reached it. */
static uint64_t progress_of(const fl_connection *connection, fl_deadline_kind kind) {
    if (kind != FL_DEADLINE_WRITE)
        return connection->progress;
    return connection->progress - (uint64_t) fl_on_its_way(connection->transport.descriptor);
}

void fl_connection_start_deadline(fl_connection *connection, fl_deadline_kind kind) {
    fl_connection_set_deadline(connection, kind);
    connection->progress_at_deadline = progress_of(connection, kind);
}

/* Slow is not stalled: while enough moves, the time starts again. */
static bool moves_on(const fl_connection *connection, fl_deadline_kind kind) {
    return (int64_t) (progress_of(connection, kind) - connection->progress_at_deadline) >= LEAST_PROGRESS;
}

void fl_connection_deadline(fl_connection *connection) {
    fl_exchange *exchange = connection->exchange;
    fl_deadline_kind kind = connection->deadline_kind;
    fl_connection_set_deadline(connection, FL_DEADLINE_NONE);
    switch (kind) {
    case FL_DEADLINE_HEAD:
        if (fl_connection_begins_to_ask(connection))
            fl_connection_refuse(connection, FL_HEAD_TIMEOUT);
        else
            fl_connection_close(connection);
        break;
    case FL_DEADLINE_BODY:
        if (connection->state == FL_CONNECTION_SERVED && !exchange->awaits_body)
            break; /* the app takes its time, not the client */
        if (moves_on(connection, kind))
            fl_connection_start_deadline(connection, kind);
        else
            fl_connection_refuse(connection, FL_BODY_TIMEOUT);
        break;
    case FL_DEADLINE_WRITE:
        if (connection->out.length == 0 && fl_on_its_way(connection->transport.descriptor) == 0) {
            fl_connection_all_sent(connection);
            break;
        }
        if (moves_on(connection, kind)) {
            fl_connection_start_deadline(connection, kind);
            break;
        }
        connection->transport.kind->reset(&connection->transport); /* else the kernel would go on offering it the rest */
        fl_connection_close(connection);
        break;
    case FL_DEADLINE_IDLE:
        if (fl_on_its_way(connection->transport.descriptor) > 0) { /* it may still take the last answer, or not */
            fl_connection_start_deadline(connection, FL_DEADLINE_WRITE);
            break;
        }
        /* fall through */
    default:
        fl_connection_close(connection);
    }
}
