/* What Ruby tells of its threads and fibers becomes what the watch thread looks at. */
#include "fairlead.h"

#include <pthread.h>
#include <ruby/debug.h>
#include <ruby/fiber/scheduler.h>
#include <ruby/thread.h>
#include <stdlib.h>

__thread fl_own_thread fl_own;

static rb_internal_thread_specific_key_t thread_key;

/* Entries of threads that have ended. They are used again, but never freed: the watch thread may look at one at any
 * time. */
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

/* With the GVL. */
static void count_turn(void) {
    uint64_t turns = atomic_load_explicit(&fl_gvl_turns, memory_order_relaxed);
    atomic_store_explicit(&fl_gvl_turns, turns + 1, memory_order_relaxed);
}

/* May run without the GVL, and on another thread than the one it speaks of. */
static void thread_changed(rb_event_flag_t event, const rb_internal_thread_event_data_t *data, void *unused) {
    fl_thread *entry = thread_entry(data->thread, event == RUBY_INTERNAL_THREAD_EVENT_RESUMED);
    if (entry == NULL)
        return;
    if (event == RUBY_INTERNAL_THREAD_EVENT_RESUMED) { /* since when matters only to those without it */
        atomic_store_explicit(&entry->gvl, FL_GVL_HELD, memory_order_release);
        count_turn();
        atomic_store_explicit(&fl_gvl_holder, entry, memory_order_release);
        return;
    }
    atomic_store_explicit(&entry->gvl_since, fl_clock(), memory_order_relaxed);
    switch (event) {
    case RUBY_INTERNAL_THREAD_EVENT_READY: {
        atomic_store(&entry->gvl, FL_GVL_WANTED);
        fl_watch *watch = atomic_load(&entry->watch);
        if (watch != NULL)
            fl_watch_attend(watch);
        break;
    }
    default: {
        atomic_store(&entry->gvl, FL_GVL_RELEASED);
        fl_thread *expected = entry;
        atomic_compare_exchange_strong(&fl_gvl_holder, &expected, NULL);
        if (event == RUBY_INTERNAL_THREAD_EVENT_EXITED) {
            rb_internal_thread_specific_set(data->thread, thread_key, NULL);
            keep_entry(entry);
        }
    }
    }
}

void fl_runs(fl_exchange *exchange) {
    if (fl_own.reactor == NULL)
        return;
    fl_run_begins(fl_own.run, exchange);
    atomic_store_explicit(&fl_own.reactor->run, fl_own.run, memory_order_release);
}

void fl_runs_none(void) {
    if (fl_own.reactor != NULL)
        atomic_store_explicit(&fl_own.reactor->run, NULL, memory_order_relaxed);
}

bool fl_has_been_noted(uint64_t id) {
    return fl_own.run != NULL && fl_own.run->id == id && atomic_load_explicit(&fl_own.run->noted, memory_order_relaxed);
}

fl_exchange *fl_own_take(fl_ruby_loop *ours) {
    if (fl_own_reactor_leads(ours))
        return fl_loop_take(ours->loop);
    if (fl_own.reactor != NULL && fl_watch_in_lane(ours->watch, fl_own.number))
        return fl_loop_take_from_lane(ours->loop, fl_own.number, !fl_watch_leader_wants_gvl(ours->watch));
    return NULL;
}

void fl_reactor_switched(VALUE fiber) {
    atomic_store_explicit(&fl_own.reactor->run, fl_own.run, memory_order_relaxed);
    fl_own.loop->reactors[fl_own.number].fiber = fiber;
    if (fiber == *fl_own.scheduler_fiber)
        fl_reactor_leaves_app(fl_own.reactor);
    else
        fl_reactor_enters_app(fl_own.reactor, fl_clock());
}

/* A thread has the priority of who starts it. Those that an app starts in a request shall have Ruby's usual one, not that
 * of the reactors, which take short slices. */
