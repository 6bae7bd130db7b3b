/* Fairlead, Fairlead::Platform, and what all files of the binding use. */
#include "base/crash.h"
#include "fairlead.h"

#include <ruby/io.h>

VALUE fl_mFairlead;
static VALUE eClosed, eInvalid, eStopping;

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

void fl_check_request(VALUE request, fl_status status) {
    if (status == FL_CLOSED && fl_is_stopped(fl_ruby_request_get(request)))
        rb_raise(eStopping, "the server stops, and has ended the response");
    fl_check(status);
}

uint64_t fl_microseconds(VALUE seconds, const char *what) {
    if (NIL_P(seconds))
        return 0;
    double value = NUM2DBL(seconds);
    if (!(value >= 0 && value <= FL_MAX_SECONDS))
        rb_raise(rb_eArgError, "%s must be between 0 and %d seconds, not %" PRIsVALUE, what, FL_MAX_SECONDS, seconds);
    return (uint64_t) (value * 1e6);
}

uint64_t fl_milliseconds(VALUE milliseconds, const char *what) {
    return fl_microseconds(DBL2NUM(NUM2DBL(milliseconds) / 1e3), what);
}

VALUE fl_option(VALUE options, const char *name) {
    return rb_hash_fetch(options, ID2SYM(rb_intern(name)));
}

VALUE fl_kept_string(const char *text) {
    VALUE string = rb_interned_str_cstr(text);
    rb_gc_register_mark_object(string);
    return string;
}

/* Platform.process_descriptor(pid): a descriptor that becomes readable when that child ends; nil: the system has none. */
static VALUE process_descriptor(VALUE self, VALUE pid) {
    int descriptor = fl_process_descriptor(NUM2INT(pid));
    if (descriptor < 0)
        return Qnil;
    rb_update_max_fd(descriptor);
    return INT2NUM(descriptor);
}

/* Platform.write_end(io): the IO that io.close_write closes; nil: the IO is closed, or would still be read. */
static VALUE write_end(VALUE self, VALUE io) {
    if (RFILE(io)->fptr == NULL || RTEST(rb_io_closed_p(io)))
        return Qnil;
    VALUE writer = rb_io_get_write_io(io);
    return writer == io && (rb_io_mode(io) & FMODE_READABLE) ? Qnil : writer;
}

/* Platform.report_crashes: from now on a signal like SIGABRT, for which Ruby prints nothing, has the C backtrace printed on stderr. */
static VALUE report_crashes(VALUE self) {
    fl_crash_install();
    return Qnil;
}

static void init_platform(void) {
    static const char *const pollers[] = {[FL_EPOLL] = "epoll", [FL_KQUEUE] = "kqueue"};
    VALUE platform = rb_define_module_under(fl_mFairlead, "Platform");
    rb_define_const(platform, "POLLER", rb_obj_freeze(rb_str_new_cstr(pollers[FL_POLLER])));
    rb_define_const(platform, "PACKETS", INT2NUM(FL_PACKETS));
    rb_define_singleton_method(platform, "process_descriptor", process_descriptor, 1);
    rb_define_singleton_method(platform, "write_end", write_end, 1);
    rb_define_singleton_method(platform, "report_crashes", report_crashes, 0);
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
    /* No Fairlead::Error, these two, like RequestTimeout: ActiveRecord would take another error, raised while it waits, for the database's. */
    eClosed = rb_define_class_under(fl_mFairlead, "ClientGone", rb_eRuntimeError);
    eStopping = rb_define_class_under(fl_mFairlead, "ServerStopping", rb_eRuntimeError);
    eInvalid = rb_define_class_under(fl_mFairlead, "InvalidResponse", error);
    rb_gc_register_mark_object(eClosed);
    rb_gc_register_mark_object(eStopping);
    rb_gc_register_mark_object(eInvalid);
    init_platform();
    VALUE loop = fl_init_loop();
    fl_init_headers();
    fl_init_environment();
    fl_init_request();
    fl_init_fibers();
    fl_init_watch(loop);
    fl_init_fork();
    fl_init_stalls(loop);
    fl_init_files(loop);
    fl_init_shared_page();
    fl_init_tls();
    fl_init_time_accounts(loop);
}
