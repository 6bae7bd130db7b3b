/* What the headers mean together: whose request it is, how its body is framed, what becomes of the connection.
 * Whatever could be read in two ways is refused, since a proxy in front may have read it in the other. */
#include "http1.h"
#include "base/characters.h"
#include "parts.h"

typedef struct list {
    const char *at, *end;
} list;

/* The next element of a comma-separated list without the white space around it; false at its end. */
static bool next_element(list *rest, const char **element, size_t *size) {
    if (!rest->at)
        return false;
    const char *at = rest->at;
    const char *comma = memchr(at, ',', (size_t) (rest->end - at));
    const char *end = comma ? comma : rest->end;
    rest->at = comma ? comma + 1 : NULL;
    while (at < end && (*at == ' ' || *at == '\t')) at++;
    while (end > at && (end[-1] == ' ' || end[-1] == '\t')) end--;
    *element = at;
    *size = (size_t) (end - at);
    return true;
}

static list list_of(const char *bytes, fl_span value) {
    return (list) {bytes + value.at, bytes + value.at + value.size};
}

typedef struct connection_options {
    bool close, keep_alive, upgrade;
} connection_options;

/* Connection options of other names concern proxies (RFC 9110, 7.6.1) and are passed over. */
static void read_connection(connection_options *options, list rest) {
    const char *option;
    size_t size;
    while (next_element(&rest, &option, &size)) {
        options->keep_alive |= FL_SAYS(option, size, "keep-alive");
        options->close |= FL_SAYS(option, size, "close");
        options->upgrade |= FL_SAYS(option, size, "upgrade");
    }
}

/* Digits and nothing else: no sign, no list, no value beyond 64 bits (RFC 9112, 6.3). */
static fl_status read_length(fl_head *head, const char *at, size_t size) {
    if (size == 0 || head->has_length)
        return FL_BAD_LENGTH;
    uint64_t length = 0;
    for (size_t i = 0; i < size; i++) {
        if (!fl_is(at[i], FL_IS_DIGIT))
            return FL_BAD_LENGTH;
        if (__builtin_mul_overflow(length, 10, &length))
            return FL_BAD_LENGTH;
        if (__builtin_add_overflow(length, (uint64_t) (at[i] - '0'), &length))
            return FL_BAD_LENGTH;
    }
    head->content_length = length;
    head->has_length = true;
    return FL_OK;
}

/* One transfer coding after the other, over all Transfer-Encoding headers. "chunked" has to be the last one; an
 * empty element or a parameter of chunked is refused, since servers do not agree on them. An unknown coding is
 * looked for only if nothing is wrong: *unknown. */
static fl_status read_encoding(fl_head *head, list rest, bool *unknown) {
    const char *coding;
    size_t size;
    while (next_element(&rest, &coding, &size)) {
        size_t name = fl_token_size(coding, size);
        if (name == 0 || head->chunked)
            return FL_BAD_ENCODING;
        if (FL_SAYS(coding, name, "chunked")) {
            if (name != size)
                return FL_BAD_ENCODING;
            head->chunked = true;
        } else {
            if (name != size && coding[name] != ';' && coding[name] != ' ' && coding[name] != '\t')
                return FL_BAD_ENCODING;
            *unknown = true;
        }
    }
    return FL_OK;
}

/* An empty Host is what RFC 9112, 3.2 asks of a client whose target has no authority: it counts as there. */
static fl_status read_host(fl_head *head, const char *bytes, const fl_header *host) {
    if (!host)
        return head->minor == 0 ? FL_OK : FL_BAD_HOST;
    uint32_t significant = 0;
    if (host->value.size > 0 && !fl_http1_is_authority(bytes + host->value.at, host->value.size, false, &significant))
        return FL_BAD_HOST;
    if (head->form == FL_TARGET_ORIGIN || head->form == FL_TARGET_ASTERISK)
        head->authority = (fl_span) {host->value.at, significant};
    return FL_OK;
}

fl_status fl_http1_conclude(fl_head *head, const char *bytes) {
    const fl_header *host = NULL;
    connection_options options = {false, false, false};
    bool encoded = false, unknown = false, expects = false, upgrades = false;
    fl_status status = FL_OK;

    for (uint32_t i = 0; i < head->count; i++) {
        const fl_header *header = &head->headers[i];
        const char *value = bytes + header->value.at;
        switch (header->id) {
        case FL_HEADER_HOST:
            if (host)
                return FL_BAD_HOST;
            host = header;
            break;
        case FL_HEADER_CONNECTION:
            read_connection(&options, list_of(bytes, header->value));
            break;
        case FL_HEADER_CONTENT_LENGTH:
            status = read_length(head, value, header->value.size);
            break;
        case FL_HEADER_TRANSFER_ENCODING:
            encoded = true;
            status = read_encoding(head, list_of(bytes, header->value), &unknown);
            break;
        case FL_HEADER_EXPECT:
            expects = true;
            if (!FL_SAYS(value, header->value.size, "100-continue"))
                status = FL_EXPECTATION_FAILED;
            break;
        case FL_HEADER_UPGRADE:
            upgrades = upgrades || header->value.size > 0;
            break;
        default:
            break;
        }
        if (status != FL_OK)
            return status;
    }

    status = read_host(head, bytes, host);
    if (status != FL_OK)
        return status;
    if (encoded) {
        if (head->has_length || head->minor == 0)
            return FL_BAD_ENCODING;
        if (unknown) /* without chunked, where the body ends cannot be known (RFC 9112, 6.3) */
            return head->chunked ? FL_UNKNOWN_ENCODING : FL_BAD_ENCODING;
    }
    bool modern = head->minor == 1;
    head->keep_alive = (modern || options.keep_alive) && !options.close;
    head->expect_continue = expects && modern && (head->chunked || head->content_length > 0);
    head->upgrade = modern && options.upgrade && upgrades;
    return FL_OK;
}
