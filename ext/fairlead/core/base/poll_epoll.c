#include "poll.h"

#if FL_POLLER == FL_EPOLL
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

/* Events of the internal descriptors point into the poll itself. */
static int add(fl_poll *poll, int operation, int descriptor, void *data, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = data};
    return epoll_ctl(poll->descriptor, operation, descriptor, &event);
}

int fl_poll_open(fl_poll *poll) {
    poll->descriptor = epoll_create1(EPOLL_CLOEXEC);
    poll->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    poll->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (poll->descriptor < 0 || poll->wake < 0 || poll->timer < 0 ||
        add(poll, EPOLL_CTL_ADD, poll->wake, &poll->wake, EPOLLIN) < 0 ||
        add(poll, EPOLL_CTL_ADD, poll->timer, &poll->timer, EPOLLIN) < 0) {
        int error = errno;
        fl_poll_close(poll);
        errno = error;
        return -1;
    }
    return 0;
}

void fl_poll_close(fl_poll *poll) {
    int *descriptors[] = {&poll->descriptor, &poll->wake, &poll->timer};
    for (int i = 0; i < 3; i++) {
        if (*descriptors[i] >= 0)
            close(*descriptors[i]);
        *descriptors[i] = -1;
    }
}

/* Closing leaves the parent's epoll set unchanged; removing descriptors would not. */
void fl_poll_forget(fl_poll *poll) {
    fl_poll_close(poll);
}

int fl_poll_add_listener(fl_poll *poll, int descriptor, void *data) {
    return add(poll, EPOLL_CTL_ADD, descriptor, data, EPOLLIN | EPOLLEXCLUSIVE);
}

int fl_poll_add_connection(fl_poll *poll, int descriptor, void *data) {
    return add(poll, EPOLL_CTL_ADD, descriptor, data, EPOLLIN | EPOLLRDHUP | EPOLLET);
}

int fl_poll_want_writable(fl_poll *poll, int descriptor, void *data) {
    return add(poll, EPOLL_CTL_MOD, descriptor, data, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
}

int fl_poll_add_reader(fl_poll *poll, int descriptor, void *data) {
    return add(poll, EPOLL_CTL_ADD, descriptor, data, EPOLLIN);
}

int fl_poll_remove(fl_poll *poll, int descriptor) {
    return epoll_ctl(poll->descriptor, EPOLL_CTL_DEL, descriptor, NULL);
}

int fl_poll_set_timer(fl_poll *poll, uint64_t at) {
    struct itimerspec when = {.it_value = {.tv_sec = (time_t) (at / 1000000), .tv_nsec = (long) (at % 1000000) * 1000}};
    return timerfd_settime(poll->timer, TFD_TIMER_ABSTIME, &when, NULL);
}

void fl_poll_wake(fl_poll *poll) {
    uint64_t one = 1;
    (void) !write(poll->wake, &one, sizeof one); /* EAGAIN: a wake-up is pending */
}

int fl_poll_wait(fl_poll *poll, fl_event *events, int64_t microseconds, bool *woken) {
    struct epoll_event ready[FL_POLL_EVENTS];
    int count;
    if (microseconds > 0) {
        struct timespec timeout = {.tv_sec = (time_t) (microseconds / 1000000),
                                   .tv_nsec = (long) (microseconds % 1000000) * 1000};
        count = epoll_pwait2(poll->descriptor, ready, FL_POLL_EVENTS, &timeout, NULL);
        if (count < 0 && errno == ENOSYS) /* before Linux 5.11 */
            count = epoll_wait(poll->descriptor, ready, FL_POLL_EVENTS, (int) ((microseconds + 999) / 1000));
    } else {
        count = epoll_wait(poll->descriptor, ready, FL_POLL_EVENTS, microseconds < 0 ? -1 : 0);
    }
    if (count < 0) {
        *woken = false;
        return errno == EINTR ? 0 : -1;
    }
    *woken = count > 0;
    int reported = 0;
    for (int i = 0; i < count; i++) {
        void *data = ready[i].data.ptr;
        if (data == &poll->wake || data == &poll->timer) {
            uint64_t times;
            (void) !read(*(int *) data, &times, sizeof times);
            continue;
        }
        uint32_t flags = ready[i].events;
        events[reported++] = (fl_event) {
            .data = data,
            .ready = (flags & EPOLLIN ? FL_READABLE : 0u) | (flags & EPOLLOUT ? FL_WRITABLE : 0u) |
                     (flags & EPOLLRDHUP ? FL_HALF_CLOSED : 0u) | (flags & (EPOLLERR | EPOLLHUP) ? FL_BROKEN : 0u),
        };
    }
    return reported;
}
#endif
