/* Chunked bodies, decoded in one part, byte by byte, and split at every position. */
#include "http1/http1.h"
#include "test.h"

typedef struct chunk_case {
    const char *name, *coded;
    fl_status status;
    const char *body;
    const char *rest; /* the bytes after the body in `coded`, which must not be consumed */
} chunk_case;

#define DECODED(coded, body) {coded, coded, FL_OK, body, NULL}
#define REJECTED(coded) {coded, coded, FL_BAD_CHUNK, NULL, NULL}
#define PART(coded, body) {coded, coded, FL_AGAIN, body, NULL}

static const chunk_case cases[] = {
    DECODED("0\r\n\r\n", ""),
    DECODED("3\r\nabc\r\n0\r\n\r\n", "abc"),
    DECODED("3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n", "abcdefg"),
    DECODED("0003\r\nabc\r\n00\r\n\r\n", "abc"),
    DECODED("A\r\n0123456789\r\n0\r\n\r\n", "0123456789"),
    DECODED("a\r\n0123456789\r\n0\r\n\r\n", "0123456789"),
    DECODED("1f\r\n0123456789012345678901234567890\r\n0\r\n\r\n", "0123456789012345678901234567890"),
    DECODED("0000000000000001\r\nx\r\n0000000000000000\r\n\r\n", "x"),
    DECODED("4\r\n\r\n\r\n\r\n0\r\n\r\n", "\r\n\r\n"),
    DECODED("3;a\r\nabc\r\n0;b=c\r\n\r\n", "abc"),
    DECODED("3 ; a = \"b;\\\"c\t\" \r\nabc\r\n0\t;e\r\n\r\n", "abc"),
    DECODED("3;a=\xc3\xb6\r\nabc\r\n0\r\n\r\n", "abc"),
    DECODED("1\r\nx\r\n0\r\nA: b\r\n\r\n", "x"),
    DECODED("1\r\nx\r\n0\r\nA:\r\nContent-Length:\t5 \r\n\r\n", "x"),
    {"the next request is left alone", "1\r\nx\r\n0\r\n\r\nGET / HTTP/1.1\r\n", FL_OK, "x",
     "GET / HTTP/1.1\r\n"},
    {"so is an empty line", "0\r\n\r\n\r\n", FL_OK, "", "\r\n"},

    PART("", ""),
    PART("3", ""),
    PART("3\r", ""),
    PART("3\r\n", ""),
    PART("3\r\na", "a"),
    PART("3\r\nabc", "abc"),
    PART("3\r\nabc\r\n0\r\n", "abc"),
    PART("3\r\nabc\r\n0\r\nA: b\r\n", "abc"),
    PART("ffffffffffffffff\r\nabc", "abc"),
    PART("FFFFFFFFFFFFFFFF\r\n", ""),

    REJECTED("\r\n"),
    REJECTED(" 3\r\nabc\r\n"),
    REJECTED("3 \r\nabc\r\n"),
    REJECTED("3\t\r\nabc\r\n"),
    REJECTED("3 4\r\nabc\r\n"),
    REJECTED("3 \r;a\r\nabc\r\n"),
    REJECTED("-3\r\nabc\r\n"),
    REJECTED("+3\r\nabc\r\n"),
    REJECTED("0x3\r\nabc\r\n"),
    REJECTED("g\r\n"),
    REJECTED("3g\r\n"),
    REJECTED("3_0\r\n"),
    REJECTED("3.0\r\n"),
    REJECTED("\xb2\r\n"),
    REJECTED(";a\r\n"),
    REJECTED("3\nabc\r\n"),
    REJECTED("3\r\r\nabc\r\n"),
    REJECTED("3\rabc\r\n"),
    REJECTED("3;\r\nabc\r\n"),
    REJECTED("3; =a\r\nabc\r\n"),
    REJECTED("3;a\nabc\r\n"),
    REJECTED("3;a\rb\r\nabc\r\n"),
    REJECTED("3;a\x01\r\nabc\r\n"),
    REJECTED("3;a\x7f\r\nabc\r\n"),
    REJECTED("3\r\nabcd\r\n"),
    REJECTED("3\r\nabc\n"),
    REJECTED("3\r\nabc0\r\n\r\n"),
    REJECTED("3\r\nab\r\n0\r\n\r\n"),
    REJECTED("3\r\nabc\r\r"),
    REJECTED("3\r\nabc\rx"),
    REJECTED("00000000000000001\r\nx\r\n"),
    REJECTED("10000000000000000\r\nx\r\n"),
    REJECTED("0\r\n\n"),
    REJECTED("0\r\n\r\r"),
    REJECTED("0\r\n\rx"),
    REJECTED("0\r\n: b\r\n\r\n"),
    REJECTED("0\r\nA\r\n\r\n"),
    REJECTED("0\r\nA : b\r\n\r\n"),
    REJECTED("0\r\nA: b\n\r\n"),
    REJECTED("0\r\nA: b\r\n c\r\n\r\n"),
    REJECTED("0\r\n A: b\r\n\r\n"),
    REJECTED("0\r\nA: b\x01\r\n\r\n"),
    REJECTED("0\r\nA: b\x7f\r\n\r\n"),
    REJECTED("0\r\nA: b\rc\r\n\r\n"),
    REJECTED("0\r\nA\x80: b\r\n\r\n"),
};

