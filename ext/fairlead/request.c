/* Fairlead::Request: taking a request, and reading it. */
#include "fairlead.h"

#include <string.h>

static VALUE cRequest;

static void request_mark(void *data) {
    fl_ruby_request *self = data;
    rb_gc_mark_movable(self->loop);
    rb_gc_mark_movable(self->env);
    rb_gc_mark_movable(self->finished);
    rb_gc_mark_movable(self->after_reply);
}

static void request_compact(void *data) {
    fl_ruby_request *self = data;
    self->loop = rb_gc_location(self->loop);
    self->env = rb_gc_location(self->env);
    self->finished = rb_gc_location(self->finished);
    self->after_reply = rb_gc_location(self->after_reply);
}

static void request_free(void *data) {
    fl_ruby_request *self = data;
    if (self->exchange != NULL && self->exchange->context == NULL)
        free(self->exchange);
    else if (self->exchange != NULL)
        fl_exchange_abandon_later(self->exchange);
}

static size_t request_size(const void *data) {
    return sizeof(fl_exchange); /* fl_ruby_request is embedded in the object's slot */
}

const rb_data_type_t fl_request_type = {
    .wrap_struct_name = "Fairlead::Request",
    .function = {.dmark = request_mark, .dfree = request_free, .dsize = request_size, .dcompact = request_compact},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_EMBEDDABLE | RUBY_TYPED_WB_PROTECTED,
};

bool fl_try_lock_request(VALUE request, fl_exchange **exchange) {
    *exchange = fl_ruby_request_get(request)->exchange;
    if (*exchange != NULL && (*exchange)->context != NULL && (*exchange)->context->forgotten)
        fl_exchange_disown(*exchange);
    return *exchange == NULL || (*exchange)->context == NULL || pthread_mutex_trylock(&(*exchange)->context->lock) == 0;
}

void fl_await_request(VALUE request) {
    fl_ruby_request *self = fl_ruby_request_get(request);
    fl_await_lock(fl_ruby_loop_struct(self->loop), self->exchange->context);
}

fl_exchange *fl_lock_request(VALUE request) {
    fl_exchange *exchange;
    while (!fl_try_lock_request(request, &exchange)) fl_await_request(request);
    RB_GC_GUARD(request);
    return exchange;
}

void fl_require_open(const fl_exchange *exchange) {
    if (exchange == NULL)
        rb_raise(rb_eIOError, "the request has been answered");
    if (exchange->context == NULL)
        fl_raise(FL_CLOSED);
}

/* Frees the head, and a body that was received and copied: the app may hold the request for long. */
static void free_received(VALUE request, bool whole) {
    fl_exchange *exchange = fl_lock_request(request);
    if (exchange == NULL || exchange->context == NULL)
        return;
    fl_exchange_release_head(exchange);
    if (whole)
        fl_exchange_consume_body(exchange, exchange->request.body.length);
    fl_unlock(exchange->context);
}

/* A request that has been taken, and its loop. */
typedef struct taken {
    VALUE request, loop;
    bool whole;
} taken;

static VALUE prepare(VALUE data) {
    const taken *taken = (const struct taken *) data;
    VALUE request = taken->request;
    fl_ruby_request *self = fl_ruby_request_get(request);
    fl_exchange *exchange = self->exchange;
    RB_OBJ_WRITE(request, &self->finished, rb_ary_new());
    RB_OBJ_WRITE(request, &self->after_reply, rb_ary_new());
    VALUE template = rb_ary_entry(fl_ruby_loop_struct(taken->loop)->templates, exchange->listener);
    VALUE env = fl_environment_build(exchange, template, request, self->finished, self->after_reply, taken->whole);
    RB_OBJ_WRITE(request, &self->env, env);
    free_received(request, taken->whole);
    if (!taken->whole)
        fl_environment_add_input(env, request);
    return Qnil;
}

/* There was no memory for what the app needs of the request. */
static void reject(VALUE request) {
    fl_exchange *exchange = fl_lock_request(request);
    if (exchange == NULL)
        return;
    fl_context *context = exchange->context;
    exchange->request.rejection = FL_NO_MEMORY;
    fl_end_request(request, fl_exchange_abandon);
    if (context == NULL)
        return;
    fl_unlock(context);
    fl_wake_driver(request);
}

