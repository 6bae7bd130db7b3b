/* What a Rack app returns becomes the bytes of a response. */
#include "fairlead.h"

#include <string.h>

static ID id_each, id_to_i;
static VALUE word_upgrade, word_connection;

static void check(fl_status status) {
    if (status != FL_OK)
        fl_raise(status);
}

/* What is staged of a response needs the GVL only: valid until Ruby is called. */
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
        check(fl_exchange_header(exchange, RSTRING_PTR(name), (size_t) RSTRING_LEN(name), bytes, (size_t) size));
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

/* A header between app and server. */
static void for_server(VALUE self, VALUE name, VALUE value) {
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
        for_server(self, name, value);
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

/* Stages a head. `headers` may run any Ruby. */
static void begin(VALUE self, VALUE status, VALUE headers) {
    int code = RB_INTEGER_TYPE_P(status) ? NUM2INT(status) : NUM2INT(rb_funcallv(status, id_to_i, 0, NULL));
    fl_ruby_request_get(self)->code = code;
    check(fl_exchange_begin(staged(self), code));
    if (RB_TYPE_P(headers, T_HASH))
        rb_hash_foreach(headers, header_of_hash, self);
    else
        rb_block_call(headers, id_each, 0, NULL, header_of_each, self);
    /* What is 200 in HTTP/2 is said with 101 here (Rack specification, "The rack.protocol Header"). */
    if (code != 101 && staged(self)->response.names_protocol)
        begin(self, INT2FIX(101), headers);
}

/* The exchange of an open request, its loop held; raises otherwise. */
static fl_exchange *hold(VALUE self) {
    fl_exchange *exchange = fl_lock_request(self);
    fl_require_open(exchange);
    return exchange;
}

/* What was staged leaves at the loop's next turn, and there may be more to take. The driver's own fibers come back to
 * it; for another thread it has to be woken. */
static void tell_driver(VALUE request) {
    fl_ruby_loop *self = fl_ruby_loop_struct(fl_ruby_request_get(request)->loop);
    if (self->loop != NULL && !pthread_equal(self->driver, pthread_self()))
        fl_loop_wake(self->loop);
}

/* The last word on a request: `end` is fl_exchange_finish or fl_exchange_abandon. Its loop is held, if there is one. */
static void end(VALUE object, void (*end)(fl_exchange *)) {
    fl_ruby_request *self = fl_ruby_request_get(object);
    fl_exchange *exchange = self->exchange;
    self->exchange = NULL;
    self->timed_out = exchange->timing.timed_out;
    if (end == fl_exchange_abandon && exchange->request.rejection != FL_OK && !exchange->response.committed)
        self->code = fl_status_http((fl_status) exchange->request.rejection);
    if (exchange->timing.timed_out && !exchange->response.committed)
        self->code = fl_status_http(FL_REQUEST_TIMEOUT); /* whatever the app has said since */
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
    tell_driver(object);
    return Qnil;
}

/* How many bytes the parts have together. Answers the first that is no String, and not left out; else nil. */
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

/* There is room for all of them. */
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

/* The whole response at once, if the body is an Array that fits into the response buffer, or is not sent whatever it is
 * (HEAD, 204, 304): true. So too when the app has hijacked the connection, and nobody asks for its response. Otherwise
 * only its head is begun, and false: write the parts, then finish, or see whether it takes over. */
static VALUE request_respond(VALUE object, VALUE status, VALUE headers, VALUE body) {
    if (fl_ruby_request_get(object)->hijacked)
        return end_if_open(object, fl_exchange_finish), Qtrue;
    begin(object, status, headers);
    fl_exchange *exchange = hold(object); /* from here on nobody else changes the body */
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
    check(outcome);
    if (whole)
        tell_driver(object);
    RB_GC_GUARD(body);
    return whole ? Qtrue : Qfalse;
}

enum {
    MOST_AT_ONCE = 1 << 20, /* bytes for a client that takes whatever it is sent */
    SLICE = 1000,           /* microseconds that whoever reads or writes and never waits keeps its reactor */
};

/* Whether it has read or written for so long, since it has begun to, or its fiber has gone on. */
static bool slice_is_over(fl_ruby_request *self) {
    if (fl_own.reactor == NULL)
        return false;
    uint64_t now = fl_clock(), since = atomic_load_explicit(&fl_own.reactor->stamp, memory_order_relaxed);
    if (self->busy_since == 0)
        self->busy_since = now;
    return now > (since > self->busy_since ? since : self->busy_since) + SLICE;
}

/* Takes bytes of the body. Answers what is left: another String, which nobody changes meanwhile. Before that is written, the
 * loop must be awaited if `awaits_room?`, else others have their turn. Nothing is left: nil, or false if others should have
 * their turn none the less. */
static VALUE request_write(VALUE self, VALUE string) {
    Check_Type(string, T_STRING);
    fl_exchange *exchange = hold(self);
    size_t size = (size_t) RSTRING_LEN(string), used;
    fl_status status = fl_exchange_write(exchange, RSTRING_PTR(string), size < MOST_AT_ONCE ? size : MOST_AT_ONCE, &used);
    fl_unlock(exchange->context);
    if (status != FL_OK && status != FL_AGAIN)
        fl_raise(status);
    tell_driver(self);
    if (used < size)
        return rb_str_subseq(string, (long) used, (long) (size - used));
    return slice_is_over(fl_ruby_request_get(self)) ? Qfalse : Qnil;
}

/* Whether others should have their turn before more of the body is read. */
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

/* Nothing to do for a server that has ended. */
static VALUE with_loop(VALUE self, void (*act)(fl_exchange *)) {
    fl_exchange *exchange = fl_lock_request(self);
    if (exchange != NULL && exchange->context == NULL)
        return Qnil;
    fl_require_open(exchange);
    act(exchange);
    fl_unlock(exchange->context);
    return Qnil;
}

static VALUE request_flush(VALUE self) {
    return with_loop(self, fl_exchange_flush);
}

/* Whether the app wants to talk to the client itself, after the head that has been begun. */
static VALUE request_takes_over_p(VALUE object) {
    fl_exchange *exchange = fl_ruby_request_get(object)->exchange;
    return exchange != NULL && exchange->response.switches_protocol ? Qtrue : Qfalse;
}

static VALUE taken_out(fl_slab *staging, fl_buffer *buffer) {
    VALUE bytes = rb_str_new(buffer->length > 0 ? fl_buffer_at(buffer) : "", buffer->length);
    fl_buffer_free(staging, buffer);
    return bytes;
}

/* Gives the socket to the app: its descriptor, whether it is a Unix socket, what has to be sent first, and what has been
 * read ahead. The request has to be finished none the less. */
static VALUE request_give_away(VALUE object) {
    fl_exchange *exchange = hold(object);
    fl_context *context = exchange->context;
    fl_buffer unsent = {0}, ahead = {0};
    bool gone = exchange->connection == NULL, is_unix = exchange->client.family == AF_UNIX;
    int descriptor = fl_exchange_hijack(exchange, &unsent, &ahead);
    fl_unlock(context);
    if (descriptor < 0 && gone)
        fl_raise(FL_CLOSED);
    if (descriptor < 0)
        rb_raise(rb_eIOError, "the connection cannot be hijacked any more: a response has begun, or a chunked body has "
                              "not been read to its end");
    fl_ruby_request_get(object)->hijacked = true;
    rb_update_max_fd(descriptor);
    /* Ours by now, and given back where the GVL is enough. */
    VALUE to_send = taken_out(&context->staging, &unsent), read = taken_out(&context->staging, &ahead);
    return rb_ary_new_from_args(4, INT2FIX(descriptor), is_unix ? Qtrue : Qfalse, to_send, read);
}

static VALUE request_hijacked_p(VALUE object) {
    return fl_ruby_request_get(object)->hijacked ? Qtrue : Qfalse;
}

/* inform(103, fields): an interim response; the fields are lines that end with CR LF each. */
static VALUE request_inform(VALUE object, VALUE code, VALUE fields) {
    int number = NUM2INT(code);
    Check_Type(fields, T_STRING);
    fl_exchange *exchange = hold(object);
    fl_exchange_send_interim(exchange, number, RSTRING_PTR(fields), (size_t) RSTRING_LEN(fields));
    fl_unlock(exchange->context);
    return Qnil;
}

/* A field behind the body; only between its last part and `finish`. */
static VALUE request_trailer(VALUE object, VALUE name, VALUE value) {
    StringValue(name);
    StringValue(value);
    fl_exchange *exchange = hold(object);
    fl_status status = fl_exchange_trailer(exchange, RSTRING_PTR(name), (size_t) RSTRING_LEN(name), RSTRING_PTR(value),
                                           (size_t) RSTRING_LEN(value));
    fl_unlock(exchange->context);
    check(status);
    return Qnil;
}

static VALUE request_becomes_stream(VALUE self) {
    return with_loop(self, fl_exchange_mark_long_lived);
}

static VALUE request_finish(VALUE self) {
    return end_if_open(self, fl_exchange_finish);
}

static VALUE request_abandon(VALUE self) {
    return end_if_open(self, fl_exchange_abandon);
}

/* So many seconds from now on, and after each piece of a body; nil: no limit. */
static VALUE request_limit_time(VALUE self, VALUE seconds) {
    uint64_t microseconds = fl_microseconds(seconds, "the time of a request");
    if (microseconds == 0 && !NIL_P(seconds)) /* any time, to the core */
        rb_raise(rb_eArgError, "the time of a request must be more than 0 and at most %d seconds, not %" PRIsVALUE,
                 FL_MOST_SECONDS, seconds);
    fl_exchange *exchange = fl_lock_request(self);
    if (exchange == NULL || exchange->context == NULL)
        return Qnil;
    fl_exchange_set_time_limit(exchange, microseconds);
    fl_unlock(exchange->context);
    return Qnil;
}

/* Whether it took longer than it may: its client has been told so, or was cut off. */
static VALUE request_timed_out_p(VALUE object) {
    fl_ruby_request *self = fl_ruby_request_get(object);
    return self->timed_out || (self->exchange != NULL && self->exchange->timing.timed_out) ? Qtrue : Qfalse;
}

/* Whether anything of the response has left for the client. */
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
    word_upgrade = rb_interned_str_cstr("upgrade");
    rb_gc_register_mark_object(word_upgrade);
    word_connection = rb_interned_str_cstr("connection");
    rb_gc_register_mark_object(word_connection);
    rb_define_method(request, "respond", request_respond, 3);
    rb_define_method(request, "write", request_write, 1);
    rb_define_method(request, "awaits_room?", request_awaits_room_p, 0);
    rb_define_method(request, "slice_over?", request_slice_over_p, 0);
    rb_define_method(request, "flush", request_flush, 0);
    rb_define_method(request, "finish", request_finish, 0);
    rb_define_method(request, "abandon", request_abandon, 0);
    rb_define_method(request, "becomes_stream", request_becomes_stream, 0);
    rb_define_method(request, "inform", request_inform, 2);
    rb_define_method(request, "trailer", request_trailer, 2);
    rb_define_method(request, "takes_over?", request_takes_over_p, 0);
    rb_define_method(request, "give_away", request_give_away, 0);
    rb_define_method(request, "hijacked?", request_hijacked_p, 0);
    rb_define_method(request, "limit_time", request_limit_time, 1);
    rb_define_method(request, "timed_out?", request_timed_out_p, 0);
    rb_define_method(request, "committed?", request_committed_p, 0);
    rb_define_method(request, "answered?", request_answered_p, 0);
    rb_define_method(request, "status", request_status, 0);
    rb_define_method(request, "bytes_sent", request_bytes_sent, 0);
}
