#include "fairlead.h"

#include <errno.h>
#include <math.h>
#include <ruby/io.h>
#include <ruby/thread.h>

VALUE fl_mFairlead;
static VALUE eClosed, eInvalid;

void fl_raise(fl_status status) {
    switch (status) {
    case FL_SYSTEM:
        rb_sys_fail("fairlead");
    case FL_NO_MEMORY:
        rb_memerror();
    case FL_CLOSED:
        rb_raise(eClosed, "the client has closed the connection");
    default:
        rb_raise(eInvalid, "%s", fl_status_text(status));
    }
}

static void *await_lock(void *data) {
    pthread_mutex_t *lock = data;
    pthread_mutex_lock(lock);
    pthread_mutex_unlock(lock);
    return NULL;
}

/* Nobody uses it any more. */
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
        fl_loop_wake(self->closing); /* who has heard of the end may have heard it for all */
}

/* Nobody who has the lock may wait for the GVL: the watch thread, or who has the GVL, would wait for both. With an
 * interrupt pending, Ruby comes back at once, without having called. */
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

uint64_t fl_microseconds(VALUE seconds, const char *what) {
    if (NIL_P(seconds))
        return 0;
    double value = NUM2DBL(seconds);
    if (!(value >= 0 && value <= FL_MOST_SECONDS))
        rb_raise(rb_eArgError, "%s must be between 0 and %d seconds, not %" PRIsVALUE, what, FL_MOST_SECONDS, seconds);
    return (uint64_t) (value * 1e6);
}

uint64_t fl_milliseconds(VALUE milliseconds, const char *what) {
    return fl_microseconds(DBL2NUM(NUM2DBL(milliseconds) / 1e3), what);
}

