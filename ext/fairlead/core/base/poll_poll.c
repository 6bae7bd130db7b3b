/* With poll(2), which knows neither sets nor edges: what is told of a connection is not asked for again until its reader or
 * writer had to wait. The descriptor is one end of a pipe, in which a thread of our own writes as soon as anything is
 * ready; who waits here asks the kernel himself. It costs time by the number of descriptors, and is there for systems
 * that have nothing better, and for tests of what those run. */
#include "poll.h"

#if FL_POLLER == FL_POLL
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/poll.h>

#ifdef POLLRDHUP
enum { HALF_CLOSED = POLLRDHUP };
#else
enum { HALF_CLOSED = 0 }; /* then it is found by reading */
#endif

typedef struct member {
    void *data;
    short wanted; /* events that are to be told */
    bool level;   /* again and again */
    bool present;
    bool over; /* what is told of it without being wanted has been told */
} member;

/* All of it with the lock. */
struct fl_poll_set {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    fl_notifier bell, nudge; /* for who waits for us, and for the thread */
    uint64_t timer;          /* of fl_clock; 0: not set */
    bool told;               /* the thread has rung, and waits until somebody has looked */
    bool asking;             /* the thread asks the kernel, and has to be nudged to see a change */
    bool ends;
    member *members; /* by descriptor */
    int capacity;
};

/* A copy of what is to be asked for, the nudge first. The caller frees it. */
static struct pollfd *list(struct fl_poll_set *set, int *count) {
    struct pollfd *asked = malloc(sizeof *asked * (size_t) (set->capacity + 1));
    *count = 0;
    if (asked == NULL)
        return NULL;
    asked[(*count)++] = (struct pollfd) {.fd = set->nudge.listening, .events = POLLIN};
    for (int i = 0; i < set->capacity; i++)
        if (set->members[i].present && !set->members[i].over)
            asked[(*count)++] = (struct pollfd) {.fd = i, .events = set->members[i].wanted};
    return asked;
}

static void drain(const fl_notifier *bell) {
    char bytes[64];
    while (read(bell->listening, bytes, sizeof bytes) > 0) continue;
}

static bool anything_is_ready(struct fl_poll_set *set) {
    int count;
    struct pollfd *asked = list(set, &count);
    bool ready = asked != NULL && poll(asked + 1, (nfds_t) count - 1, 0) > 0;
    free(asked);
    return ready || (set->timer != 0 && fl_clock() >= set->timer);
}

/* Until the timer, or any of them. */
static void ask(struct fl_poll_set *set) {
    int count, milliseconds = -1;
    struct pollfd *asked = list(set, &count);
    if (set->timer != 0) {
        uint64_t now = fl_clock(), left = set->timer > now ? (set->timer - now + 999) / 1000 : 0;
        milliseconds = left < INT_MAX ? (int) left : INT_MAX;
    }
    if (asked == NULL) /* perhaps there is memory later */
        milliseconds = 10;
    set->asking = true;
    pthread_mutex_unlock(&set->lock);
    (void) poll(asked, (nfds_t) count, milliseconds);
    pthread_mutex_lock(&set->lock);
    set->asking = false;
    drain(&set->nudge);
    free(asked);
}

static void *run(void *data) {
    struct fl_poll_set *set = data;
    pthread_mutex_lock(&set->lock);
    while (!set->ends) {
        if (set->told) {
            pthread_cond_wait(&set->changed, &set->lock);
            continue;
        }
        ask(set);
        if (!set->ends && anything_is_ready(set)) { /* nobody has been told of it meanwhile */
            set->told = true;
            fl_notifier_notify(&set->bell);
        }
    }
    pthread_mutex_unlock(&set->lock);
    return NULL;
}

static void changed(struct fl_poll_set *set) {
    if (set->asking)
        fl_notifier_notify(&set->nudge);
    pthread_cond_signal(&set->changed);
}

static int start(struct fl_poll_set *set) {
    sigset_t all, before; /* signals are for others */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&set->thread, NULL, run, set);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return error == 0 ? 0 : -1;
}

static void free_set(fl_poll *poll) {
    struct fl_poll_set *set = poll->set;
    fl_notifier_close(&set->bell);
    fl_notifier_close(&set->nudge);
    free(set->members);
    free(set);
    *poll = (fl_poll) {.descriptor = -1, .wake = -1, .timer = -1};
}

int fl_poll_open(fl_poll *poll) {
    struct fl_poll_set *set = calloc(1, sizeof *set);
    *poll = (fl_poll) {.descriptor = -1, .wake = -1, .timer = -1, .set = set};
    if (set == NULL)
        return -1;
    set->nudge = (fl_notifier) {-1, -1};
    pthread_mutex_init(&set->lock, NULL);
    pthread_cond_init(&set->changed, NULL);
    if (fl_notifier_open(&set->bell) < 0 || fl_notifier_open(&set->nudge) < 0 || start(set) < 0) {
        int error = errno;
        free_set(poll);
        errno = error;
        return -1;
    }
    poll->descriptor = set->bell.listening;
    poll->wake = set->bell.ringing;
    return 0;
}

void fl_poll_close(fl_poll *poll) {
    struct fl_poll_set *set = poll->set;
    if (set == NULL)
        return;
    pthread_mutex_lock(&set->lock);
    set->ends = true;
    changed(set);
    pthread_mutex_unlock(&set->lock);
    pthread_join(set->thread, NULL);
    pthread_mutex_destroy(&set->lock);
    pthread_cond_destroy(&set->changed);
    free_set(poll);
}

