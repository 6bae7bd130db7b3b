/* Fairlead::Loop: the watch thread, and what it sees of Ruby's threads. */
#include "fairlead.h"

#include <pthread.h>
#include <ruby/debug.h>
#include <ruby/fiber/scheduler.h>
#include <ruby/thread.h>
#include <stdlib.h>

__thread fl_own_thread fl_own;

static rb_internal_thread_specific_key_t thread_key;

/* Entries of threads that have ended, for reuse. They are never freed: the watch thread may read one at any time. */
static struct {
    pthread_mutex_t lock;
    struct spare {
        fl_thread thread;
        struct spare *next;
    } *first;
} spares = {.lock = PTHREAD_MUTEX_INITIALIZER};

static fl_thread *new_entry(void) {
    pthread_mutex_lock(&spares.lock);
    struct spare *spare = spares.first;
    if (spare != NULL)
        spares.first = spare->next;
    pthread_mutex_unlock(&spares.lock);
    if (spare == NULL)
        spare = calloc(1, sizeof *spare);
    return spare == NULL ? NULL : &spare->thread;
}

static void keep_entry(fl_thread *entry) {
    struct spare *spare = (struct spare *) entry;
    pthread_mutex_lock(&spares.lock);
    spare->next = spares.first;
    spares.first = spare;
    pthread_mutex_unlock(&spares.lock);
}

void fl_forget_other_threads(void) {
    pthread_mutex_init(&spares.lock, NULL);
    spares.first = NULL;
}

static fl_thread *thread_entry(VALUE thread, bool is_calling) {
    fl_thread *entry = rb_internal_thread_specific_get(thread, thread_key);
    if (entry != NULL || !is_calling)
        return entry;
    entry = new_entry();
    if (entry == NULL)
        return NULL;
    entry->task = fl_task_self();
    rb_internal_thread_specific_set(thread, thread_key, entry);
    return entry;
}

static void count_progress(void) {
    uint64_t progress = atomic_load_explicit(&fl_gvl_progress, memory_order_relaxed);
    atomic_store_explicit(&fl_gvl_progress, progress + 1, memory_order_relaxed);
}

/* May run without the GVL, and on another thread than the one that changes. */
static void thread_changed(rb_event_flag_t event, const rb_internal_thread_event_data_t *data, void *unused) {
    fl_thread *entry = thread_entry(data->thread, event == RUBY_INTERNAL_THREAD_EVENT_RESUMED);
    if (entry == NULL)
        return;
    int before = atomic_load_explicit(&entry->gvl, memory_order_relaxed);
    if (event == RUBY_INTERNAL_THREAD_EVENT_RESUMED) { /* gvl_since matters only without the GVL */
        if (before == FL_GVL_WANTED)
            fl_thread_got_gvl(&entry->clock, fl_clock() - atomic_load_explicit(&entry->gvl_since, memory_order_relaxed));
        atomic_store_explicit(&entry->gvl, FL_GVL_HELD, memory_order_release);
        count_progress();
        atomic_store_explicit(&fl_gvl_holder, entry, memory_order_release);
        return;
    }
    uint64_t now = fl_clock();
    if (event == RUBY_INTERNAL_THREAD_EVENT_READY)
        fl_thread_wants_gvl(&entry->clock,
                            before == FL_GVL_RELEASED ? atomic_load_explicit(&entry->gvl_since, memory_order_relaxed) : now,
                            now);
    atomic_store_explicit(&entry->gvl_since, now, memory_order_relaxed);
    if (event == RUBY_INTERNAL_THREAD_EVENT_READY) {
        atomic_store(&entry->gvl, FL_GVL_WANTED);
        fl_watch *watch = atomic_load(&entry->watch);
        if (watch != NULL)
            fl_watch_wake(watch);
        return;
    }
    atomic_store(&entry->gvl, FL_GVL_RELEASED);
    fl_thread *expected = entry;
    atomic_compare_exchange_strong(&fl_gvl_holder, &expected, NULL);
    if (event == RUBY_INTERNAL_THREAD_EVENT_EXITED) {
        rb_internal_thread_specific_set(data->thread, thread_key, NULL);
        keep_entry(entry);
    }
}

void fl_begin_run(fl_exchange *exchange) {
    if (fl_own.reactor == NULL)
        return;
    fl_run_begin(fl_own.run, exchange);
    fl_account_begin(&fl_own.run->account, exchange->id, fl_own_clock(), exchange->queueing.started_at);
    exchange->queueing.account = &fl_own.run->account;
    atomic_store_explicit(&fl_own.reactor->run, fl_own.run, memory_order_release);
}

