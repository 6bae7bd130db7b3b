#include "crash.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#if defined __has_include
#if __has_include(<execinfo.h>)
#include <execinfo.h>
#define FL_BACKTRACE
#endif
#endif

enum { FRAMES = 64 };

/* X(signal) */
#define SIGNAL_MAP(X) X(SIGABRT) X(SIGFPE) X(SIGTRAP) X(SIGSYS)

static void say(const char *text) {
    size_t size = strlen(text);
    while (size > 0) {
        ssize_t written = write(STDERR_FILENO, text, size);
        if (written <= 0)
            return;
        text += written;
        size -= (size_t) written;
    }
}

static const char *name_of(int number) {
#define X(signal)                                                                                                              \
    if (number == signal)                                                                                                      \
        return #signal;
    SIGNAL_MAP(X)
#undef X
    return "signal";
}

/* The process id in digits: there is no printf in a handler. */
static void say_pid(void) {
    char digits[24];
    size_t at = sizeof digits - 1;
    digits[at] = '\0';
    for (long rest = (long) getpid(); rest > 0 && at > 0; rest /= 10) digits[--at] = (char) ('0' + rest % 10);
    say(digits + at);
}

static void report(int number) {
    int error = errno;
    say("[");
    say_pid();
    say("] fairlead: ");
    say(name_of(number));
    say(". C backtrace:\n");
#ifdef FL_BACKTRACE
    void *frames[FRAMES];
    backtrace_symbols_fd(frames, backtrace(frames, FRAMES), STDERR_FILENO);
#else
    say("(this system has none)\n");
#endif
    errno = error;
    /* SA_RESETHAND has put back the default action. The signal is blocked until this returns. */
    raise(number);
}

static void install(int number) {
    struct sigaction before;
    if (sigaction(number, NULL, &before) != 0 || (before.sa_flags & SA_SIGINFO) || before.sa_handler != SIG_DFL)
        return;
    struct sigaction action = {.sa_handler = report, .sa_flags = (int) (SA_RESETHAND | SA_ONSTACK)};
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

void fl_crash_install(void) {
#ifdef FL_BACKTRACE
    void *frame;
    backtrace(&frame, 1); /* loads the library that it needs, which allocates */
#endif
#define X(signal) install(signal);
    SIGNAL_MAP(X)
#undef X
}
