/* Fairlead::Request: responding with what a Rack app returns. */
#include "fairlead.h"

#include <string.h>

static ID id_each, id_to_i;
static VALUE word_upgrade, word_connection;

/* The exchange, for staging its response: the GVL is enough for that. Valid until Ruby is called. */
static fl_exchange *staged(VALUE self) {
    fl_exchange *exchange = fl_ruby_request_get(self)->exchange;
    fl_require_open(exchange);
    return exchange;
}

static void header_value(VALUE self, VALUE name, VALUE value) {
    fl_exchange *exchange = staged(self);
    const char *bytes = RSTRING_PTR(value);
    long left = RSTRING_LEN(value);
    for (;;) { /* Rack 2 joins several values with line feeds */
        const char *end = memchr(bytes, '\n', (size_t) left);
        long size = end == NULL ? left : end - bytes;
        fl_check(fl_exchange_header(exchange, RSTRING_PTR(name), (size_t) RSTRING_LEN(name), bytes, (size_t) size));
        if (end == NULL)
            break;
        bytes = end + 1;
        left -= size + 1;
    }
    RB_GC_GUARD(name);
    RB_GC_GUARD(value);
}

static VALUE to_string(VALUE object) {
    return RB_TYPE_P(object, T_STRING) ? object : rb_obj_as_string(object);
}

static bool is(VALUE name, const char *known) {
    return (size_t) RSTRING_LEN(name) == strlen(known) && memcmp(RSTRING_PTR(name), known, strlen(known)) == 0;
}

/* Handles a header that is for the server. */
static void server_header(VALUE self, VALUE name, VALUE value) {
    if (is(name, "rack.hijack") && RTEST(value)) {
        staged(self)->response.switches_protocol = true;
    } else if (is(name, "rack.protocol") && RTEST(value)) {
        value = to_string(value);
        fl_exchange *exchange = staged(self);
        exchange->response.switches_protocol = exchange->response.names_protocol = true;
        header_value(self, word_upgrade, value);
        header_value(self, word_connection, word_upgrade);
    }
}

static void header(VALUE self, VALUE name, VALUE value) {
    name = to_string(name);
    if (RSTRING_LEN(name) > 5 && memcmp(RSTRING_PTR(name), "rack.", 5) == 0) {
        server_header(self, name, value);
        return;
    }
    if (RB_TYPE_P(value, T_ARRAY)) {
        for (long i = 0; i < RARRAY_LEN(value); i++) header_value(self, name, to_string(RARRAY_AREF(value, i)));
    } else if (!NIL_P(value)) {
        header_value(self, name, to_string(value));
    }
    RB_GC_GUARD(name);
}

static int header_of_hash(VALUE name, VALUE value, VALUE self) {
    header(self, name, value);
    return ST_CONTINUE;
}

static VALUE header_of_each(RB_BLOCK_CALL_FUNC_ARGLIST(pair, self)) {
    if (argc >= 2)
        header(self, argv[0], argv[1]);
    else
        header(self, rb_ary_entry(pair, 0), rb_ary_entry(pair, 1));
    return Qnil;
}

/* Stages a head. Iterating `headers` may call any Ruby. */
static void begin(VALUE self, VALUE status, VALUE headers) {
    int code = RB_INTEGER_TYPE_P(status) ? NUM2INT(status) : NUM2INT(rb_funcallv(status, id_to_i, 0, NULL));
    fl_ruby_request_get(self)->code = code;
    fl_check(fl_exchange_begin(staged(self), code));
    if (RB_TYPE_P(headers, T_HASH))
        rb_hash_foreach(headers, header_of_hash, self);
    else
        rb_block_call(headers, id_each, 0, NULL, header_of_each, self);
    /* An app that upgrades returns 200, as in HTTP/2; HTTP/1.1 needs 101 (Rack specification, "The rack.protocol Header"). */
    if (code != 101 && staged(self)->response.names_protocol)
        begin(self, INT2FIX(101), headers);
}

/* The exchange of an open request, with the loop's lock; raises otherwise. */
static fl_exchange *lock_open(VALUE self) {
    fl_exchange *exchange = fl_lock_request(self);
    fl_require_open(exchange);
    return exchange;
}

/* Wakes the driver, if this is another thread: it sends what was staged at its next turn, and there may be room for the next request. */
static void wake_driver(VALUE request) {
    fl_ruby_loop *self = fl_ruby_loop_struct(fl_ruby_request_get(request)->loop);
    if (self->loop != NULL && !pthread_equal(self->driver, pthread_self()))
        fl_loop_wake(self->loop);
}

