/* Conditional requests, ranges, content codings, dates, and paths of public files. */
#include "base/accept_encoding.h"
#include "base/http_date.h"
#include "files/content_type.h"
#include "files/public_files.h"
#include "files/selection.h"
#include "test.h"

static const int64_t modified = 784111777; /* Sun, 06 Nov 1994 08:49:37 GMT */

static fl_text text(const char *string) {
    return string == NULL ? (fl_text) {0} : (fl_text) {string, strlen(string)};
}

static void conditions_are_checked_in_the_order_of_the_standard(void) {
    static const char same[] = "Sun, 06 Nov 1994 08:49:37 GMT", before[] = "Sun, 06 Nov 1994 08:49:36 GMT",
                      after[] = "Sun, 06 Nov 1994 08:49:38 GMT";
    static const struct {
        const char *match, *unmodified, *none_match, *since;
        int code;
    } rows[] = {
        {NULL, NULL, NULL, NULL, 200},
        {"\"a\"", NULL, NULL, NULL, 200},
        {"*", NULL, NULL, NULL, 200},
        {"\"b\", \"a\"", NULL, NULL, NULL, 200},
        {"\"b\"", NULL, NULL, NULL, 412},
        {"W/\"a\"", NULL, NULL, NULL, 412}, /* weak tags do not match strongly */
        {"a", NULL, NULL, NULL, 412},
        {"\"a\"", before, NULL, NULL, 200}, /* If-Match wins over If-Unmodified-Since */
        {NULL, same, NULL, NULL, 200},
        {NULL, before, NULL, NULL, 412},
        {NULL, "yesterday", NULL, NULL, 200},
        {NULL, NULL, "\"a\"", NULL, 304},
        {NULL, NULL, "W/\"a\"", NULL, 304},
        {NULL, NULL, "\"b\" , W/\"a\"", NULL, 304},
        {NULL, NULL, "*", NULL, 304},
        {NULL, NULL, "\"b\"", NULL, 200},
        {NULL, NULL, "\"b\"", same, 200}, /* If-None-Match wins over If-Modified-Since */
        {NULL, NULL, NULL, same, 304},
        {NULL, NULL, NULL, after, 304},
        {NULL, NULL, NULL, before, 200},
        {NULL, NULL, NULL, "yesterday", 200},
        {"\"b\"", NULL, "\"a\"", NULL, 412},
        {"\"a\"", NULL, "\"a\"", NULL, 304},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fl_preconditions fields = {.if_match = text(rows[i].match),
                                   .if_unmodified_since = text(rows[i].unmodified),
                                   .if_none_match = text(rows[i].none_match),
                                   .if_modified_since = text(rows[i].since)};
        fl_selection selection = fl_select(&fields, &(fl_validators) {"\"a\"", 3, modified, modified + 100}, 10);
        if (selection.code != rows[i].code)
            test_fail(__FILE__, __LINE__, "row %zu: %d instead of %d", i, selection.code, rows[i].code);
    }
}

static void a_range_selects_a_part(void) {
    static const struct {
        const char *range;
        int code;
        uint64_t at, size;
    } rows[] = {
        {"bytes=0-0", 206, 0, 1},
        {"Bytes=2-4", 206, 2, 3},
        {"bytes= 2-4 ", 206, 2, 3},
        {"bytes=2-", 206, 2, 8},
        {"bytes=-3", 206, 7, 3},
        {"bytes=-30", 206, 0, 10},
        {"bytes=9-100", 206, 9, 1},
        {"bytes=0-99999999999999999999999", 206, 0, 10},
        {"bytes=10-", 416, 0, 0},
        {"bytes=99999999999999999999999-", 416, 0, 0},
        {"bytes=-0", 416, 0, 0},
        {"bytes=4-2", 200, 0, 10},
        {"bytes=-", 200, 0, 10},
        {"bytes=", 200, 0, 10},
        {"bytes=a-b", 200, 0, 10},
        {"bytes=1", 200, 0, 10},
        {"lines=1-2", 200, 0, 10},
        {"bytes=0-1,4-5", 200, 0, 10}, /* several ranges: the whole */
        {"", 200, 0, 10},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *copy = test_copy(rows[i].range, strlen(rows[i].range));
        fl_preconditions fields = {.range = {copy, strlen(rows[i].range)}};
        fl_validators validators = {"\"a\"", 3, modified, modified + 100};
        fl_selection selection = fl_select(&fields, &validators, 10);
        if (selection.code != rows[i].code || selection.at != rows[i].at || selection.size != rows[i].size)
            test_fail(__FILE__, __LINE__, "%s: %d, %d bytes from %d", rows[i].range, selection.code, (int) selection.size,
                      (int) selection.at);
        fields.head = true; /* ranges apply to GET only */
        CHECK_NUMBER(200, fl_select(&fields, &validators, 10).code);
        free(copy);
    }
    fl_preconditions fields = {.range = text("bytes=0-")};
    CHECK_NUMBER(416, fl_select(&fields, &(fl_validators) {"\"a\"", 3, modified, modified}, 0).code);
}

