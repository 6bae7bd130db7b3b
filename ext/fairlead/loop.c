/* Fairlead::Loop: a loop of the core as a Ruby object. */
#include "fairlead.h"

#include <math.h>
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
    rb_gc_mark(self->reporter);
    rb_gc_mark(self->router);
    for (int i = 0; i < FL_MAX_REACTORS; i++) {
        rb_gc_mark(self->reactors[i].thread);
        rb_gc_mark(self->reactors[i].fiber);
    }
}

static void loop_compact(void *data) {
    fl_ruby_loop *self = data;
    self->templates = rb_gc_location(self->templates);
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
    self->reporter = self->router = Qnil;
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
    self->loop = fl_loop_open(&limits);
    if (self->loop == NULL)
        rb_sys_fail("fairlead");
    fl_track_loop(self);
    rb_update_max_fd(self->loop->context.poll.descriptor);
    return object;
}

static VALUE loop_listen(VALUE object, VALUE descriptor, VALUE unix_socket, VALUE template) {
    int number = NUM2INT(descriptor);
    fl_loop *loop = fl_ruby_loop_get(object);
    fl_check(fl_loop_listen(loop, number, RTEST(unix_socket)));
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

static VALUE loop_turn(VALUE object) {
    fl_ruby_loop *self = fl_ruby_loop_struct(object);
    fl_end_run();
    fl_loop *loop = fl_lock(self);
    self->driver = pthread_self();
    uint32_t takeable = fl_loop_turn(loop);
    fl_unlock(&loop->context);
    return UINT2NUM(takeable);
}

struct wait {
    fl_ruby_loop *self;
    fl_loop *loop;
    int64_t microseconds;
    bool leads, woken;
};

/* Whether the calling reactor leads, and so may wait in the core. Releases the lock, with which nobody could pass on the lead. */
static bool begin_wait(struct wait *wait) {
    fl_loop *loop = wait->loop;
    wait->leads = fl_own_reactor_leads(wait->self);
    if (wait->leads) {
        fl_loop_update_timer(loop); /* another reactor may have taken a request from a lane meanwhile */
        atomic_store(&loop->driver.waiting, true);
        if (loop->siblings.slot != NULL)
            fl_slot_set(loop->siblings.slot, FL_SLOT_idle, loop->ready.first == NULL);
    }
    pthread_mutex_unlock(&loop->context.lock);
    return wait->leads;
}

static void *wait_without_gvl(void *data) {
    struct wait *wait = data;
    pthread_mutex_lock(&wait->loop->context.lock);
    if (begin_wait(wait))
        wait->woken = fl_loop_wait(wait->loop, wait->microseconds);
    return NULL;
}

static void unblock_wait(void *data) {
    fl_loop_wake(((struct wait *) data)->loop);
}

/* Interrupts of the thread are raised here. */
static VALUE wait_interruptibly(VALUE data) {
    rb_thread_call_without_gvl(wait_without_gvl, (void *) data, unblock_wait, (void *) data);
    return Qnil;
}

static VALUE end_wait(VALUE data) {
    fl_release(((struct wait *) data)->self);
    return Qnil;
}

/* Negative: without limit, for nil and for times too long for a timer. */
static int64_t time_to_wait(VALUE seconds) {
    double value = NIL_P(seconds) ? HUGE_VAL : NUM2DBL(seconds);
    return value >= FL_MAX_SECONDS ? -1 : value > 0 ? (int64_t) (value * 1e6) : 0;
}

/* wait(seconds): whether anything happened; nil: the calling reactor does not lead, and must wait elsewhere. */
static VALUE loop_wait(VALUE object, VALUE seconds) {
    int64_t microseconds = time_to_wait(seconds);
    struct wait wait = {.self = fl_ruby_loop_struct(object), .loop = fl_ruby_loop_get(object), .microseconds = microseconds};
    if (wait.microseconds != 0 && fl_loop_may_spin(wait.loop) && pthread_mutex_trylock(&wait.loop->context.lock) == 0 &&
        begin_wait(&wait) && fl_loop_spin(wait.loop))
        return Qtrue;
    fl_retain(wait.self);
    rb_ensure(wait_interruptibly, (VALUE) &wait, end_wait, (VALUE) &wait);
    return !wait.leads ? Qnil : wait.woken ? Qtrue : Qfalse;
}

/* prepare_wait(busy): whether streams wait for their turn */
static VALUE loop_prepare_wait(VALUE object, VALUE busy) {
    fl_ruby_loop *self = fl_ruby_loop_struct(object);
    fl_loop *loop = fl_lock(self);
    fl_loop_prepare_wait(loop, fl_own_reactor_leads(self), RTEST(busy));
    fl_unlock(&loop->context);
    return Qnil;
}

static VALUE loop_wake(VALUE object) {
    fl_ruby_loop *self = fl_ruby_loop_struct(object);
    if (self->loop != NULL)
        fl_loop_wake(self->loop);
    return Qnil;
}

static VALUE loop_notify_driver(VALUE object) {
    fl_ruby_loop *self = fl_ruby_loop_struct(object);
    if (self->loop != NULL)
        fl_loop_notify_driver(self->loop);
    return Qnil;
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

static VALUE loop_stop(VALUE object) {
    fl_loop *loop = fl_lock(fl_ruby_loop_struct(object));
    fl_loop_stop(loop);
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

static VALUE loop_drained_p(VALUE object) {
    return fl_loop_is_drained(fl_ruby_loop_get(object)) ? Qtrue : Qfalse;
}

static VALUE loop_count_error(VALUE object) {
    fl_ruby_loop_get(object)->context.counts.errors++;
    return Qnil;
}

static VALUE loop_counts(VALUE object) {
    const fl_loop *loop = fl_ruby_loop_get(object);
    VALUE hash = rb_hash_new();
#define COUNT(name) rb_hash_aset(hash, ID2SYM(rb_intern(#name)), ULL2NUM(loop->context.counts.name))
    COUNT(in_flight);
    COUNT(streams);
    rb_hash_aset(hash, ID2SYM(rb_intern("queued")), UINT2NUM(loop->ready.count));
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
    rb_define_method(loop, "listen", loop_listen, 3);
    rb_define_method(loop, "join", loop_join, 4);
    rb_define_method(loop, "router=", loop_set_router, 1);
    rb_define_method(loop, "turn", loop_turn, 0);
    rb_define_method(loop, "wait", loop_wait, 1);
    rb_define_method(loop, "prepare_wait", loop_prepare_wait, 1);
    rb_define_method(loop, "wake", loop_wake, 0);
    rb_define_method(loop, "notify_driver", loop_notify_driver, 0);
    rb_define_method(loop, "woken", loop_woken, 0);
    rb_define_method(loop, "expired", loop_expired, 0);
    rb_define_method(loop, "stop", loop_stop, 0);
    rb_define_method(loop, "batch_responses", loop_batch_responses, 0);
    rb_define_method(loop, "rejections", fl_ruby_loop_rejections, 0);
    rb_define_method(loop, "take", fl_ruby_loop_take, 0);
    rb_define_method(loop, "takeable", loop_takeable, 0);
    rb_define_method(loop, "fileno", loop_fileno, 0);
    rb_define_method(loop, "drain", loop_drain, 1);
    rb_define_method(loop, "drained?", loop_drained_p, 0);
    rb_define_method(loop, "count_error", loop_count_error, 0);
    rb_define_method(loop, "counts", loop_counts, 0);
    rb_define_method(loop, "close", loop_close, 0);
    rb_define_method(loop, "forgotten?", loop_forgotten_p, 0);
    return loop;
}