static VALUE reactors_priority = Qnil;

static void thread_begins(rb_event_flag_t event, VALUE data, VALUE self, ID method, VALUE class) {
    VALUE thread = rb_thread_current();
    if (rb_funcall(thread, rb_intern("priority"), 0) == reactors_priority)
        rb_funcall(thread, rb_intern("priority="), 1, INT2FIX(0));
}

bool fl_own_reactor_leads(const fl_ruby_loop *loop) {
    return loop->watch == NULL || (fl_own.reactor != NULL && fl_watch_leads(loop->watch, fl_own.number));
}

static rb_postponed_job_handle_t sign;
static _Atomic bool backtrace_wanted, way_wanted;

/* Runs in the thread that has the GVL, in a place where threads may be switched. It must not raise there, nor touch `$!`. */
static void give_sign(void *unused) {
    count_turn();
    if (atomic_exchange(&backtrace_wanted, false))
        fl_capture_stall();
    bool gives_way = atomic_exchange(&way_wanted, false);
    fl_watch *watch = fl_own.loop == NULL ? NULL : fl_own.loop->watch;
    if (gives_way && watch != NULL && !fl_watch_leads(watch, fl_own.number))
        rb_thread_schedule();
}

static void press_holder(void) {
    atomic_store(&way_wanted, true);
    rb_postponed_job_trigger(sign);
}

static void interrupt_holder(void) {
    atomic_store(&backtrace_wanted, true);
    rb_postponed_job_trigger(sign);
}

static uint64_t milliseconds(VALUE options, const char *name) {
    return fl_milliseconds(rb_hash_fetch(options, ID2SYM(rb_intern(name))), name);
}

/* Runs within the collector: it must touch no object. */
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

/* watch(tick:, blocked:, stuck:, computing:, lost:, drain:, priority:): in milliseconds, but for the priority of the
 * reactors' threads */