/* Ends a request: `end` is fl_exchange_finish or fl_exchange_abandon. The caller holds the loop's lock, if the exchange has a loop. */
static void end(VALUE object, void (*end)(fl_exchange *)) {
    fl_ruby_request *self = fl_ruby_request_get(object);
    fl_exchange *exchange = self->exchange;
    self->exchange = NULL;
    self->timed_out = exchange->timing.timed_out;
    if (end == fl_exchange_abandon && exchange->request.rejection != FL_OK && !exchange->response.committed)
        self->code = fl_status_http((fl_status) exchange->request.rejection);
    if (exchange->timing.timed_out && !exchange->response.committed)
        self->code = fl_status_http(FL_REQUEST_TIMEOUT); /* whatever status the app has set since */
    else
        self->bytes_sent = exchange->response.body_sent + exchange->response.held.length;
    if (exchange->context == NULL)
        free(exchange);
    else
        end(exchange);
}

static VALUE end_if_open(VALUE object, void (*how)(fl_exchange *)) {
    fl_exchange *exchange = fl_lock_request(object);
    if (exchange == NULL)
        return Qnil;
    fl_context *context = exchange->context;
    end(object, how);
    if (context == NULL)
        return Qnil;
    fl_unlock(context);
    wake_driver(object);
    return Qnil;
}

/* Sums up the bytes of the parts. Returns the first part that is neither String nor nil; nil: there is none. */
static VALUE measure(VALUE parts, size_t *length) {
    *length = 0;
    for (long i = 0; i < RARRAY_LEN(parts); i++) {
        VALUE part = RARRAY_AREF(parts, i);
        if (RB_TYPE_P(part, T_STRING))
            *length += (size_t) RSTRING_LEN(part);
        else if (!NIL_P(part))
            return part;
    }
    return Qnil;
}

/* Writes parts that there is room for. */
static fl_status write_all(fl_exchange *exchange, VALUE parts) {
    fl_status outcome = FL_OK;
    for (long i = 0; outcome == FL_OK && i < RARRAY_LEN(parts); i++) {
        VALUE part = RARRAY_AREF(parts, i);
        size_t used;
        if (!NIL_P(part))
            outcome = fl_exchange_write(exchange, RSTRING_PTR(part), (size_t) RSTRING_LEN(part), &used);
    }
    return outcome;
}

/* respond(status, headers, body): returns true if it has staged the whole response: if the body is an Array that fits into the response
 * buffer, is not sent (HEAD, 204, 304), or the app has hijacked the connection. Otherwise it only begins the head, and returns false:
 * the caller writes the parts and finishes, or checks takes_over?. */
static VALUE request_respond(VALUE object, VALUE status, VALUE headers, VALUE body) {
    if (fl_ruby_request_get(object)->hijacked)
        return end_if_open(object, fl_exchange_finish), Qtrue;
    begin(object, status, headers);
    fl_exchange *exchange = lock_open(object); /* from here on no other thread can change the body */
    fl_context *context = exchange->context;
    bool whole = RB_TYPE_P(body, T_ARRAY) && !exchange->response.switches_protocol && !exchange->response.has_trailers;
    size_t length = 0;
    VALUE wrong = whole ? measure(body, &length) : Qnil;
    if (!NIL_P(wrong)) {
        fl_unlock(context);
        Check_Type(wrong, T_STRING);
    }
    fl_status outcome = fl_exchange_head_end(exchange, whole ? (int64_t) length : -1);
    bool empty = outcome == FL_OK && exchange->response.framing == FL_FRAMING_NONE;
    whole = empty || (whole && outcome == FL_OK && length <= fl_exchange_room(exchange));
    if (whole && !empty)
        outcome = write_all(exchange, body);
    if (whole && outcome == FL_OK)
        end(object, fl_exchange_finish);
    fl_unlock(context);
    fl_check(outcome);
    if (whole)
        wake_driver(object);
    RB_GC_GUARD(body);
    return whole ? Qtrue : Qfalse;
}

enum {
    MAX_AT_ONCE = 1 << 20, /* bytes written at once for a fast client */
    SLICE = 1000,          /* microseconds for which a request that reads or writes without waiting may keep its reactor */
};

