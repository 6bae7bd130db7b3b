#include "descriptors.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { UNTRACKED_MAX = 64 }; /* accepted, but not tracked yet: more than there are threads that accept */

static _Atomic int highest;

/* Inodes of hijacked sockets by descriptor, since descriptors are reused. */
static struct {
    ino_t *inodes;
    int size;
} hijacked;

/* A bit for each of the descriptors below this number; those beyond are not known to be relayed. */
enum { RELAYED_END = 1 << 16 };
static _Atomic uint64_t relayed_bits[RELAYED_END / 64];

void fl_descriptor_set_relayed(int descriptor, bool relayed) {
    if (descriptor >= RELAYED_END)
        return;
    uint64_t bit = UINT64_C(1) << (descriptor % 64);
    if (relayed)
        atomic_fetch_or(&relayed_bits[descriptor / 64], bit);
    else
        atomic_fetch_and(&relayed_bits[descriptor / 64], ~bit);
}

bool fl_descriptor_is_relayed(int descriptor) {
    return descriptor < RELAYED_END && (atomic_load(&relayed_bits[descriptor / 64]) >> (descriptor % 64) & 1) != 0;
}

void fl_descriptor_track(int descriptor) {
    if (descriptor > atomic_load_explicit(&highest, memory_order_relaxed))
        atomic_store_explicit(&highest, descriptor, memory_order_relaxed); /* if two threads store, either value will do */
}

int fl_descriptors_end(void) {
    return atomic_load(&highest) + UNTRACKED_MAX;
}

void fl_descriptor_mark_hijacked(int descriptor) {
    struct stat status;
    fl_descriptor_set_relayed(descriptor, false);
    if (fstat(descriptor, &status) < 0)
        return;
    if (descriptor >= hijacked.size) {
        int size = descriptor * 2 + 64;
        ino_t *inodes = realloc(hijacked.inodes, sizeof *inodes * (size_t) size);
        if (inodes == NULL)
            return;
        for (int i = hijacked.size; i < size; i++) inodes[i] = 0;
        hijacked.inodes = inodes;
        hijacked.size = size;
    }
    hijacked.inodes[descriptor] = status.st_ino;
}

bool fl_descriptor_is_hijacked(int descriptor) {
    struct stat status;
    return descriptor < hijacked.size && hijacked.inodes[descriptor] != 0 && fstat(descriptor, &status) == 0 &&
           status.st_ino == hijacked.inodes[descriptor];
}

void fl_descriptor_replace(int descriptor) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || dup2(null, descriptor) < 0)
        close(descriptor);
    else
        fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    if (null >= 0)
        close(null);
}