void fl_end_run(void) {
    if (fl_own.reactor != NULL)
        atomic_store_explicit(&fl_own.reactor->run, NULL, memory_order_relaxed);
}

bool fl_stall_was_recorded(uint64_t id) {
    return fl_own.run != NULL && fl_own.run->id == id &&
           atomic_load_explicit(&fl_own.run->stall_recorded, memory_order_relaxed);
}

fl_exchange *fl_own_take(fl_ruby_loop *ours) {
    if (fl_own_reactor_leads(ours))
        return fl_loop_take(ours->loop);
    if (fl_own.reactor != NULL && fl_watch_in_lane(ours->watch, fl_own.number))
        return fl_loop_take_from_lane(ours->loop, fl_own.number, !fl_watch_leader_wants_gvl(ours->watch));
    return NULL;
}

/* The thread goes on with the request of another run. In the child of a fork, runs are still its parent's. */
static void switch_accounts(fl_run *before, uint64_t now) {
    if (before == fl_own.run || fl_own.loop->forgotten)
        return;
    if (before != NULL)
        fl_account_leave(&before->account, now);
    if (fl_own.run != NULL)
        fl_account_resume(&fl_own.run->account, fl_own_clock(), now);
}

void fl_reactor_switched(VALUE fiber, fl_run *before) {
    atomic_store_explicit(&fl_own.reactor->run, fl_own.run, memory_order_relaxed);
    fl_own.loop->reactors[fl_own.number].fiber = fiber;
    bool runs = fiber != *fl_own.scheduler_fiber;
    uint64_t now = runs || (before != NULL && !before->account.ended) ? fl_clock() : 0;
    switch_accounts(before, now);
    if (!runs) {
        fl_reactor_leaves_app(fl_own.reactor);
        return;
    }
    fl_reactor_enters_app(fl_own.reactor, now);
    if (fl_own.run != NULL && !fl_own.loop->forgotten)
        atomic_store_explicit(&fl_own.run->switched_at, now, memory_order_relaxed);
}

/* A new thread inherits the priority of its creator. Threads that an app starts in a request get Ruby's default instead of that of the
 * reactors, which have short time slices. */
static VALUE reactors_priority = Qnil;

static void thread_begins(rb_event_flag_t event, VALUE data, VALUE self, ID method, VALUE class) {
    VALUE thread = rb_thread_current();
    if (rb_funcall(thread, rb_intern("priority"), 0) == reactors_priority)
        rb_funcall(thread, rb_intern("priority="), 1, INT2FIX(0));
}

bool fl_own_reactor_leads(const fl_ruby_loop *loop) {
    return loop->watch == NULL || (fl_own.reactor != NULL && fl_watch_leads(loop->watch, fl_own.number));
}

static rb_postponed_job_handle_t postponed_job;
static _Atomic bool backtrace_wanted, yield_wanted;

/* Runs in the thread that holds the GVL, where Ruby may switch threads. It must neither raise nor change `$!`. */
static void run_postponed_job(void *unused) {
    count_progress();
    if (atomic_exchange(&backtrace_wanted, false))
        fl_capture_stall();
    bool yields = atomic_exchange(&yield_wanted, false);
    fl_watch *watch = fl_own.loop == NULL ? NULL : fl_own.loop->watch;
    if (yields && watch != NULL && !fl_watch_leads(watch, fl_own.number))
        rb_thread_schedule();
}

static void request_yield(void) {
    atomic_store(&yield_wanted, true);
    rb_postponed_job_trigger(postponed_job);
}

static void request_backtrace(void) {
    atomic_store(&backtrace_wanted, true);
    rb_postponed_job_trigger(postponed_job);
}

static uint64_t milliseconds(VALUE options, const char *name) {
    return fl_milliseconds(fl_option(options, name), name);
}

/* Runs within the collector: it must not touch objects. */
static void collector_changed(VALUE trace, void *unused) {
    if (rb_tracearg_event_flag(rb_tracearg_from_tracepoint(trace)) == RUBY_INTERNAL_EVENT_GC_ENTER) {
        atomic_store(&fl_collecting_since, fl_clock());
        return;
    }
    uint64_t since = atomic_exchange(&fl_collecting_since, 0);
    if (since != 0)
        atomic_fetch_add(&fl_collected, fl_clock() - since);
}

