/* The binding: the Ruby side of the core. Only these files include ruby.h. VALUEs live only here, marked by the objects that hold them.
 * All functions run with the GVL, unless they say otherwise.
 * A function that may release the GVL, for a lock or by calling Ruby, must read everything again afterwards: meanwhile another thread may
 * have answered the request, so that its exchange serves another one, closed the loop, or shortened a String. So functions pass the
 * Request across such a gap, never the exchange. */
#ifndef FAIRLEAD_H
#define FAIRLEAD_H

#include "base/descriptors.h"
#include "loop/loop.h"
#include "watch/watch.h"
#include <pthread.h>
#include <ruby.h>
#include <ruby/encoding.h>

extern VALUE fl_mFairlead;

/* fairlead.c: raises the exception for a status other than FL_OK; for FL_SYSTEM that of errno. */
NORETURN(void fl_raise(fl_status status));
static inline void fl_check(fl_status status) {
    if (status != FL_OK)
        fl_raise(status);
}

/* Seconds as microseconds; 0 for nil. Raises ArgumentError, which names `what`, if they are negative, not a number, or more than
 * FL_MAX_SECONDS. */
enum { FL_MAX_SECONDS = 1000000000 };
uint64_t fl_microseconds(VALUE seconds, const char *what);
/* The same for milliseconds. */
uint64_t fl_milliseconds(VALUE milliseconds, const char *what);
/* The value for a name in a Hash of options. Raises KeyError if it is missing. */
VALUE fl_option(VALUE options, const char *name);
/* An interned String that is never freed. */
VALUE fl_kept_string(const char *text);

/* A loop as a Ruby object. */
typedef struct fl_ruby_loop {
    fl_loop *loop;    /* NULL once it is closed */
    fl_loop *closing; /* closed, but still in use */
    int users;        /* reactors and threads without the GVL that use the loop; the last one frees it */
    pthread_t driver; /* the thread that turns it */
    fl_watch *watch;  /* NULL: no watch thread; every caller leads */
    VALUE templates;  /* an Array with an env Hash for each listener */
    VALUE reporter;   /* receives stalls; nil: none */
    VALUE router;     /* called after requests whose route has stalled; nil: none */
    struct {
        VALUE thread, fiber; /* the fiber that runs, or ran last */
    } reactors[FL_MAX_REACTORS];
    struct fl_ruby_loop *next_open;
    bool forgotten; /* this process is a fork of the server */
} fl_ruby_loop;

/* loop.c: the loop; raises if it is closed. Valid until the GVL may have been released. */
fl_loop *fl_ruby_loop_get(VALUE self);
fl_ruby_loop *fl_ruby_loop_struct(VALUE self);
void fl_retain(fl_ruby_loop *self);
void fl_release(fl_ruby_loop *self);

/* Takes the loop's lock; raises if it is closed. Releases the GVL while it waits. Until fl_unlock, the caller must not call Ruby or
 * raise. */
fl_loop *fl_lock(fl_ruby_loop *self);
static inline void fl_unlock(fl_context *context) {
    pthread_mutex_unlock(&context->lock);
}
/* Releases the GVL until the lock of this context, which is or was that of `self`, is free. */
void fl_await_lock(fl_ruby_loop *self, fl_context *context);
VALUE fl_init_loop(void);

/* A request that was taken, as a Ruby object. `exchange` is NULL once it has been answered. */
typedef struct fl_ruby_request {
    fl_exchange *exchange;
    VALUE loop, env, finished, after_reply;
    uint64_t id, first_byte_at, started_at;
    uint64_t busy_since; /* fl_clock at the first read or write; 0: none yet */
    uint64_t bytes_sent;
    int code;
    bool hijacked; /* the app has the socket */
    bool timed_out;
    bool whole; /* all of its body had been received when it was taken */
} fl_ruby_request;

extern const rb_data_type_t fl_request_type;

static inline fl_ruby_request *fl_ruby_request_get(VALUE self) {
    return rb_check_typeddata(self, &fl_request_type);
}

/* request.c: takes the lock of the request's loop; the caller releases it with fl_unlock(exchange->context). Returns NULL if the request
 * is over, or an exchange without a context if the server has ended: then no lock is held. May release the GVL, never raises. */
