/* The syntax of HTTP/1.0 and 1.1 (RFC 9110, 9112), without a socket: parses heads and chunks, and writes them.
 * Only the writers allocate: they grow the caller's buffer. Spans are offsets from the first byte passed to fl_http1_parse, so they stay
 * valid when the caller moves the bytes. All state is in the structures: any thread may call, one at a time for each structure.
 * Parsing fails with a status, whose HTTP code is fl_status_http. Writing fails with FL_NO_MEMORY, or with FL_BAD_HEADER_NAME or
 * FL_BAD_HEADER_VALUE for a field that would split the response. */
#ifndef FL_HTTP1_H
#define FL_HTTP1_H

#include "base/buffer.h"
#include "base/head.h"

/* Parses the available part of a head. `bytes` begins with the first byte of the request. FL_OK: the head is complete. FL_AGAIN: call again
 * with more bytes, perhaps at another address. Otherwise reject the request with this status and close the connection.
 * The result does not depend on how the bytes were split: the parser reads each line once, when it is complete, and a line that exceeds
 * a limit fails at that byte. Skips at most two empty lines before the request line (RFC 9112, 2.2). */
fl_status fl_http1_parse(fl_head *head, const char *bytes, size_t size, const fl_head_limits *limits);

/* The state of a chunked body. Zero it before the first byte. */
typedef struct fl_chunks {
    uint64_t left;       /* of the current chunk */
    uint32_t line;       /* length so far of a size line, or of all trailers */
    uint32_t extensions; /* bytes of chunk extensions in excess of the allowance */
    uint8_t state;
    bool done;       /* the last chunk and the trailers are complete */
    size_t trailers; /* where the trailers begin in the bytes of the last call; at their end if there are none */
} fl_chunks;

/* Decodes in place: of `size` coded bytes it consumes `*used`, and leaves `*decoded` bytes of the body at the beginning. FL_OK: the body is
 * complete, and bytes[*used] belongs to the next request. FL_AGAIN: it has consumed all bytes and needs more. FL_BAD_CHUNK: reject the
 * request and close the connection.
 * A size has at most 16 hexadecimal digits. Chunk extensions (4 KiB a line, and in proportion to the body) are checked and dropped.
 * Trailers (8 KiB) are checked; with the empty line at their end, they lie at bytes[trailers] to bytes[*used]. */
fl_status fl_chunks_decode(fl_chunks *chunks, char *bytes, size_t size, size_t *used, size_t *decoded);

/* Checks chunks without a change to the bytes. Bytes after the body are an error, too. */
fl_status fl_chunks_check(fl_chunks *chunks, const char *bytes, size_t size);

/* Writers: they append to `out`, or fail and leave it unchanged. */

/* "HTTP/1.1 200 OK" CR LF. `code` is 100 to 999. */
fl_status fl_http1_write_status(fl_slab *slab, fl_buffer *out, int code);

/* One header field. Fails if the name is not a token, or the value has a control character other than HTAB. */
fl_status fl_http1_write_header(fl_slab *slab, fl_buffer *out, const char *name, size_t name_size, const char *value,
                                size_t value_size);

/* "content-length: 123" CR LF. */
fl_status fl_http1_write_length(fl_slab *slab, fl_buffer *out, uint64_t length);

/* A chunk. Writes nothing if `size` is 0, since an empty chunk ends the body. */
fl_status fl_http1_write_chunk(fl_slab *slab, fl_buffer *out, const char *bytes, size_t size);
fl_status fl_http1_write_last_chunk(fl_slab *slab, fl_buffer *out);

#endif
