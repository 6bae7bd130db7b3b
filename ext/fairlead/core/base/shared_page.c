#include "shared_page.h"

#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

static size_t bytes(size_t slots) {
    return sizeof(fl_shared_page) + (slots + 1) * sizeof(fl_slot);
}

static size_t bytes_of_runs(size_t slots) {
    return slots * FL_MAX_RUNS * sizeof(fl_run);
}

static void *map(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

fl_shared_page *fl_shared_page_open(size_t slots) {
    fl_shared_page *page = map(bytes(slots));
    if (page == NULL)
        return NULL;
    page->runs = map(bytes_of_runs(slots));
    if (page->runs == NULL) {
        munmap(page, bytes(slots));
        return NULL;
    }
    page->count = slots;
    return page;
}

void fl_shared_page_close(fl_shared_page *page) {
    if (!atomic_load(&page->runs_kept))
        munmap(page->runs, bytes_of_runs(page->count));
    munmap(page, bytes(page->count));
}

int fl_shared_page_database(fl_shared_page *page, uint64_t key) {
    for (int i = 0; i < FL_MAX_DATABASES; i++) {
        uint64_t there = 0;
        if (atomic_compare_exchange_strong(&page->databases[i], &there, key) || there == key)
            return i;
    }
    return FL_MAX_DATABASES - 1;
}

fl_run *fl_shared_page_add_run(fl_shared_page *page, size_t slot) {
    int64_t used = fl_slot_get(&page->slots[slot], FL_SLOT_runs);
    if (used >= FL_MAX_RUNS)
        return NULL;
    atomic_store(&page->runs_kept, true);
    fl_slot_set(&page->slots[slot], FL_SLOT_runs, used + 1);
    fl_run *run = &page->runs[slot * FL_MAX_RUNS + (size_t) used];
    memset((void *) run, 0, sizeof *run); /* a worker that was killed has left pointers of its own */
    return run;
}

static const fl_slot_field counters[] = {
#define X(field) FL_SLOT_##field,
    FL_SLOT_COUNTER_MAP(X)
#undef X
};

enum {
    COUNTERS = sizeof counters / sizeof *counters,
    MAX_READS = 1000, /* the supervisor may have been killed while it moved counters */
};

void fl_shared_page_retire(fl_shared_page *page, size_t slot) {
    fl_slot *from = &page->slots[slot], *sum = &page->slots[page->count];
    atomic_fetch_add(&page->retirements, 1);
    for (int i = 0; i < COUNTERS; i++)
        fl_slot_set(sum, counters[i], fl_slot_get(sum, counters[i]) + fl_slot_get(from, counters[i]));
    fl_request_times_move(&sum->times, &from->times);
    for (int64_t i = 0; i < fl_slot_get(from, FL_SLOT_runs); i++)
        atomic_store(&page->runs[slot * FL_MAX_RUNS + (size_t) i].since, 0);
    for (int field = 0; field < FL_SLOT_FIELDS; field++) fl_slot_set(from, (fl_slot_field) field, 0);
    atomic_fetch_add(&page->retirements, 1);
}

/* Whether the reader has to read again. */
static bool changed(const fl_shared_page *page, uint64_t before) {
    atomic_thread_fence(memory_order_acquire);
    return before % 2 == 1 || atomic_load(&page->retirements) != before;
}

void fl_shared_page_times(fl_shared_page *page, int slot, fl_request_times *sum) {
    size_t first = slot < 0 ? 0 : (size_t) slot, last = slot < 0 ? page->count : (size_t) slot;
    uint64_t before;
    int reads = 0;
    do {
        before = atomic_load(&page->retirements);
        memset((void *) sum, 0, sizeof *sum);
        for (size_t i = first; i <= last; i++) fl_request_times_sum(sum, &page->slots[i].times);
    } while (changed(page, before) && ++reads < MAX_READS);
}

void fl_shared_page_counters(fl_shared_page *page, int64_t sum[FL_SLOT_FIELDS]) {
    uint64_t before;
    int reads = 0;
    do {
        before = atomic_load(&page->retirements);
        memset(sum, 0, sizeof *sum * FL_SLOT_FIELDS);
        for (size_t slot = 0; slot <= page->count; slot++)
            for (int i = 0; i < COUNTERS; i++) sum[counters[i]] += fl_slot_get(&page->slots[slot], counters[i]);
    } while (changed(page, before) && ++reads < MAX_READS);
}
