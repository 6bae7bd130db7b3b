/* Records of requests that the core has rejected, for the access log. The core keeps them only with limits.record_rejections.
 * fl_rejection_record allocates, and does nothing if there is no memory or too many are waiting. The caller of fl_rejection_take frees
 * the rejection with free(). The caller holds the lock. */
#ifndef FL_REJECTION_H
#define FL_REJECTION_H

#include "connection.h"

typedef struct fl_rejection {
    struct fl_rejection *next;
    fl_client client;
    uint64_t first_byte_at, rejected_at; /* of fl_clock */
    fl_status status;
    uint32_t size; /* of `line`: the part of the request line that was received */
    char line[];
} fl_rejection;

typedef struct fl_rejections {
    fl_rejection *first, *last;
    uint32_t count;
} fl_rejections;

void fl_rejection_record(const struct fl_exchange *exchange, fl_status status);

/* Removes and returns the oldest; NULL: there is none. */
fl_rejection *fl_rejection_take(fl_rejections *rejections);

#endif
