/* Content types by the extension of a file name, the same as Rack's. Nothing is allocated, nothing fails, any thread may call. */
#ifndef FL_CONTENT_TYPE_H
#define FL_CONTENT_TYPE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct fl_content_type {
    const char *name;
    bool compressible;
} fl_content_type;

/* NULL: the extension is not known, or there is none. */
const fl_content_type *fl_content_type_of(const char *path, size_t size);

#endif
