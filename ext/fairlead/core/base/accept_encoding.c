#include "accept_encoding.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

static const char *const names[FL_CODINGS] = {"br", "zstd", "gzip", "identity"};

const char *fl_coding_name(fl_coding coding) {
    return names[coding];
}

void fl_accept_encoding_begin(fl_accept_encoding_reader *reader) {
    reader->others = -1;
    for (int i = 0; i < FL_CODINGS; i++) reader->quality[i] = -1;
}

static bool is_space(char byte) {
    return byte == ' ' || byte == '\t';
}

static const char *skip_space(const char *at, const char *end) {
    while (at < end && is_space(*at)) at++;
    return at;
}

/* "0.5" in thousandths; -1: malformed. */
static int read_quality(const char *at, const char *end) {
    if (at == end || (*at != '0' && *at != '1'))
        return -1;
    int value = (*at++ - '0') * 1000;
    if (at < end && *at == '.')
        at++;
    for (int unit = 100; at < end && *at >= '0' && *at <= '9'; unit /= 10) {
        if (unit == 0)
            return -1;
        value += (*at++ - '0') * unit;
    }
    return at == end && value <= 1000 ? value : -1;
}

/* One element: a coding, perhaps with ";q=". */
static void add_element(fl_accept_encoding_reader *reader, const char *at, const char *end) {
    const char *name_end = at;
    while (name_end < end && *name_end != ';' && !is_space(*name_end)) name_end++;
    size_t size = (size_t) (name_end - at);
    int quality = 1000;
    const char *parameter = skip_space(name_end, end);
    if (parameter < end) {
        parameter = skip_space(parameter + 1, end);
        while (end > parameter && is_space(end[-1])) end--;
        if (end - parameter < 3 || (*parameter | 0x20) != 'q' || parameter[1] != '=')
            return;
        quality = read_quality(parameter + 2, end);
        if (quality < 0)
            return;
    }
    if (size == 1 && *at == '*')
        reader->others = quality;
    for (int i = 0; i < FL_CODINGS; i++)
        if (size == strlen(names[i]) && strncasecmp(at, names[i], size) == 0)
            reader->quality[i] = quality;
    if (size == 6 && strncasecmp(at, "x-gzip", 6) == 0)
        reader->quality[FL_CODING_GZIP] = quality;
}

void fl_accept_encoding_add(fl_accept_encoding_reader *reader, const char *value, size_t size) {
    const char *at = value, *end = value + size;
    while (at < end) {
        const char *comma = memchr(at, ',', (size_t) (end - at)), *last = comma == NULL ? end : comma;
        at = skip_space(at, last);
        if (at < last)
            add_element(reader, at, last);
        at = comma == NULL ? end : comma + 1;
    }
}

/* What is not named has the quality of "*"; without that, identity is acceptable and all else is not. Identity ranks below everything
 * that is named. */
fl_accept_encoding fl_accept_encoding_end(const fl_accept_encoding_reader *reader) {
    fl_accept_encoding accepted;
    for (int i = 0; i < FL_CODINGS; i++) {
        int quality = reader->quality[i] >= 0 ? reader->quality[i] : reader->others;
        if (quality < 0)
            quality = i == FL_CODING_IDENTITY ? 1 : 0;
        accepted.quality[i] = (uint16_t) quality;
    }
    return accepted;
}

fl_coding fl_accept_encoding_best(const fl_accept_encoding *accepted, unsigned available) {
    fl_coding best = FL_CODING_IDENTITY;
    int quality = accepted->quality[FL_CODING_IDENTITY];
    for (int i = FL_CODING_GZIP; i >= 0; i--)
        if ((available >> i & 1) && accepted->quality[i] > 0 && accepted->quality[i] >= quality) {
            best = (fl_coding) i;
            quality = accepted->quality[i];
        }
    return best;
}
