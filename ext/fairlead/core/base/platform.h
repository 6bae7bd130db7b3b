/* What Linux has and other systems lack or name otherwise: here, and in platform_*.c and poll_*.c, are the only #ifdefs.
 * Compiled with FL_FALLBACKS, the core does on Linux too without all that POSIX does not know, so that what other systems
 * run can be tested there.
 * Only fl_notifier_open takes descriptors, which fl_notifier_close gives back; nothing allocates. Every function may be called
 * from any thread; failures are -1 with errno. */
#ifndef FL_PLATFORM_H
#define FL_PLATFORM_H

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#if defined(__linux__) && !defined(FL_FALLBACKS)
#define FL_LINUX
#include <linux/sockios.h>
#include <sys/ioctl.h>
#endif

/* What answers poll.h */
#define FL_EPOLL 1
#define FL_KQUEUE 2
#define FL_POLL 3
#ifdef FL_POLLER /* one that this system need not have: see test/core/Makefile */
#elif defined(FL_LINUX)
#define FL_POLLER FL_EPOLL
#elif defined(FL_FALLBACKS)
#define FL_POLLER FL_POLL
#elif defined(__APPLE__) || defined(__FreeBSD__) || defined(__DragonFly__)
#define FL_POLLER FL_KQUEUE
#else
#define FL_POLLER FL_POLL
#endif

/* Microseconds of a clock that only goes forward. */
static inline uint64_t fl_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t) now.tv_sec * 1000000 + (uint64_t) now.tv_nsec / 1000;
}

/* Microseconds since 1970. */
static inline uint64_t fl_wall_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t) now.tv_sec * 1000000 + (uint64_t) now.tv_nsec / 1000;
}

static inline int fl_close_on_exec_nonblocking(int descriptor) {
    int flags = fcntl(descriptor, F_GETFL);
    if (flags < 0 || fcntl(descriptor, F_SETFL, flags | O_NONBLOCK) < 0)
        return -1;
    return fcntl(descriptor, F_SETFD, FD_CLOEXEC);
}

/* A new connection of a listener, non-blocking and closed on exec. */
static inline int fl_accept(int listener, struct sockaddr *address, socklen_t *size) {
#ifdef FL_LINUX
    return accept4(listener, address, size, SOCK_NONBLOCK | SOCK_CLOEXEC);
#else
    int descriptor = accept(listener, address, size);
    if (descriptor >= 0 && fl_close_on_exec_nonblocking(descriptor) < 0) {
        close(descriptor);
        return -1;
    }
    return descriptor;
#endif
}

/* What has been written to a socket and has not reached its peer yet; 0 where the system does not tell. */
static inline int fl_on_its_way(int descriptor) {
    int size = 0;
#if defined(FL_LINUX)
    if (ioctl(descriptor, SIOCOUTQ, &size) < 0)
        return 0;
#elif defined(SO_NWRITE)
    socklen_t room = sizeof size;
    if (getsockopt(descriptor, SOL_SOCKET, SO_NWRITE, &size, &room) < 0)
        return 0;
#else
    (void) descriptor;
#endif
    return size;
}

/* Has the system keep hardly more than so many bytes for a peer who does not take them; where it cannot, it keeps what it
 * likes. */
static inline void fl_limit_unsent(int descriptor, int most) {
#if defined(TCP_NOTSENT_LOWAT) && !defined(FL_FALLBACKS)
    setsockopt(descriptor, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &most, sizeof most);
#else
    (void) descriptor, (void) most;
#endif
}

/* Whether its peer has reset it, as far as is known here. */
static inline int fl_socket_is_broken(int descriptor) {
    int error = 0;
    socklen_t size = sizeof error;
    return getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size) < 0 || error != 0;
}

/* A descriptor that is received is closed on exec from its first moment: another thread may start a program just then. */
#ifdef MSG_CMSG_CLOEXEC
enum { FL_RECEIVE_FLAGS = MSG_CMSG_CLOEXEC };
#else
enum { FL_RECEIVE_FLAGS = 0 };
#endif

#ifdef MSG_NOSIGNAL
enum { FL_SEND_FLAGS = MSG_NOSIGNAL };
#else
enum { FL_SEND_FLAGS = 0 }; /* Ruby ignores SIGPIPE */
#endif

/* Of which type are socket pairs that keep messages apart. */
#ifdef FL_LINUX
enum { FL_PACKETS = SOCK_SEQPACKET };
#else
enum { FL_PACKETS = SOCK_DGRAM };
#endif

/* Something to wait for: `listening` is readable once it has been rung, until all is read. */
typedef struct fl_notifier {
    int listening;
    int ringing; /* the same, or the other end */
} fl_notifier;

int fl_notifier_open(fl_notifier *bell);
void fl_notifier_notify(const fl_notifier *bell);
void fl_notifier_close(fl_notifier *bell); /* also one that could not be opened, or has been closed */

/* A thread, as the kernel knows it. It may have ended. */
typedef struct fl_task {
    clockid_t clock;
    int id;
} fl_task;

/* The calling one. */
fl_task fl_task_self(void);

/* Microseconds of CPU that it has used; 0 if it has ended. */
#ifdef __APPLE__
uint64_t fl_task_clock(const fl_task *task);
#else
static inline uint64_t fl_task_clock(const fl_task *task) {
    struct timespec time;
    if (clock_gettime(task->clock, &time) < 0)
        return 0;
    return (uint64_t) time.tv_sec * 1000000 + (uint64_t) time.tv_nsec / 1000;
}
#endif

/* Whether it waits for something: not, that it computes, or waits for the machine to let it. Where the system does not
 * tell, one that has not computed for some time sleeps. */
bool fl_task_sleeps(const fl_task *task);

/* A descriptor that becomes readable as this child ends, for the caller to close; -1 where there is none. */
int fl_process_descriptor(int pid);

/* Whether it waits for the disk, or until a process that it starts has begun: how long depends on the machine. False where
 * the system does not tell. */
bool fl_task_waits_for_machine(const fl_task *task);

/* Microseconds for which the machine has kept it waiting for a CPU; 0 where the kernel does not tell. */
uint64_t fl_task_delayed(const fl_task *task);

#endif
