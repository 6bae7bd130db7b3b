/* What Linux has and other systems name otherwise: the only #ifdefs of the core.
 * Allocates nothing; every function may be called from any thread; failures are -1 with errno. */
#ifndef FL_PLATFORM_H
#define FL_PLATFORM_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/sockios.h>
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
#if defined(__linux__) && !defined(FL_PLAIN)
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
#if defined(SIOCOUTQ)
    if (ioctl(descriptor, SIOCOUTQ, &size) < 0)
        return 0;
#elif defined(SO_NWRITE)
    socklen_t room = sizeof size;
    if (getsockopt(descriptor, SOL_SOCKET, SO_NWRITE, &size, &room) < 0)
        return 0;
#endif
    return size;
}

/* Whether its peer has reset it, as far as is known here. */
static inline int fl_socket_is_broken(int descriptor) {
    int error = 0;
    socklen_t size = sizeof error;
    return getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size) < 0 || error != 0;
}

#ifdef MSG_NOSIGNAL
enum { FL_SEND_FLAGS = MSG_NOSIGNAL };
#else
enum { FL_SEND_FLAGS = 0 }; /* Ruby ignores SIGPIPE */
#endif

#endif
