/* A growing run of bytes, consumed at the front and filled at the end, on blocks borrowed from a slab.
 * Allocates and frees: the buffer itself, from the slab it is given; an empty buffer holds no block.
 * Pointers into it (fl_buffer_at, fl_buffer_room) are valid until the next call that may grow, consume or free
 * it. One slab and its buffers belong to one loop: only the holder of that loop's lock may call. What can fail:
 * growing, with FL_NO_MEMORY; the buffer is then as it was. */
#ifndef FL_BUFFER_H
#define FL_BUFFER_H

#include "status.h"
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* --enable-sanitizer: what is free is never used again, so that AddressSanitizer sees whoever still uses it. */
#ifdef FL_SANITIZED
enum { FL_REUSES = 0 };
#else
enum { FL_REUSES = 1 };
#endif

enum { FL_SLAB_CLASSES = 8, FL_SLAB_SMALLEST = 1024, FL_SLAB_KEPT_MOST = FL_REUSES ? 4 << 20 : 0 };

/* Free blocks by size class: 1 KiB, 2 KiB, … 128 KiB. Larger ones come from malloc and go back at once.
 * `kept` is how many bytes are held back for reuse, at most FL_SLAB_KEPT_MOST; `borrowed` how many are in
 * buffers: anybody may read it. A buffer may be given back to another slab than it was borrowed from; then only
 * the sum of both counts, and one of them may be less than nothing. Zeroed before its first use; fl_slab_close frees
 * what is held back, and buffers may outlive it only to be freed. */
typedef struct fl_slab {
    void *free[FL_SLAB_CLASSES];
    size_t kept;
    _Atomic size_t borrowed;
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

/* Makes sure that `size` more bytes fit behind the present ones. */
fl_status fl_buffer_reserve(fl_slab *slab, fl_buffer *buffer, size_t size);

/* Where the next bytes go, after fl_buffer_reserve; say with fl_buffer_added how many were written there. */
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

/* Drops `size` bytes at the front; gives the block back when none is left. */
void fl_buffer_consume(fl_slab *slab, fl_buffer *buffer, size_t size);

void fl_buffer_free(fl_slab *slab, fl_buffer *buffer);

#endif