/* The thread is not in the child, its lock may be held for ever, and it may have been at work on the rest: that stays. */
void fl_poll_forget(fl_poll *poll) {
    fl_notifier_close(&poll->set->bell);
    fl_notifier_close(&poll->set->nudge);
    *poll = (fl_poll) {.descriptor = -1, .wake = -1, .timer = -1};
}

static int grow(struct fl_poll_set *set, int descriptor) {
    if (descriptor < set->capacity)
        return 0;
    int capacity = descriptor * 2 + 16;
    member *members = realloc(set->members, sizeof *members * (size_t) capacity);
    if (members == NULL)
        return -1;
    for (int i = set->capacity; i < capacity; i++) members[i] = (member) {0};
    set->members = members;
    set->capacity = capacity;
    return 0;
}

static int add(fl_poll *poll, int descriptor, member member) {
    struct fl_poll_set *set = poll->set;
    pthread_mutex_lock(&set->lock);
    int result = grow(set, descriptor);
    if (result == 0) {
        member.present = true;
        set->members[descriptor] = member;
        changed(set);
    }
    pthread_mutex_unlock(&set->lock);
    return result;
}

int fl_poll_add_listener(fl_poll *poll, int descriptor, void *data) {
    return fl_poll_add_reader(poll, descriptor, data);
}

int fl_poll_add_connection(fl_poll *poll, int descriptor, void *data) {
    return add(poll, descriptor, (member) {.data = data, .wanted = POLLIN | HALF_CLOSED});
}

int fl_poll_add_reader(fl_poll *poll, int descriptor, void *data) {
    return add(poll, descriptor, (member) {.data = data, .wanted = POLLIN, .level = true});
}

static int want(fl_poll *poll, int descriptor, short events) {
    struct fl_poll_set *set = poll->set;
    int result = -1;
    pthread_mutex_lock(&set->lock);
    if (descriptor >= 0 && descriptor < set->capacity && set->members[descriptor].present) {
        set->members[descriptor].wanted |= events;
        changed(set);
        result = 0;
    } else {
        errno = ENOENT;
    }
    pthread_mutex_unlock(&set->lock);
    return result;
}

int fl_poll_want_writable(fl_poll *poll, int descriptor, void *data) {
    (void) data;
    return want(poll, descriptor, POLLOUT);
}

void fl_poll_again(fl_poll *poll, int descriptor, uint32_t ready) {
    want(poll, descriptor, ready == FL_WRITABLE ? POLLOUT : POLLIN);
}

int fl_poll_remove(fl_poll *poll, int descriptor) {
    struct fl_poll_set *set = poll->set;
    int result = want(poll, descriptor, 0);
    pthread_mutex_lock(&set->lock);
    if (result == 0) {
        set->members[descriptor] = (member) {0};
        changed(set);
    }
    pthread_mutex_unlock(&set->lock);
    return result;
}

int fl_poll_set_timer(fl_poll *poll, uint64_t at) {
    struct fl_poll_set *set = poll->set;
    pthread_mutex_lock(&set->lock);
    set->timer = at;
    changed(set);
    pthread_mutex_unlock(&set->lock);
    return 0;
}

void fl_poll_wake(fl_poll *poll) {
    fl_notifier_notify(&(fl_notifier) {poll->descriptor, poll->wake});
}

static uint32_t ready_by(int events) {
    return (events & POLLIN ? FL_READABLE : 0u) | (events & POLLOUT ? FL_WRITABLE : 0u) |
           (events & HALF_CLOSED ? FL_HALF_CLOSED : 0u) | (events & (POLLERR | POLLHUP | POLLNVAL) ? FL_BROKEN : 0u);
}

/* What is ready now. With the lock. */
static int collect(struct fl_poll_set *set, fl_event *told_of) {
    int count, told = 0;
    struct pollfd *asked = list(set, &count);
    if (asked == NULL || poll(asked + 1, (nfds_t) count - 1, 0) < 0) {
        free(asked);
        return -1;
    }
    for (int i = 1; i < count && told < FL_POLL_EVENTS; i++) {
        short events = asked[i].revents;
        if (events == 0)
            continue;
        member *member = &set->members[asked[i].fd];
        told_of[told++] = (fl_event) {.data = member->data, .ready = ready_by(events)};
        if (!member->level)
            member->wanted &= (short) ~events;
        member->over = (events & (member->level ? POLLNVAL : POLLERR | POLLHUP | POLLNVAL)) != 0;
    }
    free(asked);
    return told;
}

static int look(fl_poll *poll, fl_event *told_of, bool *woken) {
    struct fl_poll_set *set = poll->set;
    char byte;
    pthread_mutex_lock(&set->lock);
    *woken = read(set->bell.listening, &byte, 1) > 0;
    drain(&set->bell);
    if (set->timer != 0 && fl_clock() >= set->timer) {
        set->timer = 0;
        *woken = true;
    }
    int count = collect(set, told_of);
    *woken |= count > 0;
    set->told = false;
    pthread_cond_signal(&set->changed);
    pthread_mutex_unlock(&set->lock);
    return count;
}

int fl_poll_wait(fl_poll *self, fl_event *told_of, int64_t microseconds, bool *woken) {
    int count = look(self, told_of, woken);
    if (count != 0 || *woken || microseconds == 0)
        return count;
    int64_t milliseconds = microseconds < 0 ? -1 : (microseconds + 999) / 1000;
    struct pollfd bell = {.fd = self->descriptor, .events = POLLIN};
    if (poll(&bell, 1, milliseconds < INT_MAX ? (int) milliseconds : INT_MAX) <= 0)
        return 0;
    return look(self, told_of, woken);
}
#endif
