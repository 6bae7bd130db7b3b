/* Chunked coding (RFC 9112, 7.1). A state machine reads size lines and trailers byte by byte, so input may be split anywhere; the data in
 * between moves as a whole. */
#include "http1.h"
#include "base/characters.h"

enum {
    MAX_SIZE_DIGITS = 16,   /* 64 bits */
    MAX_LINE = 4096,        /* bytes of a size line with its extensions */
    MAX_TRAILERS = 8192,    /* bytes of all trailers */
    MAX_EXTENSIONS = 16384, /* see account_extensions */
    FREE_PER_CHUNK = 128,
};

typedef enum state {
    SIZE_FIRST,
    SIZE,
    SIZE_BLANK,     /* between the size and the ";" of an extension */
    EXTENSION_NAME, /* after a ";": a token has to begin (RFC 9112, 7.1.1) */
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

/* The decoder drops extensions, so without a limit a client could send them for ever with a tiny body. Each byte of data (up to MAX_LINE a
 * chunk) and each chunk allow some bytes of extensions; the excess must not grow beyond MAX_EXTENSIONS. */
static state account_extensions(fl_chunks *chunks) {
    uint64_t size = (uint64_t) chunks->extensions + chunks->line;
    uint64_t allowed = (chunks->left < MAX_LINE ? chunks->left : MAX_LINE) + FREE_PER_CHUNK;
    chunks->extensions = size > allowed ? (uint32_t) (size - allowed) : 0;
    chunks->line = 0;
    return chunks->extensions > MAX_EXTENSIONS ? FAILED : chunks->left > 0 ? DATA : TRAILER_FIRST;
}

/* The state after `byte`, which is not chunk data. */
static state step(fl_chunks *chunks, char byte) {
    state now = (state) chunks->state;
    if (now <= EXTENSION && byte != '\r' && ++chunks->line > MAX_LINE)
        return FAILED;
    if (now >= TRAILER_FIRST && ++chunks->line > MAX_TRAILERS)
        return FAILED;

    switch (now) {
    case SIZE_FIRST:
    case SIZE:
        if (fl_is(byte, FL_IS_HEX)) {
            if (chunks->line > MAX_SIZE_DIGITS)
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
        return byte == '\n' ? account_extensions(chunks) : FAILED;
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

/* `body`: `bytes`, to decode them in place, or NULL, to check them only. */
static fl_status process(fl_chunks *chunks, const char *bytes, char *body, size_t size, size_t *used, size_t *decoded) {
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
    return process(chunks, bytes, bytes, size, used, decoded);
}

fl_status fl_chunks_check(fl_chunks *chunks, const char *bytes, size_t size) {
    size_t used, decoded;
    fl_status status = process(chunks, bytes, NULL, size, &used, &decoded);
    return used < size ? FL_BAD_CHUNK : status;
}
