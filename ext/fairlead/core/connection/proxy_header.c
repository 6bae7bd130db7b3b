#include "proxy_header.h"

#include <stdbool.h>
#include <string.h>

enum {
    MAX_FIRST = 107, /* bytes of a header of version 1, */
    HEAD = 16,       /* and of one of version 2 without addresses */
    LOCAL = 0x20,    /* version 2 and its commands */
    PROXY = 0x21,
};

static const char first[] = "PROXY ", second[] = "\r\n\r\n\0\r\nQUIT\n";

static bool begins_with(const char *bytes, size_t available, const char *start, size_t size) {
    return memcmp(bytes, start, available < size ? available : size) == 0;
}

/* A word and the space or end behind it. */
static bool next_word(const char **at, const char *end, const char **word, size_t *size) {
    const char *space = memchr(*at, ' ', (size_t) (end - *at));
    *word = *at;
    *size = (size_t) ((space == NULL ? end : space) - *at);
    *at = space == NULL ? end : space + 1;
    return *size > 0;
}

static bool parse_port(const char *text, size_t size, uint16_t *port) {
    uint32_t number = 0;
    if (size > 5 || (size > 1 && text[0] == '0'))
        return false;
    for (size_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        number = number * 10 + (uint32_t) (text[i] - '0');
    }
    *port = (uint16_t) number;
    return number <= UINT16_MAX;
}

/* "TCP4 192.0.2.1 192.0.2.2 40000 443" */
static bool parse_line(const char *at, const char *end, fl_client *client) {
    const char *words[5];
    size_t sizes[5];
    fl_client from, to;
    uint16_t port;
    if (!next_word(&at, end, &words[0], &sizes[0]))
        return false;
    if (sizes[0] == 7 && memcmp(words[0], "UNKNOWN", 7) == 0)
        return true;
    for (int i = 1; i < 5; i++)
        if (!next_word(&at, end, &words[i], &sizes[i]))
            return false;
    bool six = memchr(words[1], ':', sizes[1]) != NULL;
    if (at != end || end[-1] == ' ' || sizes[0] != 4 || memcmp(words[0], six ? "TCP6" : "TCP4", 4) != 0 ||
        !fl_client_parse(&from, words[1], sizes[1]) || !fl_client_parse(&to, words[2], sizes[2]) ||
        !parse_port(words[4], sizes[4], &port) || !parse_port(words[3], sizes[3], &port))
        return false;
    *client = from;
    client->port = port;
    return true;
}

static ssize_t parse_first(const char *bytes, size_t available, fl_client *client) {
    size_t most = available < MAX_FIRST ? available : MAX_FIRST;
    const char *end = memchr(bytes, '\n', most);
    if (end == NULL)
        return available < MAX_FIRST ? 0 : -1;
    if (end[-1] != '\r' || !parse_line(bytes + sizeof first - 1, end - 1, client))
        return -1;
    return end + 1 - bytes;
}

static uint16_t number_at(const char *bytes) {
    return (uint16_t) ((uint8_t) bytes[0] << 8 | (uint8_t) bytes[1]);
}

static bool parse_addresses(const char *bytes, size_t size, uint8_t family, fl_client *client) {
    switch (family) {
    case 0x00: /* none */
        return true;
    case 0x11: /* TCP or UDP over IPv4 */
    case 0x12:
        if (size < 12)
            return false;
        fl_client_set(client, AF_INET, bytes);
        client->port = number_at(bytes + 8);
        return true;
    case 0x21: /* over IPv6 */
    case 0x22:
        if (size < 36)
            return false;
        fl_client_set(client, AF_INET6, bytes);
        client->port = number_at(bytes + 32);
        return true;
    case 0x31: /* a Unix socket */
    case 0x32:
        return size >= 216;
    default:
        return false;
    }
}

static ssize_t parse_second(const char *bytes, size_t available, fl_client *client) {
    if (available < HEAD)
        return available > 12 && (uint8_t) bytes[12] != LOCAL && (uint8_t) bytes[12] != PROXY ? -1 : 0;
    uint8_t command = (uint8_t) bytes[12], family = (uint8_t) bytes[13];
    size_t size = number_at(bytes + 14);
    if ((command != LOCAL && command != PROXY) || HEAD + size > FL_PROXY_HEADER_MAX)
        return -1;
    if (available < HEAD + size)
        return 0;
    if (command == PROXY && !parse_addresses(bytes + HEAD, size, family, client))
        return -1;
    return (ssize_t) (HEAD + size);
}

ssize_t fl_proxy_header_parse(const char *bytes, size_t available, fl_client *client) {
    if (available == 0)
        return 0;
    if (begins_with(bytes, available, first, sizeof first - 1))
        return available < sizeof first - 1 ? 0 : parse_first(bytes, available, client);
    if (begins_with(bytes, available, second, sizeof second - 1))
        return available < sizeof second - 1 ? 0 : parse_second(bytes, available, client);
    return -1;
}
