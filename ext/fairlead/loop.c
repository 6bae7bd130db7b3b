/* Fairlead::Loop: a loop of the core as a Ruby object. */
#include "fairlead.h"
#include <ruby/thread.h>

static void *await_lock(void *data) {
    pthread_mutex_t *lock = data;
    pthread_mutex_lock(lock);
    pthread_mutex_unlock(lock);
    return NULL;
}

static void free_loop(fl_ruby_loop *self) {
    fl_untrack_loop(self);
    if (self->watch != NULL)
        fl_watch_close(self->watch);
    fl_loop *loop = self->closing;
    self->watch = NULL;
    self->closing = NULL;
    fl_loop_close(loop);
}

void fl_retain(fl_ruby_loop *self) {
    self->users++;
}

void fl_release(fl_ruby_loop *self) {
    self->users--;
    if (self->closing == NULL)
        return;
    if (self->users == 0)
        free_loop(self);
    else
        fl_loop_wake(self->closing); /* this user may have taken the wake-up of another */
}

/* A thread that holds the lock must not wait for the GVL: the watch thread, or the holder of the GVL, would wait for both. With an
 * interrupt pending, Ruby returns at once, without calling await_lock. */
void fl_await_lock(fl_ruby_loop *self, fl_context *context) {
    fl_retain(self);
    rb_thread_call_without_gvl2(await_lock, &context->lock, NULL, NULL);
    fl_release(self);
}

static fl_loop *open_loop(const fl_ruby_loop *self) {
    if (self->loop == NULL)
        rb_raise(rb_eIOError, "the loop is closed");
    return self->loop;
}

fl_loop *fl_lock(fl_ruby_loop *self) {
    fl_loop *loop;
    while (pthread_mutex_trylock(&(loop = open_loop(self))->context.lock) != 0) fl_await_lock(self, &loop->context);
    return loop;
}

static void loop_mark(void *data) {
    fl_ruby_loop *self = data;
    rb_gc_mark_movable(self->templates);
    rb_gc_mark_movable(self->tls);
    rb_gc_mark(self->reporter);
    rb_gc_mark(self->router);
    rb_gc_mark(self->observer);
    for (int i = 0; i < FL_MAX_REACTORS; i++) {
        rb_gc_mark(self->reactors[i].thread);
        rb_gc_mark(self->reactors[i].fiber);
    }
}

static void loop_compact(void *data) {
    fl_ruby_loop *self = data;
    self->templates = rb_gc_location(self->templates);
    self->tls = rb_gc_location(self->tls);
}

static void loop_free(void *data) {
    fl_ruby_loop *self = data;
    fl_forget_stalls(self);
    if (self->loop != NULL)
        self->closing = self->loop;
    if (self->closing != NULL)
        free_loop(self);
    ruby_xfree(self);
}

static size_t loop_size(const void *data) {
    const fl_ruby_loop *self = data;
    if (self->loop == NULL)
        return sizeof *self;
    return sizeof *self + sizeof *self->loop + self->loop->context.slab.cached + self->loop->context.staging.cached +
           (size_t) fl_context_buffered(&self->loop->context) + self->loop->context.counts.connections * sizeof(fl_connection);
}

