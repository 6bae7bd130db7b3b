/* What a Rack app returns becomes the bytes of a response. */
#include "fairlead.h"

#include <string.h>

static ID id_each, id_to_i;

static void check(fl_status status) {
    if (status != FL_OK)
        fl_raise(status);
}

static void header_value(fl_exchange *exchange, VALUE name, VALUE value) {
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
    RB_GC_GUARD(value);
}

static VALUE to_string(VALUE object) {
    return RB_TYPE_P(object, T_STRING) ? object : rb_obj_as_string(object);
}

static void header(fl_exchange *exchange, VALUE name, VALUE value) {
    name = to_string(name);
    if (RSTRING_LEN(name) > 5 && memcmp(RSTRING_PTR(name), "rack.", 5) == 0)
        return; /* between app and server */
    if (RB_TYPE_P(value, T_ARRAY)) {
        for (long i = 0; i < RARRAY_LEN(value); i++)
            header_value(exchange, name, to_string(RARRAY_AREF(value, i)));
    } else if (!NIL_P(value)) {
        header_value(exchange, name, to_string(value));
    }
    RB_GC_GUARD(name);
}

static int header_of_hash(VALUE name, VALUE value, VALUE exchange) {
    header((fl_exchange *) exchange, name, value);
    return ST_CONTINUE;
}

static VALUE header_of_each(RB_BLOCK_CALL_FUNC_ARGLIST(pair, exchange)) {
    if (argc >= 2)
        header((fl_exchange *) exchange, argv[0], argv[1]);
    else
        header((fl_exchange *) exchange, rb_ary_entry(pair, 0), rb_ary_entry(pair, 1));
    return Qnil;
}

static fl_exchange *begin(VALUE self, VALUE status, VALUE headers) {
    fl_exchange *exchange = fl_exchange_get(self);
    int code = RB_INTEGER_TYPE_P(status) ? NUM2INT(status) : NUM2INT(rb_funcallv(status, id_to_i, 0, NULL));
    fl_ruby_request_get(self)->code = code;
    check(fl_exchange_begin(exchange, code));
    if (RB_TYPE_P(headers, T_HASH))
        rb_hash_foreach(headers, header_of_hash, (VALUE) exchange);
    else
        rb_block_call(headers, id_each, 0, NULL, header_of_each, (VALUE) exchange);
    return exchange;
}

/* The loop of an exchange, held; NULL when the server has ended. */
static fl_loop *hold(fl_exchange *exchange) {
    fl_loop *loop = exchange->loop;
    if (loop != NULL)
        fl_hold(loop);
    return loop;
}

/* What was staged leaves at the loop's next turn, and there may be more to take. The driver's own fibers come back to
 * it; for another thread it has to be woken. */
static void tell_driver(VALUE request) {
    fl_ruby_loop *self = fl_ruby_loop_struct(fl_ruby_request_get(request)->loop);
    if (self->loop != NULL && !pthread_equal(self->driver, pthread_self()))
        fl_loop_wake(self->loop);
}

/* The last word on a request: `end` is fl_exchange_finish or fl_exchange_abandon. The loop is held, or NULL. */
static void end(fl_ruby_request *self, void (*end)(fl_exchange *), fl_loop *loop) {
    fl_exchange *exchange = self->exchange;
    self->exchange = NULL;
    self->bytes_sent = exchange->body_sent + exchange->held.length;
    if (loop == NULL)
        free(exchange);
    else
        end(exchange);
}

/* The whole response at once, if the body is an Array that fits into the response buffer: true. Otherwise only its
 * head is begun, and false: write the parts, then finish. */
