/* What a client says of content codings (RFC 9110, 12.5.3). Nothing is allocated, nothing fails, any thread may call. */
#ifndef FL_ACCEPT_ENCODING_H
#define FL_ACCEPT_ENCODING_H

#include <stddef.h>
#include <stdint.h>

/* In the order in which the server prefers them. */
typedef enum fl_coding { FL_CODING_BROTLI, FL_CODING_ZSTD, FL_CODING_GZIP, FL_CODING_IDENTITY, FL_CODINGS } fl_coding;

/* Its name in Content-Encoding. */
const char *fl_coding_name(fl_coding coding);

/* Qualities in thousandths; 0: not acceptable. */
typedef struct fl_accept_encoding {
    uint16_t quality[FL_CODINGS];
} fl_accept_encoding;

/* Reads the values of all Accept-Encoding headers, one call for each, after fl_accept_encoding_begin. Ignores what is malformed. */
typedef struct fl_accept_encoding_reader {
    int quality[FL_CODINGS]; /* -1: not named */
    int others;              /* of "*"; -1: not named */
} fl_accept_encoding_reader;

void fl_accept_encoding_begin(fl_accept_encoding_reader *reader);
void fl_accept_encoding_add(fl_accept_encoding_reader *reader, const char *value, size_t size);
fl_accept_encoding fl_accept_encoding_end(const fl_accept_encoding_reader *reader);

/* The coding that the client prefers among those in the set (a bit for each); FL_CODING_IDENTITY also if it accepts none of them. */
fl_coding fl_accept_encoding_best(const fl_accept_encoding *accepted, unsigned available);

#endif
