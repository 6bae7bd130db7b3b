/* Arbitrary bytes as a request head, with limits from the first bytes. However they are split, the result must be the same. Accepted heads
 * must be valid. */
#include "fuzz.h"
#include "http1/http1.h"
#include <ctype.h>

enum { PREFIX = 3 };

static fl_head whole, pieces;

static void in_bounds(fl_span span) {
    HOLDS(span.at <= whole.size && span.size <= whole.size - span.at);
}

enum { WORD, TARGET, TEXT };

static int clean(const char *bytes, fl_span span, int kind) {
    for (uint32_t i = 0; i < span.size; i++) {
        unsigned char byte = (unsigned char) bytes[span.at + i];
        if (byte == 0x7f || (kind == TEXT ? byte < 0x20 && byte != '\t' : byte <= 0x20) || (kind == WORD && byte >= 0x80))
            return 0;
    }
    return 1;
}

static void check_header(const char *bytes, const fl_header *header, uint32_t from) {
    in_bounds(header->name);
    in_bounds(header->value);
    HOLDS(header->name.at >= from && header->name.size > 0 && clean(bytes, header->name, WORD));
    HOLDS(bytes[header->name.at + header->name.size] == ':');
    HOLDS(header->value.at > header->name.at + header->name.size && clean(bytes, header->value, TEXT));
    if (header->value.size) {
        char first = bytes[header->value.at], last = bytes[header->value.at + header->value.size - 1];
        HOLDS(first != ' ' && first != '\t' && last != ' ' && last != '\t');
    }
    HOLDS(header->id == fl_header_lookup(bytes + header->name.at, header->name.size));
}

static void check_accepted(const char *bytes, size_t size, const fl_head_limits *limits) {
    HOLDS(whole.size >= 16 && whole.size <= size && whole.size <= limits->head);
    HOLDS(memcmp(bytes + whole.size - 4, "\r\n\r\n", 4) == 0);
    HOLDS(whole.count <= limits->headers && whole.minor <= 1);

    fl_span all[] = {whole.method, whole.scheme, whole.authority, whole.target, whole.path, whole.query};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        in_bounds(all[i]);
        HOLDS(clean(bytes, all[i], i < 3 ? WORD : TARGET));
        HOLDS(!all[i].size || !memchr(bytes + all[i].at, '#', all[i].size) || i == 0);
    }
    HOLDS(whole.method.size >= 1 && whole.target.size >= 1);
    if (whole.form == FL_TARGET_ORIGIN)
        HOLDS(bytes[whole.path.at] == '/' && whole.path.at == whole.target.at);
    if (whole.form != FL_TARGET_ABSOLUTE)
        HOLDS(whole.scheme.size == 0);
    if (whole.form == FL_TARGET_ABSOLUTE || whole.form == FL_TARGET_AUTHORITY)
        HOLDS(whole.authority.size > 0);
    if (whole.path.size)
        HOLDS(!memchr(bytes + whole.path.at, '?', whole.path.size));
    if (whole.authority.size)
        HOLDS(!memchr(bytes + whole.authority.at, '@', whole.authority.size));

    int hosts = 0, lengths = 0, encodings = 0;
    uint32_t from = whole.target.at + whole.target.size;
    for (uint32_t i = 0; i < whole.count; i++) {
        const fl_header *header = &whole.headers[i];
        check_header(bytes, header, from);
        from = header->value.at + header->value.size;
        hosts += header->id == FL_HEADER_HOST;
        lengths += header->id == FL_HEADER_CONTENT_LENGTH;
        encodings += header->id == FL_HEADER_TRANSFER_ENCODING;
    }
    HOLDS(hosts == 1 || (hosts == 0 && whole.minor == 0));
    HOLDS(lengths == whole.has_length && encodings == whole.chunked && lengths + encodings <= 1);
    HOLDS(!whole.chunked || whole.minor == 1);
    HOLDS(!whole.upgrade || whole.minor == 1);
    HOLDS(!whole.expect_continue || whole.chunked || whole.content_length > 0);
}

static void check_same(void) {
    HOLDS(memcmp(&whole, &pieces, offsetof(fl_head, headers)) == 0);
    HOLDS(memcmp(whole.headers, pieces.headers, whole.count * sizeof whole.headers[0]) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < PREFIX)
        return 0;
    /* small limits too, so that short inputs reach them */
    fl_head_limits limits = {8192, 32768, 100};
    if (data[0] & 1)
        limits.request_line = 1 + data[1];
    if (data[0] & 2)
        limits.head = 1 + data[2] * 2u;
    if (data[0] & 4)
        limits.headers = data[1] % 8;
    data += PREFIX;
    size -= PREFIX;

    memset(&whole, 0, sizeof whole);
    char *bytes = test_copy(data, size);
    fl_status expected = fl_http1_parse(&whole, bytes, size, &limits);
    HOLDS(expected == FL_OK || expected == FL_AGAIN ||
          (fl_status_http(expected) >= 400 && expected != FL_NO_MEMORY));
    HOLDS(expected != FL_AGAIN || size < limits.head);
    if (expected == FL_OK)
        check_accepted(bytes, size, &limits);
    free(bytes);

    for (uint32_t salt = first_salt(size); salt < 3; salt++) {
        cuts state = cuts_for(data, size, salt);
        fl_status status = FL_AGAIN;
        memset(&pieces, 0, sizeof pieces);
        for (size_t given = 0; given < size && status == FL_AGAIN;) {
            given += next_piece(&state, size - given);
            bytes = test_copy(data, given);
            status = fl_http1_parse(&pieces, bytes, given, &limits);
            free(bytes);
        }
        HOLDS(status == expected);
        if (status == FL_OK)
            check_same();
    }
    return 0;
}
