/* Arbitrary bytes as a chunked body. However they are split, the status, body, trailers and consumed bytes must be the same. A naive decoder
 * must agree on accepted bodies. */
#include "fuzz.h"
#include "http1/http1.h"

static char *naive_line(char *at, char *end) {
    for (; at + 1 < end; at++)
        if (at[0] == '\r' && at[1] == '\n')
            return at;
    return NULL;
}

/* Decodes an accepted body again, line by line. */
static void check_accepted(char *coded, size_t used, const char *body, size_t length, size_t trailers) {
    char *at = coded, *end = coded + used;
    size_t taken = 0;
    for (;;) {
        char *line = naive_line(at, end);
        HOLDS(line && line > at);
        char *stop;
        unsigned long long size = strtoull(at, &stop, 16);
        HOLDS(stop > at && stop <= line && (*stop == '\r' || *stop == ';' || *stop == ' ' || *stop == '\t'));
        at = line + 2;
        if (size == 0)
            break;
        HOLDS(size <= (size_t) (end - at) && size <= length - taken);
        HOLDS(memcmp(at, body + taken, size) == 0);
        taken += size;
        at += size;
        HOLDS(at + 2 <= end && at[0] == '\r' && at[1] == '\n');
        at += 2;
    }
    HOLDS(taken == length && trailers == (size_t) (at - coded));
    for (;;) {
        char *line = naive_line(at, end);
        HOLDS(line);
        if (line == at)
            break;
        HOLDS(memchr(at, ':', (size_t) (line - at)) && *at != ' ' && *at != '\t' && *at != ':');
        at = line + 2;
    }
    HOLDS(at + 2 == end);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fl_chunks chunks = {0};
    size_t used, length;
    char *whole = test_copy(data, size);
    fl_status expected = fl_chunks_decode(&chunks, whole, size, &used, &length);
    HOLDS(expected == FL_OK || expected == FL_AGAIN || expected == FL_BAD_CHUNK);
    HOLDS(chunks.done == (expected == FL_OK));
    HOLDS(used <= size && length <= used && (expected != FL_AGAIN || used == size));
    /* the trailers and the next request stay in place */
    size_t trailers = chunks.trailers;
    HOLDS(length <= trailers && trailers <= used);
    HOLDS(trailers == size || memcmp(whole + trailers, data + trailers, size - trailers) == 0);
    if (expected == FL_OK) {
        char *coded = test_copy(data, used + 1 > size ? size : used + 1);
        check_accepted(coded, used, whole, length, trailers);
        free(coded);
    }

    char *body = malloc(size + 1), *trailing = malloc(size + 1);
    for (uint32_t salt = first_salt(size); salt < 3; salt++) {
        cuts state = cuts_for(data, size, salt);
        fl_status status = FL_AGAIN;
        size_t consumed = 0, decoded = 0, trailed = 0;
        memset(&chunks, 0, sizeof chunks);
        for (size_t given = 0; given < size && status == FL_AGAIN;) {
            size_t piece = next_piece(&state, size - given), piece_used, piece_length;
            char *bytes = test_copy(data + given, piece);
            status = fl_chunks_decode(&chunks, bytes, piece, &piece_used, &piece_length);
            HOLDS(piece_used <= piece && piece_length <= piece_used);
            HOLDS(status != FL_AGAIN || piece_used == piece);
            HOLDS(piece_length <= chunks.trailers && chunks.trailers <= piece_used);
            memcpy(body + decoded, bytes, piece_length);
            memcpy(trailing + trailed, bytes + chunks.trailers, piece_used - chunks.trailers);
            trailed += piece_used - chunks.trailers;
            consumed += piece_used;
            decoded += piece_length;
            given += piece;
            free(bytes);
        }
        HOLDS(status == expected && consumed == used && decoded == length);
        HOLDS(memcmp(body, whole, length) == 0);
        HOLDS(trailed == used - trailers && memcmp(trailing, whole + trailers, trailed) == 0);
    }
    free(trailing);
    free(body);
    free(whole);
    return 0;
}
