/* Character classes of HTTP. Nothing is allocated, nothing fails, any thread may call. */
#ifndef FL_CHARACTERS_H
#define FL_CHARACTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    FL_IS_TOKEN = 1, /* RFC 9110, 5.6.2 */
    FL_IS_PATH = 2,  /* of a request target, before its "?" */
    FL_IS_QUERY = 4, /* after it */
    FL_IS_HOST = 8,  /* RFC 3986, 3.2.2: unreserved and sub-delims of a reg-name */
    FL_IS_HEX = 16,
    FL_IS_DIGIT = 32,
};

extern const uint8_t fl_characters[256] __attribute__((visibility("hidden")));

static inline bool fl_is(char character, unsigned kind) {
    return (fl_characters[(unsigned char) character] & kind) != 0;
}

static inline uint64_t fl_word(const char *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* Field content: no control characters except HTAB; bytes from 0x80 on are allowed (obs-text). */
static inline bool fl_is_text_byte(char character) {
    unsigned char byte = (unsigned char) character;
    return (byte >= 0x20 && byte != 0x7f) || byte == '\t';
}

static inline bool fl_is_text_bytewise(const char *at, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (!fl_is_text_byte(at[i]))
            return false;
    return true;
}

/* Not zero if one of the eight bytes is below 0x20 or is 0x7f: the subtraction sets the top bit of a byte that is too small, and bytes
 * from 0x80 on are masked out. A borrow may also mark the next byte, but only if one byte is bad. */
static inline uint64_t fl_suspicious_bytes(uint64_t word) {
    const uint64_t ones = 0x0101010101010101u;
    uint64_t deleted = word ^ (ones * 0x7f);
    return (((word - ones * 0x20) & ~word) | ((deleted - ones) & ~deleted)) & (ones * 0x80);
}

static inline bool fl_is_text(const char *at, size_t size) {
    if (size < 8)
        return fl_is_text_bytewise(at, size);
    uint64_t suspects = fl_suspicious_bytes(fl_word(at + size - 8));
    for (size_t i = 0; i + 8 < size; i += 8) suspects |= fl_suspicious_bytes(fl_word(at + i));
    return suspects == 0 || fl_is_text_bytewise(at, size); /* HTAB is suspicious too */
}

static inline size_t fl_token_size(const char *at, size_t size) {
    size_t i = 0;
    while (i < size && fl_is(at[i], FL_IS_TOKEN)) i++;
    return i;
}

/* Compares with `word`, which is in lower case, ignoring case. */
static inline bool fl_equals_word(const char *at, size_t size, const char *word, size_t word_size) {
    if (size != word_size)
        return false;
    for (size_t i = 0; i < size; i++) {
        char lower = at[i] >= 'A' && at[i] <= 'Z' ? (char) (at[i] | 0x20) : at[i];
        if (lower != word[i])
            return false;
    }
    return true;
}
#define FL_EQUALS_WORD(at, size, word) fl_equals_word(at, size, word, sizeof(word) - 1)

#endif
