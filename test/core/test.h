/* Checks and a runner for C tests. TEST(function) runs a function as a test; test_begin and test_end delimit other tests, such as rows of
 * a table. run_tests adds up the last lines of all programs. */
#ifndef FL_TEST_H
#define FL_TEST_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    unsigned passed, failed;
    bool failing;
    const char *name;
} test;

static inline void test_begin(const char *name) {
    test.name = name;
    test.failing = false;
}

static inline void test_end(void) {
    if (test.failing)
        test.failed++;
    else
        test.passed++;
}

__attribute__((format(printf, 3, 4))) static inline void test_fail(const char *file, int line,
                                                                   const char *format, ...) {
    va_list arguments;
    if (!test.failing)
        printf("FAILED %s\n", test.name);
    test.failing = true;
    printf("  %s:%d: ", file, line);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout); /* a sanitizer's exit does not */
}

/* A test continues after a failed check. */
#define CHECK(condition) ((condition) ? (void) 0 : test_fail(__FILE__, __LINE__, "not true: %s", #condition))
#define CHECK_NUMBER(expected, actual)                                                                         \
    do {                                                                                                       \
        long long expected_ = (long long) (expected), actual_ = (long long) (actual);                          \
        if (expected_ != actual_)                                                                              \
            test_fail(__FILE__, __LINE__, "%s: expected %lld, got %lld", #actual, expected_, actual_);         \
    } while (0)
#define CHECK_TEXT(expected, actual)                                                                           \
    do {                                                                                                       \
        const char *expected_ = (expected), *actual_ = (actual);                                               \
        if (strcmp(expected_, actual_) != 0)                                                                   \
            test_fail(__FILE__, __LINE__, "\n    expected %s\n    got      %s", expected_, actual_);           \
    } while (0)
#define CHECK_BYTES(expected, expected_size, actual, actual_size)                                              \
    do {                                                                                                       \
        size_t expected_size_ = (expected_size), actual_size_ = (actual_size);                                 \
        const char *actual_ = (actual);                                                                        \
        if (expected_size_ != actual_size_ || (actual_size_ && memcmp(expected, actual_, actual_size_)))       \
            test_fail(__FILE__, __LINE__, "%zu bytes differ from the %zu expected: \"%.*s\"", actual_size_,    \
                      expected_size_, (int) (actual_size_ < 200 ? actual_size_ : 200), actual_);               \
    } while (0)

#define TEST(function)                                                                                         \
    do {                                                                                                       \
        test_begin(#function);                                                                                 \
        function();                                                                                            \
        test_end();                                                                                            \
    } while (0)

static inline int test_summary(void) {
    printf("%u passed, %u failed\n", test.passed, test.failed);
    fflush(stdout);
    return test.failed > 0;
}

/* A copy in a block of exactly its size, so that AddressSanitizer notices reads beyond its end. */
static inline char *test_copy(const void *bytes, size_t size) {
    char *copy = malloc(size ? size : 1);
    if (size)
        memcpy(copy, bytes, size);
    return copy;
}

#endif
