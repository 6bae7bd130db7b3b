#include "base/http_date.h"
#include "http1/http1.h"
#include "test.h"
#include <time.h>

static fl_slab slab;
static fl_buffer out;

#define WRITES(expected, call)                                                                                 \
    do {                                                                                                       \
        CHECK_NUMBER(FL_OK, call);                                                                             \
        CHECK_BYTES(expected, sizeof(expected) - 1, fl_buffer_at(&out), out.length);                           \
        fl_buffer_free(&slab, &out);                                                                           \
    } while (0)

static void a_status_line_says_code_and_reason(void) {
    WRITES("HTTP/1.1 200 OK\r\n", fl_http1_write_status(&slab, &out, 200));
    WRITES("HTTP/1.1 404 Not Found\r\n", fl_http1_write_status(&slab, &out, 404));
    WRITES("HTTP/1.1 100 Continue\r\n", fl_http1_write_status(&slab, &out, 100));
    WRITES("HTTP/1.1 431 Request Header Fields Too Large\r\n", fl_http1_write_status(&slab, &out, 431));
}

static void a_code_without_a_phrase_keeps_its_space(void) {
    WRITES("HTTP/1.1 299 \r\n", fl_http1_write_status(&slab, &out, 299));
    WRITES("HTTP/1.1 999 \r\n", fl_http1_write_status(&slab, &out, 999));
}

static void every_code_has_a_status_line(void) {
    for (int code = 100; code <= 999; code++) {
        char expected[120];
        int size = snprintf(expected, sizeof expected, "HTTP/1.1 %d %s\r\n", code, fl_reason(code));
        CHECK_NUMBER(FL_OK, fl_http1_write_status(&slab, &out, code));
        CHECK_BYTES(expected, (size_t) size, fl_buffer_at(&out), out.length);
        fl_buffer_free(&slab, &out);
    }
}

static fl_status header(const char *name, const char *value) {
    char *exact_name = test_copy(name, strlen(name)), *exact_value = test_copy(value, strlen(value));
    fl_status status = fl_http1_write_header(&slab, &out, exact_name, strlen(name), exact_value, strlen(value));
    free(exact_name);
    free(exact_value);
    return status;
}

static void headers_are_written_as_they_are(void) {
    WRITES("content-type: text/html; charset=utf-8\r\n", header("content-type", "text/html; charset=utf-8"));
    WRITES("x: \r\n", header("x", ""));
    WRITES("x: \r\n", fl_http1_write_header(&slab, &out, "x", 1, NULL, 0));
    WRITES("X-Name: gr\xc3\xbc\xc3\x9f\t0123456789\r\n", header("X-Name", "gr\xc3\xbc\xc3\x9f\t0123456789"));
}