static VALUE loop_watch(VALUE object, VALUE options) {
    static bool hooked;
    fl_watch_limits limits = {
        .tick = milliseconds(options, "tick"),
        .blocked = milliseconds(options, "blocked"),
        .stuck = milliseconds(options, "stuck"),
        .computing = milliseconds(options, "computing"),
        .lost = milliseconds(options, "lost"),
        .drain = milliseconds(options, "drain"),
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
    reactors_priority = rb_hash_fetch(options, ID2SYM(rb_intern("priority")));
    fl_watch *watch = fl_watch_open(fl_ruby_loop_get(object), &limits);
    if (watch == NULL)
        rb_memerror();
    watch->press = press_holder;
    watch->interrupt = interrupt_holder;
    fl_ruby_loop_struct(object)->watch = watch;
    return Qnil;
}

static fl_watch *watch_of(VALUE object) {
    fl_watch *watch = fl_ruby_loop_struct(object)->watch;
    if (watch == NULL)
        rb_raise(rb_eIOError, "nobody watches this loop");
    return watch;
}

/* The calling thread serves from now on; to be called in the fiber of its scheduler. Answers the descriptor that tells
 * it of the lead, or nil when there are too many reactors. */
static VALUE loop_enter(VALUE object) {
    fl_watch *watch = watch_of(object);
    fl_thread *entry = thread_entry(rb_thread_current(), true);
    if (entry == NULL)
        rb_memerror();
    atomic_store(&entry->gvl, FL_GVL_HELD);
    atomic_store(&fl_gvl_holder, entry);
    int number = fl_watch_enter(watch, entry);
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

static VALUE loop_leave(VALUE object) {
    fl_watch *watch = fl_ruby_loop_struct(object)->watch;
    if (fl_own.reactor != NULL && watch != NULL) {
        if (!atomic_load(&fl_own.reactor->gone) && !fl_watch_leave(watch, fl_own.number)) { /* it leads until the end */
            fl_reactor_enters_app(fl_own.reactor, fl_clock());
            atomic_store(&fl_own.reactor->gone, true);
        }
        atomic_store(&fl_own.reactor->thread->watch, NULL);
    }
    if (fl_own.reactor != NULL) {
        fl_own.loop->reactors[fl_own.number].thread = fl_own.loop->reactors[fl_own.number].fiber = Qnil;
        rb_gc_unregister_address(fl_own.scheduler_fiber);
        xfree(fl_own.scheduler_fiber);
        if (watch != NULL)
            fl_watch_vacate(watch, fl_own.number);
        fl_release(fl_own.loop);
    }
    fl_own.reactor = NULL;
    fl_own.loop = NULL;
    fl_own.run = NULL;
    return Qnil;
}

/* No longer to be given the lead or requests: answers false if it has them, and goes on. */
static VALUE loop_retire(VALUE object) {
    fl_watch *watch = watch_of(object);
    return fl_own.reactor != NULL && fl_watch_leave(watch, fl_own.number) ? Qtrue : Qfalse;
}

static VALUE loop_lane_p(VALUE object) {
    fl_watch *watch = fl_ruby_loop_struct(object)->watch;
    return watch != NULL && fl_own.reactor != NULL && fl_watch_in_lane(watch, fl_own.number) ? Qtrue : Qfalse;
}

static VALUE loop_leads_p(VALUE object) {
    return fl_own_reactor_leads(fl_ruby_loop_struct(object)) ? Qtrue : Qfalse;
}

/* Seconds, of CLOCK_MONOTONIC, since when the present fiber of a reactor's thread runs. */
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

/* Responses leave together although nobody watches: to measure what watching costs, and nothing else. */
static VALUE loop_gather(VALUE object) {
    fl_ruby_loop_get(object)->watched = true;
    return Qnil;
}

static void keep_message(char room[64], VALUE message) {
    Check_Type(message, T_STRING);
    if (RSTRING_LEN(message) >= 64)
        rb_raise(rb_eArgError, "the message is too long");
    memcpy(room, RSTRING_PTR(message), (size_t) RSTRING_LEN(message));
}

/* A relief worker is asked for by sending `relief` to this socket, a lane worker by `lane`. What else is
 * told there, see report.h. */
static VALUE loop_ask_for_help_at(VALUE object, VALUE descriptor, VALUE relief, VALUE lane) {
    int number = NUM2INT(descriptor);
    fl_watch *watch = watch_of(object);
    keep_message(watch->request, relief);
    keep_message(watch->lane_request, lane);
    watch->relief = number;
    return Qnil;
}

/* How many reactors could take the lead now. */
static VALUE loop_standbys(VALUE object) {
    fl_watch *watch = watch_of(object);
    int count = 0;
    for (int i = 0; i < atomic_load(&watch->count); i++)
        count += i != atomic_load(&watch->leader) && !atomic_load(&watch->reactors[i].gone) &&
                 atomic_load(&watch->reactors[i].in_loop);
    return INT2NUM(count);
}

void fl_init_watch(VALUE loop) {
    thread_key = rb_internal_thread_specific_key_create();
    sign = rb_postponed_job_preregister(0, give_sign, NULL);
    rb_define_method(loop, "watch", loop_watch, 1);
    rb_define_method(loop, "enter", loop_enter, 0);
    rb_define_method(loop, "leave", loop_leave, 0);
    rb_define_method(loop, "leads?", loop_leads_p, 0);
    rb_define_method(loop, "resumed_at", loop_resumed_at, 0);
    rb_define_method(loop, "start_watch", loop_start_watch, 0);
    rb_define_method(loop, "gather", loop_gather, 0);
    rb_define_method(loop, "retire", loop_retire, 0);
    rb_define_method(loop, "lane?", loop_lane_p, 0);
    rb_define_method(loop, "ask_for_help_at", loop_ask_for_help_at, 3);
    rb_define_method(loop, "standbys", loop_standbys, 0);
}
