/* A file that answers a request, and what its response says of it. fl_file_open allocates a descriptor, which the caller passes on to
 * fl_file_respond or closes. Any thread may call, but for fl_file_respond: its caller holds the lock. */
#ifndef FL_FILE_H
#define FL_FILE_H

#include "connection/exchange.h"
#include "selection.h"

enum { FL_MAX_ETAG = 40 };

typedef struct fl_file {
    int descriptor; /* close-on-exec */
    uint64_t size;
    int64_t modified; /* seconds since 1970 */
    char etag[FL_MAX_ETAG];
    size_t etag_size;
} fl_file;

/* Opens a regular file in the folder, and nothing outside it, wherever symbolic links and ".." lead. False, with errno: there is none, or
 * it cannot be opened. */
bool fl_file_open(int folder, const char *path, fl_file *file);

/* What is known of an open file. False: it is no regular file. */
bool fl_file_describe(int descriptor, fl_file *file);

/* Headers of a response, beside those that follow from the selection. */
typedef struct fl_file_header {
    const char *name, *value;
} fl_file_header;

/* Responds with a file, and takes its descriptor. `headers` ends with an empty name. The exchange belongs to the core afterwards, or has
 * ended. */
void fl_file_respond(fl_exchange *exchange, const fl_file *file, fl_selection selection, const fl_file_header *headers);

#endif