static void hook_collector(void) {
    VALUE trace = rb_tracepoint_new(0, RUBY_INTERNAL_EVENT_GC_ENTER | RUBY_INTERNAL_EVENT_GC_EXIT, collector_changed, NULL);
    rb_gc_register_mark_object(trace);
    rb_tracepoint_enable(trace);
}

/* watch(tick:, blocked:, stuck:, computing:, lost:, drain:, drain_streams:, priority:): prepares the watch thread. Milliseconds, and the priority of the
 * reactors' threads. */
static VALUE loop_watch(VALUE object, VALUE options) {
    static bool hooked;
    fl_watch_limits limits = {
        .tick = milliseconds(options, "tick"),
        .blocked = milliseconds(options, "blocked"),
        .stuck = milliseconds(options, "stuck"),
        .computing = milliseconds(options, "computing"),
        .lost = milliseconds(options, "lost"),
        .drain = milliseconds(options, "drain"),
        .drain_streams = milliseconds(options, "drain_streams"),
    };
    if (!hooked) {
        rb_internal_thread_add_event_hook(thread_changed,
                                          RUBY_INTERNAL_THREAD_EVENT_READY | RUBY_INTERNAL_THREAD_EVENT_RESUMED |
                                              RUBY_INTERNAL_THREAD_EVENT_SUSPENDED | RUBY_INTERNAL_THREAD_EVENT_EXITED,
                                          NULL);
        rb_add_event_hook(thread_begins, RUBY_EVENT_THREAD_BEGIN, Qnil);
        hook_collector();
    }
    hooked = true;
    reactors_priority = fl_option(options, "priority");
    fl_watch *watch = fl_watch_open(fl_ruby_loop_get(object), &limits);
    if (watch == NULL)
        rb_memerror();
    watch->request_yield = request_yield;
    watch->request_backtrace = request_backtrace;
    fl_ruby_loop_struct(object)->watch = watch;
    return Qnil;
}

static fl_watch *watch_of(VALUE object) {
    fl_watch *watch = fl_ruby_loop_struct(object)->watch;
    if (watch == NULL)
        rb_raise(rb_eIOError, "the loop has no watch thread");
    return watch;
}

/* register: the calling thread serves from now on. Call it in the fiber of its scheduler. Returns a descriptor that is readable when the
 * reactor may have got the lead, or a lane has a request for it; nil: there are too many reactors. */
static VALUE loop_register(VALUE object) {
    fl_watch *watch = watch_of(object);
    fl_thread *entry = thread_entry(rb_thread_current(), true);
    if (entry == NULL)
        rb_memerror();
    atomic_store(&entry->gvl, FL_GVL_HELD);
    atomic_store(&fl_gvl_holder, entry);
    int number = fl_watch_register(watch, entry);
    if (number < 0)
        return Qnil;
    atomic_store(&entry->watch, watch);
    fl_own.number = number;
    fl_own.scheduler_fiber = ALLOC(VALUE);
    *fl_own.scheduler_fiber = rb_fiber_current();
    rb_gc_register_address(fl_own.scheduler_fiber);
    fl_own.run = NULL;
    fl_own.reactor = &watch->reactors[number];
    fl_own.loop = fl_ruby_loop_struct(object);
    fl_retain(fl_own.loop);
    fl_own.loop->reactors[number].thread = rb_thread_current();
    fl_own.loop->reactors[number].fiber = *fl_own.scheduler_fiber;
    fl_track_fibers();
    return INT2NUM(fl_own.reactor->lead.read_end);
}

static VALUE loop_unregister(VALUE object) {
    fl_watch *watch = fl_ruby_loop_struct(object)->watch;
    if (fl_own.reactor == NULL)
        return Qnil;
    if (watch != NULL) {
        if (!atomic_load(&fl_own.reactor->retired) && !fl_watch_retire(watch, fl_own.number)) { /* it leads until the end */
            fl_reactor_enters_app(fl_own.reactor, fl_clock());
            atomic_store(&fl_own.reactor->retired, true);
        }
        atomic_store(&fl_own.reactor->thread->watch, NULL);
    }
    fl_own.loop->reactors[fl_own.number].thread = fl_own.loop->reactors[fl_own.number].fiber = Qnil;
    rb_gc_unregister_address(fl_own.scheduler_fiber);
    xfree(fl_own.scheduler_fiber);
    if (watch != NULL)
        fl_watch_unregister(watch, fl_own.number);
    fl_release(fl_own.loop);
    fl_own = (fl_own_thread) {0};
    return Qnil;
}

