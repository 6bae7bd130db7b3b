#include "escape.h"

#include <stdbool.h>

char *fl_escape(char *to, const char *bytes, size_t size) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < size; i++) {
        unsigned char byte = (unsigned char) bytes[i];
        bool plain = byte >= ' ' && byte < 0x7f && byte != '"' && byte != '\\';
        if (plain) {
            *to++ = (char) byte;
            continue;
        }
        *to++ = '%';
        *to++ = digits[byte >> 4];
        *to++ = digits[byte & 15];
    }
    *to = '\0';
    return to;
}
