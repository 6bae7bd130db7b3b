/* Paths of requests as names of files. Part of public_files.h. */
#include "public_files.h"

#include <string.h>

static int hexadecimal(char digit) {
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    digit |= 0x20;
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* Decodes one byte. -1: malformed, or a byte that may mean something else to a file system. */
static int decode(const char **at, const char *end) {
    const char *from = *at;
    if (*from != '%') {
        *at = from + 1;
        return (unsigned char) *from;
    }
    int high = end - from > 2 ? hexadecimal(from[1]) : -1, low = end - from > 2 ? hexadecimal(from[2]) : -1;
    if (high < 0 || low < 0)
        return -1;
    *at = from + 3;
    int byte = high << 4 | low;
    return byte == '/' || byte < 0x20 || byte == 0x7f ? -1 : byte;
}

static bool is_well_known(const char *path, size_t size) {
    static const char name[] = ".well-known";
    return size >= sizeof name - 1 && memcmp(path, name, sizeof name - 1) == 0 &&
           (size == sizeof name - 1 || path[sizeof name - 1] == '/');
}

int fl_public_path(const char *path, size_t size, char *room) {
    const char *end = path + size;
    size_t length = 0;
    if (size == 0 || *path++ != '/')
        return -1;
    if (end > path && end[-1] == '/')
        end--;
    while (path < end) {
        int byte = *path == '/' ? '/' : decode(&path, end);
        if (byte == '/')
            path++;
        if (byte < 0 || byte == '\\' || length + 1 >= FL_MAX_PUBLIC_PATH)
            return -1;
        room[length++] = (char) byte;
    }
    room[length] = 0;
    for (size_t i = 0; i < length; i++) /* a hidden name, or an empty one */
        if ((i == 0 || room[i - 1] == '/') && (room[i] == '/' || (room[i] == '.' && !(i == 0 && is_well_known(room, length)))))
            return -1;
    return (int) length;
}

static bool is_digest_byte(char byte) {
    return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_' ||
           byte == '-';
}

static bool is_hexadecimal(const char *at, size_t size) {
    size_t digits = 0;
    while (digits < size && hexadecimal(at[digits]) >= 0) digits++;
    return digits == size;
}

/* Vite's digests have eight characters of base64url. A word of eight letters is no digest. */
static bool is_vite_digest(const char *at, size_t size) {
    bool digit = false, upper = false;
    for (size_t i = 0; i < size; i++) {
        if (!is_digest_byte(at[i]))
            return false;
        digit |= at[i] >= '0' && at[i] <= '9';
        upper |= at[i] >= 'A' && at[i] <= 'Z';
    }
    return size == 8 && digit && upper;
}

bool fl_is_digested(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1, *dot = strchr(name, '.');
    if (dot == NULL)
        return false;
    size_t size = (size_t) (dot - name);
    for (size_t i = size; i-- > 1;) {
        if (name[i] != '-')
            continue;
        size_t rest = size - i - 1;
        if ((rest == 8 || rest == 32 || rest == 40 || rest == 64) && is_hexadecimal(name + i + 1, rest))
            return true;
        if (rest == 8)
            return is_vite_digest(name + i + 1, rest);
    }
    return false;
}
