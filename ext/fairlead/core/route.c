#include "route.h"

#include <stdbool.h>
#include <string.h>

enum {
    HEXADECIMAL = 16, /* characters from which on a part is a token, by what it is made of */
    WITH_DIGIT = 20,
    ANY = 32,
    LONGEST_EXTENSION = 5,
};

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

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_hexadecimal(char c) { return is_digit(c) || ((c | 32) >= 'a' && (c | 32) <= 'f'); }
static bool is_letter(char c) { return (c | 32) >= 'a' && (c | 32) <= 'z'; }

/* What stands for this part of a path; NULL: itself. */
static const char *pattern_of(const char *part, size_t size) {
    size_t digits = 0, hexadecimal = 0, hyphens = 0, leading = 0;
    for (size_t i = 0; i < size; i++) {
        bool digit = is_digit(part[i]);
        leading += digit && leading == i;
        digits += digit;
        hexadecimal += is_hexadecimal(part[i]);
        hyphens += part[i] == '-';
    }
    if (digits == 0 && size < ANY)
        return NULL;
    if (size < ANY && leading > 0 && (leading == size || part[leading] == '-'))
        return ":id";
    return size >= WITH_DIGIT || (size >= HEXADECIMAL && hexadecimal + hyphens == size) ? ":token" : NULL;
}

/* Where ".json" begins; `size` if there is no such thing. */
static size_t extension_at(const char *part, size_t size) {
    size_t at = size;
    while (at > 1 && size - at <= LONGEST_EXTENSION && is_letter(part[at - 1])) at--;
    return at > 1 && at < size && part[at - 1] == '.' ? at - 1 : size;
}

static void put_part(writer *writer, const char *part, size_t size) {
    bool worth_it = size >= ANY;
    for (size_t i = 0; i < size && !worth_it; i++) worth_it = is_digit(part[i]);
    const char *pattern = NULL;
    size_t stem = size;
    if (worth_it) {
        stem = extension_at(part, size);
        pattern = pattern_of(part, stem);
    }
    if (pattern == NULL) {
        put(writer, part, size);
        return;
    }
    put(writer, pattern, strlen(pattern));
    put(writer, part + stem, size - stem);
}

void fl_route_make(fl_route *route, const char *method, size_t method_size, const char *path, size_t path_size) {
    writer writer = {.route = route};
    if (path_size > FL_ROUTE_PATH)
        path_size = FL_ROUTE_PATH;
    route->key = HASH_BEGIN;
    put(&writer, method, method_size);
    put(&writer, " ", 1);
    for (size_t at = 0; at < path_size;) {
        const char *slash = memchr(path + at, '/', path_size - at);
        size_t end = slash == NULL ? path_size : (size_t) (slash - path);
        put_part(&writer, path + at, end - at);
        if (slash != NULL)
            put(&writer, "/", 1);
        at = end + 1;
    }
    if (route->key == 0)
        route->key = 1;
    route->text[writer.size] = '\0';
}
