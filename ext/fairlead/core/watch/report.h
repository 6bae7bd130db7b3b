/* Messages of the watch thread to the supervisor, for when Ruby cannot run: lines of JSON, in the format of
 * lib/fairlead/ipc/messages.rb. Only the watch thread calls these functions. Nothing is allocated, nothing fails: a message that the
 * socket does not take at once is lost. */
#ifndef FL_REPORT_H
#define FL_REPORT_H

#include "watch.h"

void fl_report(const fl_watch *watch, const char *line);

/* Has the supervisor replace the worker: this reactor has been away for too long. */
void fl_report_lost(fl_watch *watch, int reactor, fl_stall kind);

/* Reports a stall that goes on, because the Ruby reporter does not get the GVL. */
void fl_report_lasting(fl_watch *watch, int reactor);

#endif