VALUE fl_ruby_loop_take(VALUE object) {
    fl_ruby_loop *ours = fl_ruby_loop_struct(object);
    if (fl_own_reactor_leads(ours) && fl_ruby_loop_get(object)->ready.count == 0)
        return Qnil;
    fl_prepare_run();
    fl_ruby_request *self; /* made first: once an exchange has been taken, it belongs to an object */
    taken taken = {.request = TypedData_Make_Struct(cRequest, fl_ruby_request, &fl_request_type, self), .loop = object};
    self->loop = self->env = self->finished = self->after_reply = Qnil;
    RB_OBJ_WRITE(taken.request, &self->loop, object);
    fl_loop *loop = fl_lock(ours);
    fl_exchange *exchange = fl_own_take(ours);
    if (exchange == NULL) {
        fl_unlock(&loop->context);
        return Qnil;
    }
    fl_begin_run(exchange);
    self->exchange = exchange;
    self->id = exchange->id;
    self->run = fl_own.reactor == NULL ? NULL : fl_own.run;
    self->whole = taken.whole = exchange->request.complete; /* with the lock: the watch thread may receive the rest later */
    self->first_byte_at = exchange->request.first_byte_at;
    self->started_at = exchange->queueing.started_at;
    self->account = exchange->queueing.account;
    fl_unlock(&loop->context);
    if (fl_own.reactor != NULL) {
        fl_reactor_enters_app(fl_own.reactor, self->started_at);
        fl_watch_wake(ours->watch);
    }
    int state;
    rb_protect(prepare, (VALUE) &taken, &state);
    if (state != 0) {
        reject(taken.request);
        rb_jump_tag(state);
    }
    return taken.request;
}

VALUE fl_ruby_loop_rejections(VALUE object) {
    fl_ruby_loop *ours = fl_ruby_loop_struct(object);
    VALUE rejections = rb_ary_new();
    for (;;) {
        fl_loop *loop = fl_lock(ours);
        fl_rejection *rejection = fl_rejection_take(&loop->context.rejections);
        fl_unlock(&loop->context);
        if (rejection == NULL)
            return rejections;
        VALUE fields[] = {rb_str_new(rejection->line, rejection->size), fl_environment_address(&rejection->client),
                          INT2NUM(fl_status_http(rejection->status)), rb_str_new_cstr(fl_status_text(rejection->status)),
                          DBL2NUM((double) (rejection->rejected_at - rejection->first_byte_at) / 1e6)};
        free(rejection);
        rb_ary_push(rejections, rb_ary_new_from_values(5, fields));
    }
}

static VALUE request_env(VALUE self) {
    return fl_ruby_request_get(self)->env;
}

/* The callables that run before those of `rack.response_finished`. */
static VALUE request_after_reply(VALUE object) {
    return fl_ruby_request_get(object)->after_reply;
}

/* The callables that run at the end of the request. Called once. */
static VALUE request_finished(VALUE object) {
    fl_ruby_request *self = fl_ruby_request_get(object);
    if (fl_stall_was_recorded(self->id) && !NIL_P(fl_own.loop->router))
        rb_ary_push(self->finished, fl_own.loop->router);
    const fl_ruby_loop *loop = fl_ruby_loop_struct(self->loop);
    if (fl_is_observed(self, loop))
        rb_ary_push(self->finished, loop->observer);
    return self->finished;
}

static VALUE request_id(VALUE self) {
    return ULL2NUM(fl_ruby_request_get(self)->id);
}

static VALUE request_whole_p(VALUE object) {
    return fl_ruby_request_get(object)->whole ? Qtrue : Qfalse;
}

static VALUE request_queue_time(VALUE object) {
    fl_ruby_request *self = fl_ruby_request_get(object);
    return DBL2NUM((double) (self->started_at - self->first_byte_at) / 1e6);
}

static VALUE request_duration(VALUE object) {
    return DBL2NUM((double) (fl_clock() - fl_ruby_request_get(object)->first_byte_at) / 1e6);
}

