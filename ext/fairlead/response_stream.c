/* Fairlead::Request: responding piece by piece. */
#include "fairlead.h"
#include "connection/event_stream.h"

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
    fl_exchange *exchange = fl_lock_open_request(self);
    size_t size = (size_t) RSTRING_LEN(string), used;
    fl_status status = fl_exchange_write(exchange, RSTRING_PTR(string), size < MAX_AT_ONCE ? size : MAX_AT_ONCE, &used);
    fl_unlock(exchange->context);
    if (status != FL_AGAIN)
        fl_check_request(self, status);
    fl_wake_driver(self);
    if (used < size)
        return rb_str_subseq(string, (long) used, (long) (size - used));
    return slice_is_over(fl_ruby_request_get(self)) ? Qfalse : Qnil;
}

/* Whether others should have their turn before the app reads more of the body. */
static VALUE request_slice_over_p(VALUE self) {
    return slice_is_over(fl_ruby_request_get(self)) ? Qtrue : Qfalse;
}

/* Whether some writer waits for room, and none has been woken since. */
static VALUE request_awaits_room_p(VALUE self) {
    fl_exchange *exchange = fl_lock_request(self);
    if (exchange == NULL || exchange->context == NULL)
        return Qfalse;
    bool awaits = exchange->response.awaits_room;
    fl_unlock(exchange->context);
    return awaits ? Qtrue : Qfalse;
}

/* Whether some reader waits for more of the body, and none has come since. */
static VALUE request_awaits_body_p(VALUE self) {
    fl_exchange *exchange = fl_lock_request(self);
    if (exchange == NULL || exchange->context == NULL)
        return Qfalse;
    bool awaits = exchange->request.awaited;
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

/* last_event: what the core ends an event stream with. */
static VALUE request_last_event(VALUE object) {
    char text[FL_MAX_LAST_TEXT];
    size_t size = fl_event_stream_last_text(fl_staged(object), text);
    return rb_str_new(text, (long) size);
}

/* event_coding(nothing, end): see fl_event_stream_set_coding. */
static VALUE request_event_coding(VALUE object, VALUE nothing, VALUE end) {
    StringValue(nothing);
    StringValue(end);
    fl_exchange *exchange = fl_lock_open_request(object);
    bool set = fl_event_stream_set_coding(exchange, RSTRING_PTR(nothing), (size_t) RSTRING_LEN(nothing), RSTRING_PTR(end),
                                          (size_t) RSTRING_LEN(end));
    fl_unlock(exchange->context);
    RB_GC_GUARD(nothing);
    RB_GC_GUARD(end);
    return set ? Qtrue : Qfalse;
}

/* inform(103, fields): sends an interim response. Each field is a line with CR LF. */
static VALUE request_inform(VALUE object, VALUE code, VALUE fields) {
    int number = NUM2INT(code);
    Check_Type(fields, T_STRING);
    fl_exchange *exchange = fl_lock_open_request(object);
    fl_exchange_send_interim(exchange, number, RSTRING_PTR(fields), (size_t) RSTRING_LEN(fields));
    fl_unlock(exchange->context);
    return Qnil;
}

/* trailer(name, value): a field behind the body. Call it between the last part and `finish`. */
static VALUE request_trailer(VALUE object, VALUE name, VALUE value) {
    StringValue(name);
    StringValue(value);
    fl_exchange *exchange = fl_lock_open_request(object);
    fl_status status = fl_exchange_trailer(exchange, RSTRING_PTR(name), (size_t) RSTRING_LEN(name), RSTRING_PTR(value),
                                           (size_t) RSTRING_LEN(value));
    fl_unlock(exchange->context);
    fl_check_request(object, status);
    return Qnil;
}

static VALUE request_mark_long_lived(VALUE self) {
    fl_ruby_request_get(self)->long_lived = true;
    return with_lock(self, fl_exchange_mark_long_lived);
}

void fl_init_response_stream(VALUE request) {
    rb_define_method(request, "write", request_write, 1);
    rb_define_method(request, "awaits_room?", request_awaits_room_p, 0);
    rb_define_method(request, "awaits_body?", request_awaits_body_p, 0);
    rb_define_method(request, "slice_over?", request_slice_over_p, 0);
    rb_define_method(request, "flush", request_flush, 0);
    rb_define_method(request, "mark_long_lived", request_mark_long_lived, 0);
    rb_define_method(request, "inform", request_inform, 2);
    rb_define_method(request, "trailer", request_trailer, 2);
    rb_define_method(request, "takes_over?", request_takes_over_p, 0);
    rb_define_method(request, "event_stream?", request_event_stream_p, 0);
    rb_define_method(request, "last_event", request_last_event, 0);
    rb_define_method(request, "event_coding", request_event_coding, 2);
}
