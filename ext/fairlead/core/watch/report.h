/* What the watch thread tells the supervisor by itself, since Ruby may not run: lines of JSON, as lib/fairlead/ipc/messages.rb has
 * them. Of the watch thread alone. Nothing is allocated, and nothing fails: what the socket does not take at once, or what
 * nobody is there to hear, is not told. */
#ifndef FL_REPORT_H
#define FL_REPORT_H

#include "watch.h"

void fl_report(const fl_watch *watch, const char *line);

/* This reactor has been kept away for so long that its worker is to be replaced. */
void fl_report_lost(fl_watch *watch, int reactor, fl_stall kind);

/* Its stall goes on, and the GVL is kept from whoever would tell of it. */
void fl_report_lasting(fl_watch *watch, int reactor);

#endif
