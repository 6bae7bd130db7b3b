#include "characters.h"

/* Request targets may contain more characters than RFC 3986 allows. Browsers do not encode [ ] \ ^ ` { | } in queries, and some of
 * them not in paths (the URL standard). Scripts and old clients send unencoded UTF-8; nginx and Puma accept bytes from 0x80 on too.
 * Browsers encode quotes and angle brackets, and Puma rejects them. "#" begins a fragment, which clients never send (RFC 9112, 3.2). */
enum {
    T = FL_IS_TOKEN,
    P = FL_IS_PATH | FL_IS_QUERY,
    Q = FL_IS_QUERY,
    H = FL_IS_HOST,
    ALL = T | P | H,
    HEX = ALL | FL_IS_HEX,
    DIGIT = HEX | FL_IS_DIGIT,
};

const uint8_t fl_characters[256] = {
    ['0' ... '9'] = DIGIT, ['A' ... 'F'] = HEX, ['a' ... 'f'] = HEX, ['G' ... 'Z'] = ALL, ['g' ... 'z'] = ALL,
    ['!'] = ALL,   ['#'] = T,     ['$'] = ALL,   ['%'] = T | P, ['&'] = ALL,   ['\''] = ALL,  ['('] = P | H,
    [')'] = P | H, ['*'] = ALL,   ['+'] = ALL,   [','] = P | H, ['-'] = ALL,   ['.'] = ALL,   ['/'] = P,
    [':'] = P,     [';'] = P | H, ['='] = P | H, ['?'] = Q,     ['@'] = P,     ['['] = P,     ['\\'] = P,
    [']'] = P,     ['^'] = T | P, ['_'] = ALL,   ['`'] = T | P, ['{'] = P,     ['|'] = T | P, ['}'] = P,
    ['~'] = ALL,   [0x80 ... 0xff] = P,
};
