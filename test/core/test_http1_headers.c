/* Header lines, and the interpretation of all headers together. */
#include "heads.h"

#define GET "GET / HTTP/1.1\r\nHost: a\r\n"
#define OLD "GET / HTTP/1.0\r\n"
#define POST "POST / HTTP/1.1\r\nHost: a\r\n"
#define GOT "GET origin path=/ authority=a 1.1 keep-alive"
#define GOT_AND_CLOSE "GET origin path=/ authority=a 1.1 close"
#define GOT_OLD "GET origin path=/ 1.0 close"
#define POSTED "POST origin path=/ authority=a 1.1 keep-alive"

#define READ(lines, headers) {lines, GET lines "\r\n\r\n", 0, FL_OK, GOT, "Host=a|" headers, NULL}
#define MEANS(start, lines, head) {#start " " lines, start lines "\r\n\r\n", 0, FL_OK, head, NULL, NULL}
#define REJECTED(status, start, lines)                                                                        \
    {#status " " #start " " lines, start lines "\r\n\r\n", 0, FL_##status, NULL, NULL, NULL}

static const head_case header_lines[] = {
    READ("Accept: */*", "Accept=*/*"),
    READ("Accept:*/*", "Accept=*/*"),
    READ("Accept: \t  */* \t ", "Accept=*/*"),
    READ("Accept:", "Accept="),
    READ("Accept: \t ", "Accept="),
    READ("X: a b\tc", "X=a b\tc"),
    READ("X: 01234567\t89abcdef", "X=01234567\t89abcdef"),
    READ("X: a:b:c", "X=a:b:c"),
    READ("X: gr\xfc\xdf \xe2\x82\xac", "X=gr\xfc\xdf \xe2\x82\xac"),
    READ("X: \x80\x81\x9f\xa0\xff", "X=\x80\x81\x9f\xa0\xff"),
    READ("!#$%&'*+-.^_`|~09azAZ: x", "!#$%&'*+-.^_`|~09azAZ=x"),
    READ("X: 1\r\nX: 2\r\nY: 3", "X=1|X=2|Y=3"),

    REJECTED(FOLDED_HEADER, GET, "X: a\r\n b"),
    REJECTED(FOLDED_HEADER, GET, "X: a\r\n\tb"),
    REJECTED(FOLDED_HEADER, GET, "X: a\r\n "),
    REJECTED(FOLDED_HEADER, "GET / HTTP/1.1\r\n", " Host: a"),
    REJECTED(BAD_HEADER_NAME, GET, "X : a"),
    REJECTED(BAD_HEADER_NAME, GET, "X\t: a"),
    REJECTED(BAD_HEADER_NAME, GET, ": a"),
    REJECTED(BAD_HEADER_NAME, GET, "X"),
    REJECTED(BAD_HEADER_NAME, GET, "X Y: a"),
    REJECTED(BAD_HEADER_NAME, GET, "X(: a"),
    REJECTED(BAD_HEADER_NAME, GET, "\"X\": a"),
    REJECTED(BAD_HEADER_NAME, GET, "X\x7f: a"),
    REJECTED(BAD_HEADER_NAME, GET, "X\x01: a"),
    REJECTED(BAD_HEADER_NAME, GET, "\xc3\x96: a"),
    REJECTED(BAD_HEADER_NAME, GET, "X\r: a"),
    REJECTED(BAD_HEADER_VALUE, GET, "X: a\rb"),
    REJECTED(BAD_HEADER_VALUE, GET, "X: a\x01"),
    REJECTED(BAD_HEADER_VALUE, GET, "X: \x0b"),
    REJECTED(BAD_HEADER_VALUE, GET, "X: \x1f"),
    REJECTED(BAD_HEADER_VALUE, GET, "X: \x7f"),
    REJECTED(BAD_HEADER_VALUE, GET, "X: 0123456789abcdef\x1b[0m"),
    REJECTED(BAD_HEADER_VALUE, GET, "X: 01234567\x7f" "89abcdef"),
    REJECTED(BAD_HEADER_VALUE, GET, "X: \x7f" "0123456789abcdef"),
    REJECTED(BAD_HEADER_VALUE, GET, "X: 0123456789abcdef\x7f"),
    REJECTED(BAD_HEADER_VALUE, GET, "X: 0123\t4567\x02"),
    REJECTED(BAD_HEADER_VALUE, GET, "Transfer-Encoding: \x0b" "chunked"),
};

#define HOST(value, authority)                                                                               \
    {"Host: " value, "GET / HTTP/1.1\r\nHost: " value "\r\n\r\n", 0, FL_OK,                               \
     "GET origin path=/" authority " 1.1 keep-alive", NULL, NULL}
#define BAD_HOST(value)                                                                                      \
    {"BAD_HOST " value, "GET / HTTP/1.1\r\nHost: " value "\r\n\r\n", 0, FL_BAD_HOST, NULL, NULL, NULL}

static const head_case hosts[] = {
    HOST("a", " authority=a"),
    HOST("example.com:8080", " authority=example.com:8080"),
    HOST("EXAMPLE.com", " authority=EXAMPLE.com"),
    HOST("a.", " authority=a."),
    HOST("a:", " authority=a"),
    HOST("a:0080", " authority=a:0080"),
    HOST("a:65535", " authority=a:65535"),
    HOST("192.0.2.1:80", " authority=192.0.2.1:80"),
    HOST("under_score-~.example", " authority=under_score-~.example"),
    HOST("a%20b", " authority=a%20b"),
    HOST("[::1]", " authority=[::1]"),
    HOST("[::1]:80", " authority=[::1]:80"),
    HOST("[::1]:", " authority=[::1]"),
    HOST("[::ffff:192.0.2.1]", " authority=[::ffff:192.0.2.1]"),
    HOST("", ""),
    BAD_HOST(":80"),
    BAD_HOST("a b"),
    BAD_HOST("a, b"),
    BAD_HOST("a/b"),
    BAD_HOST("http://a"),
    BAD_HOST("u@a"),
    BAD_HOST("a?b"),
    BAD_HOST("a#b"),
    BAD_HOST("a:b"),
    BAD_HOST("a:80:80"),
    BAD_HOST("a:+80"),
    BAD_HOST("a:80 x"),
    BAD_HOST("a:65536"),
    BAD_HOST("a:4294967376"),
    BAD_HOST("a%2"),
    BAD_HOST("a%"),
    BAD_HOST("a%zz"),
    BAD_HOST("::1"),
    BAD_HOST("[]"),
    BAD_HOST("[::1"),
    BAD_HOST("[::1]a"),
    BAD_HOST("[::g]"),
    BAD_HOST("[1:2:3]"),
    BAD_HOST("[0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000]"),
    BAD_HOST("]"),
    BAD_HOST("a\\b"),
    BAD_HOST("\"a\""),
    BAD_HOST("<a>"),
    BAD_HOST("b\xc3\xbc.example"),
    REJECTED(BAD_HOST, "GET / HTTP/1.1\r\n", "X: y"),
    REJECTED(BAD_HOST, "GET http://b/ HTTP/1.1\r\n", "X: y"),
    REJECTED(BAD_HOST, "GET http://b/ HTTP/1.1\r\n", "Host: u@b"),
    REJECTED(BAD_HOST, GET, "Host: a"),
    REJECTED(BAD_HOST, GET, "host: b"),
    REJECTED(BAD_HOST, OLD, "Host: a\r\nHost: a"),
    REJECTED(BAD_HOST, OLD, "Host: a b"),
    {"HTTP/1.1 without any header", "GET / HTTP/1.1\r\n\r\n", 0, FL_BAD_HOST, NULL, NULL, NULL},
    {"HTTP/1.0 without any header", "GET / HTTP/1.0\r\n\r\n", 0, FL_OK, GOT_OLD, "", NULL},
    MEANS(OLD, "Host: a", "GET origin path=/ authority=a 1.0 close"),
    MEANS("GET http://b/ HTTP/1.1\r\n", "Host: a",
          "GET absolute scheme=http path=/ authority=b 1.1 keep-alive"),
    MEANS("GET http://b/ HTTP/1.1\r\n", "Host:", "GET absolute scheme=http path=/ authority=b 1.1 keep-alive"),
    MEANS("GET http://b/ HTTP/1.0\r\n", "X: y", "GET absolute scheme=http path=/ authority=b 1.0 close"),
    MEANS("OPTIONS * HTTP/1.1\r\n", "Host: a:1", "OPTIONS asterisk path=* authority=a:1 1.1 keep-alive"),
    MEANS("CONNECT b:1 HTTP/1.1\r\n", "Host: a", "CONNECT authority authority=b:1 1.1 keep-alive"),
};

static const head_case bodies[] = {
    MEANS(POST, "Content-Length: 0", POSTED " length=0"),
    MEANS(POST, "Content-Length: 42", POSTED " length=42"),
    MEANS(POST, "CONTENT-length:  007 ", POSTED " length=7"),
    MEANS(POST, "Content-Length: 18446744073709551615", POSTED " length=18446744073709551615"),
    MEANS(GET, "Content-Length: 3", GOT " length=3"),
    MEANS(OLD, "Content-Length: 3", GOT_OLD " length=3"),
    MEANS(POST, "Transfer-Encoding: chunked", POSTED " chunked"),
    MEANS(POST, "transfer-encoding:CHUNKED", POSTED " chunked"),

    REJECTED(BAD_LENGTH, POST, "Content-Length:"),
    REJECTED(BAD_LENGTH, POST, "Content-Length: +1"),
    REJECTED(BAD_LENGTH, POST, "Content-Length: -1"),
    REJECTED(BAD_LENGTH, POST, "Content-Length: 1 2"),
    REJECTED(BAD_LENGTH, POST, "Content-Length: 1,1"),
    REJECTED(BAD_LENGTH, POST, "Content-Length: 0x10"),
    REJECTED(BAD_LENGTH, POST, "Content-Length: 1_000"),
    REJECTED(BAD_LENGTH, POST, "Content-Length: 1.0"),
    REJECTED(BAD_LENGTH, POST, "Content-Length: 1e3"),
    REJECTED(BAD_LENGTH, POST, "Content-Length: \xb2"),
    REJECTED(BAD_LENGTH, POST, "Content-Length: \"1\""),
    REJECTED(BAD_LENGTH, POST, "Content-Length: 18446744073709551616"),
    REJECTED(BAD_LENGTH, POST, "Content-Length: 99999999999999999999"),
    REJECTED(BAD_LENGTH, POST, "Content-Length: 184467440737095516150"),
    REJECTED(BAD_LENGTH, POST, "Content-Length: 1\r\nContent-Length: 1"),
    REJECTED(BAD_LENGTH, POST, "Content-Length: 1\r\ncontent-length: 2"),

    REJECTED(BAD_ENCODING, POST, "Transfer-Encoding:"),
    REJECTED(BAD_ENCODING, POST, "Transfer-Encoding: ,"),
    REJECTED(BAD_ENCODING, POST, "Transfer-Encoding: ,chunked"),
    REJECTED(BAD_ENCODING, POST, "Transfer-Encoding: chunked,"),
    REJECTED(BAD_ENCODING, POST, "Transfer-Encoding: chunked, chunked"),
    REJECTED(BAD_ENCODING, POST, "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
    REJECTED(BAD_ENCODING, POST, "Transfer-Encoding: chunked, gzip"),
    REJECTED(BAD_ENCODING, POST, "Transfer-Encoding: chunked, identity"),
    REJECTED(BAD_ENCODING, POST, "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip"),
    REJECTED(BAD_ENCODING, POST, "Transfer-Encoding: chunked;q=1"),
    REJECTED(BAD_ENCODING, POST, "Transfer-Encoding: chunked x"),
    REJECTED(BAD_ENCODING, POST, "Transfer-Encoding: \"chunked\""),
    REJECTED(BAD_ENCODING, POST, "Transfer-Encoding: gzip/x, chunked"),
    REJECTED(BAD_ENCODING, POST, "Transfer-Encoding: chunked\r\nContent-Length: 1"),
    REJECTED(BAD_ENCODING, POST, "Content-Length: 0\r\nTransfer-Encoding: chunked"),
    REJECTED(BAD_ENCODING, POST, "Content-Length: 5\r\nTransfer-Encoding: gzip"),
    REJECTED(BAD_ENCODING, OLD, "Transfer-Encoding: chunked"),
    REJECTED(BAD_ENCODING, OLD, "Transfer-Encoding: gzip"),
    REJECTED(BAD_ENCODING, POST, "Transfer-Encoding: gzip"), /* RFC 9112, 6.3 */
    REJECTED(BAD_ENCODING, POST, "Transfer-Encoding: gzip, deflate"),
    REJECTED(BAD_ENCODING, POST, "Transfer-Encoding: identity"),
    REJECTED(BAD_ENCODING, POST, "Transfer-Encoding: xchunked"),
    REJECTED(BAD_ENCODING, POST, "Transfer-Encoding: chunke"),
    REJECTED(UNKNOWN_ENCODING, POST, "Transfer-Encoding: gzip, chunked"),
    REJECTED(UNKNOWN_ENCODING, POST, "Transfer-Encoding: gzip;level=9, chunked"),
    REJECTED(UNKNOWN_ENCODING, POST, "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked"),

    MEANS(POST, "Expect: 100-continue\r\nContent-Length: 3", POSTED " length=3 continue"),
    MEANS(POST, "Expect: 100-Continue\r\nTransfer-Encoding: chunked", POSTED " chunked continue"),
    MEANS(POST, "Expect: 100-continue\r\nContent-Length: 0", POSTED " length=0"),
    MEANS(GET, "Expect: 100-continue", GOT),
    MEANS(OLD, "Expect: 100-continue\r\nContent-Length: 3", GOT_OLD " length=3"),
    REJECTED(EXPECTATION_FAILED, POST, "Expect:"),
    REJECTED(EXPECTATION_FAILED, POST, "Expect: 200-ok"),
    REJECTED(EXPECTATION_FAILED, POST, "Expect: 100-continue, x"),
    REJECTED(EXPECTATION_FAILED, POST, "Expect: 100-continue\r\nExpect: x"),
};

static const head_case connections[] = {
    MEANS(GET, "Connection: close", GOT_AND_CLOSE),
    MEANS(GET, "Connection: Close", GOT_AND_CLOSE),
    MEANS(GET, "Connection: keep-alive", GOT),
    MEANS(GET, "Connection:", GOT),
    MEANS(GET, "Connection: closed", GOT),
    MEANS(GET, "Connection: x-close", GOT),
    MEANS(GET, "Connection: keep-alive, close", GOT_AND_CLOSE),
    MEANS(GET, "Connection: keep-alive\r\nConnection: close", GOT_AND_CLOSE),
    MEANS(GET, "Connection: x\t,\t close ,,", GOT_AND_CLOSE),
    MEANS(OLD, "Connection: keep-alive", "GET origin path=/ 1.0 keep-alive"),
    MEANS(OLD, "Connection: x\r\nConnection: Keep-Alive", "GET origin path=/ 1.0 keep-alive"),
    MEANS(OLD, "Connection: keep-alive, close", GOT_OLD),
    MEANS(GET, "Connection: Upgrade\r\nUpgrade: websocket", GOT " upgrade"),
    MEANS(GET, "Upgrade: websocket\r\nConnection: keep-alive, upgrade", GOT " upgrade"),
    MEANS(GET, "Connection: close, upgrade\r\nUpgrade: websocket", GOT_AND_CLOSE " upgrade"),
    MEANS(GET, "Upgrade: websocket", GOT),
    MEANS(GET, "Connection: upgrade", GOT),
    MEANS(GET, "Connection: upgrade\r\nUpgrade:", GOT),
    MEANS(OLD, "Connection: upgrade\r\nUpgrade: websocket", GOT_OLD),
};

static void each_known_header_is_recognised_in_any_case(void) {
#define X(id, name, key)                                                                                     \
    {                                                                                                        \
        char mixed[] = name;                                                                                 \
        for (size_t i = 0; i < sizeof mixed - 1; i++)                                                        \
            if (i % 2 == 0 && mixed[i] >= 'a' && mixed[i] <= 'z') mixed[i] ^= 0x20;                          \
        char *exact = test_copy(mixed, sizeof mixed - 1);                                                    \
        CHECK_NUMBER(FL_HEADER_##id, fl_header_lookup(exact, sizeof mixed - 1));                             \
        CHECK_NUMBER(FL_HEADER_##id, fl_header_lookup(name, sizeof name - 1));                               \
        free(exact);                                                                                         \
    }
    FL_HEADER_MAP(X)
#undef X
}

/* A known name with one byte changed is another name, unless only the case of a letter has changed. */
static void other_names_are_not_recognised(void) {
#define X(id, name, key)                                                                                     \
    for (size_t i = 0; i < sizeof name - 1; i++)                                                             \
        for (int byte = 0; byte < 256; byte++) {                                                             \
            char other[] = name;                                                                             \
            other[i] = (char) byte;                                                                          \
            bool same = byte == (unsigned char) name[i] ||                                                   \
                        (name[i] >= 'a' && name[i] <= 'z' && byte == ((unsigned char) name[i] ^ 0x20));      \
            fl_header_id found = fl_header_lookup(other, sizeof other - 1);                                  \
            if (same != (found == FL_HEADER_##id))                                                           \
                test_fail(__FILE__, __LINE__, "%s with byte %d as %02x is taken for %d", name, (int) i, byte, \
                          found);                                                                            \
        }
    FL_HEADER_MAP(X)
#undef X
    CHECK_NUMBER(FL_HEADER_OTHER, fl_header_lookup("", 0));
    CHECK_NUMBER(FL_HEADER_OTHER, fl_header_lookup("x", 1));
    CHECK_NUMBER(FL_HEADER_OTHER, fl_header_lookup("hos", 3));
    CHECK_NUMBER(FL_HEADER_OTHER, fl_header_lookup("hosts", 5));
    CHECK_NUMBER(FL_HEADER_OTHER, fl_header_lookup("x-a-name-that-is-longer-than-any-known-one", 42));
}

int main(void) {
    CHECK_HEADS(header_lines, &usual_limits);
    CHECK_HEADS(hosts, &usual_limits);
    CHECK_HEADS(bodies, &usual_limits);
    CHECK_HEADS(connections, &usual_limits);
    TEST(each_known_header_is_recognised_in_any_case);
    TEST(other_names_are_not_recognised);
    return test_summary();
}
