#include "route.h"

#include <string.h>

/* The least number of characters of a token, by the kind of characters */
enum { HEXADECIMAL = 16, WITH_DIGIT = 20, ANY = 32 };
enum { MAX_EXTENSION_SIZE = 5 };

static const uint64_t HASH_BEGIN = 0xcbf29ce484222325u, HASH_FACTOR = 0x100000001b3u; /* FNV-1a */

typedef struct writer {
    fl_route *route;
    size_t size;
} writer;

static void put(writer *writer, const char *bytes, size_t size) {
    uint64_t key = writer->route->key;
    for (size_t i = 0; i < size; i++) {
        key = (key ^ (unsigned char) bytes[i]) * HASH_FACTOR;
        if (writer->size < FL_ROUTE_SIZE - 1)
            writer->route->text[writer->size++] = bytes[i];
    }
    writer->route->key = key;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
static bool is_hexadecimal(char c) {
    return is_digit(c) || ((c | 32) >= 'a' && (c | 32) <= 'f');
}
static bool is_letter(char c) {
    return (c | 32) >= 'a' && (c | 32) <= 'z';
}

/* The placeholder for a segment; NULL: it is literal. */
static const char *placeholder_of(const char *segment, size_t size) {
    size_t digits = 0, hexadecimal = 0, hyphens = 0, leading = 0;
    for (size_t i = 0; i < size; i++) {
        bool digit = is_digit(segment[i]);
        leading += digit && leading == i;
        digits += digit;
        hexadecimal += is_hexadecimal(segment[i]);
        hyphens += segment[i] == '-';
    }
    if (digits == 0 && size < ANY)
        return NULL;
    if (size < ANY && leading > 0 && (leading == size || segment[leading] == '-'))
        return ":id";
    return size >= WITH_DIGIT || (size >= HEXADECIMAL && hexadecimal + hyphens == size) ? ":token" : NULL;
}

/* Where an extension like ".json" begins; `size` if there is none. */
static size_t extension_at(const char *segment, size_t size) {
    size_t at = size;
    while (at > 1 && size - at <= MAX_EXTENSION_SIZE && is_letter(segment[at - 1])) at--;
    return at > 1 && at < size && segment[at - 1] == '.' ? at - 1 : size;
}

static void put_segment(writer *writer, const char *segment, size_t size) {
    size_t stem = extension_at(segment, size);
    const char *placeholder = placeholder_of(segment, stem);
    if (placeholder == NULL) {
        put(writer, segment, size);
        return;
    }
    put(writer, placeholder, strlen(placeholder));
    put(writer, segment + stem, size - stem);
}

void fl_route_from_path(fl_route *route, const char *method, size_t method_size, const char *path, size_t path_size) {
    writer writer = {.route = route};
    if (path_size > FL_ROUTE_PATH)
        path_size = FL_ROUTE_PATH;
    route->key = HASH_BEGIN;
    put(&writer, method, method_size);
    put(&writer, " ", 1);
    for (size_t at = 0; at < path_size;) {
        const char *slash = memchr(path + at, '/', path_size - at);
        size_t end = slash == NULL ? path_size : (size_t) (slash - path);
        put_segment(&writer, path + at, end - at);
        if (slash != NULL)
            put(&writer, "/", 1);
        at = end + 1;
    }
    if (route->key == 0)
        route->key = 1;
    route->text[writer.size] = '\0';
}

bool fl_route_from_pattern(fl_route *route, const char *pattern, size_t size) {
    if (size >= FL_ROUTE_SIZE)
        return false;
    writer writer = {.route = route};
    route->key = HASH_BEGIN;
    put(&writer, pattern, size);
    route->text[size] = '\0';
    return true;
}

typedef struct segment {
    const char *at;
    size_t size;
    const char *next; /* NULL: this is the last one */
} segment;

static segment segment_at(const char *at, const char *end) {
    const char *slash = memchr(at, '/', (size_t) (end - at));
    return slash == NULL ? (segment) {at, (size_t) (end - at), NULL} : (segment) {at, (size_t) (slash - at), slash + 1};
}

static bool matches_literally(segment wanted, segment given) {
    size_t size = given.size;
    if (size > wanted.size && given.next == NULL)
        size = extension_at(given.at, size);
    return size == wanted.size && memcmp(wanted.at, given.at, size) == 0;
}

uint64_t fl_route_matches(const char *pattern, const char *method, size_t method_size, const char *path, size_t path_size) {
    if (strncmp(pattern, method, method_size) != 0 || pattern[method_size] != ' ')
        return 0;
    const char *pattern_end = pattern + strlen(pattern), *path_end = path + path_size;
    if (path_size > 1 && path_end[-1] == '/')
        path_end--;
    uint64_t match = 1;
    segment wanted = {.next = pattern + method_size + 1}, given = {.next = path};
    while (wanted.next != NULL && given.next != NULL) {
        wanted = segment_at(wanted.next, pattern_end);
        given = segment_at(given.next, path_end);
        bool any = memchr(wanted.at, ':', wanted.size) != NULL;
        if (any ? given.size == 0 : !matches_literally(wanted, given))
            return 0;
        match = match << 1 | !any;
    }
    return wanted.next == NULL && given.next == NULL ? match : 0;
}
