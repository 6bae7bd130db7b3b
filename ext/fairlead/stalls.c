/* Fairlead::Loop: the stalls that the watch thread records. The reporter's thread takes a backtrace while the stalled thread is without
 * the GVL; otherwise the stalled thread takes it itself, as soon as Ruby lets it. */
#include "base/escape.h"
#include "base/route.h"
#include "fairlead.h"

#include <ruby/debug.h>

static fl_ruby_loop *newest; /* the loop of the newest reporter, which also takes backtraces of threads that are no reactors */
static ID id_capture;

/* Calls reporter.capture(number, began, asked, wanted, thread, fiber), if the stall goes on. Ruby may close the loop meanwhile. */
static void capture(fl_ruby_loop *self, int number, VALUE thread, VALUE fiber) {
    fl_watch *watch = self->watch;
    fl_stall_record *record = &watch->stalls[number];
    if (fl_stall_is_long(record) && fl_stall_goes_on(watch, number))
        rb_funcall(self->reporter, id_capture, 6, INT2NUM(number), ULL2NUM(atomic_load(&record->began)),
                   ULL2NUM(atomic_load(&record->asked)), INT2NUM(atomic_load(&record->wanted)), thread, fiber);
}

static VALUE capture_own(VALUE unused) {
    fl_ruby_loop *self;
    for (int i = 0; (self = fl_own.loop != NULL ? fl_own.loop : newest) != NULL && self->watch != NULL; i++) {
        if (NIL_P(self->reporter) || i >= atomic_load(&self->watch->count))
            break;
        bool foreign = atomic_load(&self->watch->stalls[i].foreign);
        if (fl_own.loop == NULL ? foreign : fl_own.reactor == &self->watch->reactors[i] && !foreign)
            capture(self, i, rb_thread_current(), rb_fiber_current());
    }
    return Qnil;
}

void fl_capture_stall(void) {
    int state;
    VALUE error = rb_errinfo();
    rb_protect(capture_own, Qnil, &state);
    rb_set_errinfo(error);
}

/* report_stalls(milliseconds, reporter): records longer stalls, and calls `reporter.capture` while they go on. Call it before the watch
 * thread starts. Returns a descriptor that is readable when there are stalls to report. */
static VALUE loop_report_stalls(VALUE object, VALUE limit, VALUE reporter) {
    uint64_t longest = fl_milliseconds(limit, "the length of a stall");
    fl_ruby_loop *self = fl_ruby_loop_struct(object);
    fl_watch *watch = self->watch;
    if (watch == NULL)
        rb_raise(rb_eIOError, "the loop has no watch thread");
    if (fl_notifier_open(&watch->reporter) < 0)
        rb_sys_fail("the notifier of stalls");
    rb_update_max_fd(watch->reporter.read_end);
    watch->limits.reported = longest;
    self->reporter = reporter;
    newest = self;
    return INT2NUM(watch->reporter.read_end);
}

static VALUE facts_of(int number, fl_stall_record *record, int phase) {
    uint64_t began = atomic_load(&record->began);
    VALUE facts = rb_hash_new();
#define FACT(name, value) fl_hash_set(facts, #name, value)
    FACT(number, INT2NUM(number));
    FACT(began, ULL2NUM(began));
    FACT(seconds, DBL2NUM((double) fl_stall_lasted(record) / 1e6));
    FACT(lasting, phase == FL_STALL_OVER ? Qfalse : Qtrue);
    FACT(kind, rb_str_new_cstr(fl_stall_name(fl_stall_kind(record))));
    FACT(standby, fl_stall_has_standby(record) ? Qtrue : Qfalse);
    FACT(relief, atomic_load(&record->relief) ? Qtrue : Qfalse);
    FACT(handed, ULL2NUM(atomic_load(&record->handed)));
    FACT(sibling, INT2NUM(atomic_load(&record->sibling)));
#undef FACT
    return facts;
}

/* stalls: those to report now, which are over or lasting. It also takes the backtraces that are wanted. */
static VALUE loop_stalls(VALUE object) {
    fl_ruby_loop *self = fl_ruby_loop_struct(object);
    VALUE list = rb_ary_new();
    for (int i = 0; self->watch != NULL && i < atomic_load(&self->watch->count); i++) {
        fl_stall_record *record = &self->watch->stalls[i];
        int phase = atomic_load(&record->phase);
        if (fl_stall_is_long(record) && !atomic_load(&record->foreign))
            capture(self, i, self->reactors[i].thread, self->reactors[i].fiber);
        if (self->watch == NULL)
            break;
        if (phase == FL_STALL_LASTING || phase == FL_STALL_OVER)
            rb_ary_push(list, facts_of(i, record, phase));
        if (phase == FL_STALL_OVER)
            fl_stall_reported(record);
    }
    return list;
}

/* stall(number, began): what is known so far of this stall of a reactor, and whether it is long enough to report; nil: it has been
 * reported. */
static VALUE loop_stall(VALUE object, VALUE number, VALUE began) {
    fl_ruby_loop *self = fl_ruby_loop_struct(object);
    int index = NUM2INT(number);
    uint64_t since = NUM2ULL(began);
    if (self->watch == NULL || index < 0 || index >= atomic_load(&self->watch->count))
        return Qnil;
    fl_stall_record *record = &self->watch->stalls[index];
    int phase = atomic_load(&record->phase);
    if (phase == FL_STALL_CALM || atomic_load(&record->began) != since)
        return Qnil;
    VALUE facts = facts_of(index, record, phase);
    fl_hash_set(facts, "due", fl_stall_is_due(self->watch, record) ? Qtrue : Qfalse);
    return facts;
}

/* Fairlead.route("GET", "/orders/4711"): its route as the lanes know it, "GET /orders/:id". */
static VALUE route_of(VALUE self, VALUE method, VALUE path) {
    fl_route route;
    StringValue(method);
    StringValue(path);
    fl_route_from_path(&route, RSTRING_PTR(method), (size_t) RSTRING_LEN(method), RSTRING_PTR(path),
                       (size_t) RSTRING_LEN(path));
    return rb_str_new_cstr(route.text);
}

VALUE fl_ruby_escaped(const char *bytes, long size) {
    VALUE escaped = rb_utf8_str_new(NULL, FL_ESCAPED(size));
    char *to = RSTRING_PTR(escaped);
    rb_str_set_len(escaped, fl_escape(to, bytes, (size_t) size) - to);
    return escaped;
}

/* Fairlead.escape("/gr\xc3\xb6\xc3\x9fe"): "/gr%c3%b6%c3%9fe" (see escape.h) */
static VALUE escape(VALUE self, VALUE text) {
    StringValue(text);
    VALUE escaped = fl_ruby_escaped(RSTRING_PTR(text), RSTRING_LEN(text));
    RB_GC_GUARD(text);
    return escaped;
}

void fl_forget_stalls(const fl_ruby_loop *loop) {
    if (newest == loop)
        newest = NULL;
}

void fl_init_stalls(VALUE loop) {
    id_capture = rb_intern("capture");
    rb_define_singleton_method(fl_mFairlead, "route", route_of, 2);
    rb_define_singleton_method(fl_mFairlead, "escape", escape, 1);
    rb_define_method(loop, "report_stalls", loop_report_stalls, 2);
    rb_define_method(loop, "stalls", loop_stalls, 0);
    rb_define_method(loop, "stall", loop_stall, 2);
}
