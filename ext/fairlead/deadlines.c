/* How a request whose time is up is told while its thread does not come back to its loop: what is raised in a thread is
 * taken by the fiber that it runs, thus it is raised only where that is bound to be the request's own. */
#include "fairlead.h"

#include <ruby/thread.h>
#include <stdlib.h>
#include <time.h>

static ID id_error_for, id_put_off, id_raise;

/* interrupt(id, fiber, error): raises in the thread of ours in which this request's very fiber is in a call that has let go
 * of the GVL, and has been for as long as counts as blocking; answers whether there is one. Whoever asks has the GVL:
 * until that thread gets it back it runs nothing. (Whether it lets itself be interrupted cannot be seen from here.) */
static VALUE loop_interrupt(VALUE object, VALUE id, VALUE fiber, VALUE error) {
    fl_ruby_loop *self = fl_ruby_loop_struct(object);
    for (int i = 0; self->watch != NULL && i < atomic_load(&self->watch->count); i++) {
        const fl_reactor *reactor = &self->watch->reactors[i];
        const fl_run *run = atomic_load(&reactor->run);
        if (self->reactors[i].fiber != fiber || atomic_load(&reactor->home) || run == NULL || run->id != NUM2ULL(id) ||
            atomic_load(&reactor->thread->gvl) != FL_GVL_RELEASED ||
            fl_clock() <= atomic_load(&reactor->thread->gvl_since) + self->watch->limits.blocked)
            continue;
        rb_funcall(self->reactors[i].thread, id_raise, 1, error);
        return Qtrue;
    }
    return Qfalse;
}

/* deadlines = object: its `error_for(id)` is called in a request whose time is up, as it returns from a call that held the
 * GVL; answers what is to be raised there, or nil. `put_off(id)`: that could not be done yet. */
static VALUE loop_set_deadlines(VALUE object, VALUE deadlines) {
    return fl_ruby_loop_struct(object)->deadlines = deadlines;
}

/* Between the thread that is to be told, and the one that tells it; freed by who comes last. */
typedef struct telling {
    VALUE thread, error; /* on the stack of the former too */
    int holders;         /* of the two; as all else, with the GVL */
    bool told;
} telling;

enum { PATIENCE = 500 }; /* naps of a millisecond */

static VALUE let_go(VALUE data) {
    telling *telling = (void *) data;
    if (--telling->holders == 0)
        free(telling);
    return Qnil;
}

static void *nap(void *called) {
    struct timespec time = {.tv_nsec = 1000000};
    nanosleep(&time, NULL);
    return called;
}

static VALUE raise_unless_left(VALUE data) {
    telling *telling = (void *) data;
    if (telling->holders == 1)
        return Qnil;
    telling->told = true;
    return rb_funcall(telling->thread, id_raise, 1, telling->error);
}

static VALUE tell(void *telling) {
    return rb_ensure(raise_unless_left, (VALUE) telling, let_go, (VALUE) telling);
}

/* What interrupts a nap is never taken here: what another thread has raised would be lost. */
static VALUE wait_until_told(VALUE data) {
    telling *telling = (void *) data;
    rb_thread_create(tell, telling);
    telling->holders++;
    for (int i = 0; i < PATIENCE; i++) {
        bool napped = rb_thread_call_without_gvl2(nap, telling, RUBY_UBF_IO, NULL) != NULL;
        if (telling->told && rb_thread_interrupted(telling->thread))
            return Qtrue;
        if (!napped || telling->holders == 1)
            return Qfalse;
    }
    return Qfalse;
}

/* What a postponed job raises is lost; what another thread raises meanwhile is taken when the job is over, before anything
 * else runs. Once it has been raised, nothing may be called here that looks for it; nor is a nap taken, then. Answers
 * whether it has been. */
static VALUE have_it_told(VALUE error) {
    telling *telling = calloc(1, sizeof *telling);
    if (telling == NULL)
        return Qfalse;
    telling->thread = rb_thread_current();
    telling->error = error;
    telling->holders = 1;
    VALUE told = rb_ensure(wait_until_told, (VALUE) telling, let_go, (VALUE) telling);
    RB_GC_GUARD(error);
    return told;
}

static VALUE ask_and_tell(VALUE id) {
    VALUE error = rb_funcall(fl_own.loop->deadlines, id_error_for, 1, id);
    return NIL_P(error) ? Qtrue : have_it_told(error);
}

static VALUE put_off(VALUE id) {
    return rb_funcall(fl_own.loop->deadlines, id_put_off, 1, id);
}

bool fl_tell_overdue(uint64_t id) {
    int failed, state;
    VALUE before = rb_errinfo();
    if (NIL_P(fl_own.loop->deadlines))
        return true;
    VALUE told = rb_protect(ask_and_tell, ULL2NUM(id), &failed);
    bool done = failed == 0 && told == Qtrue;
    if (!done)
        rb_protect(put_off, ULL2NUM(id), &state);
    rb_set_errinfo(before);
    return done;
}

void fl_init_deadlines(VALUE loop) {
    id_error_for = rb_intern("error_for");
    id_put_off = rb_intern("put_off");
    id_raise = rb_intern("raise");
    rb_define_method(loop, "interrupt", loop_interrupt, 3);
    rb_define_method(loop, "deadlines=", loop_set_deadlines, 1);
}
