#include "shared_page.h"

#include <sys/mman.h>

static size_t bytes(size_t slots) {
    return sizeof(fl_shared_page) + slots * sizeof(fl_slot);
}

fl_shared_page *fl_shared_page_open(size_t slots) {
    fl_shared_page *page = mmap(NULL, bytes(slots), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return NULL;
    page->count = slots;
    return page;
}

void fl_shared_page_close(fl_shared_page *page) {
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