static void a_header_that_would_split_the_response_is_an_error(void) {
    static const char *const names[] = {"", "a b", "a:", "a\r\nb", "a\n", "\xc3\xb6", "a\x7f", "a\"b"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        CHECK_NUMBER(FL_BAD_HEADER_NAME, header(names[i], "value"));
    for (int byte = 0; byte < 256; byte++) {
        bool allowed = byte == '\t' || (byte >= 0x20 && byte != 0x7f);
        for (size_t size = 1; size < 40; size++)
            for (size_t at = 0; at < size; at++) {
                char value[40];
                memset(value, 'v', size);
                value[at] = (char) byte;
                char *exact = test_copy(value, size);
                fl_status status = fl_http1_write_header(&slab, &out, "x", 1, exact, size);
                free(exact);
                if (status != (allowed ? FL_OK : FL_BAD_HEADER_VALUE))
                    test_fail(__FILE__, __LINE__, "byte %02x at %zu of %zu: %s", byte, at, size,
                              fl_status_text(status));
                fl_buffer_free(&slab, &out);
            }
    }
}

static void an_error_leaves_the_buffer_unchanged(void) {
    CHECK_NUMBER(FL_OK, fl_http1_write_status(&slab, &out, 200));
    CHECK_NUMBER(FL_BAD_HEADER_VALUE, header("a", "b\r\nc: d"));
    CHECK_NUMBER(FL_BAD_HEADER_NAME, header("a\r\n", "b"));
    WRITES("HTTP/1.1 200 OK\r\na: b\r\n", header("a", "b"));
}

static void sizes_that_overflow_are_an_error(void) {
    CHECK_NUMBER(FL_NO_MEMORY, fl_http1_write_chunk(&slab, &out, "", SIZE_MAX));
    CHECK_NUMBER(FL_NO_MEMORY, fl_http1_write_chunk(&slab, &out, "", SIZE_MAX - 19));
    CHECK_NUMBER(FL_NO_MEMORY, fl_http1_write_chunk(&slab, &out, "", (size_t) 1 << 40));
    CHECK_NUMBER(0, out.length);
}

static void lengths_are_decimal(void) {
    WRITES("content-length: 0\r\n", fl_http1_write_length(&slab, &out, 0));
    WRITES("content-length: 7\r\n", fl_http1_write_length(&slab, &out, 7));
    WRITES("content-length: 1234567890\r\n", fl_http1_write_length(&slab, &out, 1234567890));
    WRITES("content-length: 18446744073709551615\r\n", fl_http1_write_length(&slab, &out, UINT64_MAX));
}

static void chunks_are_hexadecimal(void) {
    char bytes[4096];
    memset(bytes, 'x', sizeof bytes);
    WRITES("1\r\nx\r\n", fl_http1_write_chunk(&slab, &out, bytes, 1));
    WRITES("f\r\nxxxxxxxxxxxxxxx\r\n", fl_http1_write_chunk(&slab, &out, bytes, 15));
    WRITES("10\r\nxxxxxxxxxxxxxxxx\r\n", fl_http1_write_chunk(&slab, &out, bytes, 16));
    CHECK_NUMBER(FL_OK, fl_http1_write_chunk(&slab, &out, bytes, 4096));
    CHECK_NUMBER(6 + 4096 + 2, out.length);
    CHECK_BYTES("1000\r\nx", 7, fl_buffer_at(&out), 7);
    fl_buffer_free(&slab, &out);
    WRITES("0\r\n\r\n", fl_http1_write_last_chunk(&slab, &out));
}

static void an_empty_chunk_does_not_end_the_body(void) {
    WRITES("", fl_http1_write_chunk(&slab, &out, "", 0));
    WRITES("", fl_http1_write_chunk(&slab, &out, NULL, 0));
}

static void written_chunks_decode_to_the_same_bytes(void) {
    char body[3000];
    for (size_t i = 0; i < sizeof body; i++)
        body[i] = (char) (i * 7);
    for (size_t piece = 1; piece < 400; piece += 13) {
        for (size_t at = 0; at < sizeof body; at += piece)
            fl_http1_write_chunk(&slab, &out, body + at, sizeof body - at < piece ? sizeof body - at : piece);
        fl_http1_write_last_chunk(&slab, &out);
        fl_chunks chunks = {0};
        size_t used, decoded;
        CHECK_NUMBER(FL_OK, fl_chunks_decode(&chunks, fl_buffer_at(&out), out.length, &used, &decoded));
        CHECK_NUMBER(out.length, used);
        CHECK_BYTES(body, sizeof body, fl_buffer_at(&out), decoded);
        fl_buffer_free(&slab, &out);
    }
}

static void check_date(int64_t seconds) {
    char line[FL_DATE_SIZE], expected[64];
    time_t time = (time_t) seconds;
    struct tm parts;
    gmtime_r(&time, &parts);
    /* %Y has no leading zeros before the year 1000 */
    char year[8];
    snprintf(year, sizeof year, "%04d", (int) (parts.tm_year + 1900) % 10000);
    size_t size = strftime(expected, sizeof expected, "date: %a, %d %b ", &parts);
    size += (size_t) sprintf(expected + size, "%s", year);
    strftime(expected + size, sizeof expected - size, " %H:%M:%S GMT\r\n", &parts);
    fl_http_date(line, seconds);
    if (memcmp(line, expected, FL_DATE_SIZE) != 0)
        test_fail(__FILE__, __LINE__, "%lld: expected %.35s, got %.35s", (long long) seconds, expected, line);
    CHECK_NUMBER(FL_DATE_SIZE, strlen(expected));
}

static void the_date_has_the_format_of_RFC_9110(void) {
    char line[FL_DATE_SIZE];
    fl_http_date(line, 784111777);
    CHECK_BYTES("date: Sun, 06 Nov 1994 08:49:37 GMT\r\n", FL_DATE_SIZE, line, FL_DATE_SIZE);
}

static void dates_equal_those_of_the_C_library(void) {
    const int64_t day = 86400;
    for (int64_t seconds = -day * 800000; seconds < day * 3000000; seconds += day * 13 + 3601) {
        if (seconds >= -62135596800 && seconds <= 253402300799)
            check_date(seconds);
    }
    for (int64_t seconds = 0; seconds < day * 366 * 4; seconds += 86399)
        check_date(951782400 - day * 366 + seconds);
    static const int64_t corners[] = {
        0,           -1,         1,           951782399,   951782400,    951868800,
        4107542399,  4107542400, 1709164800,  1709251199,  253402300799, -62135596800,
        68169600000, 2147483647, 2147483648U, 4294967295U, 4294967296,   1735689599};
    for (size_t i = 0; i < sizeof corners / sizeof corners[0]; i++)
        check_date(corners[i]);
}

static void dates_beyond_year_9999_stay_at_the_limit(void) {
    char line[FL_DATE_SIZE];
    fl_http_date(line, INT64_MAX);
    CHECK_BYTES("date: Fri, 31 Dec 9999 23:59:59 GMT\r\n", FL_DATE_SIZE, line, FL_DATE_SIZE);
    fl_http_date(line, INT64_MIN);
    CHECK_BYTES("date: Mon, 01 Jan 0001 00:00:00 GMT\r\n", FL_DATE_SIZE, line, FL_DATE_SIZE);
}

int main(void) {
    TEST(a_status_line_says_code_and_reason);
    TEST(a_code_without_a_phrase_keeps_its_space);
    TEST(every_code_has_a_status_line);
    TEST(headers_are_written_as_they_are);
    TEST(a_header_that_would_split_the_response_is_an_error);
    TEST(an_error_leaves_the_buffer_unchanged);
    TEST(sizes_that_overflow_are_an_error);
    TEST(lengths_are_decimal);
    TEST(chunks_are_hexadecimal);
    TEST(an_empty_chunk_does_not_end_the_body);
    TEST(written_chunks_decode_to_the_same_bytes);
    TEST(the_date_has_the_format_of_RFC_9110);
    TEST(dates_equal_those_of_the_C_library);
    TEST(dates_beyond_year_9999_stay_at_the_limit);
    fl_slab_close(&slab);
    return test_summary();
}
