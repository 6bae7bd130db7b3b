/* A growing sequence of bytes, consumed at the front and filled at the end.
 * A buffer takes its block from a slab and returns it there; an empty buffer holds no block. Pointers into it (fl_buffer_at,
 * fl_buffer_room) are valid until the next call that may grow, consume or free it. A slab and its buffers belong to one loop: the
 * caller holds that loop's lock. Growing can fail, with FL_NO_MEMORY, and leaves the buffer as it was. */
#ifndef FL_BUFFER_H
#define FL_BUFFER_H

#include "status.h"
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* With --enable-sanitizer the core never reuses memory, so that AddressSanitizer notices uses after free. */
#ifdef FL_SANITIZED
enum { FL_REUSE_MEMORY = 0 };
#else
enum { FL_REUSE_MEMORY = 1 };
#endif

enum { FL_SLAB_CLASSES = 8, FL_SLAB_SMALLEST = 1024, FL_SLAB_CACHE_SIZE = FL_REUSE_MEMORY ? 4 << 20 : 0 };

/* Free blocks by size class: 1 KiB, 2 KiB, … 128 KiB. The slab passes larger blocks to malloc and free.
 * Zero it before its first use. fl_slab_close frees the cached blocks; afterwards buffers may only be freed. */
typedef struct fl_slab {
    void *free[FL_SLAB_CLASSES];
    size_t cached; /* bytes kept for reuse, at most FL_SLAB_CACHE_SIZE */
    /* Bytes in buffers; any thread may read it. If a block returns to another slab than its own, only the sum of both counts. */
    _Atomic size_t in_use;
} fl_slab;

void fl_slab_close(fl_slab *slab);

typedef struct fl_buffer {
    char *block;
    uint32_t capacity;
    uint32_t start;
    uint32_t length;
} fl_buffer;

/* The first byte; NULL when the buffer holds no block. */
static inline char *fl_buffer_at(const fl_buffer *buffer) {
    return buffer->block ? buffer->block + buffer->start : NULL;
}

/* Makes room for `size` more bytes at the end. */
fl_status fl_buffer_reserve(fl_slab *slab, fl_buffer *buffer, size_t size);

/* Where the next bytes go, after fl_buffer_reserve. fl_buffer_added then adds those that were written there. */
static inline char *fl_buffer_room(fl_buffer *buffer) {
    return buffer->block ? buffer->block + buffer->start + buffer->length : NULL;
}
static inline size_t fl_buffer_room_size(const fl_buffer *buffer) {
    return buffer->capacity - buffer->start - buffer->length;
}
static inline void fl_buffer_added(fl_buffer *buffer, size_t size) {
    buffer->length += (uint32_t) size;
}

fl_status fl_buffer_append(fl_slab *slab, fl_buffer *buffer, const char *bytes, size_t size);

/* Drops `size` bytes at the front; returns the block once none is left. */
void fl_buffer_consume(fl_slab *slab, fl_buffer *buffer, size_t size);

void fl_buffer_free(fl_slab *slab, fl_buffer *buffer);

#endif
