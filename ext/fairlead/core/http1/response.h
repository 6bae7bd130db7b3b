/* Reads heads of responses that another worker has written (siblings/relay.h). Nothing is allocated; all state is the caller's. */
#ifndef FL_HTTP1_RESPONSE_H
#define FL_HTTP1_RESPONSE_H

#include "base/head.h"
#include "base/status.h"

typedef struct fl_response_head {
    int code;
    bool chunked, has_length;
    uint64_t length;
    size_t fields, size; /* where its fields begin, and its size */
} fl_response_head;

/* FL_OK: the head is complete. FL_AGAIN: call again with more bytes. FL_BAD_STATUS: it is malformed, or has another transfer coding than
 * chunked. */
fl_status fl_http1_read_response(fl_response_head *head, const char *bytes, size_t size);

/* The field at bytes[*at], of a complete head. Moves `*at` to the next one. False: there are no more. */
bool fl_http1_next_field(const char *bytes, size_t size, size_t *at, fl_span *name, fl_span *value);

#endif