/* Whether the request has read or written for a slice, since it began to, or since its fiber was resumed. */
static bool slice_is_over(fl_ruby_request *self) {
    if (fl_own.reactor == NULL)
        return false;
    uint64_t now = fl_clock(), since = atomic_load_explicit(&fl_own.reactor->stamp, memory_order_relaxed);
    if (self->busy_since == 0)
        self->busy_since = now;
    return now > (since > self->busy_since ? since : self->busy_since) + SLICE;
}

/* write(string): returns the rest that was not taken, as a new String. Before the caller writes the rest, it waits for the loop if
 * awaits_room?, or lets others have their turn. If all was taken, returns nil, or false if others should have their turn. */
static VALUE request_write(VALUE self, VALUE string) {
    Check_Type(string, T_STRING);
    fl_exchange *exchange = lock_open(self);
    size_t size = (size_t) RSTRING_LEN(string), used;
    fl_status status = fl_exchange_write(exchange, RSTRING_PTR(string), size < MAX_AT_ONCE ? size : MAX_AT_ONCE, &used);
    fl_unlock(exchange->context);
    if (status != FL_AGAIN)
        fl_check(status);
    wake_driver(self);
    if (used < size)
        return rb_str_subseq(string, (long) used, (long) (size - used));
    return slice_is_over(fl_ruby_request_get(self)) ? Qfalse : Qnil;
}

/* Whether others should have their turn before the app reads more of the body. */
static VALUE request_slice_over_p(VALUE self) {
    return slice_is_over(fl_ruby_request_get(self)) ? Qtrue : Qfalse;
}

static VALUE request_awaits_room_p(VALUE self) {
    fl_exchange *exchange = fl_lock_request(self);
    if (exchange == NULL || exchange->context == NULL)
        return Qfalse;
    bool awaits = exchange->response.awaits_room;
    fl_unlock(exchange->context);
    return awaits ? Qtrue : Qfalse;
}

/* Calls `act` with the lock, unless the server has ended. */
static VALUE with_lock(VALUE self, void (*act)(fl_exchange *)) {
    fl_exchange *exchange = fl_lock_request(self);
    if (exchange != NULL && exchange->context == NULL)
        return Qnil;
    fl_require_open(exchange);
    act(exchange);
    fl_unlock(exchange->context);
    return Qnil;
}

static VALUE request_flush(VALUE self) {
    return with_lock(self, fl_exchange_flush);
}

/* Whether the app takes over the connection after the head that has begun. */
static VALUE request_takes_over_p(VALUE object) {
    fl_exchange *exchange = fl_ruby_request_get(object)->exchange;
    return exchange != NULL && exchange->response.switches_protocol ? Qtrue : Qfalse;
}

/* Whether the head that has begun is that of an event stream. */
static VALUE request_event_stream_p(VALUE object) {
    fl_exchange *exchange = fl_ruby_request_get(object)->exchange;
    return exchange != NULL && exchange->response.events.is_one ? Qtrue : Qfalse;
}

static VALUE taken_out(fl_slab *staging, fl_buffer *buffer) {
    VALUE bytes = rb_str_new(buffer->length > 0 ? fl_buffer_at(buffer) : "", buffer->length);
    fl_buffer_free(staging, buffer);
    return bytes;
}

/* Detaches the socket for the app: its descriptor, whether it is a Unix socket, what must be sent first, and what was read ahead. The
 * request still has to be finished. */
static VALUE request_detach_socket(VALUE object) {
    fl_exchange *exchange = lock_open(object);
    fl_context *context = exchange->context;
    fl_buffer unsent = {0}, ahead = {0};
    bool gone = exchange->connection == NULL, is_unix = exchange->client.family == AF_UNIX;
    int descriptor = fl_exchange_hijack(exchange, &unsent, &ahead);
    fl_unlock(context);
    if (descriptor < 0 && gone)
        fl_raise(FL_CLOSED);
    if (descriptor < 0)
        rb_raise(rb_eIOError, "the connection can no longer be hijacked: a response has begun, or a chunked body has not been "
                              "read to its end");
    fl_ruby_request_get(object)->hijacked = true;
    rb_update_max_fd(descriptor);
    /* The buffers are this function's now; the GVL is enough to free them. */
    VALUE to_send = taken_out(&context->staging, &unsent), read = taken_out(&context->staging, &ahead);
    return rb_ary_new_from_args(4, INT2FIX(descriptor), is_unix ? Qtrue : Qfalse, to_send, read);
}

