/* The binding: the Ruby side of the core. Only these files include ruby.h. VALUEs live only here, marked by the objects that hold them.
 * All functions run with the GVL, unless they say otherwise.
 * A function that may release the GVL, for a lock or by calling Ruby, must read everything again afterwards: meanwhile another thread may
 * have answered the request, so that its exchange belongs to another one, closed the loop, or shortened a String. So functions pass the
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

/* Raises the exception for a status other than FL_OK; with FL_SYSTEM by errno. */
NORETURN(void fl_raise(fl_status status));

/* Seconds as microseconds; 0 for nil. Raises ArgumentError, which names `what`, if they are negative, not a number, or more than
 * FL_MOST_SECONDS. */
enum { FL_MOST_SECONDS = 1000000000 };
uint64_t fl_microseconds(VALUE seconds, const char *what);
/* The same for milliseconds. */
uint64_t fl_milliseconds(VALUE milliseconds, const char *what);

/* A loop as a Ruby object. `templates` has one env Hash for each listener. */
typedef struct fl_ruby_loop {
    fl_loop *loop; /* NULL once it is closed */
    fl_loop *closing; /* closed, but still in use */
    int users;        /* reactors and threads without the GVL that use the loop; the last one frees it */
    pthread_t driver; /* the thread that turns it */
    fl_watch *watch; /* NULL: there is no watch thread, and every caller leads */
    VALUE templates;
    VALUE reporter; /* is given what stalls; nil: nobody */
    VALUE router; /* called at the end of requests whose route stalls; nil: none */
    struct {
        VALUE thread, fiber; /* the fiber that runs or ran last */
    } reactors[FL_MOST_REACTORS];
    struct fl_ruby_loop *next_open;
    bool forgotten; /* this process is a child of the server */
} fl_ruby_loop;

/* The loop; raises if it is closed. Valid until the GVL may have been released. */
fl_loop *fl_ruby_loop_get(VALUE self);
fl_ruby_loop *fl_ruby_loop_struct(VALUE self);
void fl_retain(fl_ruby_loop *self);
void fl_release(fl_ruby_loop *self);

/* Takes the loop's lock; raises if it is closed. Releases the GVL while it waits. Until fl_unlock, call no Ruby and raise nothing. */
fl_loop *fl_lock(fl_ruby_loop *self);
static inline void fl_unlock(fl_context *context) {
    pthread_mutex_unlock(&context->lock);
}
/* Releases the GVL until the lock of this context, which is or was that of `self`, is free. */
void fl_await_lock(fl_ruby_loop *self, fl_context *context);

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
    bool whole; /* all of its body had come when it was taken */
} fl_ruby_request;

extern const rb_data_type_t fl_request_type;

static inline fl_ruby_request *fl_ruby_request_get(VALUE self) {
    return rb_check_typeddata(self, &fl_request_type);
}

/* Holds the loop of a request: its exchange, to be let go of by fl_unlock(exchange->context). NULL: the request is over. An
 * exchange without a loop: the server has ended. Nothing is held in either case. May give up the GVL, never raises. */
fl_exchange *fl_lock_request(VALUE request);
/* The same without giving up the GVL: what was read before still holds. False: somebody else has the lock; fl_await_request
 * gives up the GVL until it may be free. */
bool fl_try_lock_request(VALUE request, fl_exchange **exchange);
void fl_await_request(VALUE request);
/* Raises if there is none, or none that is held. */
void fl_require_open(const fl_exchange *exchange);

/* environment.c: the env of a request that has just been taken, beginning as a copy of its listener's `template`; `whole`:
 * its body has come. All that it needs of the exchange is copied, without giving up the GVL. */
VALUE fl_environment_build(fl_exchange *exchange, VALUE template, VALUE request, VALUE finished, VALUE after_reply, bool whole);
/* What the rest of a body is read from, where it has not come whole. Calls Ruby. */
void fl_environment_add_input(VALUE env, VALUE request);
/* The fields behind a chunked body that has come whole, by lower-case name. */
VALUE fl_environment_trailers(const fl_exchange *exchange);
VALUE fl_environment_address(const fl_client *client);
void fl_init_environment(void);
/* request.c: the oldest ready request with its env, or nil */
VALUE fl_ruby_loop_take(VALUE self);
/* Likewise: what was refused since, each as [line, address, status, reason, duration in seconds]. */
VALUE fl_ruby_loop_rejections(VALUE self);
void fl_init_request(void);
/* response.c */
void fl_init_response(VALUE request_class);
/* watch.c */
void fl_init_watch(VALUE loop_class);
/* What the calling thread is and does. In one place: each access to such a variable may be a call. */
typedef struct fl_own_thread {
    fl_reactor *reactor; /* NULL: it is none, and all else is void */
    fl_ruby_loop *loop;
    int number; /* of the reactor */
    VALUE *scheduler_fiber; /* the fiber of the scheduler, kept alive and in place until the reactor leaves. On the heap: a forked
                  * process still looks there, when the thread has no memory any more */
    fl_run *run; /* of the fiber that runs */
    bool run_borrowed; /* it serves not itself, but works for a request of another */
} fl_own_thread;
extern __thread fl_own_thread fl_own;
bool fl_own_reactor_leads(const fl_ruby_loop *loop);
/* The next request for the calling thread's reactor, by what it is there for. With the loop's lock. */
fl_exchange *fl_own_take(fl_ruby_loop *ours);
/* fibers.c: which fiber works for which. To be called in the first fiber of a thread; may be called again. */
void fl_track_fibers(void);
void fl_init_fibers(void);
/* watch.c: the calling thread, a reactor, runs this fiber now; fl_own.run is that one's. */
void fl_reactor_switched(VALUE fiber);
/* What the calling fiber runs, so that it can be told what a stall is due to. fl_prepare_to_run comes first, without the
 * loop's lock; fl_runs has it. */
void fl_prepare_to_run(void);
void fl_runs(fl_exchange *exchange);
void fl_runs_none(void);
/* Whether the request of that id, which the calling fiber runs, has stalled, so that its route is remembered. */
bool fl_has_been_noted(uint64_t id);
/* In the child of a fork: other threads may have been at work on what is kept of those that have ended. */
void fl_forget_other_threads(void);
/* fork.c: a loop that is open, until it is freed */
void fl_track_loop(fl_ruby_loop *self);
void fl_untrack_loop(fl_ruby_loop *self);
void fl_init_fork(void);
/* stalls.c: takes the backtrace that is wanted of the calling thread. */
void fl_capture_stall(void);
void fl_init_stalls(VALUE loop_class);
/* A String that shows what a client has sent: see core/escape.h. */
VALUE fl_ruby_escaped(const char *bytes, long size);
void fl_forget_stalls(const fl_ruby_loop *loop);
/* shared_page.c */
void fl_init_shared_page(void);
fl_shared_page *fl_ruby_shared_page_get(VALUE self);

#endif
