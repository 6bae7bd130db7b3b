/* Helpers of the fuzzers: assertions, and splitting input at arbitrary positions. */
#ifndef FL_FUZZ_H
#define FL_FUZZ_H

#include "test.h"

#include <stddef.h>
#include <stdint.h>

#define HOLDS(claim)                                                                                           \
    do {                                                                                                       \
        if (!(claim)) {                                                                                        \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #claim);                         \
            abort();                                                                                           \
        }                                                                                                      \
    } while (0)

/* Positions that depend on the input alone, so that findings are reproducible. */
typedef struct cuts {
    uint32_t seed;
    uint32_t largest;
} cuts;

/* 0: byte by byte, 1: small parts, 2: larger parts. Long inputs skip the tiny parts, to save time. */
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
