/* Parses the request line: method, target, version (RFC 9112, 3). */
#include "http1.h"
#include "base/characters.h"
#include "parser.h"
#include <arpa/inet.h>

enum { MAX_METHOD_SIZE = 32, VERSION_SIZE = 8, MAX_IPV6_SIZE = 45, MAX_PORT = 65535 };

/* The size of an IPv6 address with its brackets; 0: there is none. */
static size_t ipv6_literal_size(const char *at, size_t size) {
    const char *close = memchr(at, ']', size);
    size_t inside = close ? (size_t) (close - at) - 1 : 0;
    if (inside == 0 || inside > MAX_IPV6_SIZE)
        return 0;
    char text[MAX_IPV6_SIZE + 1];
    memcpy(text, at + 1, inside);
    text[inside] = 0;
    struct in6_addr address;
    /* strlen: the text may contain a NUL */
    return strlen(text) == inside && inet_pton(AF_INET6, text, &address) == 1 ? inside + 2 : 0;
}

static size_t host_size(const char *at, size_t size) {
    if (size > 0 && at[0] == '[')
        return ipv6_literal_size(at, size);
    size_t i = 0;
    while (i < size) {
        if (fl_is(at[i], FL_IS_HOST))
            i++;
        else if (at[i] == '%' && size - i > 2 && fl_is(at[i + 1], FL_IS_HEX) && fl_is(at[i + 2], FL_IS_HEX))
            i += 3;
        else
            break;
    }
    return i;
}

bool fl_http1_is_authority(const char *at, size_t size, bool port_needed, uint32_t *significant) {
    size_t host = host_size(at, size);
    if (host == 0)
        return false;
    *significant = (uint32_t) (host + 1 < size ? size : host);
    if (host == size)
        return !port_needed;
    if (at[host] != ':')
        return false;
    uint32_t port = 0;
    for (size_t i = host + 1; i < size; i++) {
        if (!fl_is(at[i], FL_IS_DIGIT))
            return false;
        port = port * 10 + (uint32_t) (at[i] - '0');
        if (port > MAX_PORT)
            return false;
    }
    return host + 1 < size || !port_needed;
}

/* Parses "/path?query" to the end of the target. The path may be empty. */
static bool read_path(fl_head *head, const char *bytes, uint32_t at, uint32_t end) {
    uint32_t here = at;
    while (here < end && fl_is(bytes[here], FL_IS_PATH)) here++;
    head->path = (fl_span) {at, here - at};
    if (here == end)
        return true;
    if (bytes[here] != '?')
        return false;
    head->query.at = ++here;
    while (here < end && fl_is(bytes[here], FL_IS_QUERY)) here++;
    head->query.size = here - head->query.at;
    return here == end;
}

/* Parses "http://authority/path?query". Rejects other schemes. */
static bool read_absolute(fl_head *head, const char *bytes, uint32_t at, uint32_t end) {
    const char *target = bytes + at;
    uint32_t size = end - at, scheme;
    if (size > 7 && FL_EQUALS_WORD(target, 7, "http://"))
        scheme = 4;
    else if (size > 8 && FL_EQUALS_WORD(target, 8, "https://"))
        scheme = 5;
    else
        return false;
    uint32_t authority = at + scheme + 3, slash = authority;
    while (slash < end && bytes[slash] != '/' && bytes[slash] != '?') slash++;
    head->form = FL_TARGET_ABSOLUTE;
    head->scheme = (fl_span) {at, scheme};
    head->authority.at = authority;
    return fl_http1_is_authority(bytes + authority, slash - authority, false, &head->authority.size) &&
           read_path(head, bytes, slash, end);
}

static bool read_target(fl_head *head, const char *bytes) {
    uint32_t at = head->target.at, size = head->target.size, end = at + size;
    if (size == 0)
        return false;
    if (head->method.size == 7 && memcmp(bytes + head->method.at, "CONNECT", 7) == 0) {
        head->form = FL_TARGET_AUTHORITY;
        head->authority.at = at;
        return fl_http1_is_authority(bytes + at, size, true, &head->authority.size);
    }
    if (bytes[at] == '/') {
        head->form = FL_TARGET_ORIGIN;
        return read_path(head, bytes, at, end);
    }
    if (bytes[at] == '*') {
        head->form = FL_TARGET_ASTERISK;
        head->path = head->target;
        return size == 1 && head->method.size == 7 && memcmp(bytes + head->method.at, "OPTIONS", 7) == 0;
    }
    return read_absolute(head, bytes, at, end);
}

/* Versions above 1.1 with major version 1 count as 1.1 (RFC 9110, 2.5). */
static fl_status read_version(fl_head *head, const char *at) {
    if (memcmp(at, "HTTP/1.", VERSION_SIZE - 1) == 0 && fl_is(at[7], FL_IS_DIGIT)) {
        head->minor = at[7] != '0';
        return FL_OK;
    }
    bool well_formed = memcmp(at, "HTTP/", 5) == 0 && fl_is(at[5], FL_IS_DIGIT) && at[6] == '.' && fl_is(at[7], FL_IS_DIGIT);
    return well_formed ? FL_UNKNOWN_VERSION : FL_BAD_VERSION;
}

fl_status fl_http1_read_request_line(fl_head *head, const char *bytes, uint32_t at, uint32_t size) {
    uint32_t method = (uint32_t) fl_token_size(bytes + at, size < MAX_METHOD_SIZE + 1 ? size : MAX_METHOD_SIZE + 1);
    if (method == 0 || method > MAX_METHOD_SIZE || bytes[at + method] != ' ')
        return FL_BAD_METHOD;
    head->method = (fl_span) {at, method};
    head->head_method = method == 4 && memcmp(bytes + at, "HEAD", 4) == 0;

    /* The version comes first, so that the preface of HTTP/2 ("PRI * HTTP/2.0") fails with FL_UNKNOWN_VERSION. */
    if (size < method + 2 + VERSION_SIZE || bytes[at + size - VERSION_SIZE - 1] != ' ')
        return FL_BAD_VERSION;
    fl_status status = read_version(head, bytes + at + size - VERSION_SIZE);
    if (status != FL_OK)
        return status;

    head->target = (fl_span) {at + method + 1, size - method - 2 - VERSION_SIZE};
    return read_target(head, bytes) ? FL_OK : FL_BAD_TARGET;
}