static void loop_mark(void *data) {
    fl_ruby_loop *self = data;
    rb_gc_mark_movable(self->templates);
    rb_gc_mark(self->reporter);
    rb_gc_mark(self->router);
    for (int i = 0; i < FL_MOST_REACTORS; i++) {
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

static VALUE option(VALUE options, const char *name) {
    return rb_hash_fetch(options, ID2SYM(rb_intern(name)));
}

static uint64_t microseconds(VALUE options, const char *name) {
    return fl_microseconds(option(options, name), name);
}

static VALUE loop_initialize(VALUE object, VALUE options) {
    fl_ruby_loop *self = rb_check_typeddata(object, &loop_type);
    fl_limits limits = {
        .head = {.request_line = NUM2UINT(option(options, "request_line")),
                 .head = NUM2UINT(option(options, "head_size")),
                 .headers = NUM2UINT(option(options, "headers"))},
        .body_size = NUM2ULL(option(options, "body_size")),
        .body_buffer = NUM2UINT(option(options, "body_buffer")),
        .response_buffer = NUM2UINT(option(options, "response_buffer")),
        .in_flight = NUM2UINT(option(options, "in_flight")),
        .streams = NUM2UINT(option(options, "streams")),
        .queue_timeout = microseconds(options, "queue_timeout"),
        .queue_target = microseconds(options, "queue_target"),
        .request_timeout = microseconds(options, "request_timeout"),
        .record_rejections = RTEST(option(options, "record_rejections")),
        .deadlines = {[FL_DEADLINE_IDLE] = microseconds(options, "idle_timeout"),
                      [FL_DEADLINE_HEAD] = microseconds(options, "head_timeout"),
                      [FL_DEADLINE_BODY] = microseconds(options, "body_timeout"),
                      [FL_DEADLINE_WRITE] = microseconds(options, "write_timeout"),
                      [FL_DEADLINE_LINGER] = 2000000},
    };
    limits.cancel_abandoned = RTEST(option(options, "cancel_abandoned"));
    VALUE health_path = option(options, "health_path");
    if (!NIL_P(health_path)) {
        if (RSTRING_LEN(health_path) > FL_MOST_HEALTH_PATH)
            rb_raise(rb_eArgError, "the health path is too long");
        memcpy(limits.health_path, RSTRING_PTR(health_path), (size_t) RSTRING_LEN(health_path));
    }
    if (limits.head.headers > FL_MOST_HEADERS)
        limits.head.headers = FL_MOST_HEADERS;
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
    fl_status status = fl_loop_listen(loop, number, RTEST(unix_socket));
    if (status != FL_OK)
        fl_raise(status);
    fl_ruby_loop *self = rb_check_typeddata(object, &loop_type);
    rb_ary_store(self->templates, loop->accepting.listeners->index, template);
    return Qnil;
}

static VALUE loop_join(VALUE object, VALUE page, VALUE slot, VALUE receiving, VALUE sending) {
    int ends[FL_MOST_SIBLINGS], count = 0;
    for (long i = 0; i < RARRAY_LEN(sending) && count < FL_MOST_SIBLINGS; i++)
        ends[count++] = NUM2INT(rb_ary_entry(sending, i));
    fl_shared_page *shared = fl_ruby_shared_page_get(page);
    int own = NUM2INT(slot), own_end = NIL_P(receiving) ? -1 : NUM2INT(receiving);
    if (own < 0 || (size_t) own >= shared->count || (size_t) count > shared->count)
        rb_raise(rb_eIndexError, "the page has %zu slots", shared->count);
    fl_status status = fl_loop_join(fl_ruby_loop_get(object), shared, own, own_end, ends, count);
    if (status != FL_OK)
        fl_raise(status);
    rb_ivar_set(object, rb_intern("page"), page); /* keeps the memory that the loop writes to */
    return Qnil;
}

/* router = callable: is called like those of `rack.response_finished`, at the end of a request whose route is
 * remembered. */
static VALUE loop_set_router(VALUE object, VALUE router) {
    return fl_ruby_loop_struct(object)->router = router;
}

static VALUE loop_turn(VALUE object) {
    fl_ruby_loop *self = fl_ruby_loop_struct(object);
    fl_runs_none();
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

/* Lets go of the lock, which has kept the lead from being given away. */
static bool may_wait(struct wait *wait) {
    fl_loop *loop = wait->loop;
    wait->leads = fl_own_reactor_leads(wait->self);
    if (wait->leads) {
        fl_loop_keep_timer(loop); /* another reactor may have taken something from a lane */
        atomic_store(&loop->driver.resting, true);
        if (loop->siblings.slot != NULL)
            fl_slot_set(loop->siblings.slot, FL_SLOT_idle, loop->ready.first == NULL);
    }
    pthread_mutex_unlock(&loop->context.lock);
    return wait->leads;
}

static void *wait_without_gvl(void *data) {
    struct wait *wait = data;
    pthread_mutex_lock(&wait->loop->context.lock);
    if (may_wait(wait))
        wait->woken = fl_loop_wait(wait->loop, wait->microseconds);
    return NULL;
}

static void unblock_wait(void *data) {
    fl_loop_wake(((struct wait *) data)->loop);
}

/* What interrupts it is raised here. */
static VALUE wait_interruptibly(VALUE data) {
    rb_thread_call_without_gvl(wait_without_gvl, (void *) data, unblock_wait, (void *) data);
    return Qnil;
}

static VALUE has_waited(VALUE data) {
    fl_release(((struct wait *) data)->self);
    return Qnil;
}

/* nil: for ever, and so is what no timer of the system's is made for. */
static int64_t time_to_wait(VALUE seconds) {
    double value = NIL_P(seconds) ? HUGE_VAL : NUM2DBL(seconds);
    return value >= FL_MOST_SECONDS ? -1 : value > 0 ? (int64_t) (value * 1e6) : 0;
}

/* Whether anything has happened; nil: the caller does not lead, and must wait elsewhere. */
static VALUE loop_wait(VALUE object, VALUE seconds) {
    int64_t microseconds = time_to_wait(seconds);
    struct wait wait = {.self = fl_ruby_loop_struct(object), .loop = fl_ruby_loop_get(object), .microseconds = microseconds};
    if (wait.microseconds != 0 && fl_loop_may_spin(wait.loop) && pthread_mutex_trylock(&wait.loop->context.lock) == 0 &&
        may_wait(&wait) && fl_loop_spin(wait.loop))
        return Qtrue;
    fl_retain(wait.self);
    rb_ensure(wait_interruptibly, (VALUE) &wait, has_waited, (VALUE) &wait);
    return !wait.leads ? Qnil : wait.woken ? Qtrue : Qfalse;
}

static VALUE loop_settle(VALUE object) {
    fl_loop *loop = fl_lock(fl_ruby_loop_struct(object));
    if (fl_own_reactor_leads(fl_ruby_loop_struct(object)))
        fl_loop_rest(loop);
    else
        fl_loop_settle(loop);
    fl_unlock(&loop->context);
    return Qnil;
}

static VALUE loop_wake(VALUE object) {
    fl_ruby_loop *self = rb_check_typeddata(object, &loop_type);
    if (self->loop != NULL)
        fl_loop_wake(self->loop);
    return Qnil;
}

static VALUE loop_want(VALUE object) {
    fl_ruby_loop *self = rb_check_typeddata(object, &loop_type);
    if (self->loop != NULL)
        fl_loop_want(self->loop);
    return Qnil;
}

/* The id of the next request that has been woken; false: none, but requests were refused; nil: nothing. Whoever asks
 * sees to what was wanted before. */
static VALUE loop_woken(VALUE object) {
    atomic_store(&fl_ruby_loop_get(object)->driver.wanted, false);
    fl_loop *loop = fl_lock(fl_ruby_loop_struct(object));
    uint64_t id = fl_context_next_woken(&loop->context);
    bool refused = loop->context.rejections.first != NULL;
    fl_unlock(&loop->context);
    return id != 0 ? ULL2NUM(id) : refused ? Qfalse : Qnil;
}

static VALUE loop_expired(VALUE object) {
    fl_loop *loop = fl_lock(fl_ruby_loop_struct(object));
    uint64_t id = fl_context_next_expired(&loop->context);
    fl_unlock(&loop->context);
    return id == 0 ? Qnil : ULL2NUM(id);
}

static VALUE loop_give_up(VALUE object) {
    fl_loop *loop = fl_lock(fl_ruby_loop_struct(object));
    fl_loop_give_up(loop);
    fl_unlock(&loop->context);
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

/* Whoever still uses it finds it closed when it looks again, and the last one frees it. */
static VALUE loop_close(VALUE object) {
    fl_ruby_loop *self = rb_check_typeddata(object, &loop_type);
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

/* Whether it is that of the process that has forked this one. */
static VALUE loop_forgotten_p(VALUE object) {
    return fl_ruby_loop_struct(object)->forgotten ? Qtrue : Qfalse;
}

/* Fairlead::Platform.process_descriptor(pid): what becomes readable as that child ends; nil where there is none. */
static VALUE process_descriptor(VALUE self, VALUE pid) {
    int descriptor = fl_process_descriptor(NUM2INT(pid));
    if (descriptor < 0)
        return Qnil;
    rb_update_max_fd(descriptor);
    return INT2NUM(descriptor);
}

/* Fairlead::Platform.write_end(io): the IO that io.close_write closes; nil if that goes on being read. */
static VALUE write_end(VALUE self, VALUE io) {
    if (RFILE(io)->fptr == NULL || RTEST(rb_io_closed_p(io)))
        return Qnil;
    VALUE writer = rb_io_get_write_io(io);
    return writer == io && (rb_io_mode(io) & FMODE_READABLE) ? Qnil : writer;
}

/* Fairlead::Platform: what Ruby has to know of what the core was compiled for. */
static void init_platform(void) {
    static const char *const pollers[] = {[FL_EPOLL] = "epoll", [FL_KQUEUE] = "kqueue"};
    VALUE platform = rb_define_module_under(fl_mFairlead, "Platform");
    rb_define_const(platform, "POLLER", rb_obj_freeze(rb_str_new_cstr(pollers[FL_POLLER])));
    rb_define_const(platform, "PACKETS", INT2NUM(FL_PACKETS));
    rb_define_singleton_method(platform, "process_descriptor", process_descriptor, 1);
    rb_define_singleton_method(platform, "write_end", write_end, 1);
#ifdef FL_LINUX
    rb_define_const(platform, "LINUX", Qtrue);
#else
    rb_define_const(platform, "LINUX", Qfalse);
#endif
}

RUBY_FUNC_EXPORTED void Init_fairlead(void) {
    fl_mFairlead = rb_define_module("Fairlead");
    VALUE error = rb_const_defined(fl_mFairlead, rb_intern("Error"))
                      ? rb_const_get(fl_mFairlead, rb_intern("Error"))
                      : rb_define_class_under(fl_mFairlead, "Error", rb_eStandardError);
    /* As RequestTimeout: ActiveRecord would take another error, raised while it waits, for the database's. */
    eClosed = rb_define_class_under(fl_mFairlead, "ClientGone", rb_eRuntimeError);
    eInvalid = rb_define_class_under(fl_mFairlead, "InvalidResponse", error);
    rb_gc_register_mark_object(eClosed);
    rb_gc_register_mark_object(eInvalid);

    init_platform();
    VALUE loop = rb_define_class_under(fl_mFairlead, "Loop", rb_cObject);
    rb_define_alloc_func(loop, loop_allocate);
    rb_define_method(loop, "initialize", loop_initialize, 1);
    rb_define_method(loop, "listen", loop_listen, 3);
    rb_define_method(loop, "join", loop_join, 4);
    rb_define_method(loop, "router=", loop_set_router, 1);
    rb_define_method(loop, "turn", loop_turn, 0);
    rb_define_method(loop, "wait", loop_wait, 1);
    rb_define_method(loop, "settle", loop_settle, 0);
    rb_define_method(loop, "wake", loop_wake, 0);
    rb_define_method(loop, "want", loop_want, 0);
    rb_define_method(loop, "woken", loop_woken, 0);
    rb_define_method(loop, "expired", loop_expired, 0);
    rb_define_method(loop, "give_up", loop_give_up, 0);
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

    fl_init_environment();
    fl_init_request();
    fl_init_fibers();
    fl_init_watch(loop);
    fl_init_fork();
    fl_init_stalls(loop);
    fl_init_shared_page();
}
