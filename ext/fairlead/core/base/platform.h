/* The differences between operating systems: all #ifdefs for them are here, in platform_*.c and in poll_*.c.
 * FL_FALLBACKS builds the core on Linux with POSIX calls and epoll only, to test the code for other systems.
 * fl_notifier_open allocates descriptors, which fl_notifier_close frees; nothing else allocates. Any thread may call. On failure,
 * functions return -1 with errno. */
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
#include <sys/sendfile.h>
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

/* Microseconds; 0: there is no such clock. */
static inline uint64_t fl_clock_time(clockid_t clock) {
    struct timespec time;
    if (clock_gettime(clock, &time) < 0)
        return 0;
    return (uint64_t) time.tv_sec * 1000000 + (uint64_t) time.tv_nsec / 1000;
}

/* Microseconds of the monotonic clock. */
static inline uint64_t fl_clock(void) {
    return fl_clock_time(CLOCK_MONOTONIC);
}

/* Microseconds since 1970. */
static inline uint64_t fl_wall_clock(void) {
    return fl_clock_time(CLOCK_REALTIME);
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

/* Anonymous memory of this size, as a descriptor that is closed on exec; -1: there is none on this system. */
int fl_memory_descriptor(const char *name, size_t size);

/* Two connected sockets, close-on-exec: another thread may start a program at any time. */
static inline bool fl_socket_pair(int pair[2]) {
#ifdef FL_LINUX
    return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0;
#else
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
        return false;
    if (fl_close_on_exec_nonblocking(pair[0]) == 0 && fl_close_on_exec_nonblocking(pair[1]) == 0)
        return true;
    close(pair[0]);
    close(pair[1]);
    return false;
#endif
}

/* Bytes that were written to a socket and that its peer has not acknowledged; 0 if the system does not report it. */
static inline int fl_unacknowledged(int descriptor) {
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

#ifdef FL_LINUX
#define FL_HAS_SEND_FILE
/* Sends a part of a file to a socket. Raises SIGPIPE if the peer has gone; Ruby ignores it. */
static inline ssize_t fl_send_file(int socket, int file, off_t offset, size_t size) {
    return sendfile(socket, file, &offset, size);
}
#endif

/* Opens a file below a folder for reading, close-on-exec, and nothing outside of the folder, wherever ".." and symbolic links lead. Some
 * systems follow no symbolic links. Does not wait for the writer of a pipe. */
int fl_open_beneath(int folder, const char *path);

#ifdef __APPLE__
#define st_mtim st_mtimespec
#endif

/* Limits the bytes that the kernel buffers for a peer that does not read, if the system supports it. */
static inline void fl_limit_unsent(int descriptor, int most) {
#if defined(TCP_NOTSENT_LOWAT) && !defined(FL_FALLBACKS)
    setsockopt(descriptor, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &most, sizeof most);
#else
    (void) descriptor, (void) most;
#endif
}

/* Whether the kernel knows that the peer has reset the connection. */
static inline int fl_socket_is_broken(int descriptor) {
    int error = 0;
    socklen_t size = sizeof error;
    return getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size) < 0 || error != 0;
}

/* Receives descriptors with close-on-exec set, since another thread may start a program at any time. */
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

/* A type of socket pair that preserves message boundaries. */
#ifdef FL_LINUX
enum { FL_PACKETS = SOCK_SEQPACKET };
#else
enum { FL_PACKETS = SOCK_DGRAM };
#endif

/* Lets one thread wake another: `read_end` is readable after a notification, until it has been drained. */
typedef struct fl_notifier {
    int read_end;
    int write_end; /* may be the same descriptor */
} fl_notifier;

int fl_notifier_open(fl_notifier *notifier);
void fl_notifier_notify(const fl_notifier *notifier);
void fl_notifier_close(fl_notifier *notifier); /* may be called again, or with both ends -1 */

/* A thread. It may have ended. */
typedef struct fl_task {
    clockid_t clock;
    int id;
} fl_task;

/* The calling thread. */
fl_task fl_task_self(void);

/* Microseconds of CPU time that the thread has used; 0 if it has ended. */
#ifdef __APPLE__
uint64_t fl_task_clock(const fl_task *task);
#else
static inline uint64_t fl_task_clock(const fl_task *task) {
    return fl_clock_time(task->clock);
}
#endif

/* Whether the thread sleeps, rather than computes or waits for a CPU. Where the system does not report it, the function waits for two
 * milliseconds: a thread that has used no CPU time meanwhile counts as asleep. */
bool fl_task_sleeps(const fl_task *task);

/* Returns a descriptor that becomes readable when this child ends. The caller closes it. -1: not supported. */
int fl_process_descriptor(int pid);

/* Whether the thread is in uninterruptible sleep: it waits for a disk, or for a process that it starts. False if the system does not
 * report it. */
bool fl_task_is_uninterruptible(const fl_task *task);

/* Microseconds that the thread has waited for a CPU; 0 if the system does not report it. */
uint64_t fl_task_run_delay(const fl_task *task);

#endif
