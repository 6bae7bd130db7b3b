/* What all load generators need: the time, and figures that were measured, with their percentiles. A figure is in seconds; what
 * is printed of it, in milliseconds. Samples grow as needed and are never freed. */
#ifndef SAMPLES_H
#define SAMPLES_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct samples {
    double *values;
    long count, room;
} samples;

static inline double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double) time.tv_sec + (double) time.tv_nsec / 1e9;
}

static inline void push(samples *all, double value) {
    if (all->count == all->room) {
        all->room = all->room ? all->room * 2 : 4096;
        all->values = realloc(all->values, (size_t) all->room * sizeof *all->values);
    }
    all->values[all->count++] = value;
}

static inline int ascending(const void *a, const void *b) {
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

/* Before a percentile is asked for. */
static inline void sort(samples *all) {
    if (all->count)
        qsort(all->values, (size_t) all->count, sizeof *all->values, ascending);
}

static inline double percentile(const samples *all, double share) {
    if (!all->count)
        return 0;
    long index = (long) ceil(share * (double) all->count) - 1;
    return all->values[index < 0 ? 0 : index] * 1000;
}

/* As fields of a JSON object that goes on. Sorts them. */
static inline void print_latencies(samples *all) {
    double sum = 0;
    for (long i = 0; i < all->count; i++) sum += all->values[i];
    sort(all);
    printf("\"mean\":%.4f,\"p50\":%.4f,\"p75\":%.4f,\"p90\":%.4f,\"p99\":%.4f,\"p999\":%.4f,\"max\":%.4f,",
           all->count ? sum / (double) all->count * 1000 : 0, percentile(all, 0.5), percentile(all, 0.75), percentile(all, 0.9),
           percentile(all, 0.99), percentile(all, 0.999), percentile(all, 1));
}

#endif
