/* Long, because a connection is one machine: what may happen to it in which state is read in one place. */
#include "connection.h"
#include "exchange.h"
#include "loop.h"
#include "own_answer.h"
#include "platform.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

enum {
    READ_SIZE = 4096,             /* for heads: most fit, and the block is small */
    BODY_READ_SIZE = 65536,
    LEAST_PROGRESS = 4096,        /* bytes that must move within a deadline's time, or the client has stalled */
    MOST_UNSENT_BEFORE_NEXT = 65536,
    MOST_OWN_ANSWERS = 200,       /* in a row on one connection: nobody keeps the loop to himself */
    HAS_WAITED = 5000,            /* microseconds, for its turn: not at once */
    GIVEN_UP = 250000,            /* microseconds: an old client that ends its side later than this after its request has left */
};

static void next_request(fl_connection *connection);

static void remember_address(fl_connection *connection) {
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    if (getpeername(connection->transport.descriptor, (struct sockaddr *) &address, &size) < 0)
        return;
    connection->client.family = (uint8_t) address.ss_family;
    if (address.ss_family == AF_INET)
        memcpy(connection->client.address, &((struct sockaddr_in *) &address)->sin_addr, 4);
    else if (address.ss_family == AF_INET6)
        memcpy(connection->client.address, &((struct sockaddr_in6 *) &address)->sin6_addr, 16);
}

fl_connection *fl_connection_open(fl_loop *loop, fl_listener *listener, int descriptor, const char *bytes,
                                  size_t size) {
    fl_connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL || fl_buffer_append(&loop->slab, &connection->in, bytes, size) != FL_OK ||
        fl_poll_add_connection(&loop->poll, descriptor, connection) < 0) {
        if (connection != NULL)
            fl_buffer_free(&loop->slab, &connection->in);
        free(connection);
        close(descriptor);
        return NULL;
    }
    connection->source = FL_SOURCE_CONNECTION;
    connection->transport = (fl_transport){&fl_transport_plain, descriptor};
    connection->loop = loop;
    connection->listener = listener;
    connection->state = FL_CONNECTION_IDLE;
    connection->next = loop->connections;
    if (loop->connections != NULL)
        loop->connections->previous = connection;
    loop->connections = connection;
    loop->counts.connections++;
    remember_address(connection);
    next_request(connection);
    return connection;
}

/* The loop has nothing to do with it any more; its socket may live on without us. */
static void leave(fl_connection *connection) {
    fl_loop *loop = connection->loop;
    fl_loop_set_deadline(connection, FL_DEADLINE_NONE);
    fl_exchange *exchange = connection->exchange;
    connection->exchange = NULL;
    uint8_t state = connection->state;
    connection->state = FL_CONNECTION_CLOSED;
    if (exchange != NULL) {
        if (state == FL_CONNECTION_QUEUED)
            fl_loop_dequeue(exchange);
        if (state == FL_CONNECTION_SERVED)
            fl_exchange_lost(exchange);
        else
            fl_loop_free_exchange(loop, exchange);
    }
    fl_buffer_free(&loop->slab, &connection->in);
    fl_buffer_free(&loop->slab, &connection->out);
    /* A process forked by the app may hold the socket too: closing alone would leave it in the poll. */
    fl_poll_remove(&loop->poll, connection->transport.descriptor);

    if (connection->previous != NULL)
        connection->previous->next = connection->next;
    else
        loop->connections = connection->next;
    if (connection->next != NULL)
        connection->next->previous = connection->previous;
    connection->previous = NULL;
    connection->next = loop->graveyard;
    loop->graveyard = connection;
    loop->counts.connections--;
}

