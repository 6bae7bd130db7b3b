/* The child of a fork closes its parent's server in a handler of the C library: before any Ruby runs in it, whatever that may raise, and
 * however the process was forked (Process.daemon calls no Ruby). The parent locks nothing for it, because the watch thread goes on
 * serving while the system copies a large process. So the child finds the loops in an inconsistent state, and relies on none of it. */
#include "fairlead.h"

#include <pthread.h>

static fl_ruby_loop *open_loops;

void fl_track_loop(fl_ruby_loop *self) {
    self->next_open = open_loops;
    open_loops = self;
}

void fl_untrack_loop(fl_ruby_loop *self) {
    fl_ruby_loop **link = &open_loops;
    while (*link != NULL && *link != self) link = &(*link)->next_open;
    if (*link != NULL)
        *link = self->next_open;
}

/* The child's threads are no reactors. */
static void forget_watch(fl_watch *watch) {
    for (int i = 0; i < atomic_load(&watch->count); i++) atomic_store(&atomic_load(&watch->reactors[i].thread)->watch, NULL);
}

static void forget(fl_ruby_loop *self) {
    fl_loop_forget(self->loop != NULL ? self->loop : self->closing);
    if (self->watch != NULL) {
        if (self->watch->supervisor >= 0)
            fl_descriptor_replace(self->watch->supervisor); /* the supervisor must not hear of the child */
        forget_watch(self->watch);
    }
    fl_forget_stalls(self);
    self->watch = NULL;
    self->loop = self->closing = NULL;
    self->forgotten = true;
}

/* The forking thread held the GVL, so the list of loops and the state of their Ruby objects are consistent. */
static void in_child(void) {
    fl_forget_other_threads();
    if (open_loops != NULL)
        fl_forget_runs();
    for (; open_loops != NULL; open_loops = open_loops->next_open) forget(open_loops);
}

void fl_init_fork(void) {
    pthread_atfork(NULL, NULL, in_child);
}