/* Decodes parts that end at `cuts` into `body`. */
static fl_status decode(const char *coded, const size_t *cuts, size_t count, char *body, size_t *length,
                        size_t *used) {
    fl_chunks chunks = {0};
    fl_status status = FL_AGAIN;
    *length = *used = 0;
    for (size_t i = 0; i < count && status == FL_AGAIN; i++) {
        size_t size = cuts[i] - *used, piece_used, decoded;
        char *bytes = test_copy(coded + *used, size);
        status = fl_chunks_decode(&chunks, bytes, size, &piece_used, &decoded);
        CHECK(piece_used <= size && decoded <= piece_used);
        if (status == FL_AGAIN)
            CHECK_NUMBER(size, piece_used);
        CHECK_NUMBER(status == FL_OK, chunks.done);
        memcpy(body + *length, bytes, decoded);
        *length += decoded;
        *used += piece_used;
        free(bytes);
    }
    return status;
}

static void check_pieces(const chunk_case *row, const size_t *cuts, size_t count, size_t size) {
    char *body = malloc(size + 1);
    size_t length, used;
    fl_status status = decode(row->coded, cuts, count, body, &length, &used);
    if (status != row->status)
        test_fail(__FILE__, __LINE__, "cut at %zu: expected %s, got %s", cuts[0], fl_status_text(row->status),
                  fl_status_text(status));
    if (row->body)
        CHECK_BYTES(row->body, strlen(row->body), body, length);
    if (status == FL_OK)
        CHECK_NUMBER(size - (row->rest ? strlen(row->rest) : 0), used);
    free(body);
}

static void check_chunks(const chunk_case *row) {
    size_t size = strlen(row->coded);
    size_t *cuts = malloc((size + 1) * sizeof *cuts);
    test_begin(row->name);
    for (size_t i = 0; i <= size; i++) {
        size_t halves[] = {i, size};
        check_pieces(row, halves, 2, size);
        cuts[i] = i;
    }
    check_pieces(row, cuts, size + 1, size);
    test_end();
    free(cuts);
}

/* `prefix`, `count` times "x", `suffix`. */
static void check_filled(const char *name, const char *prefix, size_t count, const char *suffix,
                         fl_status status) {
    char *coded = malloc(strlen(prefix) + count + strlen(suffix) + 1), *at = coded;
    at += sprintf(at, "%s", prefix);
    memset(at, 'x', count);
    sprintf(at + count, "%s", suffix);
    chunk_case row = {name, coded, status, NULL, NULL};
    check_chunks(&row);
    free(coded);
}

