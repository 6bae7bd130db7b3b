#include "response.h"
#include "base/characters.h"

enum { STATUS_LINE = 12, MAX_HEAD = 1 << 20 };

bool fl_http1_next_field(const char *bytes, size_t size, size_t *at, fl_span *name, fl_span *value) {
    const char *start = bytes + *at, *limit = bytes + size;
    const char *end = memchr(start, '\r', (size_t) (limit - start));
    const char *colon = end == NULL ? NULL : memchr(start, ':', (size_t) (end - start));
    if (colon == NULL)
        return false;
    *name = (fl_span) {(uint32_t) *at, (uint32_t) (colon - start)};
    *at = (size_t) (end + 2 - bytes);
    for (colon++; colon < end && *colon == ' ';) colon++;
    *value = (fl_span) {(uint32_t) (colon - bytes), (uint32_t) (end - colon)};
    return true;
}

static bool read_length(fl_response_head *head, const char *digits, size_t size) {
    head->has_length = size > 0 && size <= 18;
    head->length = 0;
    for (size_t i = 0; i < size && head->has_length; i++) {
        head->has_length = fl_is(digits[i], FL_IS_DIGIT);
        head->length = head->length * 10 + (uint64_t) (digits[i] - '0');
    }
    return head->has_length;
}

fl_status fl_http1_read_response(fl_response_head *head, const char *bytes, size_t size) {
    const char *line_end = memchr(bytes, '\n', size), *end = memmem(bytes, size, "\r\n\r\n", 4);
    if (end == NULL)
        return size < MAX_HEAD ? FL_AGAIN : FL_BAD_STATUS;
    *head = (fl_response_head) {.size = (size_t) (end + 4 - bytes), .fields = (size_t) (line_end + 1 - bytes)};
    if (head->fields < STATUS_LINE || memcmp(bytes, "HTTP/1.1 ", 9) != 0)
        return FL_BAD_STATUS;
    for (int i = 9; i < STATUS_LINE; i++) {
        if (!fl_is(bytes[i], FL_IS_DIGIT))
            return FL_BAD_STATUS;
        head->code = head->code * 10 + bytes[i] - '0';
    }
    fl_span name, value;
    for (size_t at = head->fields; fl_http1_next_field(bytes, head->size, &at, &name, &value);) {
        const char *text = bytes + value.at;
        if (FL_EQUALS_WORD(bytes + name.at, name.size, "transfer-encoding")) {
            head->chunked = FL_EQUALS_WORD(text, value.size, "chunked");
            if (!head->chunked)
                return FL_BAD_STATUS;
        } else if (FL_EQUALS_WORD(bytes + name.at, name.size, "content-length") && !read_length(head, text, value.size)) {
            return FL_BAD_STATUS;
        }
    }
    return FL_OK;
}
