/* Fairlead::Loop: how reactors turn it, and wait in it without the GVL. */
#include "fairlead.h"
#include <math.h>
#include <ruby/thread.h>

static void *shake_hands_without_gvl(void *data) {
    fl_loop *loop = data;
    pthread_mutex_lock(&loop->context.lock);
    fl_loop_shake_hands(loop);
    pthread_mutex_unlock(&loop->context.lock);
    return NULL;
}

static VALUE loop_turn(VALUE object) {
    fl_ruby_loop *self = fl_ruby_loop_struct(object);
    fl_end_run();
    fl_loop *loop = fl_lock(self);
    self->driver = pthread_self();
    uint32_t takeable = fl_loop_turn(loop);
    bool shakes_hands = fl_loop_may_shake_hands(loop);
    fl_unlock(&loop->context);
    if (shakes_hands) {
        fl_retain(self);
        rb_thread_call_without_gvl2(shake_hands_without_gvl, loop, NULL, NULL);
        fl_release(self);
        takeable = fl_loop_takeable(fl_ruby_loop_get(object));
    }
    return UINT2NUM(takeable);
}

struct wait {
    fl_ruby_loop *self;
    fl_loop *loop;
    int64_t microseconds;
    bool leads, woken;
};

/* Whether the calling reactor leads, and so may wait in the core. Releases the lock: no thread could pass on the lead while it is held. */
static bool begin_wait(struct wait *wait) {
    fl_loop *loop = wait->loop;
    wait->leads = fl_own_reactor_leads(wait->self);
    if (wait->leads) {
        fl_loop_update_timer(loop); /* another reactor may have taken a request from a lane meanwhile */
        atomic_store(&loop->driver.waiting, true);
        if (loop->siblings.slot != NULL)
            fl_slot_set(loop->siblings.slot, FL_SLOT_idle, loop->ready.first == NULL);
    }
    pthread_mutex_unlock(&loop->context.lock);
    return wait->leads;
}

static void *wait_without_gvl(void *data) {
    struct wait *wait = data;
    pthread_mutex_lock(&wait->loop->context.lock);
    if (begin_wait(wait))
        wait->woken = fl_loop_wait(wait->loop, wait->microseconds);
    return NULL;
}

static void unblock_wait(void *data) {
    fl_loop_wake(((struct wait *) data)->loop);
}

/* Interrupts of the thread are raised here. */
static VALUE wait_interruptibly(VALUE data) {
    rb_thread_call_without_gvl(wait_without_gvl, (void *) data, unblock_wait, (void *) data);
    return Qnil;
}

static VALUE end_wait(VALUE data) {
    fl_release(((struct wait *) data)->self);
    return Qnil;
}

/* Negative: without limit, for nil and for times too long for a timer. */
static int64_t time_to_wait(VALUE seconds) {
    double value = NIL_P(seconds) ? HUGE_VAL : NUM2DBL(seconds);
    return value >= FL_MAX_SECONDS ? -1 : value > 0 ? (int64_t) (value * 1e6) : 0;
}

/* wait(seconds): whether anything happened; nil: the calling reactor does not lead, and must wait elsewhere. */
static VALUE loop_wait(VALUE object, VALUE seconds) {
    int64_t microseconds = time_to_wait(seconds);
    struct wait wait = {.self = fl_ruby_loop_struct(object), .loop = fl_ruby_loop_get(object), .microseconds = microseconds};
    if (wait.microseconds != 0 && fl_loop_may_spin(wait.loop) && pthread_mutex_trylock(&wait.loop->context.lock) == 0 &&
        begin_wait(&wait) && fl_loop_spin(wait.loop))
        return Qtrue;
    fl_retain(wait.self);
    rb_ensure(wait_interruptibly, (VALUE) &wait, end_wait, (VALUE) &wait);
    return !wait.leads ? Qnil : wait.woken ? Qtrue : Qfalse;
}

/* prepare_wait(busy): whether streams wait for their turn */
static VALUE loop_prepare_wait(VALUE object, VALUE busy) {
    fl_ruby_loop *self = fl_ruby_loop_struct(object);
    fl_loop *loop = fl_lock(self);
    fl_loop_prepare_wait(loop, fl_own_reactor_leads(self), RTEST(busy));
    if (fl_own.reactor != NULL)
        fl_thread_polls(fl_own_clock(), loop->context.now);
    fl_unlock(&loop->context);
    return Qnil;
}

static VALUE loop_wake(VALUE object) {
    fl_ruby_loop *self = fl_ruby_loop_struct(object);
    if (self->loop != NULL)
        fl_loop_wake(self->loop);
    return Qnil;
}

static VALUE loop_notify_driver(VALUE object) {
    fl_ruby_loop *self = fl_ruby_loop_struct(object);
    if (self->loop != NULL)
        fl_loop_notify_driver(self->loop);
    return Qnil;
}

void fl_init_loop_wait(VALUE loop) {
    rb_define_method(loop, "turn", loop_turn, 0);
    rb_define_method(loop, "wait", loop_wait, 1);
    rb_define_method(loop, "prepare_wait", loop_prepare_wait, 1);
    rb_define_method(loop, "wake", loop_wake, 0);
    rb_define_method(loop, "notify_driver", loop_notify_driver, 0);
}
