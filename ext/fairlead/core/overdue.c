#include "overdue.h"

/* It is asked for a sign at each look. If it gives none until the next one, it has been in one call all the while; unless
 * the machine was busy, or the collector ran. So it has to sleep, or to have computed for long, too. */
void fl_overdue_look(fl_watch *watch, uint64_t now) {
    const fl_thread *holder = atomic_load(&fl_gvl_holder);
    fl_reactor *reactor = fl_watch_reactor_of(watch, holder);
    const fl_run *run = reactor == NULL || atomic_load(&reactor->home) ? NULL : atomic_load(&reactor->run);
    if (run == NULL || !atomic_load(&run->overdue) || watch->press == NULL || atomic_load(&fl_collecting_since) != 0) {
        watch->overdue.reactor = NULL;
        return;
    }
    fl_overdue_call *call = &watch->overdue;
    uint64_t turns = atomic_load(&fl_gvl_turns), stamp = atomic_load(&reactor->stamp);
    if (call->reactor != reactor || call->turns != turns || call->stamp != stamp) {
        *call = (fl_overdue_call){.reactor = reactor, .turns = turns, .stamp = stamp};
    } else if (fl_stays_asleep(&call->sample, holder, now) || watch->kept) {
        atomic_store(&reactor->overdue_stamp, stamp);
        atomic_store(&reactor->overdue_turns, turns);
    }
    watch->press();
}

bool fl_overdue_returns(const fl_reactor *reactor, uint64_t turns) {
    return atomic_load(&reactor->overdue_turns) == turns && turns != 0 &&
           atomic_load(&reactor->overdue_stamp) == atomic_load(&reactor->stamp);
}
