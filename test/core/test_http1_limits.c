/* The exact limits of heads, however the bytes are split. */
#include "heads.h"

enum { ROOM = 1024 };

/* `empty` empty lines, "GET /aaa HTTP/1.1" of `line` bytes, then `tail`. */
static const char *request_with_line(unsigned line, unsigned empty, const char *tail) {
    static char request[ROOM];
    char *at = request;
    for (unsigned i = 0; i < empty; i++)
        at += sprintf(at, "\r\n");
    at += sprintf(at, "GET /");
    for (unsigned i = 0; i < line - 14; i++)
        *at++ = 'a';
    sprintf(at, " HTTP/1.1%s", tail);
    return request;
}

static const char *labelled(const char *label, unsigned number) {
    static char name[120];
    snprintf(name, sizeof name, "%s (%u)", label, number);
    return name;
}

static void check(const char *label, unsigned number, const char *request, fl_status status,
                  const fl_head_limits *limits) {
    head_case row = {labelled(label, number), request, 0, status, NULL, NULL, NULL};
    check_head(&row, limits);
}

static void request_lines(void) {
    static const fl_head_limits limits = {40, 200, 10};
    for (unsigned empty = 0; empty <= 2; empty++) {
        check("a line as long as allowed", empty, request_with_line(40, empty, "\r\nHost: a\r\n\r\n"), FL_OK,
              &limits);
        check("a byte too long", empty, request_with_line(41, empty, "\r\nHost: a\r\n\r\n"), FL_TARGET_TOO_LONG,
              &limits);
        check("far too long", empty, request_with_line(100, empty, "\r\nHost: a\r\n\r\n"), FL_TARGET_TOO_LONG,
              &limits);
        check("too long for a whole head as well", empty, request_with_line(300, empty, "\r\nHost: a\r\n\r\n"),
              FL_TARGET_TOO_LONG, &limits);
        check("too long without an end", empty, request_with_line(42, empty, ""), FL_TARGET_TOO_LONG, &limits);
        check("the end may still come", empty, request_with_line(40, empty, "\r"), FL_AGAIN, &limits);
        check("a bare LF within the limit", empty, request_with_line(40, empty, "\n"), FL_BAD_LINE_ENDING,
              &limits);
        check("a bare LF just behind it", empty, request_with_line(41, empty, "\n"), FL_BAD_LINE_ENDING,
              &limits);
        check("a bare LF far behind it", empty, request_with_line(42, empty, "\n"), FL_TARGET_TOO_LONG,
              &limits);
    }
    static const fl_head_limits narrow = {400, 60, 10};
    static const fl_head_limits equal = {58, 60, 10};
    check("a line too long by both limits at once", 58, request_with_line(59, 0, "\r\n"), FL_TARGET_TOO_LONG,
          &equal);
    check("a line longer than a head", 60, request_with_line(61, 0, "\r\nHost: a\r\n\r\n"), FL_HEAD_TOO_LARGE,
          &narrow);
    check("a line that leaves no room for a head", 58, request_with_line(58, 0, "\r\n"), FL_HEAD_TOO_LARGE,
          &narrow);
}

static void head_sizes(void) {
    static const char request[] = "GET / HTTP/1.1\r\nHost: a\r\nCookie: 0123456789\r\nAccept: */*\r\n\r\n";
    for (unsigned limit = 1; limit < sizeof request + 10; limit++) {
        fl_head_limits limits = {8192, limit, 10};
        check("a head in so many bytes", limit, request,
              limit >= sizeof request - 1 ? FL_OK : FL_HEAD_TOO_LARGE, &limits);
    }
    fl_head_limits limits = {8192, 64, 10};
    check("an endless header", 64,
          "GET / HTTP/1.1\r\nX: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
          FL_HEAD_TOO_LARGE, &limits);
    check("a bare LF behind the limit", 64,
          "GET / HTTP/1.1\r\nX: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n",
          FL_HEAD_TOO_LARGE, &limits);
    check("a bare LF before the limit", 64,
          "GET / HTTP/1.1\r\nX: a\naaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
          FL_BAD_LINE_ENDING, &limits);
}

static void header_counts(void) {
    static char request[FL_MAX_HEADERS * 8 + 100];
    for (unsigned limit = 1; limit <= FL_MAX_HEADERS + 50; limit += limit < 4    ? 1
                                                                     : limit == 4 ? FL_MAX_HEADERS - 4
                                                                                  : 25) {
        fl_head_limits limits = {8192, 32768, limit};
        unsigned most = limit < FL_MAX_HEADERS ? limit : FL_MAX_HEADERS;
        for (unsigned count = most; count <= most + 1; count++) {
            char *at = request + sprintf(request, "GET / HTTP/1.1\r\nHost: a\r\n");
            for (unsigned i = 1; i < count; i++)
                at += sprintf(at, "X: y\r\n");
            sprintf(at, "\r\n");
            check("headers where so many are allowed", limit, request, count > most ? FL_HEAD_TOO_LARGE : FL_OK,
                  &limits);
        }
    }
}

/* Otherwise a head that arrives byte by byte would cost quadratic time. */
static void a_line_is_searched_once(void) {
    static fl_head head;
    static const char part[] = "GET / HTTP/1.1\r\nHost: a\r\nCookie: abc";
    fl_head_clear(&head);
    CHECK_NUMBER(FL_AGAIN, fl_http1_parse(&head, part, sizeof part - 1, &usual_limits));
    CHECK_NUMBER(sizeof part - 1, head.scanned);
    CHECK_NUMBER(25, head.line);
    CHECK_NUMBER(1, head.count);
}

int main(void) {
    request_lines();
    head_sizes();
    header_counts();
    TEST(a_line_is_searched_once);
    return test_summary();
}
