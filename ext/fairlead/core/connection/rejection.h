/* Requests that were refused before anybody took them: for who writes a log. Noted only if the loop's limits say so.
 * fl_rejection_note allocates, and quietly leaves it when there is no memory or too many wait; who takes one frees it, and
 * the loop those that nobody takes. Only the holder of the loop may call. */
#ifndef FL_REFUSAL_H
#define FL_REFUSAL_H

#include "connection.h"

typedef struct fl_rejection {
    struct fl_rejection *next;
    fl_client client;
    uint64_t first_byte_at, refused_at; /* of fl_clock */
    fl_status status;
    uint32_t size; /* of `line`, as much of the request line as has come */
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
