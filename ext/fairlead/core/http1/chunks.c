/* Chunked coding (RFC 9112, 7.1). Size lines and trailers go byte by byte, which makes cuts anywhere harmless;
 * the data between moves in one piece. */
#include "http1.h"
#include "base/characters.h"

enum {
    MOST_SIZE_DIGITS = 16,   /* 64 bits: no overflow */
    MOST_LINE = 4096,        /* bytes of a size line with its extensions */
    MOST_TRAILERS = 8192,    /* bytes of all trailers */
    MOST_EXTENSIONS = 16384, /* bytes of extensions beyond what the data pays for, see charge() */
    PAID_BY_CHUNK = 128,     /* what a chunk may bring along for free */
};

typedef enum state {
    SIZE_FIRST,
    SIZE,
    SIZE_BLANK,     /* between the size and the ";" of an extension */
    EXTENSION_NAME, /* behind a ";": a token has to begin (RFC 9112, 7.1.1) */
    EXTENSION,
    SIZE_LF,
    DATA,
    DATA_CR,
    DATA_LF,
    TRAILER_FIRST,
    TRAILER_NAME,
    TRAILER_VALUE,
    TRAILER_LF,
    LAST_LF,
    FAILED,
} state;

static inline uint64_t hex_value(char digit) {
    return digit <= '9' ? (uint64_t) (digit - '0') : (uint64_t) ((digit | 0x20) - 'a' + 10);
}

/* Extensions are dropped, so without a bound over the whole body a client could have the server read without
 * end for a body that hardly grows. Each byte of data and each chunk pays for some of them. */
static state charge(fl_chunks *chunks) {
    uint64_t cost = (uint64_t) chunks->extensions + chunks->line;
    uint64_t paid = chunks->left < MOST_LINE ? chunks->left + PAID_BY_CHUNK : MOST_LINE + PAID_BY_CHUNK;
    chunks->extensions = cost > paid ? (uint32_t) (cost - paid) : 0;
    chunks->line = 0;
    return chunks->extensions > MOST_EXTENSIONS ? FAILED : chunks->left > 0 ? DATA : TRAILER_FIRST;
}

/* The state after `byte`, which is not chunk data. */
static state step(fl_chunks *chunks, char byte) {
    state now = (state) chunks->state;
    if (now <= EXTENSION && byte != '\r' && ++chunks->line > MOST_LINE)
        return FAILED;
    if (now >= TRAILER_FIRST && ++chunks->line > MOST_TRAILERS)
        return FAILED;

    switch (now) {
    case SIZE_FIRST:
    case SIZE:
        if (fl_is(byte, FL_IS_HEX)) {
            if (chunks->line > MOST_SIZE_DIGITS)
                return FAILED;
            chunks->left = chunks->left << 4 | hex_value(byte);
            return SIZE;
        }
        if (now == SIZE_FIRST)
            return FAILED;
        if (byte == '\r')
            return SIZE_LF;
        /* fall through */
    case SIZE_BLANK:
        return byte == ';' ? EXTENSION_NAME : byte == ' ' || byte == '\t' ? SIZE_BLANK : FAILED;
    case EXTENSION_NAME:
        return byte == ' ' || byte == '\t' ? EXTENSION_NAME : fl_is(byte, FL_IS_TOKEN) ? EXTENSION : FAILED;
    case EXTENSION:
        return byte == '\r' ? SIZE_LF : fl_is_text_byte(byte) ? EXTENSION : FAILED;
    case SIZE_LF:
        return byte == '\n' ? charge(chunks) : FAILED;
    case DATA_CR:
        return byte == '\r' ? DATA_LF : FAILED;
    case DATA_LF:
        return byte == '\n' ? SIZE_FIRST : FAILED;
    case TRAILER_FIRST:
        return byte == '\r' ? LAST_LF : fl_is(byte, FL_IS_TOKEN) ? TRAILER_NAME : FAILED;
    case TRAILER_NAME:
        return byte == ':' ? TRAILER_VALUE : fl_is(byte, FL_IS_TOKEN) ? TRAILER_NAME : FAILED;
    case TRAILER_VALUE:
        return byte == '\r' ? TRAILER_LF : fl_is_text_byte(byte) ? TRAILER_VALUE : FAILED;
    case TRAILER_LF:
        return byte == '\n' ? TRAILER_FIRST : FAILED;
    case LAST_LF:
        chunks->done = byte == '\n';
        return chunks->done ? LAST_LF : FAILED;
    case DATA:
    case FAILED:
        break;
    }
    return FAILED;
}

/* `body`: the same bytes, whose first become the body's, or NULL. */
static fl_status walk(fl_chunks *chunks, const char *bytes, char *body, size_t size, size_t *used, size_t *decoded) {
    size_t at = 0, length = 0;
    chunks->trailers = chunks->state >= TRAILER_FIRST ? 0 : SIZE_MAX;
    while (at < size && !chunks->done && chunks->state != FAILED) {
        if (chunks->state != DATA) {
            if (chunks->state == TRAILER_FIRST && chunks->trailers == SIZE_MAX)
                chunks->trailers = at;
            chunks->state = (uint8_t) step(chunks, bytes[at++]);
            continue;
        }
        size_t piece = size - at < chunks->left ? size - at : (size_t) chunks->left;
        if (body != NULL && length != at)
            memmove(body + length, bytes + at, piece);
        at += piece;
        length += piece;
        chunks->left -= piece;
        if (chunks->left == 0)
            chunks->state = DATA_CR;
    }
    if (chunks->trailers > at)
        chunks->trailers = at;
    *used = at;
    *decoded = length;
    return chunks->done ? FL_OK : chunks->state == FAILED ? FL_BAD_CHUNK : FL_AGAIN;
}

fl_status fl_chunks_decode(fl_chunks *chunks, char *bytes, size_t size, size_t *used, size_t *decoded) {
    return walk(chunks, bytes, bytes, size, used, decoded);
}

fl_status fl_chunks_check(fl_chunks *chunks, const char *bytes, size_t size) {
    size_t used, decoded;
    fl_status status = walk(chunks, bytes, NULL, size, &used, &decoded);
    return used < size ? FL_BAD_CHUNK : status;
}