static const rb_data_type_t loop_type = {
    .wrap_struct_name = "Fairlead::Loop",
    .function = {.dmark = loop_mark, .dfree = loop_free, .dsize = loop_size, .dcompact = loop_compact},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

static VALUE loop_allocate(VALUE class) {
    fl_ruby_loop *self;
    VALUE object = TypedData_Make_Struct(class, fl_ruby_loop, &loop_type, self);
    self->templates = rb_ary_new();
    self->tls = rb_ary_new();
    self->reporter = self->router = self->observer = Qnil;
    return object;
}

fl_ruby_loop *fl_ruby_loop_struct(VALUE object) {
    return rb_check_typeddata(object, &loop_type);
}

fl_loop *fl_ruby_loop_get(VALUE object) {
    return open_loop(fl_ruby_loop_struct(object));
}

static uint64_t microseconds(VALUE options, const char *name) {
    return fl_microseconds(fl_option(options, name), name);
}

/* Each network is [bytes of its address, bits that count]; no bytes: peers of Unix sockets. */
static fl_networks networks_of(VALUE list) {
    fl_networks networks = {.count = (uint32_t) RARRAY_LEN(list)};
    if (networks.count == 0)
        return networks;
    networks.list = calloc(networks.count, sizeof *networks.list);
    if (networks.list == NULL)
        rb_memerror();
    for (uint32_t i = 0; i < networks.count; i++) {
        VALUE network = rb_ary_entry(list, i), address = rb_ary_entry(network, 0);
        fl_client *client = &networks.list[i].address;
        networks.list[i].prefix = (uint8_t) FIX2INT(rb_ary_entry(network, 1));
        if (RSTRING_LEN(address) > 0)
            fl_client_set(client, RSTRING_LEN(address) == 4 ? AF_INET : AF_INET6, RSTRING_PTR(address));
        else
            client->family = AF_UNIX;
    }
    return networks;
}

static VALUE loop_initialize(VALUE object, VALUE options) {
    fl_ruby_loop *self = fl_ruby_loop_struct(object);
    fl_limits limits = {
        .head = {.request_line = NUM2UINT(fl_option(options, "request_line")),
                 .head = NUM2UINT(fl_option(options, "head_size")),
                 .headers = NUM2UINT(fl_option(options, "headers"))},
        .body_size = NUM2ULL(fl_option(options, "body_size")),
        .body_buffer = NUM2UINT(fl_option(options, "body_buffer")),
        .response_buffer = NUM2UINT(fl_option(options, "response_buffer")),
        .in_flight = NUM2UINT(fl_option(options, "in_flight")),
        .streams = NUM2UINT(fl_option(options, "streams")),
        .queue_timeout = microseconds(options, "queue_timeout"),
        .queue_target = microseconds(options, "queue_target"),
        .request_timeout = microseconds(options, "request_timeout"),
        .record_rejections = RTEST(fl_option(options, "record_rejections")),
        .cancel_abandoned = RTEST(fl_option(options, "cancel_abandoned")),
        .cancel_streams = fl_option(options, "cancel_abandoned") != Qfalse,
        .deadlines = {[FL_DEADLINE_IDLE] = microseconds(options, "idle_timeout"),
                      [FL_DEADLINE_HEAD] = microseconds(options, "head_timeout"),
                      [FL_DEADLINE_BODY] = microseconds(options, "body_timeout"),
                      [FL_DEADLINE_EVENTS] = microseconds(options, "event_stream_keepalive"),
                      [FL_DEADLINE_WRITE] = microseconds(options, "write_timeout"),
                      [FL_DEADLINE_STREAM] = microseconds(options, "write_timeout"),
                      [FL_DEADLINE_LINGER] = 2000000},
    };
    VALUE health_path = fl_option(options, "health_path");
    if (!NIL_P(health_path)) {
        if (RSTRING_LEN(health_path) > FL_MAX_HEALTH_PATH)
            rb_raise(rb_eArgError, "the health path is too long");
        memcpy(limits.health_path, RSTRING_PTR(health_path), (size_t) RSTRING_LEN(health_path));
    }
    if (limits.head.headers > FL_MAX_HEADERS)
        limits.head.headers = FL_MAX_HEADERS;
    limits.redirect_to_https = RTEST(fl_option(options, "redirect_to_https"));
    limits.https_port = (uint16_t) NUM2UINT(fl_option(options, "https_port"));
    VALUE hsts = fl_option(options, "hsts");
    if (!NIL_P(hsts))
        memcpy(limits.hsts, RSTRING_PTR(hsts), (size_t) (RSTRING_LEN(hsts) < FL_MAX_HSTS ? RSTRING_LEN(hsts) : FL_MAX_HSTS));
    limits.trusted_proxies = networks_of(fl_option(options, "trusted_proxies"));
    self->loop = fl_loop_open(&limits);
    if (self->loop == NULL) {
        free(limits.trusted_proxies.list);
        rb_sys_fail("fairlead");
    }
    fl_track_loop(self);
    rb_update_max_fd(self->loop->context.poll.descriptor);
    return object;
}

/* listen(descriptor, unix_socket, template, tls, proxied): tls is a TLS, or nil; proxied: connections begin with a PROXY header. */
static VALUE loop_listen(VALUE object, VALUE descriptor, VALUE unix_socket, VALUE template, VALUE tls, VALUE proxied) {
    int number = NUM2INT(descriptor);
    fl_loop *loop = fl_ruby_loop_get(object);
    fl_tls *encryption = NIL_P(tls) ? NULL : fl_ruby_tls_get(tls);
    rb_ary_push(fl_ruby_loop_struct(object)->tls, tls);
    fl_check(fl_loop_listen(loop, number, RTEST(unix_socket)));
    if (encryption != NULL)
        fl_loop_serve_tls(loop, encryption);
    loop->accepting.listeners->proxied = RTEST(proxied);
    rb_ary_store(fl_ruby_loop_struct(object)->templates, loop->accepting.listeners->index, template);
    return Qnil;
}

static VALUE loop_join(VALUE object, VALUE page, VALUE slot, VALUE receiving, VALUE sending) {
    int ends[FL_MAX_SIBLINGS], count = 0;
    for (long i = 0; i < RARRAY_LEN(sending) && count < FL_MAX_SIBLINGS; i++) ends[count++] = NUM2INT(rb_ary_entry(sending, i));
    fl_shared_page *shared = fl_ruby_shared_page_get(page);
    int own = NUM2INT(slot), own_end = NIL_P(receiving) ? -1 : NUM2INT(receiving);
    if (own < 0 || (size_t) own >= shared->count || (size_t) count > shared->count)
        rb_raise(rb_eIndexError, "the page has %zu slots", shared->count);
    fl_check(fl_loop_join(fl_ruby_loop_get(object), shared, own, own_end, ends, count));
    rb_ivar_set(object, rb_intern("page"), page); /* keeps the memory that the loop writes to */
    return Qnil;
}

/* router = callable, called like those of `rack.response_finished` after a request whose route has stalled. */
static VALUE loop_set_router(VALUE object, VALUE router) {
    return fl_ruby_loop_struct(object)->router = router;
}

/* The id of the next request that has been woken; false: none, but requests were rejected; nil: nothing. The caller also does what
 * notify_driver was called for. */
static VALUE loop_woken(VALUE object) {
    atomic_store(&fl_ruby_loop_get(object)->driver.notified, false);
    fl_loop *loop = fl_lock(fl_ruby_loop_struct(object));
    uint64_t id = fl_context_next_woken(&loop->context);
    bool rejected = loop->context.rejections.first != NULL;
    fl_unlock(&loop->context);
    return id != 0 ? ULL2NUM(id) : rejected ? Qfalse : Qnil;
}

static VALUE loop_expired(VALUE object) {
    fl_loop *loop = fl_lock(fl_ruby_loop_struct(object));
    uint64_t id = fl_context_next_expired(&loop->context);
    fl_unlock(&loop->context);
    return id == 0 ? Qnil : ULL2NUM(id);
}

/* stop(streams): false: long-lived responses run on. */
static VALUE loop_stop(VALUE object, VALUE streams) {
    fl_loop *loop = fl_lock(fl_ruby_loop_struct(object));
    fl_loop_stop(loop, RTEST(streams));
    fl_unlock(&loop->context);
    return Qnil;
}

/* batch_responses: short responses leave together, as they do under a watch thread, though none runs (bench/servers/ladderless.rb). */
static VALUE loop_batch_responses(VALUE object) {
    fl_ruby_loop_get(object)->watched = true;
    return Qnil;
}

static VALUE loop_takeable(VALUE object) {
    return UINT2NUM(fl_loop_takeable(fl_ruby_loop_get(object)));
}

static VALUE loop_fileno(VALUE object) {
    return INT2NUM(fl_ruby_loop_get(object)->context.poll.descriptor);
}

static VALUE loop_drain(VALUE object, VALUE hand_over) {
    fl_loop *loop = fl_lock(fl_ruby_loop_struct(object));
    fl_loop_drain(loop, RTEST(hand_over));
    fl_unlock(&loop->context);
    return Qnil;
}

/* Whether nothing is left to do; then it receives nothing more from siblings. */
static VALUE loop_ended_p(VALUE object) {
    fl_loop *loop = fl_lock(fl_ruby_loop_struct(object));
    bool ended = fl_loop_end(loop);
    fl_unlock(&loop->context);
    return ended ? Qtrue : Qfalse;
}

static VALUE loop_count_error(VALUE object) {
    fl_ruby_loop_get(object)->context.counts.errors++;
    return Qnil;
}

static VALUE loop_counts(VALUE object) {
    const fl_loop *loop = fl_ruby_loop_get(object);
    VALUE hash = rb_hash_new();
#define COUNT(name) fl_hash_set(hash, #name, ULL2NUM(loop->context.counts.name))
    COUNT(in_flight);
    COUNT(streams);
    fl_hash_set(hash, "queued", UINT2NUM(loop->ready.count));
    COUNT(connections);
    COUNT(requests);
    COUNT(errors);
    COUNT(refused);
#undef COUNT
    return hash;
}

/* Other threads that use the loop find it closed, and the last one frees it. */
static VALUE loop_close(VALUE object) {
    fl_ruby_loop *self = fl_ruby_loop_struct(object);
    if (self->loop == NULL)
        return Qnil;
    fl_forget_stalls(self);
    self->closing = self->loop;
    self->loop = NULL;
    if (self->users == 0)
        free_loop(self);
    else
        fl_loop_wake(self->closing);
    return Qnil;
}

/* Whether this process is a fork of the loop's. */
static VALUE loop_forgotten_p(VALUE object) {
    return fl_ruby_loop_struct(object)->forgotten ? Qtrue : Qfalse;
}

VALUE fl_init_loop(void) {
    VALUE loop = rb_define_class_under(fl_mFairlead, "Loop", rb_cObject);
    rb_define_alloc_func(loop, loop_allocate);
    rb_define_method(loop, "initialize", loop_initialize, 1);
    rb_define_method(loop, "listen", loop_listen, 5);
    rb_define_method(loop, "join", loop_join, 4);
    rb_define_method(loop, "router=", loop_set_router, 1);
    rb_define_method(loop, "woken", loop_woken, 0);
    rb_define_method(loop, "expired", loop_expired, 0);
    rb_define_method(loop, "stop", loop_stop, 1);
    rb_define_method(loop, "batch_responses", loop_batch_responses, 0);
    rb_define_method(loop, "rejections", fl_ruby_loop_rejections, 0);
    rb_define_method(loop, "take", fl_ruby_loop_take, 0);
    rb_define_method(loop, "takeable", loop_takeable, 0);
    rb_define_method(loop, "fileno", loop_fileno, 0);
    rb_define_method(loop, "drain", loop_drain, 1);
    rb_define_method(loop, "ended?", loop_ended_p, 0);
    rb_define_method(loop, "count_error", loop_count_error, 0);
    rb_define_method(loop, "counts", loop_counts, 0);
    rb_define_method(loop, "close", loop_close, 0);
    rb_define_method(loop, "forgotten?", loop_forgotten_p, 0);
    fl_init_loop_wait(loop);
    return loop;
}
