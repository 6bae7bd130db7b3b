#include "selection.h"
#include "base/http_date.h"

#include <string.h>
#include <strings.h>

fl_text *fl_precondition(fl_preconditions *fields, const char *name, size_t size) {
#define IS(known) (size == sizeof known - 1 && strncasecmp(name, known, size) == 0)
    if (size < 5 || size > 19)
        return NULL;
    return IS("range")                 ? &fields->range
           : IS("if-match")            ? &fields->if_match
           : IS("if-range")            ? &fields->if_range
           : IS("if-none-match")       ? &fields->if_none_match
           : IS("if-modified-since")   ? &fields->if_modified_since
           : IS("if-unmodified-since") ? &fields->if_unmodified_since
                                       : NULL;
#undef IS
}

static bool is_weak(const char *etag, size_t size) {
    return size > 2 && etag[0] == 'W' && etag[1] == '/';
}

/* The opaque part of a tag, without W/. */
static fl_text opaque(const char *etag, size_t size) {
    size_t skipped = is_weak(etag, size) ? 2 : 0;
    return (fl_text) {etag + skipped, size - skipped};
}

static bool tags_match(const char *one, size_t one_size, const char *other, size_t other_size, bool strongly) {
    if (strongly && (is_weak(one, one_size) || is_weak(other, other_size)))
        return false;
    fl_text first = opaque(one, one_size), second = opaque(other, other_size);
    return first.size == second.size && memcmp(first.bytes, second.bytes, first.size) == 0;
}

/* Whether a list of tags has one that matches; "*" matches all. */
static bool list_matches(fl_text list, const fl_validators *validators, bool strongly) {
    const char *at = list.bytes, *end = at + list.size;
    while (at < end) {
        if (*at == ' ' || *at == '\t' || *at == ',') {
            at++;
            continue;
        }
        if (*at == '*')
            return true;
        const char *quote = memchr(at, '"', (size_t) (end - at)), *last = NULL;
        if (quote != NULL)
            last = memchr(quote + 1, '"', (size_t) (end - quote - 1));
        if (last == NULL)
            return false;
        if (tags_match(at, (size_t) (last + 1 - at), validators->etag, validators->etag_size, strongly))
            return true;
        at = last + 1;
    }
    return false;
}

/* Whether the file has been modified after a date; false if there is none. `otherwise`: the answer for a malformed one. */
static bool modified_after(fl_text date, const fl_validators *validators, bool otherwise) {
    int64_t seconds;
    return fl_http_date_parse(date.bytes, date.size, &seconds) ? validators->modified > seconds : otherwise;
}

/* RFC 9110, 13.2.2; 200: none of the conditions decides. */
static int check(const fl_preconditions *fields, const fl_validators *validators) {
    if (fields->if_match.bytes != NULL) {
        if (!list_matches(fields->if_match, validators, true))
            return 412;
    } else if (fields->if_unmodified_since.bytes != NULL && modified_after(fields->if_unmodified_since, validators, false)) {
        return 412;
    }
    if (fields->if_none_match.bytes != NULL)
        return list_matches(fields->if_none_match, validators, false) ? 304 : 200;
    if (fields->if_modified_since.bytes != NULL && !modified_after(fields->if_modified_since, validators, true))
        return 304;
    return 200;
}

/* RFC 9110, 13.1.5. A date is a strong validator only if the file cannot have changed twice within its second. */
static bool range_applies(const fl_preconditions *fields, const fl_validators *validators) {
    fl_text condition = fields->if_range;
    int64_t seconds;
    if (condition.bytes == NULL)
        return true;
    if (memchr(condition.bytes, '"', condition.size) != NULL)
        return tags_match(condition.bytes, condition.size, validators->etag, validators->etag_size, true);
    return fl_http_date_parse(condition.bytes, condition.size, &seconds) && seconds == validators->modified &&
           validators->now > seconds + 1;
}

static const char *read_number(const char *at, const char *end, uint64_t *number, bool *present) {
    *number = 0;
    *present = false;
    for (; at < end && *at >= '0' && *at <= '9'; at++) {
        *present = true;
        *number = *number > UINT64_MAX / 10 - 1 ? UINT64_MAX / 2 : *number * 10 + (uint64_t) (*at - '0');
    }
    return at;
}

/* One range (RFC 9110, 14.1.2). A malformed one leaves the whole file. */
static fl_selection read_range(fl_text range, uint64_t size) {
    const fl_selection whole = {200, 0, size}, unsatisfiable = {416, 0, 0};
    const char *at = range.bytes, *end = at + range.size;
    uint64_t first, last;
    bool has_first, has_last;
    if (range.size < 6 || strncasecmp(at, "bytes=", 6) != 0)
        return whole;
    for (at += 6; at < end && (*at == ' ' || *at == '\t');) at++;
    at = read_number(at, end, &first, &has_first);
    if (at == end || *at++ != '-')
        return whole;
    at = read_number(at, end, &last, &has_last);
    while (at < end && (*at == ' ' || *at == '\t')) at++;
    if (at != end || (!has_first && !has_last) || (has_first && has_last && last < first))
        return whole;
    if (!has_first) {
        if (last == 0 || size == 0)
            return unsatisfiable;
        last = last < size ? last : size;
        return (fl_selection) {206, size - last, last};
    }
    if (first >= size)
        return unsatisfiable;
    last = has_last && last < size ? last : size - 1;
    return (fl_selection) {206, first, last - first + 1};
}

fl_selection fl_select(const fl_preconditions *fields, const fl_validators *validators, uint64_t size) {
    int code = check(fields, validators);
    if (code != 200)
        return (fl_selection) {code, 0, 0};
    if (fields->range.bytes != NULL && !fields->head && range_applies(fields, validators))
        return read_range(fields->range, size);
    return (fl_selection) {200, 0, size};
}
