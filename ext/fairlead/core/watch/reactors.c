/* The reactors that the watch thread knows: how they register and retire, and whether they are away. The contract is in watch.h. */
#include "internal.h"

#include <string.h>

void fl_run_begin(fl_run *run, const fl_exchange *exchange) {
    const fl_head *head = exchange->request.head;
    const char *bytes = fl_exchange_head_bytes(exchange);
    size_t method_size = head->method.size < sizeof run->method ? head->method.size : sizeof run->method;
    size_t path_size = head->path.size < sizeof run->path ? head->path.size : sizeof run->path;
    memcpy(run->method, bytes + head->method.at, method_size);
    memcpy(run->path, bytes + head->path.at, path_size);
    run->method_size = (uint16_t) method_size;
    run->path_size = (uint16_t) path_size;
    run->id = exchange->id;
    atomic_store_explicit(&run->switched_at, exchange->queueing.started_at, memory_order_relaxed);
    atomic_store_explicit(&run->since, exchange->queueing.started_at, memory_order_release);
    atomic_store_explicit(&run->stall_recorded, false, memory_order_relaxed);
}

uint64_t fl_watch_away_since(const fl_watch *watch, int number) {
    const fl_reactor *reactor = &watch->reactors[number];
    if (atomic_load(&reactor->retired))
        return 0;
    /* `in_loop` is loaded first, so that the stamp is of the same absence. */
    if (!atomic_load_explicit(&reactor->in_loop, memory_order_acquire))
        return atomic_load_explicit(&reactor->stamp, memory_order_relaxed);
    if (!fl_watch_leads(watch, number) || atomic_load(&reactor->thread->gvl) != FL_GVL_WANTED)
        return 0;
    return atomic_load(&reactor->thread->gvl_since);
}

uint64_t fl_watch_longest_away(const fl_watch *watch, uint64_t now, int *which) {
    uint64_t longest = 0;
    for (int i = 0; i < atomic_load(&watch->count); i++) {
        uint64_t since = fl_watch_away_since(watch, i);
        if (since == 0 || now < since + longest)
            continue;
        longest = now - since;
        *which = i;
    }
    return longest;
}

bool fl_watch_is_idle(const fl_watch *watch, int number) {
    const fl_reactor *reactor = &watch->reactors[number];
    return !atomic_load(&reactor->retired) && atomic_load_explicit(&reactor->in_loop, memory_order_acquire) &&
           atomic_load(&reactor->thread->gvl) == FL_GVL_RELEASED;
}

/* The entry of a reactor that has been unregistered, or a new one. */
static int free_entry(fl_watch *watch) {
    int count = atomic_load(&watch->count);
    for (int i = 0; i < count; i++)
        if (atomic_load(&watch->reactors[i].reusable) && atomic_load(&watch->leader) != i)
            return i;
    if (count >= FL_MAX_REACTORS)
        return -1;
    fl_reactor *reactor = &watch->reactors[count];
    return fl_notifier_open(&reactor->lead) < 0 ? -1 : count;
}

int fl_watch_register(fl_watch *watch, fl_thread *thread) {
    int number = free_entry(watch);
    if (number < 0)
        return -1;
    fl_reactor *reactor = &watch->reactors[number];
    atomic_store(&reactor->thread, thread);
    atomic_store(&reactor->run, NULL);
    atomic_store(&reactor->lane, false);
    fl_reactor_leaves_app(reactor);
    atomic_store(&reactor->reusable, false);
    atomic_store(&reactor->retired, false);
    if (number == atomic_load(&watch->count))
        atomic_store(&watch->count, number + 1);
    return number;
}

bool fl_watch_retire(fl_watch *watch, int number) {
    fl_reactor *reactor = &watch->reactors[number];
    atomic_store_explicit(&reactor->stamp, fl_clock(), memory_order_relaxed); /* it counts as away from now on */
    atomic_store(&reactor->in_loop, false);                                   /* before the check: see pass_lead in relief.c */
    if (fl_watch_leads(watch, number) || atomic_load(&watch->loop->lanes.running[number]) > 0) {
        fl_reactor_leaves_app(reactor);
        return false;
    }
    atomic_store(&reactor->run, NULL);
    atomic_store(&reactor->retired, true);
    return true;
}

void fl_watch_unregister(fl_watch *watch, int number) {
    atomic_store(&watch->reactors[number].reusable, true);
}