void fl_connection_close(fl_connection *connection) {
    if (connection->state == FL_CONNECTION_CLOSED)
        return;
    if (connection->state == FL_CONNECTION_SERVED && connection->exchange != NULL)
        fl_loop_abandon_exchange(connection->exchange);
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
    fl_buffer_free(&connection->loop->slab, &connection->in);
    connection->transport.kind->finish(&connection->transport);
    fl_loop_set_deadline(connection, FL_DEADLINE_LINGER);
    fl_connection_receive(connection);
}

/* What was waiting for the output to be sent can go on. */
static void all_sent(fl_connection *connection) {
    switch (connection->state) {
    case FL_CONNECTION_IDLE:
        fl_loop_set_deadline(connection, FL_DEADLINE_IDLE);
        break;
    case FL_CONNECTION_HEAD:
        fl_loop_set_deadline(connection, FL_DEADLINE_HEAD);
        break;
    case FL_CONNECTION_SENDING:
        next_request(connection);
        break;
    case FL_CONNECTION_ENDING:
        linger(connection);
        break;
    case FL_CONNECTION_BODY:
        fl_loop_set_deadline(connection, FL_DEADLINE_BODY);
        break;
    case FL_CONNECTION_QUEUED:
        fl_loop_set_deadline(connection, FL_DEADLINE_NONE);
        break;
    case FL_CONNECTION_SERVED:
        fl_loop_set_deadline(connection, connection->exchange->awaits_body ? FL_DEADLINE_BODY : FL_DEADLINE_NONE);
        if (connection->exchange->awaits_room)
            fl_exchange_wake(connection->exchange);
        break;
    default:
        break;
    }
}

/* Answers false when the connection has been lost. */
static bool write_out(fl_connection *connection, fl_buffer *bytes) {
    struct iovec part = {fl_buffer_at(bytes), bytes->length};
    ssize_t written = connection->transport.kind->write(&connection->transport, &part, 1);
    if (written == FL_TRANSPORT_BROKEN) {
        fl_connection_close(connection);
        return false;
    }
    if (written > 0) {
        connection->progress += (uint64_t) written;
        fl_buffer_consume(&connection->loop->slab, bytes, (size_t) written);
    }
    return true;
}

/* The kernel tells of room only when a third of its buffer is free, which may be megabytes: a slow client is told from a
 * stalled one by what has reached it. */
static uint64_t progress_of(const fl_connection *connection, fl_deadline_kind kind) {
    if (kind != FL_DEADLINE_WRITE)
        return connection->progress;
    return connection->progress - (uint64_t) fl_on_its_way(connection->transport.descriptor);
}

static void start_deadline(fl_connection *connection, fl_deadline_kind kind) {
    fl_loop_set_deadline(connection, kind);
    connection->progress_at_deadline = progress_of(connection, kind);
}

static void await_writable(fl_connection *connection) {
    if (!connection->wants_writable) {
        connection->wants_writable = true;
        fl_poll_want_writable(&connection->loop->poll, connection->transport.descriptor, connection);
    } else {
        fl_poll_again(&connection->loop->poll, connection->transport.descriptor, FL_WRITABLE);
    }
    if (connection->deadline_kind != FL_DEADLINE_WRITE) {
        fl_loop_look_at_clock(connection->loop); /* the app may have computed for long since the last turn */
        start_deadline(connection, FL_DEADLINE_WRITE);
    }
}

void fl_connection_send(fl_connection *connection, fl_buffer *staged) {
    fl_loop *loop = connection->loop;
    fl_buffer *out = &connection->out;
    bool had_to_wait = connection->deadline_kind == FL_DEADLINE_WRITE;
    if (staged != NULL && staged->length > 0) {
        if (out->length == 0) {
            if (!write_out(connection, staged))
                return;
            if (staged->length > 0) {
                fl_buffer rest = *staged;
                *staged = *out;
                *out = rest;
            }
        } else if (fl_buffer_append(&loop->slab, out, fl_buffer_at(staged), staged->length) == FL_OK) {
            fl_buffer_free(&loop->slab, staged);
            if (!had_to_wait && !write_out(connection, out))
                return;
        } else {
            fl_connection_close(connection);
            return;
        }
    } else if (out->length > 0 && !write_out(connection, out)) {
        return;
    }
    if (out->length > 0)
        await_writable(connection);
    else if (had_to_wait || connection->state == FL_CONNECTION_ENDING)
        all_sent(connection);
}

