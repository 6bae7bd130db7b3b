/* What the fuzzers share: a claim that does not hold ends the program, and pieces that end anywhere. */
#ifndef FL_FUZZ_H
#define FL_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOLDS(claim)                                                                                           \
    do {                                                                                                       \
        if (!(claim)) {                                                                                        \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #claim);                         \
            abort();                                                                                           \
        }                                                                                                      \
    } while (0)

/* A copy in a block of exactly its size, so that a read behind its end is noticed. */
static inline char *exact_copy(const void *bytes, size_t size) {
    char *copy = malloc(size ? size : 1);
    if (size)
        memcpy(copy, bytes, size);
    return copy;
}

/* Places to cut at that follow from the input alone, so that a finding can be run again. */
typedef struct cuts {
    uint32_t seed;
    uint32_t largest;
} cuts;

/* 0: byte by byte, 1: in small pieces, 2: in larger ones. Long inputs in tiny pieces would only cost time. */
static inline uint32_t first_salt(size_t size) {
    return size <= 512 ? 0 : size <= 4096 ? 1 : 2;
}

static inline cuts cuts_for(const uint8_t *data, size_t size, uint32_t salt) {
    uint32_t seed = 2166136261u ^ salt;
    for (size_t i = 0; i < size; i++)
        seed = (seed ^ data[i]) * 16777619u;
    uint32_t largest = salt == 0 ? 1 : 1 + seed % (salt == 1 ? 16 : 512);
    return (cuts){seed | 1, largest};
}

static inline size_t next_piece(cuts *state, size_t left) {
    state->seed ^= state->seed << 13;
    state->seed ^= state->seed >> 17;
    state->seed ^= state->seed << 5;
    size_t piece = 1 + state->seed % state->largest;
    return piece < left ? piece : left;
}

#endif