/* retire: the calling reactor gets neither the lead nor requests from now on. Returns false if it has either: then it goes on. */
static VALUE loop_retire(VALUE object) {
    fl_watch *watch = watch_of(object);
    return fl_own.reactor != NULL && fl_watch_retire(watch, fl_own.number) ? Qtrue : Qfalse;
}

static VALUE loop_lane_p(VALUE object) {
    fl_watch *watch = fl_ruby_loop_struct(object)->watch;
    return watch != NULL && fl_own.reactor != NULL && fl_watch_in_lane(watch, fl_own.number) ? Qtrue : Qfalse;
}

/* Whether another reactor leads, has work, and waits for the GVL. */
static VALUE loop_leader_waits_p(VALUE object) {
    const fl_watch *watch = fl_ruby_loop_struct(object)->watch;
    return watch != NULL && fl_own.reactor != NULL && !fl_watch_leads(watch, fl_own.number) && fl_watch_leader_wants_gvl(watch)
               ? Qtrue
               : Qfalse;
}

static VALUE loop_leads_p(VALUE object) {
    return fl_own_reactor_leads(fl_ruby_loop_struct(object)) ? Qtrue : Qfalse;
}

/* resumed_at: seconds of CLOCK_MONOTONIC when the reactor's current fiber was resumed; nil: the calling thread is no reactor. */
static VALUE loop_resumed_at(VALUE object) {
    (void) object;
    return fl_own.reactor == NULL ? Qnil : DBL2NUM(atomic_load_explicit(&fl_own.reactor->stamp, memory_order_relaxed) / 1e6);
}

static VALUE loop_start_watch(VALUE object) {
    fl_watch *watch = watch_of(object);
    if (atomic_load(&watch->count) == 0)
        rb_raise(rb_eIOError, "no reactor serves this loop yet");
    int error = fl_watch_start(watch);
    if (error != 0)
        rb_syserr_fail(error, "the watch thread");
    return Qnil;
}

static void copy_message(char copy[64], VALUE message) {
    Check_Type(message, T_STRING);
    if (RSTRING_LEN(message) >= 64)
        rb_raise(rb_eArgError, "the message is too long");
    memcpy(copy, RSTRING_PTR(message), (size_t) RSTRING_LEN(message));
}

/* connect_supervisor(descriptor, relief, lane): the watch thread reports to this socket (see core/watch/report.h), and sends `relief` to
 * request a relief worker, `lane` to request a lane worker. */
static VALUE loop_connect_supervisor(VALUE object, VALUE descriptor, VALUE relief, VALUE lane) {
    int number = NUM2INT(descriptor);
    fl_watch *watch = watch_of(object);
    copy_message(watch->relief_request, relief);
    copy_message(watch->lane_request, lane);
    watch->supervisor = number;
    return Qnil;
}

/* standbys: how many reactors could take the lead now. */
static VALUE loop_standbys(VALUE object) {
    fl_watch *watch = watch_of(object);
    int count = 0;
    for (int i = 0; i < atomic_load(&watch->count); i++)
        count += i != atomic_load(&watch->leader) && !atomic_load(&watch->reactors[i].retired) &&
                 atomic_load(&watch->reactors[i].in_loop);
    return INT2NUM(count);
}

void fl_init_watch(VALUE loop) {
    thread_key = rb_internal_thread_specific_key_create();
    postponed_job = rb_postponed_job_preregister(0, run_postponed_job, NULL);
    rb_define_method(loop, "watch", loop_watch, 1);
    rb_define_method(loop, "register", loop_register, 0);
    rb_define_method(loop, "unregister", loop_unregister, 0);
    rb_define_method(loop, "leads?", loop_leads_p, 0);
    rb_define_method(loop, "leader_waits?", loop_leader_waits_p, 0);
    rb_define_method(loop, "resumed_at", loop_resumed_at, 0);
    rb_define_method(loop, "start_watch", loop_start_watch, 0);
    rb_define_method(loop, "retire", loop_retire, 0);
    rb_define_method(loop, "lane?", loop_lane_p, 0);
    rb_define_method(loop, "connect_supervisor", loop_connect_supervisor, 3);
    rb_define_method(loop, "standbys", loop_standbys, 0);
}
