#include "poll.h"

#if FL_POLLER == FL_KQUEUE
#include <sys/types.h>
#include <sys/event.h>
#include <sys/time.h>

/* Identifiers of the poll's own events; each filter has a separate range. */
enum { WAKE = 0, TIMER = 0 };

static int change(fl_poll *poll, int ident, int filter, int flags, unsigned notes, int64_t value, void *data) {
    struct kevent change;
    EV_SET(&change, (uintptr_t) ident, filter, flags, notes, value, data);
    return kevent(poll->descriptor, &change, 1, NULL, 0, NULL);
}

int fl_poll_open(fl_poll *poll) {
    *poll = (fl_poll) {.descriptor = kqueue(), .wake = -1, .timer = -1};
    if (poll->descriptor < 0 || fcntl(poll->descriptor, F_SETFD, FD_CLOEXEC) < 0 ||
        change(poll, WAKE, EVFILT_USER, EV_ADD | EV_CLEAR, 0, 0, NULL) < 0) {
        int error = errno;
        fl_poll_close(poll);
        errno = error;
        return -1;
    }
    return 0;
}

void fl_poll_close(fl_poll *poll) {
    if (poll->descriptor >= 0)
        close(poll->descriptor);
    poll->descriptor = -1;
}

/* A child does not inherit a kqueue: its number may belong to another file by now. */
void fl_poll_forget(fl_poll *poll) {
    poll->descriptor = -1;
}

/* kqueue cannot wake one process only. */
int fl_poll_add_listener(fl_poll *poll, int descriptor, void *data) {
    return change(poll, descriptor, EVFILT_READ, EV_ADD, 0, 0, data);
}

int fl_poll_add_connection(fl_poll *poll, int descriptor, void *data) {
    return change(poll, descriptor, EVFILT_READ, EV_ADD | EV_CLEAR, 0, 0, data);
}

int fl_poll_want_writable(fl_poll *poll, int descriptor, void *data) {
    return change(poll, descriptor, EVFILT_WRITE, EV_ADD | EV_CLEAR, 0, 0, data);
}

int fl_poll_add_reader(fl_poll *poll, int descriptor, void *data) {
    return change(poll, descriptor, EVFILT_READ, EV_ADD, 0, 0, data);
}

int fl_poll_remove(fl_poll *poll, int descriptor) {
    struct kevent changes[2], receipts[2];
    EV_SET(&changes[0], (uintptr_t) descriptor, EVFILT_READ, EV_DELETE | EV_RECEIPT, 0, 0, NULL);
    EV_SET(&changes[1], (uintptr_t) descriptor, EVFILT_WRITE, EV_DELETE | EV_RECEIPT, 0, 0, NULL);
    if (kevent(poll->descriptor, changes, 2, receipts, 2, NULL) < 1)
        return -1;
    errno = (int) receipts[0].data; /* EVFILT_WRITE may fail: it is added only on demand */
    return errno == 0 ? 0 : -1;
}

int fl_poll_set_timer(fl_poll *poll, uint64_t at) {
    uint64_t now = fl_clock();
    int64_t left = at > now ? (int64_t) (at - now) : 1;
    return change(poll, TIMER, EVFILT_TIMER, EV_ADD | EV_ONESHOT, NOTE_USECONDS, left, NULL);
}

void fl_poll_wake(fl_poll *poll) {
    change(poll, WAKE, EVFILT_USER, 0, NOTE_TRIGGER, 0, NULL);
}

/* EV_EOF on the write filter without an error may come from our own shutdown. */
static uint32_t ready_by(const struct kevent *event) {
    uint32_t broken = event->flags & EV_EOF && event->fflags != 0 ? FL_BROKEN : 0;
    if (event->filter == EVFILT_WRITE)
        return FL_WRITABLE | broken;
    return FL_READABLE | (event->flags & EV_EOF ? FL_HALF_CLOSED : 0u) | broken;
}

int fl_poll_wait(fl_poll *poll, fl_event *events, int64_t microseconds, bool *woken) {
    struct kevent ready[FL_POLL_EVENTS];
    struct timespec timeout = {.tv_sec = (time_t) (microseconds / 1000000), .tv_nsec = (long) (microseconds % 1000000) * 1000};
    int count = kevent(poll->descriptor, NULL, 0, ready, FL_POLL_EVENTS, microseconds < 0 ? NULL : &timeout);
    *woken = count > 0;
    if (count < 0)
        return errno == EINTR ? 0 : -1;
    int reported = 0;
    for (int i = 0; i < count; i++)
        if (ready[i].filter == EVFILT_READ || ready[i].filter == EVFILT_WRITE)
            events[reported++] = (fl_event) {.data = (void *) ready[i].udata, .ready = ready_by(&ready[i])};
    return reported;
}
#endif