fl_exchange *fl_lock_request(VALUE request);
/* The same without releasing the GVL, so that what was read before still holds. False: another thread has the lock; fl_await_request
 * releases the GVL until it may be free. */
bool fl_try_lock_request(VALUE request, fl_exchange **exchange);
void fl_await_request(VALUE request);
/* Raises if there is no exchange, or it has no context. */
void fl_require_open(const fl_exchange *exchange);
/* The oldest ready request with its env; nil: none. */
VALUE fl_ruby_loop_take(VALUE self);
/* The requests that were rejected since the last call, each as [line, address, status, reason, duration in seconds]. */
VALUE fl_ruby_loop_rejections(VALUE self);
void fl_init_request(void);
/* response.c */
void fl_init_response(VALUE request_class);

/* environment.c: the env of a request that has just been taken, which begins as a copy of its listener's `template`. `whole`: its body
 * has been received. Copies what it needs of the exchange without releasing the GVL. */
VALUE fl_environment_build(fl_exchange *exchange, VALUE template, VALUE request, VALUE finished, VALUE after_reply, bool whole);
/* Adds the input that reads the rest of an incomplete body. Calls Ruby. */
void fl_environment_add_input(VALUE env, VALUE request);
VALUE fl_environment_address(const fl_client *client);
void fl_init_environment(void);

/* headers.c: the keys of known headers in an env */
extern VALUE fl_header_keys[FL_HEADER_IDS];
/* Adds the headers of a request. `decoded`: the body is no longer chunked. Returns whether the client speaks TLS, as a proxy says. */
bool fl_headers_add(VALUE env, const char *bytes, const fl_head *head, bool decoded);
/* The fields behind a chunked body that has been received, by lower-case name. */
VALUE fl_headers_trailers(const fl_exchange *exchange);
void fl_init_headers(void);

/* watch.c: what the calling thread is and does. One variable: each access to a thread-local may be a call. */
typedef struct fl_own_thread {
    fl_reactor *reactor; /* NULL: it is none, and the other fields are void */
    fl_ruby_loop *loop;
    int number; /* of the reactor */
    /* The scheduler's fiber, kept alive and in place until the reactor unregisters. On the heap: a forked process still looks there
     * when the thread's memory is gone. */
    VALUE *scheduler_fiber;
    fl_run *run;       /* of the running fiber */
    bool run_borrowed; /* the fiber does not serve, but works for the request of another */
} fl_own_thread;
extern __thread fl_own_thread fl_own;
bool fl_own_reactor_leads(const fl_ruby_loop *loop);
/* The next request for the calling thread's reactor, from the queue or its lane. The caller holds the loop's lock. */
fl_exchange *fl_own_take(fl_ruby_loop *ours);
/* The calling thread, a reactor, has switched to this fiber, whose run is fl_own.run. */
void fl_reactor_switched(VALUE fiber);
/* Record which request the calling fiber runs, so that a stall can name it. fl_begin_run needs the loop's lock; fl_prepare_run must be
 * called before, without it. */
void fl_prepare_run(void);
void fl_begin_run(fl_exchange *exchange);
void fl_end_run(void);
/* Whether a stall of this request, which the calling fiber runs, was recorded for its route. */
bool fl_stall_was_recorded(uint64_t id);
/* In the child of a fork: drops the entries of ended threads, which another thread may have been changing. */
void fl_forget_other_threads(void);
void fl_init_watch(VALUE loop_class);

/* fibers.c: records which fiber works for which. Call it in the first fiber of a thread; may be called again. */
void fl_track_fibers(void);
void fl_init_fibers(void);

/* fork.c: the list of open loops */
void fl_track_loop(fl_ruby_loop *self);
void fl_untrack_loop(fl_ruby_loop *self);
void fl_init_fork(void);

/* stalls.c: takes the backtrace that is wanted of the calling thread. */
void fl_capture_stall(void);
void fl_forget_stalls(const fl_ruby_loop *loop);
/* A String that shows what a client has sent: see core/base/escape.h. */
VALUE fl_ruby_escaped(const char *bytes, long size);
void fl_init_stalls(VALUE loop_class);

/* shared_page.c */
fl_shared_page *fl_ruby_shared_page_get(VALUE self);
void fl_init_shared_page(void);

#endif
