/* Parses the head line by line, each line once it is complete. request_line.c parses the request line, headers.c interprets the
 * headers. */
#include "http1.h"
#include "base/characters.h"
#include "parser.h"

enum { CR_LF = 2, SKIPPED_LINES = 2 };

/* Sets *end to the CR of the line that begins at head->line. The line must end before `bound`, whether or not the rest has been received,
 * so that the result does not depend on how the bytes were split. */
static inline fl_status find_end(fl_head *head, const char *bytes, size_t size, const fl_head_limits *limits, uint32_t *end) {
    size_t bound = limits->head;
    fl_status beyond = FL_HEAD_TOO_LARGE;
    if (!head->started && (size_t) head->line + limits->request_line + CR_LF <= bound) {
        bound = (size_t) head->line + limits->request_line + CR_LF;
        beyond = FL_TARGET_TOO_LONG;
    }
    size_t known = size < bound ? size : bound;
    const char *line_feed = NULL;
    if (known > head->scanned)
        line_feed = memchr(bytes + head->scanned, '\n', known - head->scanned);
    if (!line_feed) {
        head->scanned = (uint32_t) known;
        return size < bound ? FL_AGAIN : beyond;
    }
    size_t at = (size_t) (line_feed - bytes);
    if (at == head->line || line_feed[-1] != '\r')
        return FL_BAD_LINE_ENDING;
    *end = (uint32_t) (at - 1);
    return FL_OK;
}

static inline bool is_blank(char character) {
    return character == ' ' || character == '\t';
}

/* The loops stop at the CR after the line at the latest. */
static inline fl_status read_header(fl_head *head, const char *bytes, uint32_t at, uint32_t end, uint32_t most) {
    if (is_blank(bytes[at]))
        return FL_FOLDED_HEADER;
    uint32_t colon = at;
    while (fl_is(bytes[colon], FL_IS_TOKEN)) colon++;
    if (colon == at || bytes[colon] != ':')
        return FL_BAD_HEADER_NAME;

    uint32_t value = colon + 1;
    while (is_blank(bytes[value])) value++;
    while (end > value && is_blank(bytes[end - 1])) end--;
    if (!fl_is_text(bytes + value, end - value))
        return FL_BAD_HEADER_VALUE;

    if (head->count == most)
        return FL_HEAD_TOO_LARGE;
    fl_header *header = &head->headers[head->count++];
    header->name = (fl_span) {at, colon - at};
    header->value = (fl_span) {value, end - value};
    header->id = fl_header_lookup(bytes + at, colon - at);
    return FL_OK;
}

fl_status fl_http1_parse(fl_head *head, const char *bytes, size_t size, const fl_head_limits *limits) {
    uint32_t most = limits->headers < FL_MAX_HEADERS ? limits->headers : FL_MAX_HEADERS;
    /* A TLS client sends no line end: reject its first byte at once. */
    if (head->scanned == 0 && size > 0 && !fl_is(bytes[0], FL_IS_TOKEN) && bytes[0] != '\r' && bytes[0] != '\n')
        return FL_BAD_METHOD;
    for (;;) {
        uint32_t at = head->line, end;
        fl_status status = find_end(head, bytes, size, limits, &end);
        if (status != FL_OK)
            return status;
        head->line = head->scanned = end + CR_LF;

        if (head->started) {
            if (end == at) {
                head->size = head->line;
                return fl_http1_interpret_headers(head, bytes);
            }
            status = read_header(head, bytes, at, end, most);
        } else {
            if (end == at && head->line <= SKIPPED_LINES * CR_LF)
                continue;
            status = fl_http1_read_request_line(head, bytes, at, end - at);
            head->started = true;
        }
        if (status != FL_OK)
            return status;
    }
}
