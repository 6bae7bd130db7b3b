#include "forwarded.h"

#include <string.h>
#include <strings.h>

enum { MAX_PROXIES = 64 }; /* as many addresses of one request are looked at, from the end */

typedef struct text {
    const char *at;
    size_t size;
} text;

/* An element of Forwarded. */
typedef struct element {
    text by_for, proto;
} element;

static text trim(text text) {
    while (text.size > 0 && (*text.at == ' ' || *text.at == '\t')) text.at++, text.size--;
    while (text.size > 0 && (text.at[text.size - 1] == ' ' || text.at[text.size - 1] == '\t')) text.size--;
    return text;
}

static bool is(text text, const char *word) {
    return text.size == strlen(word) && strncasecmp(text.at, word, text.size) == 0;
}

static fl_scheme scheme_named(text text) {
    return is(text, "https") || is(text, "wss") ? FL_SCHEME_HTTPS
           : is(text, "http") || is(text, "ws") ? FL_SCHEME_HTTP
                                                : FL_SCHEME_UNKNOWN;
}

static text first_of(text list) {
    const char *comma = memchr(list.at, ',', list.size);
    return trim((text) {list.at, comma == NULL ? list.size : (size_t) (comma - list.at)});
}

fl_scheme fl_forwarded_scheme_of(fl_header_id id, const char *value, size_t size) {
    switch (id) {
    case FL_HEADER_X_FORWARDED_PROTO: /* one value for each proxy, the client's first */
    case FL_HEADER_X_FORWARDED_SCHEME:
        return scheme_named(first_of((text) {value, size}));
    case FL_HEADER_X_FORWARDED_SSL:
        return is((text) {value, size}, "on") ? FL_SCHEME_HTTPS : FL_SCHEME_UNKNOWN;
    default:
        return FL_SCHEME_UNKNOWN;
    }
}

/* "192.0.2.1", "192.0.2.1:4711", "2001:db8::1", "[2001:db8::1]" or "[2001:db8::1]:4711" */
static bool parse_node(text node, fl_client *client) {
    if (node.size > 0 && node.at[0] == '[') {
        const char *end = memchr(node.at, ']', node.size);
        return end != NULL && fl_client_parse(client, node.at + 1, (size_t) (end - node.at - 1));
    }
    const char *colon = memchr(node.at, ':', node.size);
    if (colon != NULL && memchr(colon + 1, ':', (size_t) (node.at + node.size - colon - 1)) == NULL)
        node.size = (size_t) (colon - node.at);
    return fl_client_parse(client, node.at, node.size);
}

/* Takes the next address from the end. Returns whether the one before it counts too: this one is a trusted proxy's. */
static bool step(text node, const fl_networks *trusted, fl_client *client) {
    return parse_node(node, client) && fl_networks_include(trusted, client);
}

/* Returns whether there was such a header. */
static bool read_x_forwarded_for(const fl_head *head, const char *bytes, const fl_networks *trusted, fl_client *client) {
    bool found = false, on = true;
    int left = MAX_PROXIES;
    for (uint32_t i = head->count; i > 0 && on; i--) {
        const fl_header *header = &head->headers[i - 1];
        if (header->id != FL_HEADER_X_FORWARDED_FOR)
            continue;
        found = true;
        const char *start = bytes + header->value.at, *end = start + header->value.size;
        while (on && end > start) {
            const char *at = end;
            while (at > start && at[-1] != ',') at--;
            text node = trim((text) {at, (size_t) (end - at)});
            if (node.size > 0)
                on = step(node, trusted, client) && --left > 0;
            end = at > start ? at - 1 : start;
        }
    }
    return found;
}

static void add_pair(element *element, const char *at, const char *end) {
    const char *equals = memchr(at, '=', (size_t) (end - at));
    if (equals == NULL)
        return;
    text name = trim((text) {at, (size_t) (equals - at)}), value = trim((text) {equals + 1, (size_t) (end - equals - 1)});
    if (value.size >= 2 && value.at[0] == '"' && value.at[value.size - 1] == '"')
        value = (text) {value.at + 1, value.size - 2};
    if (is(name, "for"))
        element->by_for = value;
    else if (is(name, "proto"))
        element->proto = value;
}

/* Appends the elements of one header; of too many, the last ones stay. */
static int add_elements(element elements[MAX_PROXIES], int count, const char *at, const char *end) {
    element current = {0};
    bool quoted = false;
    for (const char *start = at;; at++) {
        if (at < end && *at == '"')
            quoted = !quoted;
        if (at < end && (quoted || (*at != ',' && *at != ';')))
            continue;
        add_pair(&current, start, at);
        start = at + 1;
        if (at < end && *at == ';')
            continue;
        if (count == MAX_PROXIES)
            memmove(elements, elements + 1, (size_t) --count * sizeof *elements);
        elements[count++] = current;
        current = (element) {0};
        if (at == end)
            return count;
    }
}

static fl_scheme read_forwarded(const fl_head *head, const char *bytes, const fl_networks *trusted, fl_client *client) {
    element elements[MAX_PROXIES];
    int count = 0;
    for (uint32_t i = 0; i < head->count; i++) {
        const fl_header *header = &head->headers[i];
        if (header->id == FL_HEADER_FORWARDED)
            count = add_elements(elements, count, bytes + header->value.at, bytes + header->value.at + header->value.size);
    }
    fl_scheme scheme = FL_SCHEME_UNKNOWN;
    for (bool on = true; on && count > 0; count--) {
        fl_scheme named = scheme_named(elements[count - 1].proto);
        scheme = named != FL_SCHEME_UNKNOWN ? named : scheme;
        on = step(elements[count - 1].by_for, trusted, client);
    }
    return scheme;
}

fl_scheme fl_forwarded_read(const fl_head *head, const char *bytes, const fl_networks *trusted, fl_client *client) {
    if (trusted->count > 0 && !fl_networks_include(trusted, client))
        return FL_SCHEME_UNKNOWN;
    fl_scheme scheme = FL_SCHEME_UNKNOWN;
    for (uint32_t i = 0; i < head->count && scheme == FL_SCHEME_UNKNOWN; i++)
        scheme = fl_forwarded_scheme_of(head->headers[i].id, bytes + head->headers[i].value.at, head->headers[i].value.size);
    if (trusted->count == 0)
        return scheme;
    if (read_x_forwarded_for(head, bytes, trusted, client))
        return scheme;
    fl_scheme forwarded = read_forwarded(head, bytes, trusted, client);
    return scheme != FL_SCHEME_UNKNOWN ? scheme : forwarded;
}
