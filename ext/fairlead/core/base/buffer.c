#include "buffer.h"
#include <stdlib.h>
#include <string.h>

enum { LARGEST_CLASS_SIZE = FL_SLAB_SMALLEST << (FL_SLAB_CLASSES - 1) };

/* Offsets and lengths have 32 bits. */
static const size_t largest_block = (size_t) 1 << 31;

/* The first bytes of a free block. */
typedef struct free_block {
    struct free_block *next;
} free_block;

static size_t block_size_for(size_t size) {
    size_t block = FL_SLAB_SMALLEST;
    while (block < size) block <<= 1;
    return block;
}

static unsigned class_of(size_t block_size) {
    return (unsigned) (__builtin_ctzll(block_size) - __builtin_ctz(FL_SLAB_SMALLEST));
}

/* Only the thread that owns the slab writes, so no read-modify-write is needed. */
static void count(fl_slab *slab, size_t change) {
    size_t before = atomic_load_explicit(&slab->in_use, memory_order_relaxed);
    atomic_store_explicit(&slab->in_use, before + change, memory_order_relaxed);
}

static char *take_block(fl_slab *slab, size_t block_size) {
    free_block *block = NULL;
    if (block_size <= LARGEST_CLASS_SIZE) {
        unsigned index = class_of(block_size);
        block = slab->free[index];
        if (block) {
            slab->free[index] = block->next;
            slab->cached -= block_size;
        }
    }
    if (!block)
        block = malloc(block_size);
    if (block)
        count(slab, block_size);
    return (char *) block;
}

static void return_block(fl_slab *slab, char *bytes, size_t block_size) {
    count(slab, 0 - block_size);
    if (block_size > LARGEST_CLASS_SIZE || slab->cached + block_size > FL_SLAB_CACHE_SIZE) {
        free(bytes);
        return;
    }
    free_block *block = (free_block *) (void *) bytes;
    unsigned index = class_of(block_size);
    block->next = slab->free[index];
    slab->free[index] = block;
    slab->cached += block_size;
}

void fl_slab_close(fl_slab *slab) {
    for (unsigned index = 0; index < FL_SLAB_CLASSES; index++) {
        free_block *block = slab->free[index];
        while (block) {
            free_block *next = block->next;
            free(block);
            block = next;
        }
        slab->free[index] = NULL;
    }
    slab->cached = 0;
}

fl_status fl_buffer_reserve(fl_slab *slab, fl_buffer *buffer, size_t size) {
    if (size <= fl_buffer_room_size(buffer))
        return FL_OK;
    if (size > largest_block - buffer->length)
        return FL_NO_MEMORY;

    size_t needed = buffer->length + size;
    /* Moves the bytes to the front only while they fill at most half of the block. Otherwise a nearly full buffer that is consumed
     * byte by byte would be copied each time. */
    if (needed <= buffer->capacity && buffer->length <= buffer->capacity / 2) {
        memmove(buffer->block, buffer->block + buffer->start, buffer->length);
        buffer->start = 0;
        return FL_OK;
    }

    size_t block_size = block_size_for(needed > buffer->capacity ? needed : (size_t) buffer->capacity + 1);
    if (block_size > largest_block)
        return FL_NO_MEMORY;
    char *block = take_block(slab, block_size);
    if (!block)
        return FL_NO_MEMORY;
    if (buffer->block) {
        memcpy(block, buffer->block + buffer->start, buffer->length);
        return_block(slab, buffer->block, buffer->capacity);
    }
    buffer->block = block;
    buffer->capacity = (uint32_t) block_size;
    buffer->start = 0;
    return FL_OK;
}

fl_status fl_buffer_append(fl_slab *slab, fl_buffer *buffer, const char *bytes, size_t size) {
    if (size == 0)
        return FL_OK;
    fl_status status = fl_buffer_reserve(slab, buffer, size);
    if (status != FL_OK)
        return status;
    memcpy(fl_buffer_room(buffer), bytes, size);
    fl_buffer_added(buffer, size);
    return FL_OK;
}

void fl_buffer_consume(fl_slab *slab, fl_buffer *buffer, size_t size) {
    if (size >= buffer->length) {
        fl_buffer_free(slab, buffer);
        return;
    }
    buffer->start += (uint32_t) size;
    buffer->length -= (uint32_t) size;
}

void fl_buffer_free(fl_slab *slab, fl_buffer *buffer) {
    if (buffer->block)
        return_block(slab, buffer->block, buffer->capacity);
    *buffer = (fl_buffer) {0};
}