/* inform(103, fields): sends an interim response. Each field is a line with CR LF. */
static VALUE request_inform(VALUE object, VALUE code, VALUE fields) {
    int number = NUM2INT(code);
    Check_Type(fields, T_STRING);
    fl_exchange *exchange = lock_open(object);
    fl_exchange_send_interim(exchange, number, RSTRING_PTR(fields), (size_t) RSTRING_LEN(fields));
    fl_unlock(exchange->context);
    return Qnil;
}

/* trailer(name, value): a field behind the body. Call it between the last part and `finish`. */
static VALUE request_trailer(VALUE object, VALUE name, VALUE value) {
    StringValue(name);
    StringValue(value);
    fl_exchange *exchange = lock_open(object);
    fl_status status = fl_exchange_trailer(exchange, RSTRING_PTR(name), (size_t) RSTRING_LEN(name), RSTRING_PTR(value),
                                           (size_t) RSTRING_LEN(value));
    fl_unlock(exchange->context);
    fl_check(status);
    return Qnil;
}

static VALUE request_mark_long_lived(VALUE self) {
    return with_lock(self, fl_exchange_mark_long_lived);
}

static VALUE request_finish(VALUE self) {
    return end_if_open(self, fl_exchange_finish);
}

static VALUE request_abandon(VALUE self) {
    return end_if_open(self, fl_exchange_abandon);
}

/* limit_time(seconds): the time limit from now on, and from each piece of a body on; nil: none. */
static VALUE request_limit_time(VALUE self, VALUE seconds) {
    uint64_t microseconds = fl_microseconds(seconds, "the time of a request");
    if (microseconds == 0 && !NIL_P(seconds)) /* the core would take 0 as no limit */
        rb_raise(rb_eArgError, "the time of a request must be more than 0 and at most %d seconds, not %" PRIsVALUE,
                 FL_MAX_SECONDS, seconds);
    fl_exchange *exchange = fl_lock_request(self);
    if (exchange == NULL || exchange->context == NULL)
        return Qnil;
    fl_exchange_set_time_limit(exchange, microseconds);
    fl_unlock(exchange->context);
    return Qnil;
}

/* Whether its time limit has passed: then the core has sent 504, or cut the client off. */
static VALUE request_timed_out_p(VALUE object) {
    fl_ruby_request *self = fl_ruby_request_get(object);
    return self->timed_out || (self->exchange != NULL && self->exchange->timing.timed_out) ? Qtrue : Qfalse;
}

/* Whether anything of the response was sent. */
static VALUE request_committed_p(VALUE object) {
    fl_ruby_request *self = fl_ruby_request_get(object);
    return self->hijacked || self->exchange == NULL || self->exchange->response.committed ? Qtrue : Qfalse;
}

static VALUE request_answered_p(VALUE object) {
    return fl_ruby_request_get(object)->exchange == NULL ? Qtrue : Qfalse;
}

static VALUE request_status(VALUE object) {
    return INT2NUM(fl_ruby_request_get(object)->code);
}

static VALUE request_bytes_sent(VALUE object) {
    return ULL2NUM(fl_ruby_request_get(object)->bytes_sent);
}

void fl_init_response(VALUE request) {
    id_each = rb_intern("each");
    id_to_i = rb_intern("to_i");
    word_upgrade = fl_kept_string("upgrade");
    word_connection = fl_kept_string("connection");
    rb_define_method(request, "respond", request_respond, 3);
    rb_define_method(request, "write", request_write, 1);
    rb_define_method(request, "awaits_room?", request_awaits_room_p, 0);
    rb_define_method(request, "slice_over?", request_slice_over_p, 0);
    rb_define_method(request, "flush", request_flush, 0);
    rb_define_method(request, "finish", request_finish, 0);
    rb_define_method(request, "abandon", request_abandon, 0);
    rb_define_method(request, "mark_long_lived", request_mark_long_lived, 0);
    rb_define_method(request, "inform", request_inform, 2);
    rb_define_method(request, "trailer", request_trailer, 2);
    rb_define_method(request, "takes_over?", request_takes_over_p, 0);
    rb_define_method(request, "event_stream?", request_event_stream_p, 0);
    rb_define_method(request, "detach_socket", request_detach_socket, 0);
    rb_define_method(request, "limit_time", request_limit_time, 1);
    rb_define_method(request, "timed_out?", request_timed_out_p, 0);
    rb_define_method(request, "committed?", request_committed_p, 0);
    rb_define_method(request, "answered?", request_answered_p, 0);
    rb_define_method(request, "status", request_status, 0);
    rb_define_method(request, "bytes_sent", request_bytes_sent, 0);
}
