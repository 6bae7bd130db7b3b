#include "file_body.h"
#include "base/list.h"
#include "base/platform.h"

#include <stdlib.h>

enum {
    FIRST_PIECE = 32768,  /* bytes that are read and sent together with the head */
    PIECE = 65536,        /* bytes that are read in a turn, */
    SENT_A_TURN = 524288, /* or that the kernel sends; */
    ALL_A_TURN = 4 << 20, /* bytes of all files, so that requests do not wait for many downloads */
    MAX_UNSENT = 2 << 20, /* bytes of a file that the kernel keeps unsent */
};

typedef struct fl_file_body {
    int descriptor;
    bool is_large; /* MAX_UNSENT holds for its socket */
    uint64_t offset, left;
} fl_file_body;

void fl_file_body_free(fl_file_body *body) {
    if (body->descriptor >= 0)
        close(body->descriptor);
    free(body);
}

/* Takes the exchange from the fiber that has served it. */
static void leave_fiber(fl_exchange *exchange) {
    fl_context *context = exchange->context;
    if (exchange->timing.running || exchange->timing.expired)
        fl_exchange_clear_time_limit(exchange);
    if (exchange->woken)
        fl_exchange_cancel_wake(exchange);
    fl_exchange_record(exchange);
    context->calls->request_ended(exchange);
    FL_LIST_UNLINK(context->served, exchange, previous, next);
    if (exchange->stream)
        context->counts.streams--;
    else
        context->counts.in_flight--;
}

/* The exchange can go on at the next turn. */
static void queue(fl_exchange *exchange) {
    exchange->response.awaits_room = true;
    fl_exchange_wake(exchange);
}

fl_status fl_file_body_begin(fl_exchange *exchange, int descriptor, uint64_t offset, uint64_t size) {
    fl_file_body *body = malloc(sizeof *body);
    if (body == NULL) {
        if (descriptor >= 0)
            close(descriptor);
        return FL_NO_MEMORY;
    }
    *body = (fl_file_body) {.descriptor = descriptor, .offset = offset, .left = size};
    if (exchange->state == FL_EXCHANGE_SERVED)
        leave_fiber(exchange);
    exchange->state = FL_EXCHANGE_FILE;
    exchange->file = body;
    queue(exchange);
    return FL_OK;
}

static void advance(fl_exchange *exchange, uint64_t count) {
    exchange->file->offset += count;
    exchange->file->left -= count;
    exchange->context->file_bytes += count;
}

/* Reads a piece, and sends or stages it. Returns false if the file cannot be read as far as was announced. */
static bool copy_piece(fl_exchange *exchange, size_t most) {
    fl_file_body *body = exchange->file;
    fl_slab *slab = &exchange->context->slab;
    fl_buffer piece = {0};
    size_t room = fl_exchange_room(exchange), used = 0;
    most = most < room ? most : room;
    most = most < body->left ? most : (size_t) body->left;
    if (most == 0)
        return true;
    if (fl_buffer_reserve(slab, &piece, most) != FL_OK)
        return false;
    ssize_t count = pread(body->descriptor, fl_buffer_room(&piece), most, (off_t) body->offset);
    bool readable = count > 0 || (count < 0 && errno == EINTR);
    if (count > 0) {
        fl_status status = fl_exchange_write(exchange, fl_buffer_room(&piece), (size_t) count, &used);
        readable = status == FL_OK || status == FL_AGAIN;
    }
    fl_buffer_free(slab, &piece);
    advance(exchange, used);
    return readable || exchange->connection == NULL;
}

/* While the kernel sends a large file, its socket may hold more unsent bytes: fewer wake-ups, and no copies. */
static void limit_unsent(const fl_exchange *exchange, bool is_large) {
    fl_file_body *body = exchange->file;
    if (body->is_large != is_large)
        fl_limit_unsent(exchange->connection->transport.descriptor, is_large ? MAX_UNSENT : FL_MAX_UNSENT);
    body->is_large = is_large;
}

/* Has the kernel send a piece. Call it when the head has left. Returns false if it cannot. */
static bool send_piece(fl_exchange *exchange) {
    fl_file_body *body = exchange->file;
    size_t size = body->left < SENT_A_TURN ? (size_t) body->left : SENT_A_TURN;
    limit_unsent(exchange, body->is_large || body->left > FL_MAX_UNSENT);
    ssize_t count = fl_connection_send_file(exchange->connection, body->descriptor, (off_t) body->offset, size);
    if (exchange->connection != NULL && (count == FL_TRANSPORT_UNREADABLE || (uint64_t) count == body->left))
        limit_unsent(exchange, false);
    if (count == FL_TRANSPORT_UNREADABLE)
        return false;
    advance(exchange, (uint64_t) count);
    exchange->response.body_sent += (uint64_t) count;
    exchange->response.length_left -= (uint64_t) count;
    return true;
}

/* Whether the transport can send from the file, once the head has left. */
static bool can_send(const fl_exchange *exchange) {
    return exchange->connection->transport.kind->send_file != NULL && exchange->protocol->body_directly != NULL &&
           exchange->response.framing == FL_FRAMING_LENGTH;
}

static bool is_sent(const fl_exchange *exchange) {
    return exchange->response.out.length == 0 && exchange->connection->out.length == 0 && !exchange->connection->awaits_room;
}

static bool send_some(fl_exchange *exchange) {
    const fl_file_body *body = exchange->file;
    bool sends = can_send(exchange), begun = exchange->response.committed && is_sent(exchange);
    if (!sends || !begun) {
        if (!copy_piece(exchange, sends ? FIRST_PIECE : PIECE))
            return false;
        if (exchange->connection == NULL || body->left == 0)
            return true;
        fl_exchange_flush(exchange);
    }
    if (!sends || exchange->connection == NULL || !is_sent(exchange))
        return true;
    return send_piece(exchange) || copy_piece(exchange, PIECE); /* some file systems do not support the former */
}

/* Sends what one turn may send of a file. May free the exchange. */
static void take_turn(fl_exchange *exchange) {
    fl_response *response = &exchange->response;
    fl_file_body *body = exchange->file;
    response->awaits_room = false;
    if (response->framing == FL_FRAMING_NONE)
        body->left = 0;
    bool readable = exchange->connection == NULL || body->left == 0 || send_some(exchange);
    if (exchange->connection == NULL || !readable)
        fl_exchange_abandon(exchange);
    else if (body->left == 0)
        fl_exchange_finish(exchange);
    else if (is_sent(exchange))
        queue(exchange);
    else
        response->awaits_room = true;
}

void fl_file_body_lost(fl_exchange *exchange) {
    queue(exchange);
}

bool fl_file_bodies_turn(fl_context *context) {
    const fl_exchange *last = context->files.last;
    uint64_t before = context->file_bytes;
    for (fl_exchange *exchange; (exchange = context->files.first) != NULL;) {
        bool is_last = exchange == last;
        fl_exchange_cancel_wake(exchange);
        take_turn(exchange);
        if (is_last || context->file_bytes - before >= ALL_A_TURN)
            break;
    }
    return context->files.first != NULL;
}

void fl_file_bodies_close(fl_context *context) {
    while (context->files.first != NULL) fl_exchange_free(context->files.first);
}
