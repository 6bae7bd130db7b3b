/* What the files of the binding share: the Ruby side of the core. Only these files include ruby.h.
 * VALUEs live here only, marked by the objects that hold them. All of it runs with the GVL. */
#ifndef FAIRLEAD_H
#define FAIRLEAD_H

#include "loop.h"
#include "watch.h"
#include <pthread.h>
#include <ruby.h>
#include <ruby/encoding.h>

extern VALUE fl_mFairlead;

/* Raises the Ruby exception for a status that is not FL_OK; `errno` counts with FL_SYSTEM. */
NORETURN(void fl_raise(fl_status status));

/* The loop's lock, for a thread that has the GVL: gives the GVL up rather than wait with it. Between the two calls no
 * Ruby is called and nothing is raised. */
void fl_hold(fl_loop *loop);
static inline void fl_let_go(fl_loop *loop) {
    pthread_mutex_unlock(&loop->lock);
}

/* A reactor's loop as a Ruby object. `templates` holds one env Hash for each listener, `callbacks` none: the loop calls
 * no Ruby. */
typedef struct fl_ruby_loop {
    fl_loop *loop;
    pthread_t driver; /* the thread that turns it */
    fl_watch *watch; /* NULL: nobody watches, and whoever asks leads */
    VALUE templates;
    VALUE teller; /* is given what stalls; nil: nobody */
    VALUE router; /* is called at the end of requests whose route is remembered; nil: nobody */
    struct {
        VALUE thread, fiber; /* the fiber that runs, or ran last */
    } reactors[FL_MOST_REACTORS];
    struct fl_ruby_loop *next_open;
} fl_ruby_loop;

fl_loop *fl_ruby_loop_get(VALUE self);
fl_ruby_loop *fl_ruby_loop_struct(VALUE self);

/* A taken request as a Ruby object. `exchange` is NULL once it has been answered. */
typedef struct fl_ruby_request {
    fl_exchange *exchange;
    VALUE loop, env, finished;
    uint64_t id, first_byte_at, started_at;
    uint64_t bytes_sent;
    int code;
    bool hijacked; /* the app has the socket */
    bool timed_out;
    bool whole; /* its body had come as it was taken */
} fl_ruby_request;

extern const rb_data_type_t fl_request_type;

static inline fl_ruby_request *fl_ruby_request_get(VALUE self) {
    return rb_check_typeddata(self, &fl_request_type);
}

/* The exchange of a request that is not over yet; raises otherwise. */
fl_exchange *fl_exchange_get(VALUE self);

/* environment.c: the env of a request that has just been taken, beginning as a copy of its listener's `template`; `whole`:
 * its body has come. All that it needs of the exchange is copied. */
VALUE fl_environment_build(fl_exchange *exchange, VALUE template, VALUE request, VALUE finished, bool whole);
/* The fields behind a chunked body that has come whole, by lower-case name. */
VALUE fl_environment_trailers(const fl_exchange *exchange);
VALUE fl_environment_address(const fl_client *client);
void fl_init_environment(void);
/* request.c: the oldest ready request with its env, or nil */
VALUE fl_ruby_loop_take(VALUE self);
/* Likewise: what was refused since, each as [line, address, status, reason, duration in seconds]. */
VALUE fl_ruby_loop_refusals(VALUE self);
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
    VALUE *home; /* the fiber of the scheduler, kept alive and in place until the reactor leaves. On the heap: a forked
                  * process still looks there, when the thread has no memory any more */
    fl_run *run; /* of the fiber that runs */
    bool run_borrowed; /* it serves not itself, but works for a request of another */
} fl_own_thread;
extern __thread fl_own_thread fl_own;
bool fl_own_reactor_leads(const fl_ruby_loop *loop);
/* The next request for the calling thread's reactor, by what it is there for. With the loop's lock. */
fl_exchange *fl_own_take(fl_ruby_loop *ours);
/* What the calling fiber runs, so that it can be told what a stall is due to. fl_prepare_to_run comes first, without the
 * loop's lock; fl_runs has it. */
void fl_prepare_to_run(void);
void fl_runs(fl_exchange *exchange);
void fl_runs_none(void);
/* Whether the request of that id, which the calling fiber runs, has stalled, so that its route is remembered. */
bool fl_has_been_noted(uint64_t id);
/* stalls.c: takes the backtrace that is wanted of the calling thread. */
void fl_capture_stall(void);
void fl_init_stalls(VALUE loop_class);
/* A String that shows what a client has sent: see core/escape.h. */
VALUE fl_ruby_escaped(const char *bytes, long size);
void fl_forget_stalls(const fl_ruby_loop *loop);
/* shared_page.c */
void fl_init_shared_page(void);
fl_shared_page *fl_ruby_shared_page_get(VALUE self);
/* mysql.c */
void fl_init_mysql(void);

#endif
