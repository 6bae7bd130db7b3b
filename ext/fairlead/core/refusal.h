/* Requests that were refused before anybody took them: for who writes a log. Noted only if the loop's limits say so.
 * fl_refusal_note allocates, and quietly leaves it when there is no memory or too many wait; who takes one frees it, and
 * the loop those that nobody takes. Only the holder of the loop may call. */
#ifndef FL_REFUSAL_H
#define FL_REFUSAL_H

#include "connection.h"

typedef struct fl_refusal {
    struct fl_refusal *next;
    fl_client client;
    uint64_t first_byte_at, refused_at; /* of fl_clock */
    fl_status status;
    uint32_t size; /* of `line`, as much of the request line as has come */
    char line[];
} fl_refusal;

typedef struct fl_refusals {
    fl_refusal *first, *last;
    uint32_t count;
} fl_refusals;

void fl_refusal_note(fl_connection *connection, fl_status status);

/* The oldest, or NULL. */
fl_refusal *fl_refusal_take(fl_refusals *refusals);

#endif
