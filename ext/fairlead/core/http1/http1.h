/* HTTP/1.0 and 1.1 (RFC 9110, 9112) without a socket: bytes in, spans out; heads and chunks into a buffer.
 * Nothing here allocates but the writers, which grow the buffer they are given; nothing is freed here.
 * Spans are offsets from the first byte given to fl_http1_parse, so they stay valid when that memory moves;
 * they mean something as long as the caller keeps those bytes.
 * No state but in the structures: any thread may call, one at a time for each structure.
 * What can fail: parsing, with the status that says what was wrong (its HTTP code is fl_status_http); writing,
 * with FL_NO_MEMORY, or FL_BAD_HEADER_NAME and FL_BAD_HEADER_VALUE for what would split the response. */
#ifndef FL_HTTP1_H
#define FL_HTTP1_H

#include "base/buffer.h"
#include "base/head.h"

/* Reads as much of a head as is there. `bytes` always begins with the first byte of the request; call again
 * with more (the memory may have moved). At most two empty lines before the request line are skipped (RFC
 * 9112, 2.2). Every line is read once, when it is complete, in its order, so the answer does not depend on how
 * the bytes were cut; a line beyond a limit is refused as soon as it is. The headers are judged together at
 * the head's end.
 * FL_OK: complete. FL_AGAIN: more is needed. Anything else: refuse with it and close.
 * With FL_MOST_HEADERS spans the structure is large: clear it with fl_head_clear, which leaves them. */
fl_status fl_http1_parse(fl_head *head, const char *bytes, size_t size, const fl_head_limits *limits);

/* The chunked coding of a body, decoded as it comes. Zeroed before the first byte. */
typedef struct fl_chunks {
    uint64_t left;       /* of the present chunk */
    uint32_t line;       /* length so far of a size line, or of all trailers */
    uint32_t extensions; /* bytes of chunk extensions that the data has not yet paid for */
    uint8_t state;
    bool done;       /* the last chunk and the trailers have been read */
    size_t trailers; /* where, in the bytes of the last call, those of the trailers began; behind them if none were */
} fl_chunks;

/* Decodes in place: `bytes` holds `size` coded bytes; afterwards its first `*decoded` bytes are body, and
 * `*used` coded bytes were consumed (all of them, unless done: what follows is the next request's, still at
 * bytes[*used]).
 * A size is at most 16 hexadecimal digits. Chunk extensions (4 KiB a line, and no more than the body
 * outweighs) are read, checked and dropped. So are trailers (8 KiB), which, with the empty line at their end, lie at
 * bytes[trailers] to bytes[*used].
 * FL_OK: done. FL_AGAIN: all was consumed, more is to come. FL_BAD_CHUNK: refuse and close; it stays that. */
fl_status fl_chunks_decode(fl_chunks *chunks, char *bytes, size_t size, size_t *used, size_t *decoded);

/* Likewise, and leaves the bytes as they are; what follows the body is wrong, too. */
fl_status fl_chunks_check(fl_chunks *chunks, const char *bytes, size_t size);

/* Writers: they append to `out`, or leave it as it was. */

/* "HTTP/1.1 200 OK" CR LF. `code` is 100 to 999. */
fl_status fl_http1_write_status(fl_slab *slab, fl_buffer *out, int code);

/* One header field. Refuses a name that is not a token and a value with CR, LF, NUL or another control
 * character but HTAB. */
fl_status fl_http1_write_header(fl_slab *slab, fl_buffer *out, const char *name, size_t name_size, const char *value,
                                size_t value_size);

/* "content-length: 123" CR LF. */
fl_status fl_http1_write_length(fl_slab *slab, fl_buffer *out, uint64_t length);

/* A chunk's size line and, after its bytes, its end; nothing for no bytes, which would end the body: that is
 * what fl_http1_write_last_chunk is for. */
fl_status fl_http1_write_chunk(fl_slab *slab, fl_buffer *out, const char *bytes, size_t size);
fl_status fl_http1_write_last_chunk(fl_slab *slab, fl_buffer *out);

#endif
