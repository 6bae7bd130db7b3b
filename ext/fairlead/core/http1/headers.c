/* Interprets the headers of a request together: host, framing of the body, persistence of the connection, expectation.
 * Rejects every ambiguous request, since a proxy in front may interpret it differently (request smuggling). */
#include "http1.h"
#include "base/characters.h"
#include "parser.h"

bool fl_http1_next_element(fl_http1_list *list, const char **element, size_t *size) {
    if (!list->at)
        return false;
    const char *at = list->at;
    const char *comma = memchr(at, ',', (size_t) (list->end - at));
    const char *end = comma ? comma : list->end;
    list->at = comma ? comma + 1 : NULL;
    while (at < end && (*at == ' ' || *at == '\t')) at++;
    while (end > at && (end[-1] == ' ' || end[-1] == '\t')) end--;
    *element = at;
    *size = (size_t) (end - at);
    return true;
}

static fl_http1_list list_of(const char *bytes, fl_span value) {
    return (fl_http1_list) {bytes + value.at, bytes + value.at + value.size};
}

typedef struct connection_options {
    bool close, keep_alive, upgrade;
} connection_options;

/* Other connection options name headers for proxies to remove (RFC 9110, 7.6.1). */
static void read_connection(connection_options *options, fl_http1_list value) {
    const char *option;
    size_t size;
    while (fl_http1_next_element(&value, &option, &size)) {
        options->keep_alive |= FL_EQUALS_WORD(option, size, "keep-alive");
        options->close |= FL_EQUALS_WORD(option, size, "close");
        options->upgrade |= FL_EQUALS_WORD(option, size, "upgrade");
    }
}

/* Accepts digits only: no sign, no list, no value beyond 64 bits (RFC 9112, 6.3). */
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

/* "chunked" has to be the last coding over all Transfer-Encoding headers. Empty elements and parameters of "chunked" are errors, since
 * servers disagree about them. Sets *unknown if there is another coding. */
static fl_status read_encoding(fl_head *head, fl_http1_list value, bool *unknown) {
    const char *coding;
    size_t size;
    while (fl_http1_next_element(&value, &coding, &size)) {
        size_t name = fl_token_size(coding, size);
        if (name == 0 || head->chunked)
            return FL_BAD_ENCODING;
        if (FL_EQUALS_WORD(coding, name, "chunked")) {
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

/* An empty Host is valid: clients send it if the target has no authority (RFC 9112, 3.2). */
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

/* Checks a head with transfer-encoding; `unknown` if that names a coding other than chunked. */
static fl_status check_encoding(const fl_head *head, bool unknown) {
    if (head->has_length || head->minor == 0)
        return FL_BAD_ENCODING;
    if (unknown) /* without chunked, the end of the body is unknown (RFC 9112, 6.3) */
        return head->chunked ? FL_UNKNOWN_ENCODING : FL_BAD_ENCODING;
    return FL_OK;
}

fl_status fl_http1_interpret_headers(fl_head *head, const char *bytes) {
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
            if (!FL_EQUALS_WORD(value, header->value.size, "100-continue"))
                status = FL_EXPECTATION_FAILED;
            break;
        case FL_HEADER_UPGRADE:
            upgrades = upgrades || header->value.size > 0;
            break;
        case FL_HEADER_MCP_SESSION_ID:
            head->session = header->value;
            head->noted = true;
            break;
        case FL_HEADER_MCP_PROTOCOL_VERSION:
        case FL_HEADER_ACCEPT:
            head->noted = true;
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
    status = encoded ? check_encoding(head, unknown) : FL_OK;
    if (status != FL_OK)
        return status;
    bool modern = head->minor == 1;
    head->keep_alive = (modern || options.keep_alive) && !options.close;
    head->expect_continue = expects && modern && (head->chunked || head->content_length > 0);
    head->upgrade = modern && options.upgrade && upgrades;
    return FL_OK;
}
