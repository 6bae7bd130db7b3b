#include "http1.h"
#include "base/characters.h"

static inline char *put(char *at, const char *bytes, size_t size) {
    memcpy(at, bytes, size);
    return at + size;
}
#define PUT(at, literal) put(at, literal, sizeof(literal) - 1)

enum { MAX_DIGITS = 20, MAX_HEX_DIGITS = 16, STATUS_LINE_ROOM = 80 };

fl_status fl_http1_write_status(fl_slab *slab, fl_buffer *out, int code) {
    const char *reason = fl_reason(code);
    if (fl_buffer_reserve(slab, out, STATUS_LINE_ROOM) != FL_OK)
        return FL_NO_MEMORY;
    char *start = fl_buffer_room(out), *at = PUT(start, "HTTP/1.1 ");
    *at++ = (char) ('0' + code / 100 % 10);
    *at++ = (char) ('0' + code / 10 % 10);
    *at++ = (char) ('0' + code % 10);
    *at++ = ' '; /* required also before an empty phrase (RFC 9112, 4) */
    at = put(at, reason, strlen(reason));
    at = PUT(at, "\r\n");
    fl_buffer_added(out, (size_t) (at - start));
    return FL_OK;
}

fl_status fl_http1_write_header(fl_slab *slab, fl_buffer *out, const char *name, size_t name_size, const char *value,
                                size_t value_size) {
    if (name_size == 0 || fl_token_size(name, name_size) != name_size)
        return FL_BAD_HEADER_NAME;
    if (!fl_is_text(value, value_size))
        return FL_BAD_HEADER_VALUE;
    size_t size;
    if (__builtin_add_overflow(name_size, value_size, &size) || __builtin_add_overflow(size, 4, &size))
        return FL_NO_MEMORY;
    if (fl_buffer_reserve(slab, out, size) != FL_OK)
        return FL_NO_MEMORY;
    char *at = put(fl_buffer_room(out), name, name_size);
    at = PUT(at, ": ");
    if (value_size)
        at = put(at, value, value_size);
    PUT(at, "\r\n");
    fl_buffer_added(out, size);
    return FL_OK;
}

fl_status fl_http1_write_length(fl_slab *slab, fl_buffer *out, uint64_t length) {
    char digits[MAX_DIGITS], *first = digits + MAX_DIGITS;
    do {
        *--first = (char) ('0' + length % 10);
        length /= 10;
    } while (length);
    if (fl_buffer_reserve(slab, out, MAX_DIGITS + 18) != FL_OK)
        return FL_NO_MEMORY;
    char *start = fl_buffer_room(out), *at = PUT(start, "content-length: ");
    at = put(at, first, (size_t) (digits + MAX_DIGITS - first));
    at = PUT(at, "\r\n");
    fl_buffer_added(out, (size_t) (at - start));
    return FL_OK;
}

fl_status fl_http1_write_chunk(fl_slab *slab, fl_buffer *out, const char *bytes, size_t size) {
    if (size == 0)
        return FL_OK;
    char digits[MAX_HEX_DIGITS], *first = digits + MAX_HEX_DIGITS;
    size_t left = size;
    do {
        *--first = "0123456789abcdef"[left & 15];
        left >>= 4;
    } while (left);
    size_t line = (size_t) (digits + MAX_HEX_DIGITS - first);
    if (size > SIZE_MAX - (MAX_HEX_DIGITS + 4))
        return FL_NO_MEMORY;
    if (fl_buffer_reserve(slab, out, line + 2 + size + 2) != FL_OK)
        return FL_NO_MEMORY;
    char *at = put(fl_buffer_room(out), first, line);
    at = PUT(at, "\r\n");
    at = put(at, bytes, size);
    PUT(at, "\r\n");
    fl_buffer_added(out, line + 2 + size + 2);
    return FL_OK;
}

fl_status fl_http1_write_last_chunk(fl_slab *slab, fl_buffer *out) {
    return fl_buffer_append(slab, out, "0\r\n\r\n", 5);
}
