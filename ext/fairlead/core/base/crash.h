/* What a process says when a signal of its own making ends it: the signal and the C backtrace, on stderr. Only for signals that have no
 * handler: Ruby reports SIGSEGV, SIGBUS and SIGILL itself, at more length. The handler allocates nothing, takes no lock, and leaves the
 * process to the signal's default action, so that its parent learns of the signal and the system may write a core file. */
#ifndef FL_CRASH_H
#define FL_CRASH_H

/* May be called again. The first call may allocate. */
void fl_crash_install(void);

#endif