void fl_connection_stage(fl_connection *connection, fl_buffer *staged) {
    fl_loop *loop = connection->loop;
    if (connection->out.length == 0) {
        fl_buffer_free(&loop->slab, &connection->out);
        connection->out = *staged;
        *staged = (fl_buffer){0};
    } else if (fl_buffer_append(&loop->slab, &connection->out, fl_buffer_at(staged), staged->length) == FL_OK) {
        fl_buffer_free(&loop->slab, staged);
    } else {
        fl_connection_close(connection);
        return;
    }
    fl_loop_add_dirty(connection);
}

size_t fl_connection_send_directly(fl_connection *connection, const char *bytes, size_t size) {
    if (connection->out.length > 0)
        return 0;
    struct iovec part = {(void *) bytes, size};
    ssize_t written = connection->transport.kind->write(&connection->transport, &part, 1);
    if (written == FL_TRANSPORT_BROKEN)
        fl_connection_close(connection);
    if (written <= 0)
        return 0;
    connection->progress += (uint64_t) written;
    return (size_t) written;
}

static void end_connection(fl_connection *connection) {
    connection->state = FL_CONNECTION_ENDING;
    fl_connection_send(connection, NULL);
}

/* Its exchange has been taken from it. */
static void refuse(fl_connection *connection, fl_status status, bool head_method) {
    if (!fl_own_answer(connection, fl_status_http(status), fl_status_text(status), head_method, true)) {
        fl_connection_close(connection);
        return;
    }
    connection->readable = true; /* there may be more: let the client read the answer before it sees a reset */
    end_connection(connection);
}

