/* Which part of a file answers a request: conditional requests and ranges (RFC 9110, 13 and 14). Nothing is allocated, nothing fails, any
 * thread may call. */
#ifndef FL_SELECTION_H
#define FL_SELECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fl_text {
    const char *bytes; /* NULL: the field is missing */
    size_t size;
} fl_text;

/* Fields of a GET or HEAD request. */
typedef struct fl_preconditions {
    fl_text if_match, if_unmodified_since, if_none_match, if_modified_since, if_range, range;
    bool head; /* HEAD: ranges do not apply */
} fl_preconditions;

/* Where a field belongs, by its name; NULL: it is none of these. */
fl_text *fl_precondition(fl_preconditions *fields, const char *name, size_t size);

typedef struct fl_validators {
    const char *etag; /* with its quotes; may be weak */
    size_t etag_size;
    int64_t modified; /* seconds since 1970 */
    int64_t now;      /* likewise */
} fl_validators;

typedef struct fl_selection {
    int code; /* 200, 206, 304, 412 or 416 */
    uint64_t at, size;
} fl_selection;

/* Several ranges are answered with the whole file, as RFC 9110, 14.2, allows. */
fl_selection fl_select(const fl_preconditions *fields, const fl_validators *validators, uint64_t size);

#endif
