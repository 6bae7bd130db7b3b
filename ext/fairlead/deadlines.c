/* How a request whose time is up is told while its thread does not come back to its loop: what is raised in a thread is
 * taken by the fiber that it runs, thus it is raised only where that is bound to be the request's own. */
#include "fairlead.h"

#include <ruby/thread.h>
#include <stdlib.h>
#include <time.h>

static ID id_error_for, id_raise;

/* The thread of ours that is in a call of this very fiber that has let go of the GVL, and has been for as long as counts
 * as blocking; nil: there is none. Whoever asks has the GVL: until that thread gets it back it runs nothing. */
static VALUE loop_blocked_by(VALUE object, VALUE fiber) {
    fl_ruby_loop *self = fl_ruby_loop_struct(object);
    for (int i = 0; self->watch != NULL && i < atomic_load(&self->watch->count); i++) {
        const fl_reactor *reactor = &self->watch->reactors[i];
        if (self->reactors[i].fiber == fiber && !atomic_load(&reactor->home) &&
            atomic_load(&reactor->thread->gvl) == FL_GVL_RELEASED &&
            fl_clock() > atomic_load(&reactor->thread->gvl_since) + self->watch->limits.blocked)
            return self->reactors[i].thread;
    }
    return Qnil;
}

/* deadlines = object: its `error_for(id)` is called in a request whose time is up, as it returns from a call that held the
 * GVL; answers what is to be raised there, or nil. */
static VALUE loop_set_deadlines(VALUE object, VALUE deadlines) {
    return fl_ruby_loop_struct(object)->deadlines = deadlines;
}

/* Between the thread that is to be told, and the one that tells it; freed by who comes last. */
typedef struct telling {
    VALUE thread, error; /* on the stack of the former too */
    enum { ASKED, RAISING, OVER, LEFT } state; /* with the GVL */
} telling;

enum { PATIENCE = 500 }; /* naps of a millisecond */

static VALUE raise_error(VALUE data) {
    telling *telling = (void *) data;
    telling->state = RAISING;
    return rb_funcall(telling->thread, id_raise, 1, telling->error);
}

static VALUE end_telling(VALUE data) {
    telling *telling = (void *) data;
    if (telling->state == LEFT)
        free(telling);
    else
        telling->state = OVER;
    return Qnil;
}

static VALUE tell(void *data) {
    telling *telling = data;
    return telling->state == LEFT ? end_telling((VALUE) telling)
                                  : rb_ensure(raise_error, (VALUE) telling, end_telling, (VALUE) telling);
}

static void *nap(void *called) {
    struct timespec time = {.tv_nsec = 1000000};
    nanosleep(&time, NULL);
    return called;
}

/* What a postponed job raises is lost; what another thread raises meanwhile is taken when the job is over, before anything
 * else runs. Once it has been raised, nothing may be called here that looks for it; nor is a nap taken, then. */
static VALUE have_it_told(VALUE error) {
    telling *telling = malloc(sizeof *telling);
    if (telling == NULL)
        return Qnil;
    telling->thread = rb_thread_current();
    telling->error = error;
    telling->state = ASKED;
    rb_thread_create(tell, telling);
    for (int i = 0; telling->state != OVER && i < PATIENCE; i++)
        if (rb_thread_call_without_gvl2(nap, telling, RUBY_UBF_IO, NULL) == NULL)
            break;
    if (telling->state == OVER)
        free(telling);
    else
        telling->state = LEFT;
    RB_GC_GUARD(error);
    return Qnil;
}

static VALUE ask_and_tell(VALUE id) {
    VALUE error = rb_funcall(fl_own_loop->deadlines, id_error_for, 1, id);
    return NIL_P(error) ? Qnil : have_it_told(error);
}

void fl_tell_overdue(uint64_t id) {
    int state;
    VALUE error = rb_errinfo();
    if (NIL_P(fl_own_loop->deadlines))
        return;
    rb_protect(ask_and_tell, ULL2NUM(id), &state);
    rb_set_errinfo(error);
}

void fl_init_deadlines(VALUE loop) {
    id_error_for = rb_intern("error_for");
    id_raise = rb_intern("raise");
    rb_define_method(loop, "blocked_by", loop_blocked_by, 1);
    rb_define_method(loop, "deadlines=", loop_set_deadlines, 1);
}