void fl_connection_refuse(fl_connection *connection, fl_status status) {
    fl_loop *loop = connection->loop;
    fl_exchange *exchange = connection->exchange;
    if (connection->state == FL_CONNECTION_SERVED) { /* the app is answering: it is told, and the connection ends */
        exchange->body_failed = true;
        exchange->close = true;
        exchange->refusal = (uint8_t) status;
        fl_exchange_wake(exchange);
        return;
    }
    loop->counts.refused++;
    fl_refusal_note(connection, status);
    if (connection->state == FL_CONNECTION_QUEUED)
        fl_loop_dequeue(exchange);
    connection->exchange = NULL;
    bool head_method = false;
    if (exchange != NULL) {
        head_method = exchange->head != NULL && exchange->head->head_method;
        fl_loop_free_exchange(loop, exchange);
    }

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

/* The socket is empty: what comes later is a new event. */
static void all_read(fl_connection *connection) {
    connection->readable = false;
    fl_poll_again(&connection->loop->poll, connection->transport.descriptor, FL_READABLE);
}

/* Reads into `buffer`; answers how many bytes, 0 when there is nothing now, -1 when the stream has ended. */
static ssize_t read_into(fl_connection *connection, fl_buffer *buffer, size_t most) {
    if (fl_buffer_reserve(&connection->loop->slab, buffer, most) != FL_OK) {
        fl_connection_close(connection);
        return 0;
    }
    ssize_t count = connection->transport.kind->read(&connection->transport, fl_buffer_room(buffer), most);
    if (count == FL_TRANSPORT_BROKEN) {
        fl_connection_close(connection);
        return 0;
    }
    if (count == FL_TRANSPORT_WAIT) {
        all_read(connection);
        fl_buffer_consume(&connection->loop->slab, buffer, 0);
        return 0;
    }
    if (count == 0) {
        connection->readable = false;
        connection->half_closed = true;
        fl_buffer_consume(&connection->loop->slab, buffer, 0);
        return -1;
    }
    connection->progress += (uint64_t) count;
    if ((size_t) count < most && !connection->half_closed)
        all_read(connection);
    return count;
}

/* It has been answered by us, and may ask again. */
static void stay_open(fl_connection *connection) {
    connection->state = FL_CONNECTION_IDLE;
    fl_connection_send(connection, NULL);
    if (connection->state == FL_CONNECTION_IDLE && connection->out.length == 0)
        fl_loop_set_deadline(connection, FL_DEADLINE_IDLE);
}

/* Whoever asks how we are must not wait for an app. */
static void answer_health(fl_connection *connection) {
    fl_loop *loop = connection->loop;
    fl_exchange *exchange = connection->exchange;
    if (fl_loop_is_ending(loop) || connection->own_answers++ >= MOST_OWN_ANSWERS)
        connection->keep_alive = false;
    fl_buffer_consume(&loop->slab, &connection->in, exchange->head->size);
    bool answered = fl_answer_health(exchange, !connection->keep_alive);
    connection->exchange = NULL;
    fl_loop_free_exchange(loop, exchange);
    if (!answered)
        fl_connection_close(connection);
    else if (connection->keep_alive)
        stay_open(connection);
    else
        end_connection(connection);
}

void fl_connection_turn_away(fl_connection *connection, fl_status status) {
    fl_loop *loop = connection->loop;
    fl_exchange *exchange = connection->exchange;
    bool whole = exchange->body_done && connection->in.length == exchange->head->size && !connection->half_closed;
    /* To connect anew would cost both of us more than the answer. */
    if (!whole || !connection->keep_alive || exchange->minor == 0 || fl_loop_is_ending(loop)) {
        fl_connection_refuse(connection, status);
        return;
    }
    loop->counts.refused++;
    fl_refusal_note(connection, status);
    bool head_method = exchange->head_method;
    fl_loop_dequeue(exchange);
    connection->exchange = NULL;
    fl_loop_free_exchange(loop, exchange);
    fl_buffer_free(&loop->slab, &connection->in);
    if (!fl_own_answer(connection, fl_status_http(status), fl_status_text(status), head_method, false)) {
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
    if (fl_buffer_append(&connection->loop->slab, &connection->out, processing, sizeof processing - 1) == FL_OK)
        fl_connection_send(connection, NULL);
}

bool fl_connection_is_read(fl_connection *connection) {
    const fl_exchange *exchange = connection->exchange;
    if (!connection->asked && exchange->minor >= 1 && connection->loop->now - exchange->ready_at > HAS_WAITED)
        ask_whether_it_reads(connection);
    if (connection->state != FL_CONNECTION_CLOSED && fl_socket_is_broken(connection->transport.descriptor))
        fl_connection_close(connection);
    return connection->state != FL_CONNECTION_CLOSED;
}

static void request_is_ready(fl_connection *connection) {
    fl_exchange *exchange = connection->exchange;
    fl_loop *loop = connection->loop;
    if (fl_asks_for_health(exchange)) {
        answer_health(connection);
        return;
    }
    connection->own_answers = 0;
    if (connection->deadline_kind != FL_DEADLINE_WRITE)
        fl_loop_set_deadline(connection, FL_DEADLINE_NONE);
    connection->state = FL_CONNECTION_QUEUED;
    exchange->ready_at = loop->handed.arrived != 0 ? loop->handed.arrived : loop->now;
    fl_loop_enqueue(exchange);
    if (connection->half_closed && !connection->asked && exchange->minor >= 1 &&
        (loop->ready.count > 1 || loop->counts.in_flight >= loop->limits.in_flight))
        ask_whether_it_reads(connection); /* it will have to wait: the answer may be here before its turn */
}

/* Takes `size` bytes of the coded body, which lie at the end of `buffer` or elsewhere, out of `bytes`; answers how many
 * were used, or -1 when the connection has been refused. Those of the body move to its buffer. */
static ssize_t accept_body(fl_exchange *exchange, char *bytes, size_t size, bool in_place) {
    fl_connection *connection = exchange->connection;
    fl_loop *loop = connection->loop;
    size_t used, decoded;
    if (exchange->chunked) {
        fl_status status = fl_chunks_decode(&exchange->chunks, bytes, size, &used, &decoded);
        if (status != FL_OK && status != FL_AGAIN) {
            fl_connection_refuse(connection, status);
            return -1;
        }
        exchange->body_done = status == FL_OK;
        size_t trailers = exchange->chunks.trailers;
        bool none = exchange->body_done && exchange->trailers.length == 0 && used - trailers <= 2;
        if (used > trailers && !none &&
            fl_buffer_append(&loop->slab, &exchange->trailers, bytes + trailers, used - trailers) != FL_OK) {
            fl_connection_refuse(connection, FL_NO_MEMORY);
            return -1;
        }
    } else {
        uint64_t left = exchange->body_expected - exchange->body_received;
        used = decoded = size < left ? size : (size_t) left;
        exchange->body_done = decoded == left;
    }
    exchange->body_received += decoded;
    if (exchange->body_received > loop->limits.body_size) {
        fl_connection_refuse(connection, FL_BODY_TOO_LARGE);
        return -1;
    }
    if (in_place) {
        fl_buffer_added(&exchange->body, decoded);
    } else if (fl_buffer_append(&loop->slab, &exchange->body, bytes, decoded) != FL_OK) {
        fl_connection_refuse(connection, FL_NO_MEMORY);
        return -1;
    }
    return (ssize_t) used;
}

/* The request may go on: all of its body is here, or as much as is read ahead. */
static void body_has_grown(fl_connection *connection) {
    fl_exchange *exchange = connection->exchange;
    if (connection->state == FL_CONNECTION_SERVED) {
        fl_exchange_wake(exchange);
        exchange->awaits_body = false; /* the client's deadline ends here, however long the app takes to come back */
    } else if (exchange->body_done || exchange->body.length >= fl_loop_keeps(connection->loop, connection->loop->limits.body_buffer)) {
        request_is_ready(connection);
    } else if (connection->deadline_kind == FL_DEADLINE_NONE || connection->deadline_kind == FL_DEADLINE_IDLE ||
               connection->deadline_kind == FL_DEADLINE_HEAD) {
        fl_loop_set_deadline(connection, FL_DEADLINE_BODY);
    }
}

static void receive_body(fl_connection *connection) {
    fl_exchange *exchange = connection->exchange;
    fl_loop *loop = connection->loop;
    uint32_t limit = fl_loop_keeps(loop, loop->limits.body_buffer);
    if (connection->state == FL_CONNECTION_SERVED && limit < BODY_READ_SIZE)
        limit = BODY_READ_SIZE; /* who serves it reads it, however little is read ahead */
    if (exchange->body_done || exchange->body_failed)
        return;
    if (exchange->body.length >= limit) {
        if (connection->state == FL_CONNECTION_BODY)
            body_has_grown(connection); /* less is kept than when it came */
        return;
    }
    size_t most = limit - exchange->body.length;
    if (most > BODY_READ_SIZE)
        most = BODY_READ_SIZE;
    if (!exchange->chunked && most > exchange->body_expected - exchange->body_received)
        most = (size_t) (exchange->body_expected - exchange->body_received);
    ssize_t count = read_into(connection, &exchange->body, most);
    if (connection->state == FL_CONNECTION_CLOSED)
        return;
    if (count < 0) {
        if (connection->state == FL_CONNECTION_SERVED) {
            exchange->body_failed = true;
            fl_exchange_wake(exchange);
        } else {
            fl_connection_close(connection);
        }
        return;
    }
    if (count == 0)
        return;
    char *bytes = fl_buffer_room(&exchange->body);
    ssize_t used = accept_body(exchange, bytes, (size_t) count, true);
    if (used < 0)
        return;
    if (used < count) { /* the next request; `bytes` are still where they were read */
        if (fl_buffer_append(&loop->slab, &connection->in, bytes + used, (size_t) (count - used)) != FL_OK) {
            fl_connection_close(connection);
            return;
        }
    }
    body_has_grown(connection);
}

static void head_is_complete(fl_connection *connection) {
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    fl_exchange *exchange = connection->exchange;
    fl_loop *loop = connection->loop;
    fl_http1_head *head = exchange->head;
    exchange->minor = head->minor;
    exchange->head_method = head->head_method;
    exchange->chunked = head->chunked;
    exchange->body_expected = head->has_length ? head->content_length : 0;
    exchange->body_done = !head->chunked && exchange->body_expected == 0;
    connection->keep_alive = head->keep_alive;
    if (exchange->body_done) {
        request_is_ready(connection);
        return;
    }
    if (exchange->body_expected > loop->limits.body_size) {
        fl_connection_refuse(connection, FL_BODY_TOO_LARGE);
        return;
    }
    connection->state = FL_CONNECTION_BODY;
    fl_buffer *in = &connection->in;
    size_t rest = in->length - head->size;
    if (rest > 0) {
        char *bytes = fl_buffer_at(in) + head->size;
        ssize_t used = accept_body(exchange, bytes, rest, false);
        if (used < 0)
            return;
        memmove(bytes, bytes + used, rest - (size_t) used);
        in->length -= (uint32_t) used;
    } else if (head->expect_continue) {
        if (fl_buffer_append(&loop->slab, &connection->out, go_on, sizeof go_on - 1) == FL_OK)
            fl_connection_send(connection, NULL);
        if (connection->state == FL_CONNECTION_CLOSED)
            return;
    }
    body_has_grown(connection);
}

static void parse_one(fl_connection *connection) {
    fl_loop *loop = connection->loop;
    if (connection->exchange == NULL) {
        connection->exchange = fl_loop_new_exchange(loop, connection);
        if (connection->exchange == NULL) {
            fl_connection_refuse(connection, FL_NO_MEMORY);
            return;
        }
        connection->state = FL_CONNECTION_HEAD;
    }
    fl_status status = fl_http1_parse(connection->exchange->head, fl_buffer_at(&connection->in), connection->in.length,
                                      &loop->limits.http1);
    if (status == FL_OK)
        head_is_complete(connection);
    else if (status != FL_AGAIN)
        fl_connection_refuse(connection, status);
    else if (connection->deadline_kind != FL_DEADLINE_HEAD && connection->deadline_kind != FL_DEADLINE_WRITE)
        fl_loop_set_deadline(connection, FL_DEADLINE_HEAD);
}

/* Reads requests out of `in` until one is ready or more bytes are needed. */
static void parse(fl_connection *connection) {
    if (connection->in.length > 0)
        parse_one(connection);
    while (connection->state == FL_CONNECTION_IDLE && connection->in.length > 0) /* that was answered by us */
        parse_one(connection);
}

static void receive_head(fl_connection *connection) {
    ssize_t count = read_into(connection, &connection->in, READ_SIZE);
    if (count < 0) {
        if (connection->out.length > 0) /* it has asked, and ended its side: it may still read */
            end_connection(connection);
        else
            fl_connection_close(connection);
    }
    if (count <= 0)
        return;
    fl_buffer_added(&connection->in, (size_t) count);
    parse(connection);
}

static void drop_input(fl_connection *connection) {
    fl_buffer scratch = {0};
    for (int i = 0; i < 16 && connection->readable && connection->state == FL_CONNECTION_LINGERING; i++)
        if (read_into(connection, &scratch, BODY_READ_SIZE) < 0) {
            fl_connection_close(connection);
            break;
        }
    fl_buffer_free(&connection->loop->slab, &scratch);
}

void fl_connection_receive(fl_connection *connection) {
    uint64_t before;
    do {
        if (!connection->readable)
            return;
        before = connection->progress;
        switch (connection->state) {
        case FL_CONNECTION_IDLE:
        case FL_CONNECTION_HEAD:
            receive_head(connection);
            break;
        case FL_CONNECTION_BODY:
        case FL_CONNECTION_SERVED:
            receive_body(connection);
            break;
        case FL_CONNECTION_LINGERING:
            drop_input(connection);
            return;
        default: /* busy with what has come already */
            return;
        }
    } while (connection->progress != before);
}

/* It has ended its side, and if it has gone nobody shall go on for it. */
static bool would_be_told_in_vain(const fl_connection *connection) {
    const fl_exchange *exchange = connection->exchange;
    if (connection->state == FL_CONNECTION_QUEUED)
        return true;
    return connection->state == FL_CONNECTION_SERVED && connection->loop->limits.cancel_abandoned && exchange != NULL &&
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
    if (connection->half_closed && would_be_told_in_vain(connection)) {
        if (connection->exchange->minor >= 1 && !connection->asked)
            ask_whether_it_reads(connection);
        else if (connection->exchange->minor == 0 && connection->loop->now - connection->exchange->ready_at > GIVEN_UP)
            fl_connection_close(connection); /* one of HTTP/1.0 cannot be asked */
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
        fl_loop_set_deadline(connection, FL_DEADLINE_IDLE);
    parse(connection);
    fl_connection_receive(connection); /* what came while it was busy is no event any more */
    if (connection->loop->draining && !connection->loop->handing_over && fl_connection_is_idle(connection))
        fl_connection_close(connection);
}

void fl_connection_answered(fl_connection *connection, bool body_unread) {
    connection->exchange = NULL;
    if (!connection->keep_alive || body_unread) {
        connection->readable |= body_unread;
        end_connection(connection);
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

/* Slow is not stalled: while enough moves, the time starts again. */
static bool moves_on(const fl_connection *connection, fl_deadline_kind kind) {
    return (int64_t) (progress_of(connection, kind) - connection->progress_at_deadline) >= LEAST_PROGRESS;
}

void fl_connection_deadline(fl_connection *connection) {
    fl_exchange *exchange = connection->exchange;
    fl_deadline_kind kind = connection->deadline_kind;
    fl_loop_set_deadline(connection, FL_DEADLINE_NONE);
    switch (kind) {
    case FL_DEADLINE_HEAD:
        if (exchange != NULL && (exchange->head->started || exchange->head->line < connection->in.length))
            fl_connection_refuse(connection, FL_HEAD_TIMEOUT);
        else
            fl_connection_close(connection); /* but empty lines, nothing was asked */
        break;
    case FL_DEADLINE_BODY:
        if (connection->state == FL_CONNECTION_SERVED && !exchange->awaits_body)
            break; /* the app takes its time, not the client */
        if (moves_on(connection, kind))
            start_deadline(connection, kind);
        else
            fl_connection_refuse(connection, FL_BODY_TIMEOUT);
        break;
    case FL_DEADLINE_WRITE:
        if (connection->out.length == 0 && fl_on_its_way(connection->transport.descriptor) == 0) {
            all_sent(connection);
            break;
        }
        if (moves_on(connection, kind)) {
            start_deadline(connection, kind);
            break;
        }
        connection->transport.kind->reset(&connection->transport); /* else the kernel would go on offering it the rest */
        fl_connection_close(connection);
        break;
    case FL_DEADLINE_IDLE:
        if (fl_on_its_way(connection->transport.descriptor) > 0) { /* it may still take the last answer, or not */
            start_deadline(connection, FL_DEADLINE_WRITE);
            break;
        }
        /* fall through */
    default:
        fl_connection_close(connection);
    }
}
