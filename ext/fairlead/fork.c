/* The child of a fork lets go of its parent's server in a handler of the C library: before any Ruby of the child can run,
 * whatever is raised there, and however the process was forked (Process.daemon does not ask Ruby). Nothing is locked
 * meanwhile: a copy takes long where the process is large, or another library's handler is slow, and the watch thread
 * goes on serving. So the child finds the loops as they were in some moment each part of them, and trusts none of it. */
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

/* Its threads are the parent's. */
static void forget_watch(fl_watch *watch) {
    for (int i = 0; i < atomic_load(&watch->count); i++) atomic_store(&atomic_load(&watch->reactors[i].thread)->watch, NULL);
}

static void forget(fl_ruby_loop *self) {
    fl_loop_forget(self->loop != NULL ? self->loop : self->closing);
    if (self->watch != NULL) {
        if (self->watch->relief >= 0)
            fl_descriptor_replace(self->watch->relief); /* nobody there is to hear of the child */
        forget_watch(self->watch);
    }
    fl_forget_stalls(self);
    self->watch = NULL;
    self->loop = self->closing = NULL;
    self->forgotten = true;
}

/* Whoever forks holds the GVL, and so the list of loops and what Ruby has made of them are whole. */
static void in_child(void) {
    fl_forget_other_threads();
    for (; open_loops != NULL; open_loops = open_loops->next_open) forget(open_loops);
}

void fl_init_fork(void) {
    pthread_atfork(NULL, NULL, in_child);
}