static VALUE request_respond(VALUE object, VALUE status, VALUE headers, VALUE body) {
    fl_ruby_request *self = fl_ruby_request_get(object);
    fl_exchange *exchange = begin(object, status, headers);
    bool whole = RB_TYPE_P(body, T_ARRAY);
    size_t length = 0;
    for (long i = 0; whole && i < RARRAY_LEN(body); i++) {
        VALUE part = RARRAY_AREF(body, i);
        Check_Type(part, T_STRING);
        length += (size_t) RSTRING_LEN(part);
    }
    fl_loop *loop = hold(exchange);
    if (loop == NULL)
        fl_raise(FL_CLOSED);
    fl_status outcome = fl_exchange_head_end(exchange, whole ? (int64_t) length : -1);
    whole = whole && outcome == FL_OK && length <= fl_exchange_room(exchange);
    for (long i = 0; whole && outcome == FL_OK && i < RARRAY_LEN(body); i++) {
        VALUE part = RARRAY_AREF(body, i);
        size_t used; /* all of it: there is room */
        outcome = fl_exchange_write(exchange, RSTRING_PTR(part), (size_t) RSTRING_LEN(part), &used);
    }
    if (whole && outcome == FL_OK)
        end(self, fl_exchange_finish, loop);
    fl_let_go(loop);
    check(outcome);
    if (whole)
        tell_driver(object);
    RB_GC_GUARD(body);
    return whole ? Qtrue : Qfalse;
}

/* Takes bytes of the body from `from` on; answers up to where: less than the end when the loop must be awaited. */
static VALUE request_write(VALUE self, VALUE string, VALUE from) {
    fl_exchange *exchange = fl_exchange_get(self);
    Check_Type(string, T_STRING);
    size_t start = NUM2SIZET(from), used;
    if (start > (size_t) RSTRING_LEN(string))
        rb_raise(rb_eArgError, "beyond the end of the string");
    fl_loop *loop = hold(exchange);
    if (loop == NULL)
        fl_raise(FL_CLOSED);
    fl_status status =
        fl_exchange_write(exchange, RSTRING_PTR(string) + start, (size_t) RSTRING_LEN(string) - start, &used);
    fl_let_go(loop);
    if (status != FL_OK && status != FL_AGAIN)
        fl_raise(status);
    tell_driver(self);
    return SIZET2NUM(start + used);
}

static VALUE with_loop(VALUE self, void (*act)(fl_exchange *)) {
    fl_exchange *exchange = fl_exchange_get(self);
    fl_loop *loop = hold(exchange);
    if (loop != NULL) {
        act(exchange);
        fl_let_go(loop);
    }
    return Qnil;
}

static VALUE request_flush(VALUE self) {
    return with_loop(self, fl_exchange_flush);
}

static VALUE request_becomes_stream(VALUE self) {
    return with_loop(self, fl_exchange_becomes_stream);
}

static VALUE end_if_open(VALUE object, void (*how)(fl_exchange *)) {
    fl_ruby_request *self = fl_ruby_request_get(object);
    if (self->exchange == NULL)
        return Qnil;
    fl_loop *loop = hold(self->exchange);
    end(self, how, loop);
    if (loop != NULL)
        fl_let_go(loop);
    tell_driver(object);
    return Qnil;
}

static VALUE request_finish(VALUE self) {
    return end_if_open(self, fl_exchange_finish);
}

static VALUE request_abandon(VALUE self) {
    fl_ruby_request *request = fl_ruby_request_get(self);
    fl_exchange *exchange = request->exchange;
    if (exchange != NULL && exchange->refusal != FL_OK && !exchange->committed)
        request->code = fl_status_http((fl_status) exchange->refusal);
    return end_if_open(self, fl_exchange_abandon);
}

/* Whether anything of the response has left for the client. */
static VALUE request_committed_p(VALUE object) {
    fl_ruby_request *self = fl_ruby_request_get(object);
    return self->exchange == NULL || self->exchange->committed ? Qtrue : Qfalse;
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
    rb_define_method(request, "respond", request_respond, 3);
    rb_define_method(request, "write", request_write, 2);
    rb_define_method(request, "flush", request_flush, 0);
    rb_define_method(request, "finish", request_finish, 0);
    rb_define_method(request, "abandon", request_abandon, 0);
    rb_define_method(request, "becomes_stream", request_becomes_stream, 0);
    rb_define_method(request, "committed?", request_committed_p, 0);
    rb_define_method(request, "answered?", request_answered_p, 0);
    rb_define_method(request, "status", request_status, 0);
    rb_define_method(request, "bytes_sent", request_bytes_sent, 0);
}
