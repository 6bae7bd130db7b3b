/* What differs between systems. The only #ifdefs are here and in platform_*.c and poll_*.c.
 * With FL_FALLBACKS, the core is compiled on Linux without anything that POSIX lacks but epoll, so that the code for other systems is tested there.
 * fl_notifier_open allocates descriptors, which fl_notifier_close frees; nothing else allocates. Every function may be called from any
 * thread. On failure they return -1 with errno. */
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

/* The backend of poll.h */
#define FL_EPOLL 1
#define FL_KQUEUE 2
#ifdef FL_POLLER /* set by test/core/Makefile */
#elif defined(__linux__)
#define FL_POLLER FL_EPOLL
#elif defined(__APPLE__) || defined(__FreeBSD__) || defined(__DragonFly__)
#define FL_POLLER FL_KQUEUE
#else
#error "Fairlead needs epoll (Linux) or kqueue (macOS, BSD)."
#endif

/* Microseconds of the monotonic clock. */
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

/* Accepts a connection, non-blocking and close-on-exec. */
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

/* Bytes that were written to a socket and have not reached its peer; 0 if the system does not say. */
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

/* Limits the bytes that the system buffers for a peer that does not read, where it can. */
static inline void fl_limit_unsent(int descriptor, int most) {
#if defined(TCP_NOTSENT_LOWAT) && !defined(FL_FALLBACKS)
    setsockopt(descriptor, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &most, sizeof most);
#else
    (void) descriptor, (void) most;
#endif
}

/* Whether the peer has reset the connection, as far as is known. */
static inline int fl_socket_is_broken(int descriptor) {
    int error = 0;
    socklen_t size = sizeof error;
    return getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size) < 0 || error != 0;
}

/* Received descriptors are close-on-exec from the start, since another thread may start a program at any time. */
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

/* The type of socket pairs that preserve message boundaries. */
#ifdef FL_LINUX
enum { FL_PACKETS = SOCK_SEQPACKET };
#else
enum { FL_PACKETS = SOCK_DGRAM };
#endif

/* Lets one thread wake another: `listening` is readable after a notification, until all is read. */
typedef struct fl_notifier {
    int listening;
    int ringing; /* the same, or the other end */
} fl_notifier;

int fl_notifier_open(fl_notifier *bell);
void fl_notifier_notify(const fl_notifier *bell);
void fl_notifier_close(fl_notifier *bell); /* also if it was not opened, or is closed */

/* A thread of the system. It may have ended. */
typedef struct fl_task {
    clockid_t clock;
    int id;
} fl_task;

/* The calling thread. */
fl_task fl_task_self(void);

/* Microseconds of CPU that the thread has used; 0 if it has ended. */
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

/* Whether the thread sleeps. False if it computes or waits for a CPU. Where the system does not say, a thread that has not computed for
 * some time sleeps. */
bool fl_task_sleeps(const fl_task *task);

/* A descriptor that becomes readable when this child ends, for the caller to close; -1: not supported. */
int fl_process_descriptor(int pid);

/* Whether the thread waits for the disk, or for a process that it starts: how long depends on the machine. False if the system does not
 * say. */
bool fl_task_waits_for_machine(const fl_task *task);

/* Microseconds that the thread has waited for a CPU; 0 if the system does not say. */
uint64_t fl_task_delayed(const fl_task *task);

#endif
