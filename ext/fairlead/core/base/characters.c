#include "characters.h"

/* Request targets: RFC 3986 allows fewer characters, but browsers send [ ] \ ^ ` { | } as they are, in queries
 * and partly in paths (the URL standard does not encode them there), so they pass. So do bytes from 0x80 on, as with
 * nginx and Puma: scripts and old clients send UTF-8 as it is, and none of these bytes ends anything. Quotes and angle
 * brackets are encoded by browsers and refused by Puma, too. "#" would begin a fragment, which is never sent
 * (RFC 9112, 3.2). */
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