static void check_limits(void) {
    check_filled("a size line of 4096 bytes", "0;", 4094, "\r\n\r\n", FL_OK);
    check_filled("a size line of 4097 bytes", "0;", 4095, "\r\n\r\n", FL_BAD_CHUNK);
    check_filled("a size line without end", "0;", 4095, "", FL_BAD_CHUNK);
    check_filled("trailers of 8192 bytes", "0\r\nA: ", 8185, "\r\n\r\n", FL_OK);
    check_filled("trailers of 8193 bytes", "0\r\nA: ", 8186, "\r\n\r\n", FL_BAD_CHUNK);
    check_filled("a trailer without end", "0\r\nA: ", 8190, "", FL_BAD_CHUNK);
}

/* Decodes `count` chunks of `size` bytes, each with an extension of `extension` bytes. */
static fl_status decode_many(unsigned count, unsigned size, unsigned extension) {
    fl_chunks chunks = {0};
    char *coded = malloc(size + extension + 100);
    fl_status status = FL_AGAIN;
    for (unsigned i = 0; i < count && status == FL_AGAIN; i++) {
        char *at = coded + sprintf(coded, "%x;", size);
        memset(at, 'e', extension);
        at += extension;
        at += sprintf(at, "\r\n");
        memset(at, 'd', size);
        at += size;
        at += sprintf(at, "\r\n");
        size_t used, decoded;
        status = fl_chunks_decode(&chunks, coded, (size_t) (at - coded), &used, &decoded);
        if (status == FL_AGAIN)
            CHECK_NUMBER(size, decoded);
    }
    free(coded);
    return status;
}

static void extensions_are_limited_in_proportion_to_the_body(void) {
    CHECK_NUMBER(FL_AGAIN, decode_many(100000, 1, 100));   /* small chunks, small extensions */
    CHECK_NUMBER(FL_AGAIN, decode_many(2000, 65536, 100)); /* signed chunks, as object stores send them */
    CHECK_NUMBER(FL_AGAIN, decode_many(2000, 4000, 4000));
    CHECK_NUMBER(FL_AGAIN, decode_many(4, 1, 4000));
    CHECK_NUMBER(FL_BAD_CHUNK, decode_many(10, 1, 4000));
    CHECK_NUMBER(FL_BAD_CHUNK, decode_many(1000, 1, 200));
}

static void a_malformed_body_stays_malformed(void) {
    fl_chunks chunks = {0};
    char bad[] = "x", good[] = "0\r\n\r\n";
    size_t used, decoded;
    CHECK_NUMBER(FL_BAD_CHUNK, fl_chunks_decode(&chunks, bad, 1, &used, &decoded));
    CHECK_NUMBER(FL_BAD_CHUNK, fl_chunks_decode(&chunks, good, 5, &used, &decoded));
    CHECK_NUMBER(0, used);
}

static void after_the_end_nothing_is_consumed(void) {
    fl_chunks chunks = {0};
    char bytes[] = "0\r\n\r\n0\r\n\r\n";
    size_t used, decoded;
    CHECK_NUMBER(FL_OK, fl_chunks_decode(&chunks, bytes, 10, &used, &decoded));
    CHECK_NUMBER(5, used);
    CHECK_NUMBER(FL_OK, fl_chunks_decode(&chunks, bytes + 5, 5, &used, &decoded));
    CHECK_NUMBER(0, used);
    CHECK_NUMBER(0, decoded);
}

static void the_input_may_be_empty(void) {
    fl_chunks chunks = {0};
    size_t used, decoded;
    CHECK_NUMBER(FL_AGAIN, fl_chunks_decode(&chunks, NULL, 0, &used, &decoded));
    CHECK_NUMBER(0, used);
    CHECK_NUMBER(0, decoded);
}

int main(void) {
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_chunks(&cases[i]);
    check_limits();
    TEST(extensions_are_limited_in_proportion_to_the_body);
    TEST(a_malformed_body_stays_malformed);
    TEST(after_the_end_nothing_is_consumed);
    TEST(the_input_may_be_empty);
    return test_summary();
}
