/* Requests that were rejected before they were taken, for the access log. Kept only if limits.note_rejections is set.
 * fl_rejection_note allocates, and does nothing if there is no memory or too many are kept. The caller of fl_rejection_take frees the
 * rejection with free(). The caller holds the lock. */
#ifndef FL_REFUSAL_H
#define FL_REFUSAL_H

#include "connection.h"

typedef struct fl_rejection {
    struct fl_rejection *next;
    fl_client client;
    uint64_t first_byte_at, refused_at; /* of fl_clock */
    fl_status status;
    uint32_t size; /* of `line`: as much of the request line as has come */
    char line[];
} fl_rejection;

typedef struct fl_rejections {
    fl_rejection *first, *last;
    uint32_t count;
} fl_rejections;

void fl_rejection_note(const struct fl_exchange *exchange, fl_status status);

/* The oldest, or NULL. */
fl_rejection *fl_rejection_take(fl_rejections *rejections);

#endif
