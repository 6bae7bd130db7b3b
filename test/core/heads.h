/* Tables of request heads. A row is a request and either the status of its rejection, or a description of the head like
 * "GET origin path=/a query=b authority=example.com 1.1 keep-alive". The test parses each in one part, byte by byte, and split at every
 * position; the results must be the same. */
#ifndef FL_TEST_HEADS_H
#define FL_TEST_HEADS_H

#include "http1/http1.h"
#include "test.h"

typedef struct head_case {
    const char *name, *request;
    size_t size; /* of a request that contains a NUL; else 0 */
    fl_status status;
    const char *head;    /* the expected description */
    const char *headers; /* NULL, or the expected "name=value|name=value" */
    const char *rest;    /* the bytes after the head in `request`, which must not be parsed */
} head_case;

typedef struct answer {
    fl_status status;
    char head[70000], headers[70000];
    uint32_t size;
} answer;

static const fl_head_limits usual_limits = {8192, 32768, 100};

static inline void put_span(FILE *out, const char *label, const char *bytes, fl_span span) {
    if (span.size)
        fprintf(out, " %s=%.*s", label, (int) span.size, bytes + span.at);
}

static inline void describe(answer *into, const fl_head *head, const char *bytes) {
    into->head[0] = into->headers[0] = 0; /* fmemopen writes no NUL if nothing is written */
    static const char *const forms[] = {"origin", "absolute", "authority", "asterisk"};
    FILE *out = fmemopen(into->head, sizeof into->head, "w");
    fprintf(out, "%.*s %s", (int) head->method.size, bytes + head->method.at, forms[head->form]);
    put_span(out, "scheme", bytes, head->scheme);
    put_span(out, "path", bytes, head->path);
    put_span(out, "query", bytes, head->query);
    put_span(out, "authority", bytes, head->authority);
    fprintf(out, " 1.%d %s", head->minor, head->keep_alive ? "keep-alive" : "close");
    if (head->has_length)
        fprintf(out, " length=%llu", (unsigned long long) head->content_length);
    if (head->chunked)
        fprintf(out, " chunked");
    if (head->expect_continue)
        fprintf(out, " continue");
    if (head->upgrade)
        fprintf(out, " upgrade");
    if (head->head_method)
        fprintf(out, " no-body");
    fclose(out);

    out = fmemopen(into->headers, sizeof into->headers, "w");
    for (uint32_t i = 0; i < head->count; i++) {
        const fl_header *header = &head->headers[i];
        fprintf(out, "%s%.*s=%.*s", i ? "|" : "", (int) header->name.size, bytes + header->name.at,
                (int) header->value.size, bytes + header->value.at);
    }
    fclose(out);
    into->size = head->size;
}

/* Parses the first `cuts[0]` bytes, then the first `cuts[1]` bytes, … each in another block of memory. */
static inline fl_status feed(fl_head *head, const char *request, const size_t *cuts, size_t count,
                             const fl_head_limits *limits) {
    fl_status status = FL_AGAIN;
    fl_head_clear(head);
    for (size_t i = 0; i < count && status == FL_AGAIN; i++) {
        char *bytes = test_copy(request, cuts[i]);
        status = fl_http1_parse(head, bytes, cuts[i], limits);
        free(bytes);
    }
    return status;
}

static inline void check_same(const answer *whole, const fl_head *head, fl_status status,
                              const char *request, const char *how, size_t where) {
    static answer other;
    if (whole->status != status) {
        test_fail(__FILE__, __LINE__, "%s %zu: %s, whole: %s", how, where, fl_status_text(status),
                  fl_status_text(whole->status));
    } else if (status == FL_OK) {
        describe(&other, head, request);
        if (strcmp(whole->head, other.head) || strcmp(whole->headers, other.headers) ||
            whole->size != other.size)
            test_fail(__FILE__, __LINE__, "%s %zu: read %s, %s, whole: %s, %s", how, where, other.head,
                      other.headers, whole->head, whole->headers);
    }
}

static inline void check_head(const head_case *row, const fl_head_limits *limits) {
    static fl_head head;
    static answer whole;
    size_t size = row->size ? row->size : strlen(row->request);
    const char *request = row->request;

    test_begin(row->name);
    whole.status = feed(&head, request, &size, 1, limits);
    if (whole.status != row->status)
        test_fail(__FILE__, __LINE__, "expected: %s, got: %s", fl_status_text(row->status),
                  fl_status_text(whole.status));
    if (whole.status == FL_OK) {
        describe(&whole, &head, request);
        if (row->head)
            CHECK_TEXT(row->head, whole.head);
        if (row->headers)
            CHECK_TEXT(row->headers, whole.headers);
        CHECK_NUMBER(size - (row->rest ? strlen(row->rest) : 0), whole.size);
    }

    size_t *cuts = malloc((size + 1) * sizeof *cuts);
    for (size_t i = 0; i <= size; i++)
        cuts[i] = i;
    fl_status status = feed(&head, request, cuts, size + 1, limits);
    check_same(&whole, &head, status, request, "byte by byte", 1);
    free(cuts);
    for (size_t i = 0; i < size; i++) {
        size_t halves[] = {i, size};
        status = feed(&head, request, halves, 2, limits);
        check_same(&whole, &head, status, request, "cut at", i);
    }
    test_end();
}

#define CHECK_HEADS(table, limits)                                                                             \
    for (size_t i = 0; i < sizeof(table) / sizeof((table)[0]); i++)                                            \
    check_head(&(table)[i], limits)

#endif
