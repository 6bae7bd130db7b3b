/* Fairlead::FiberOwner: which fiber works for which, so which request it runs and whose state it shares.
 *
 * A request runs in a serving fiber, and a child task in a fiber of its own; each has its own isolated state and database connections.
 * Any other fiber (of Enumerator#next, Fiber.new, GraphQL::Dataloader or a streamed template) works for the fiber that resumed it, and
 * shares its state, as all fibers of a thread do elsewhere. Outside of requests and tasks, the owner is the thread's first fiber. */
#include "fairlead.h"

#include <ruby/debug.h>
#include <ruby/thread.h>
#include <stdlib.h>

static VALUE cRun, cThreadFibers;
static ID id_run, id_task, id_owns, id_fibers, id_status;

/* Runs of fibers that were freed, for reuse. Like the entries of threads they are never freed. */
static fl_run *spare_runs;
/* Runs may lie in memory that this process shares with its parent, whose they are. */
static bool runs_are_the_parents;

void fl_forget_runs(void) {
    spare_runs = NULL;
    runs_are_the_parents = true;
}

static void run_free(void *data) {
    fl_run *spare = data;
    if (spare == NULL || runs_are_the_parents)
        return;
    spare->next = spare_runs;
    spare_runs = spare;
}

static const rb_data_type_t run_type = {
    .wrap_struct_name = "Fairlead::Run",
    .function = {.dfree = run_free},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

/* Where a fiber that does not serve comes from. */
typedef struct origin {
    /* The fiber that resumed it, or began it as a task; nil: it has yielded, so the next fiber to resume it will be. The fiber itself, if
     * it has its own state: an ended task that began its successor would otherwise be kept by that one, and so on. */
    VALUE resumer;
    VALUE request_fiber; /* the fiber whose request it works for, as long as run->id == id */
    fl_run *run;         /* NULL: none */
    uint64_t id;
} origin;

static void origin_mark(void *data) {
    origin *from = data;
    rb_gc_mark(from->resumer);
    rb_gc_mark(from->request_fiber);
}

static const rb_data_type_t origin_type = {
    .wrap_struct_name = "Fairlead::Origin",
    .function = {.dmark = origin_mark, .dfree = RUBY_TYPED_DEFAULT_FREE},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

/* What a fiber runs, if it serves, or else where it comes from. */
typedef struct role {
    fl_run *run;
    origin *from;
} role;

static role role_of(VALUE fiber) {
    VALUE object = rb_attr_get(fiber, id_run);
    if (NIL_P(object))
        return (role) {.run = NULL, .from = NULL};
    if (RTYPEDDATA_TYPE(object) == &run_type)
        return (role) {.run = RTYPEDDATA_DATA(object), .from = NULL};
    return (role) {.run = NULL, .from = RTYPEDDATA_DATA(object)};
}

static bool works_for_request(const origin *from) {
    return from != NULL && from->run != NULL && from->run->id == from->id;
}

/* Tasks have their own state, and so have fibers that called FiberOwner.own_state. */
static bool owns_state(VALUE fiber) {
    return RTEST(rb_attr_get(fiber, id_task)) || RTEST(rb_attr_get(fiber, id_owns));
}

/* The fibers of one Ruby thread. */
typedef struct thread_fibers {
    VALUE root, current;
    role role;    /* of the current fiber: looking it up at each switch would cost more than all the rest */
    VALUE status; /* that of the thread's last child when the fiber began to run, whichever fiber had that child */
} thread_fibers;

static rb_internal_thread_specific_key_t fibers_key;

static void thread_fibers_mark(void *data) {
    thread_fibers *fibers = data;
    rb_gc_mark(fibers->root);
    rb_gc_mark(fibers->current);
    rb_gc_mark(fibers->status);
}

static const rb_data_type_t thread_fibers_type = {
    .wrap_struct_name = "Fairlead::ThreadFibers",
    .function = {.dmark = thread_fibers_mark, .dfree = RUBY_TYPED_DEFAULT_FREE},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

/* In the shared page, as long as there is room. */
static fl_run *new_run(void) {
    const fl_loop *loop = fl_own.loop->loop;
    fl_run *run = loop == NULL || loop->siblings.page == NULL
                      ? NULL
                      : fl_shared_page_add_run(loop->siblings.page, (size_t) loop->siblings.own);
    if (run == NULL && (run = calloc(1, sizeof *run)) == NULL)
        rb_memerror();
    return run;
}

/* Makes the run of a serving fiber, which keeps it. */
static void make_run(void) {
    VALUE object = TypedData_Wrap_Struct(cRun, &run_type, NULL);
    fl_run *run = spare_runs;
    if (run != NULL)
        spare_runs = run->next;
    else
        run = new_run();
    RTYPEDDATA_DATA(object) = run;
    rb_ivar_set(rb_fiber_current(), id_run, object);
    thread_fibers *fibers = rb_internal_thread_specific_get(rb_thread_current(), fibers_key);
    if (fibers != NULL)
        fibers->role = (role) {.run = run, .from = NULL};
    fl_own.run = run;
    fl_own.run_borrowed = false;
}

/* Whether a request of this process has had one. */
static bool any_child;

/* A request begins: it has had no child. */
static void forget_status(void) {
    thread_fibers *fibers = rb_internal_thread_specific_get(rb_thread_current(), fibers_key);
    if (fibers == NULL)
        return;
    fibers->status = rb_last_status_get();
    if (any_child && !NIL_P(rb_attr_get(fibers->current, id_status)))
        rb_ivar_set(fibers->current, id_status, Qnil);
}

void fl_prepare_run(void) {
    if (fl_own.reactor != NULL)
        forget_status();
    if ((fl_own.run == NULL || fl_own.run_borrowed) && fl_own.reactor != NULL)
        make_run();
}

/* The calling thread must be in its first fiber. */
static void track_thread(void) {
    VALUE thread = rb_thread_current();
    if (rb_internal_thread_specific_get(thread, fibers_key) != NULL)
        return;
    thread_fibers *fibers;
    VALUE object = TypedData_Make_Struct(cThreadFibers, thread_fibers, &thread_fibers_type, fibers);
    fibers->root = fibers->current = rb_fiber_current();
    fibers->status = rb_last_status_get();
    rb_ivar_set(thread, id_fibers, object); /* the thread keeps it */
    rb_internal_thread_specific_set(thread, fibers_key, fibers);
}

/* Records that the previous fiber has resumed a fiber, which is new or had yielded. */
static origin *resumed(VALUE fiber, VALUE previous, role before, origin *from) {
    if (from == NULL)
        rb_ivar_set(fiber, id_run, TypedData_Make_Struct(cRun, origin, &origin_type, from));
    *from = (origin) {.resumer = owns_state(fiber) ? fiber : previous, .request_fiber = Qnil};
    if (works_for_request(before.from)) {
        from->run = before.from->run;
        from->request_fiber = before.from->request_fiber;
    } else if ((from->run = before.run) != NULL) {
        from->request_fiber = previous;
    }
    from->id = from->run == NULL ? 0 : from->run->id;
    return from;
}

/* Ruby does not say whether fibers were switched by resume, yield or transfer. But a fiber that has resumed another cannot be transferred
 * to, so a switch back to it is a yield. Schedulers transfer to fibers that have waited: their origin stays. */
static role record_switch(VALUE fiber, VALUE previous, role before, VALUE root) {
    role now = fiber == root ? (role) {.run = NULL, .from = NULL} : role_of(fiber);
    if (before.from != NULL && before.from->resumer == fiber && !owns_state(previous))
        *before.from = (origin) {.resumer = Qnil, .request_fiber = Qnil}; /* an object that keeps this fiber keeps no others */
    else if (fiber != root && now.run == NULL && (now.from == NULL || NIL_P(now.from->resumer)))
        now.from = resumed(fiber, previous, before, now.from);
    return now;
}

/* Ends the search among fibers that an app has transferred between in a circle. */
enum { MAX_RESUMERS = 4096 };

static VALUE owner_of(VALUE fiber) {
    VALUE outermost = fiber;
    for (int i = 0; i < MAX_RESUMERS && !owns_state(outermost); i++) {
        origin *from = role_of(outermost).from;
        if (from == NULL || NIL_P(from->resumer))
            return outermost;
        fl_run *run = role_of(from->resumer).run;
        if (run != NULL && from->run == run && run->id != from->id)
            return outermost; /* its resumer serves another request by now */
        outermost = from->resumer;
    }
    return outermost;
}

/* Ruby has one `$?` for all fibers of a thread. That of a child which a reactor's fiber had goes to the fiber's owner when another fiber
 * goes on, and is never put back: `$?` and Process.last_status ask the owner. */
static void keep_status(thread_fibers *fibers, VALUE fiber) {
    VALUE status = rb_last_status_get();
    if (status == fibers->status)
        return;
    fibers->status = status;
    any_child = true;
    rb_ivar_set(owner_of(fiber), id_status, status);
}

static VALUE last_status(void) {
    VALUE status = rb_last_status_get();
    thread_fibers *fibers = fl_own.reactor == NULL ? NULL : rb_internal_thread_specific_get(rb_thread_current(), fibers_key);
    if (fibers == NULL || status != fibers->status)
        return status;
    return rb_attr_get(owner_of(rb_fiber_current()), id_status);
}

static VALUE child_status(ID name, VALUE *data) {
    return last_status();
}

static VALUE process_last_status(VALUE self) {
    return last_status();
}

static void own_child_statuses(void) {
    rb_define_virtual_variable("$?", child_status, NULL);
    VALUE process = rb_module_new();
    rb_define_method(process, "last_status", process_last_status, 0);
    rb_prepend_module(rb_singleton_class(rb_mProcess), process);
}

static void fiber_switched(rb_event_flag_t event, VALUE data, VALUE self, ID method, VALUE class) {
    thread_fibers *fibers = rb_internal_thread_specific_get(rb_thread_current(), fibers_key);
    if (fibers == NULL) /* the thread is older than the hook */
        return;
    VALUE fiber = rb_fiber_current(), previous = fibers->current;
    fibers->current = fiber;
    if (fl_own.reactor != NULL)
        keep_status(fibers, previous);
    role now = fibers->role = record_switch(fiber, previous, fibers->role, fibers->root);
    if (fl_own.reactor == NULL)
        return;
    fl_run *before = fl_own.run;
    fl_own.run_borrowed = now.run == NULL;
    if (now.run == NULL && works_for_request(now.from))
        now.run = now.from->run;
    fl_own.run = fiber == *fl_own.scheduler_fiber ? NULL : now.run;
    fl_reactor_switched(fiber, before);
}

static void thread_begins(rb_event_flag_t event, VALUE data, VALUE self, ID method, VALUE class) {
    track_thread();
}

void fl_track_fibers(void) {
    static bool hooked;
    track_thread();
    if (hooked)
        return;
    hooked = true;
    own_child_statuses();
    rb_add_event_hook(thread_begins, RUBY_EVENT_THREAD_BEGIN, Qnil);
    rb_add_event_hook(fiber_switched, RUBY_EVENT_FIBER_SWITCH, Qnil);
}

/* FiberOwner.track: records from now on which fiber resumes which, in the calling thread, which should be in its first fiber, and in
 * threads that begin later. May be called again. */
static VALUE owner_track(VALUE self) {
    fl_track_fibers();
    return Qnil;
}

/* FiberOwner.current: the fiber whose state the current one shares: itself if it has its own, otherwise the owner of its resumer. */
static VALUE owner_current(VALUE self) {
    VALUE fiber = rb_fiber_current();
    return fl_own.run != NULL && !fl_own.run_borrowed ? fiber : owner_of(fiber);
}

/* FiberOwner.own_state: gives the current fiber its own state, whichever fiber resumes it. */
static VALUE owner_own_state(VALUE self) {
    VALUE fiber = rb_fiber_current();
    origin *from = role_of(fiber).from;
    rb_ivar_set(fiber, id_owns, Qtrue);
    if (from != NULL)
        from->resumer = fiber;
    return Qnil;
}

/* FiberOwner.resumes?(fiber, other): whether the fiber has resumed the other one, perhaps through further ones, and waits for it. */
static VALUE owner_resumes(VALUE self, VALUE fiber, VALUE other) {
    for (int i = 0; i < MAX_RESUMERS; i++) {
        origin *from = role_of(other).from;
        if (from == NULL || NIL_P(from->resumer) || from->resumer == other)
            return Qfalse;
        if (from->resumer == fiber)
            return Qtrue;
        other = from->resumer;
    }
    return Qfalse;
}

/* Which fiber has a Mutex, Ruby does not say: it is the first field of the C struct. Set if one that was locked looks like that. */
static const rb_data_type_t *mutex_type;

static const void *mutex_fiber(VALUE mutex) {
    return *(void **) RTYPEDDATA_GET_DATA(mutex);
}

static void try_mutex(void) {
    VALUE mutex = rb_mutex_new();
    const void *unlocked = mutex_fiber(mutex);
    rb_mutex_lock(mutex);
    const void *owner = mutex_fiber(mutex);
    rb_mutex_unlock(mutex);
    if (unlocked == NULL && owner == RTYPEDDATA_GET_DATA(rb_fiber_current()))
        mutex_type = RTYPEDDATA_TYPE(mutex);
}

/* FiberOwner.deadlock?(lock): whether a Mutex belongs to a fiber that has resumed the current one, perhaps through further ones, and so
 * cannot go on before that does. For another object, such as the lock of a `require`, which has no class: false. */
static VALUE owner_deadlock(VALUE self, VALUE lock) {
    if (mutex_type == NULL || !RB_TYPE_P(lock, T_DATA) || !RTYPEDDATA_P(lock) || RTYPEDDATA_TYPE(lock) != mutex_type)
        return Qfalse;
    VALUE fiber = rb_fiber_current();
    for (int i = 0; i < MAX_RESUMERS; i++) {
        origin *from = role_of(fiber).from;
        if (from == NULL || NIL_P(from->resumer) || from->resumer == fiber)
            return Qfalse;
        fiber = from->resumer;
        if (mutex_fiber(lock) == RTYPEDDATA_GET_DATA(fiber))
            return Qtrue;
    }
    return Qfalse;
}

/* Fairlead.request_fiber(fiber): the fiber whose request this fiber works for; nil: unknown, or the request is over. */
static VALUE request_fiber(VALUE self, VALUE fiber) {
    origin *from = role_of(fiber).from;
    return works_for_request(from) ? from->request_fiber : Qnil;
}

static VALUE hidden_class(const char *name) {
    VALUE class = rb_define_class_under(fl_mFairlead, name, rb_cObject);
    rb_undef_alloc_func(class);
    rb_gc_register_mark_object(class);
    return class;
}

void fl_init_fibers(void) {
    fibers_key = rb_internal_thread_specific_key_create();
    id_run = rb_intern("__fairlead_run");
    id_fibers = rb_intern("__fairlead_fibers");
    id_task = rb_intern("@async_task");
    id_owns = rb_intern("__fairlead_owns_state");
    id_status = rb_intern("__fairlead_status");
    cRun = hidden_class("Run");
    cThreadFibers = hidden_class("ThreadFibers");
    rb_define_singleton_method(fl_mFairlead, "request_fiber", request_fiber, 1);
    VALUE owner = rb_define_module_under(fl_mFairlead, "FiberOwner");
    rb_define_singleton_method(owner, "track", owner_track, 0);
    rb_define_singleton_method(owner, "current", owner_current, 0);
    rb_define_singleton_method(owner, "own_state", owner_own_state, 0);
    rb_define_singleton_method(owner, "resumes?", owner_resumes, 2);
    rb_define_singleton_method(owner, "deadlock?", owner_deadlock, 1);
    try_mutex();
}