static void a_range_applies_only_to_the_file_that_the_client_has(void) {
    static const char same[] = "Sun, 06 Nov 1994 08:49:37 GMT";
    static const struct {
        const char *condition;
        int64_t now;
        int code;
    } rows[] = {
        {"\"a\"", modified, 206},  {"\"b\"", modified, 200}, {"W/\"a\"", modified, 200}, {same, modified + 2, 206},
        {same, modified + 1, 200}, /* it may have changed twice in that second */
        {"Sun, 06 Nov 1994 08:49:38 GMT", modified + 9, 200}, {"a", modified + 9, 200},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fl_preconditions fields = {.range = text("bytes=0-1"), .if_range = text(rows[i].condition)};
        fl_selection selection = fl_select(&fields, &(fl_validators) {"\"a\"", 3, modified, rows[i].now}, 10);
        if (selection.code != rows[i].code)
            test_fail(__FILE__, __LINE__, "row %zu: %d", i, selection.code);
    }
}

static void the_three_forms_of_dates_are_read(void) {
    static const struct {
        const char *text;
        int64_t seconds; /* -1: no date */
    } rows[] = {
        {"Sun, 06 Nov 1994 08:49:37 GMT", modified},
        {"Sunday, 06-Nov-94 08:49:37 GMT", modified},
        {"Sun Nov  6 08:49:37 1994", modified},
        {"Thu, 01 Jan 1970 00:00:00 GMT", 0},
        {"Thu, 29 Feb 2024 23:59:59 GMT", 1709251199},
        {"Fri, 31 Dec 9999 23:59:59 GMT", 253402300799},
        {"Sun, 06 Nov 1994 08:49:37", -1},
        {"Sun, 06 Nov 1994 24:49:37 GMT", -1},
        {"Sun, 00 Nov 1994 08:49:37 GMT", -1},
        {"Sun, 06 XXX 1994 08:49:37 GMT", -1},
        {"Sun, 06 Nov 1994 08:49:37 GMTx", -1},
        {"784111777", -1},
        {"", -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t seconds = -1;
        char *copy = test_copy(rows[i].text, strlen(rows[i].text));
        bool read = fl_http_date_parse(copy, strlen(rows[i].text), &seconds);
        if (read != (rows[i].seconds >= 0) || seconds != rows[i].seconds)
            test_fail(__FILE__, __LINE__, "%s: %lld", rows[i].text, (long long) seconds);
        free(copy);
    }
    for (int64_t second = 0, read; second < 4000000000; second += 86413 * 7) { /* each date is read as it was written */
        char date[FL_HTTP_DATE_SIZE];
        fl_http_date_format(date, second);
        if (!fl_http_date_parse(date, sizeof date, &read) || read != second)
            test_fail(__FILE__, __LINE__, "%.29s: %lld", date, (long long) read);
    }
}

static fl_coding best(const char *accept, unsigned available) {
    fl_accept_encoding_reader reader;
    char *copy = accept == NULL ? NULL : test_copy(accept, strlen(accept));
    fl_accept_encoding_begin(&reader);
    if (copy != NULL)
        fl_accept_encoding_add(&reader, copy, strlen(accept));
    free(copy);
    fl_accept_encoding accepted = fl_accept_encoding_end(&reader);
    return fl_accept_encoding_best(&accepted, available);
}

static void the_coding_is_the_one_that_the_client_prefers(void) {
    static const struct {
        const char *accept;
        fl_coding best;
    } rows[] = {
        {NULL, FL_CODING_IDENTITY},
        {"", FL_CODING_IDENTITY},
        {"gzip", FL_CODING_GZIP},
        {"GZIP", FL_CODING_GZIP},
        {"x-gzip", FL_CODING_GZIP},
        {"gzip, deflate, br, zstd", FL_CODING_BROTLI},
        {"gzip, zstd", FL_CODING_ZSTD},
        {"gzip;q=1.0, br;q=0.5", FL_CODING_GZIP},
        {"gzip;q=0.001", FL_CODING_GZIP},
        {"br;q=0, gzip", FL_CODING_GZIP},
        {"gzip;q=0", FL_CODING_IDENTITY},
        {"*", FL_CODING_BROTLI},
        {"*;q=0", FL_CODING_IDENTITY},
        {"br;q=0, *", FL_CODING_ZSTD},
        {"identity, gzip;q=0.5", FL_CODING_IDENTITY},
        {"identity;q=0, gzip;q=0.1", FL_CODING_GZIP},
        {" gzip ; q=0.5 ,", FL_CODING_GZIP},
        {"gzip;q=2", FL_CODING_IDENTITY},
        {"gzip;q=x", FL_CODING_IDENTITY},
        {"gzip;level=1", FL_CODING_IDENTITY},
        {"deflate", FL_CODING_IDENTITY},
        {"gzipped", FL_CODING_IDENTITY},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (best(rows[i].accept, 7) != rows[i].best)
            test_fail(__FILE__, __LINE__, "%s: %s", rows[i].accept, fl_coding_name(best(rows[i].accept, 7)));
    CHECK_NUMBER(FL_CODING_GZIP, best("br, gzip", 1 << FL_CODING_GZIP));
    CHECK_NUMBER(FL_CODING_IDENTITY, best("br", 1 << FL_CODING_GZIP));
}

static void only_plain_paths_name_files(void) {
    static const struct {
        const char *path, *name; /* NULL: left to the app */
    } rows[] = {
        {"/", ""},
        {"/a", "a"},
        {"/a/", "a"},
        {"/a/b.txt", "a/b.txt"},
        {"/a%20b", "a b"},
        {"/%e2%82%ac", "\xe2\x82\xac"},
        {"/a+b", "a+b"},
        {"/.well-known/x", ".well-known/x"},
        {"/.well-known", ".well-known"},
        {"", NULL},
        {"*", NULL},
        {"a", NULL},
        {"/..", NULL},
        {"/../a", NULL},
        {"/a/../b", NULL},
        {"/a/./b", NULL},
        {"/%2e%2e/a", NULL},
        {"/a/.%2e/b", NULL},
        {"/a%2fb", NULL},
        {"/a%2Fb", NULL},
        {"/a%5cb", NULL},
        {"/a\\b", NULL},
        {"/a%00", NULL},
        {"/a%0a", NULL},
        {"/a%7f", NULL},
        {"/a%", NULL},
        {"/a%2", NULL},
        {"/a%zz", NULL},
        {"/.env", NULL},
        {"/a/.git/config", NULL},
        {"/.well-known/.hidden", NULL},
        {"/.well-knowns", NULL},
        {"/a/.well-known/x", NULL},
        {"//a", NULL},
        {"/a//b", NULL},
    };
    char room[FL_MAX_PUBLIC_PATH];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *copy = test_copy(rows[i].path, strlen(rows[i].path));
        int size = fl_public_path(copy, strlen(rows[i].path), room);
        if (rows[i].name == NULL ? size >= 0 : (size != (int) strlen(rows[i].name) || strcmp(room, rows[i].name) != 0))
            test_fail(__FILE__, __LINE__, "%s: %d", rows[i].path, size);
        free(copy);
    }
    char longest[4096];
    memset(longest, 'a', sizeof longest);
    longest[0] = '/';
    CHECK_NUMBER(-1, fl_public_path(longest, sizeof longest, room));
    CHECK_NUMBER(FL_MAX_PUBLIC_PATH - 1, fl_public_path(longest, FL_MAX_PUBLIC_PATH, room));
    CHECK_NUMBER(-1, fl_public_path(longest, FL_MAX_PUBLIC_PATH + 1, room));
}

static void names_with_a_digest_are_known(void) {
    static const char *const digested[] = {"assets/app-0123abcd.css", "assets/a/b-c-01234567890123456789012345678901.js.map",
                                           "assets/x-0123456789012345678901234567890123456789.png", "assets/index-B1x_9kQz.js",
                                           "assets/index-Cd-9aBcd.js",
                                           "assets/y-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.js"};
    static const char *const plain[] = {"assets/app.css", "assets/app-0123abc.css", "assets/app-vertical.css", "assets/a-Vertical.css",
                                        "assets/0123abcd.css", "assets/app-0123abcd", "assets/app-0123abcg0.css", "assets/-"};
    for (size_t i = 0; i < sizeof digested / sizeof *digested; i++)
        if (!fl_is_digested(digested[i]))
            test_fail(__FILE__, __LINE__, "%s has a digest", digested[i]);
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (fl_is_digested(plain[i]))
            test_fail(__FILE__, __LINE__, "%s has no digest", plain[i]);
}

static const char *type_of(const char *path) {
    const fl_content_type *type = fl_content_type_of(path, strlen(path));
    return type == NULL ? "none" : type->name;
}

static void the_extension_tells_the_content_type(void) {
    CHECK_TEXT("text/css", type_of("a.css"));
    CHECK_TEXT("text/css", type_of("a/b.min.CSS"));
    CHECK_TEXT("font/woff2", type_of("a.woff2"));
    CHECK_TEXT("none", type_of("a"));
    CHECK_TEXT("none", type_of("a."));
    CHECK_TEXT("none", type_of("css"));
    CHECK_TEXT("none", type_of("a.css/b"));
    CHECK_TEXT("none", type_of("a.unknown"));
}

int main(void) {
    TEST(conditions_are_checked_in_the_order_of_the_standard);
    TEST(a_range_selects_a_part);
    TEST(a_range_applies_only_to_the_file_that_the_client_has);
    TEST(the_three_forms_of_dates_are_read);
    TEST(the_coding_is_the_one_that_the_client_prefers);
    TEST(only_plain_paths_name_files);
    TEST(names_with_a_digest_are_known);
    TEST(the_extension_tells_the_content_type);
    return test_summary();
}