/* Whether the client has gone. The GVL protects both pointers. */
static VALUE request_gone_p(VALUE object) {
    fl_exchange *exchange = fl_ruby_request_get(object)->exchange;
    return exchange == NULL || exchange->connection == NULL ? Qtrue : Qfalse;
}

/* Whether the client has ended its side. It may have gone, or wait for the response. */
static VALUE request_half_closed_p(VALUE object) {
    fl_exchange *exchange = fl_ruby_request_get(object)->exchange;
    return exchange != NULL && exchange->connection != NULL && exchange->connection->half_closed ? Qtrue : Qfalse;
}

/* Makes room for so many more bytes in a String that is not shared. Returns its length. Does not release the GVL. */
static size_t make_room(VALUE string, size_t wanted) {
    size_t length = (size_t) RSTRING_LEN(string);
    /* Doubles the String, so that it is not copied for each piece of a body. */
    if (rb_str_capacity(string) - length < wanted)
        rb_str_modify_expand(string, (long) (length > wanted ? length : wanted));
    else
        rb_str_modify(string); /* clears what Ruby knows of its bytes */
    return length;
}

/* read(string, most): appends up to `most` bytes of the body, and returns true; nil at its end; false if the fiber has to wait for the
 * loop. */
static VALUE request_read(VALUE object, VALUE string, VALUE most) {
    size_t wanted = NUM2SIZET(most), length, size;
    fl_exchange *exchange;
    Check_Type(string, T_STRING);
    for (;;) {
        length = make_room(string, wanted);
        if (fl_try_lock_request(object, &exchange))
            break;
        fl_await_request(object);
    }
    fl_require_open(exchange);
    const char *bytes;
    fl_status status = fl_exchange_body(exchange, &bytes, &size);
    if (status == FL_OK && size > 0) {
        if (size > wanted)
            size = wanted;
        memcpy(RSTRING_PTR(string) + length, bytes, size);
        fl_exchange_consume_body(exchange, size);
    }
    fl_unlock(exchange->context);
    if (status == FL_AGAIN)
        return Qfalse;
    fl_check_request(object, status);
    if (size == 0)
        return Qnil;
    rb_str_set_len(string, (long) (length + size));
    return Qtrue;
}

static VALUE request_trailers(VALUE object) {
    fl_exchange *exchange = fl_lock_request(object);
    fl_require_open(exchange);
    bool whole = exchange->request.complete; /* then they no longer change */
    fl_unlock(exchange->context);
    return whole ? fl_headers_trailers(exchange) : rb_hash_new();
}

/* Later requests that name this session come to this worker. */
static VALUE request_begin_session(VALUE object, VALUE id) {
    StringValue(id);
    fl_exchange *exchange = fl_lock_request(object);
    fl_require_open(exchange);
    exchange->context->calls->session_began(exchange->context, RSTRING_PTR(id), (size_t) RSTRING_LEN(id));
    fl_unlock(exchange->context);
    return id;
}

void fl_init_request(void) {
    cRequest = rb_define_class_under(fl_mFairlead, "Request", rb_cObject);
    rb_gc_register_mark_object(cRequest);
    rb_undef_alloc_func(cRequest);
    rb_define_method(cRequest, "env", request_env, 0);
    rb_define_method(cRequest, "after_reply", request_after_reply, 0);
    rb_define_method(cRequest, "finished", request_finished, 0);
    rb_define_method(cRequest, "id", request_id, 0);
    rb_define_method(cRequest, "whole?", request_whole_p, 0);
    rb_define_method(cRequest, "queue_time", request_queue_time, 0);
    rb_define_method(cRequest, "duration", request_duration, 0);
    rb_define_method(cRequest, "gone?", request_gone_p, 0);
    rb_define_method(cRequest, "half_closed?", request_half_closed_p, 0);
    rb_define_method(cRequest, "read", request_read, 2);
    rb_define_method(cRequest, "trailers", request_trailers, 0);
    rb_define_method(cRequest, "begin_session", request_begin_session, 1);
    fl_init_response(cRequest);
    fl_init_response_stream(cRequest);
}
