#include "descriptors.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ON_THEIR_WAY = 64 }; /* have been accepted, and not been told of yet: more than there are threads that accept */

static _Atomic int highest;

/* A socket that was given away, by its descriptor: its number at the kernel, which no later file has. */
static struct {
    ino_t *sockets;
    int size;
} given_away;

void fl_descriptor_is_used(int descriptor) {
    if (descriptor > atomic_load_explicit(&highest, memory_order_relaxed))
        atomic_store_explicit(&highest, descriptor, memory_order_relaxed); /* of two at once either will do */
}

int fl_descriptors_end(void) {
    return atomic_load(&highest) + ON_THEIR_WAY;
}

void fl_descriptor_gives_away(int descriptor) {
    struct stat status;
    if (fstat(descriptor, &status) < 0)
        return;
    if (descriptor >= given_away.size) {
        int size = descriptor * 2 + 64;
        ino_t *sockets = realloc(given_away.sockets, sizeof *sockets * (size_t) size);
        if (sockets == NULL)
            return;
        for (int i = given_away.size; i < size; i++) sockets[i] = 0;
        given_away.sockets = sockets;
        given_away.size = size;
    }
    given_away.sockets[descriptor] = status.st_ino;
}

bool fl_descriptor_is_given_away(int descriptor) {
    struct stat status;
    return descriptor < given_away.size && given_away.sockets[descriptor] != 0 && fstat(descriptor, &status) == 0 &&
           status.st_ino == given_away.sockets[descriptor];
}

void fl_descriptor_replace(int descriptor) {
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (nothing < 0 || dup2(nothing, descriptor) < 0)
        close(descriptor);
    else
        fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    if (nothing >= 0)
        close(nothing);
}
