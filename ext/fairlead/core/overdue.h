/* A request whose time is up while it holds the GVL in a call that does not come back to Ruby. Nobody can tell it: no other
 * Ruby runs. But a mark is left with its reactor, which is valid only until Ruby is next asked for a sign of itself: at the
 * first place after that call. Code in Ruby never finds one, however long it computes.
 * Nothing is allocated, nothing fails. */
#ifndef FL_OVERDUE_H
#define FL_OVERDUE_H

#include "watch.h"

/* One look, of the watch thread, without the lock. */
void fl_overdue_look(fl_watch *watch, uint64_t now);

/* Of the reactor's own thread, with the GVL, as it gives a sign; `turns`: fl_gvl_turns before. Whether it has just come
 * back from such a call. */
bool fl_overdue_returns(const fl_reactor *reactor, uint64_t turns);

#endif
