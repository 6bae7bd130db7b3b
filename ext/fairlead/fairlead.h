/* The binding: the Ruby side of the core. Only these files include ruby.h. VALUEs live only here, marked by the objects that hold them.
 * All functions run with the GVL, unless they say otherwise.
 * A function that may release the GVL, for a lock or by calling Ruby, must read everything again afterwards: meanwhile another thread may
 * have answered the request, so that its exchange serves another one, closed the loop, or shortened a String. So functions pass the
 * Request across such a gap, never the exchange. */
#ifndef FAIRLEAD_H
#define FAIRLEAD_H

#include "base/descriptors.h"
#include "base/forwarded.h"
#include "loop/loop.h"
#include "watch/watch.h"
#include <pthread.h>
#include <ruby.h>
#include <ruby/encoding.h>

/* Sets what a hash has for a Symbol. A macro, so that each name is looked up once. */
#define fl_hash_set(hash, name, value) rb_hash_aset(hash, ID2SYM(rb_intern(name)), value)

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
    VALUE tls;        /* an Array: keeps what listeners refer to */
    VALUE reporter;   /* receives stalls; nil: none */
    VALUE router;     /* called after requests whose route has stalled; nil: none */
    VALUE observer;   /* called after requests that have been served for so many microseconds; nil: none */
    uint64_t observed_from;
    bool server_timing; /* responses say where their time went */
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
/* loop_wait.c */
void fl_init_loop_wait(VALUE loop_class);

/* A request that was taken, as a Ruby object. `exchange` is NULL once it has been answered. */
typedef struct fl_ruby_request {
    fl_exchange *exchange;
    VALUE loop, env, finished, after_reply;
    uint64_t id, first_byte_at, started_at;
    fl_run *run;         /* of the fiber that has taken it; NULL: no reactor has */
    uint64_t busy_since; /* fl_clock at the first read or write; 0: none yet */
    uint64_t bytes_sent;
    int code;
    const fl_time_account *account; /* NULL: there is none; it may be another request's by now */
    bool hijacked;                  /* the app has the socket */
    bool timed_out, stopped;
    bool long_lived; /* its response */
    bool whole; /* all of its body had been received when it was taken */
} fl_ruby_request;

extern const rb_data_type_t fl_request_type;

static inline fl_ruby_request *fl_ruby_request_get(VALUE self) {
    return rb_check_typeddata(self, &fl_request_type);
}

/* Whether the server has ended the response, since it stops. */
static inline bool fl_is_stopped(const fl_ruby_request *request) {
    return request->stopped || (request->exchange != NULL && request->exchange->timing.stopped);
}

/* fairlead.c: as fl_check, for a status that the request's exchange has returned. */
void fl_check_request(VALUE request, fl_status status);

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
/* response.c: the exchange, for staging its response: the GVL is enough for that. Valid until Ruby is called. */
fl_exchange *fl_staged(VALUE request);
/* The exchange of an open request, with the loop's lock; raises otherwise. */
fl_exchange *fl_lock_open_request(VALUE request);
/* Ends a request: `end` is fl_exchange_finish or fl_exchange_abandon. The caller holds the loop's lock, if the exchange has a loop. */
void fl_end_request(VALUE request, void (*end)(fl_exchange *));
/* Wakes the driver, if this is another thread: it sends what was staged at its next turn, and there may be room for the next request. */
void fl_wake_driver(VALUE request);
void fl_init_response(VALUE request_class);
/* response_stream.c */
void fl_init_response_stream(VALUE request_class);

/* environment.c: the env of a request that has just been taken, which begins as a copy of its listener's `template`. `whole`: its body
 * has been received. Copies what it needs of the exchange without releasing the GVL. */
VALUE fl_environment_build(fl_exchange *exchange, VALUE template, VALUE request, VALUE finished, VALUE after_reply, bool whole);
/* Adds the input that reads the rest of an incomplete body. Calls Ruby. */
void fl_environment_add_input(VALUE env, VALUE request);
VALUE fl_environment_address(const fl_client *client);
void fl_init_environment(void);

/* headers.c: the keys of known headers in an env */
extern VALUE fl_header_keys[FL_HEADER_IDS];
/* Adds the headers of a request. `decoded`: the body is no longer chunked. Returns whether the client speaks TLS, as anybody says. */
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
/* The clock of the calling thread, a reactor. */
static inline fl_thread_clock *fl_own_clock(void) {
    return &atomic_load_explicit(&fl_own.reactor->thread, memory_order_relaxed)->clock;
}
/* The calling thread, a reactor, has switched to this fiber, whose run is fl_own.run, from a fiber with the run `before`. */
void fl_reactor_switched(VALUE fiber, fl_run *before);
/* Record which request the calling fiber runs, so that a stall can name it. fl_begin_run needs the loop's lock; fl_prepare_run must be
 * called before, without it. */
void fl_prepare_run(void);
/* In the child of a fork: its parent goes on using the runs. */
void fl_forget_runs(void);
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

/* tls.c: valid as long as the object. Raises if there is none. */
fl_tls *fl_ruby_tls_get(VALUE self);
void fl_init_tls(void);

/* files.c */
void fl_init_files(VALUE loop_class);

/* shared_page.c */
fl_shared_page *fl_ruby_shared_page_get(VALUE self);
void fl_init_shared_page(void);

/* request_times.c: where the time of requests went */
/* Names the request's route by the app's controller and action, if its router has found them. Call it without the loop's lock. */
void fl_name_route(VALUE request);
/* Seconds by kind, without those that are 0. */
VALUE fl_times_by_kind(const uint64_t microseconds[FL_KINDS]);
VALUE fl_kind_name(fl_kind kind);
const char *fl_kind_text(fl_kind kind);
/* Defines the numbers of the kinds as constants. */
void fl_define_kinds(VALUE module);
void fl_init_request_times(VALUE page_class);
/* How many requests it has. */
int64_t fl_histogram_count(const fl_histogram *histogram);
/* Calls for each route of this page that has had requests; `slot`: only those of one, or nil. */
void fl_each_timed_route(VALUE page, VALUE slot, void (*call)(VALUE name, const fl_route_times *times, void *data), void *data);
/* route_samples.c */
void fl_init_route_samples(VALUE page_class);

/* time_accounts.c: Fairlead::RequestTimes */
/* Adds a Server-Timing header to the head that has begun, if the loop's responses have one. */
void fl_add_server_timing(VALUE request);
/* Whether the loop's observer is called after this request. */
bool fl_is_observed(const fl_ruby_request *request, const fl_ruby_loop *loop);
void fl_init_time_accounts(VALUE loop_class);

#endif
