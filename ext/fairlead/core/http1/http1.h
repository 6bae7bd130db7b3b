/* HTTP/1.0 and 1.1 (RFC 9110, 9112) without a socket: bytes in, spans out; heads and chunks into a buffer.
 * Nothing here allocates but the writers, which grow the buffer they are given; nothing is freed here.
 * Spans are offsets from the first byte given to fl_http1_parse, so they stay valid when that memory moves;
 * they mean something as long as the caller keeps those bytes.
 * No state but in the structures: any thread may call, one at a time for each structure.
 * What can fail: parsing, with the status that says what was wrong (its HTTP code is fl_status_http); writing,
 * with FL_NO_MEMORY, or FL_BAD_HEADER_NAME and FL_BAD_HEADER_VALUE for what would split the response. */
#ifndef FL_HTTP1_H
#define FL_HTTP1_H

#include "base/buffer.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fl_span {
    uint32_t at, size;
} fl_span;

/* The header names that are known by number: the ones this parser has to understand, and the ones that requests
 * commonly carry, for which the binding keeps the Rack key ready. X(id, lower-case name, Rack key) */
#define FL_HEADER_MAP(X)                                                                                     \
    X(HOST, "host", "HTTP_HOST")                                                                             \
    X(CONNECTION, "connection", "HTTP_CONNECTION")                                                           \
    X(CONTENT_LENGTH, "content-length", "CONTENT_LENGTH")                                                    \
    X(CONTENT_TYPE, "content-type", "CONTENT_TYPE")                                                          \
    X(TRANSFER_ENCODING, "transfer-encoding", "HTTP_TRANSFER_ENCODING")                                      \
    X(EXPECT, "expect", "HTTP_EXPECT")                                                                       \
    X(UPGRADE, "upgrade", "HTTP_UPGRADE")                                                                    \
    X(X_REQUEST_START, "x-request-start", "HTTP_X_REQUEST_START")                                            \
    X(ACCEPT, "accept", "HTTP_ACCEPT")                                                                       \
    X(ACCEPT_ENCODING, "accept-encoding", "HTTP_ACCEPT_ENCODING")                                            \
    X(ACCEPT_LANGUAGE, "accept-language", "HTTP_ACCEPT_LANGUAGE")                                            \
    X(AUTHORIZATION, "authorization", "HTTP_AUTHORIZATION")                                                  \
    X(CACHE_CONTROL, "cache-control", "HTTP_CACHE_CONTROL")                                                  \
    X(COOKIE, "cookie", "HTTP_COOKIE")                                                                       \
    X(DNT, "dnt", "HTTP_DNT")                                                                                \
    X(FORWARDED, "forwarded", "HTTP_FORWARDED")                                                              \
    X(IF_MODIFIED_SINCE, "if-modified-since", "HTTP_IF_MODIFIED_SINCE")                                      \
    X(IF_NONE_MATCH, "if-none-match", "HTTP_IF_NONE_MATCH")                                                  \
    X(ORIGIN, "origin", "HTTP_ORIGIN")                                                                       \
    X(PRAGMA, "pragma", "HTTP_PRAGMA")                                                                       \
    X(PRIORITY, "priority", "HTTP_PRIORITY")                                                                 \
    X(RANGE, "range", "HTTP_RANGE")                                                                          \
    X(REFERER, "referer", "HTTP_REFERER")                                                                    \
    X(SEC_CH_UA, "sec-ch-ua", "HTTP_SEC_CH_UA")                                                              \
    X(SEC_CH_UA_MOBILE, "sec-ch-ua-mobile", "HTTP_SEC_CH_UA_MOBILE")                                         \
    X(SEC_CH_UA_PLATFORM, "sec-ch-ua-platform", "HTTP_SEC_CH_UA_PLATFORM")                                   \
    X(SEC_FETCH_DEST, "sec-fetch-dest", "HTTP_SEC_FETCH_DEST")                                               \
    X(SEC_FETCH_MODE, "sec-fetch-mode", "HTTP_SEC_FETCH_MODE")                                               \
    X(SEC_FETCH_SITE, "sec-fetch-site", "HTTP_SEC_FETCH_SITE")                                               \
    X(SEC_FETCH_USER, "sec-fetch-user", "HTTP_SEC_FETCH_USER")                                               \
    X(SEC_WEBSOCKET_KEY, "sec-websocket-key", "HTTP_SEC_WEBSOCKET_KEY")                                      \
    X(SEC_WEBSOCKET_VERSION, "sec-websocket-version", "HTTP_SEC_WEBSOCKET_VERSION")                          \
    X(TE, "te", "HTTP_TE")                                                                                   \
    X(UPGRADE_INSECURE_REQUESTS, "upgrade-insecure-requests", "HTTP_UPGRADE_INSECURE_REQUESTS")              \
    X(USER_AGENT, "user-agent", "HTTP_USER_AGENT")                                                           \
    X(VIA, "via", "HTTP_VIA")                                                                                \
    X(X_CSRF_TOKEN, "x-csrf-token", "HTTP_X_CSRF_TOKEN")                                                     \
    X(X_FORWARDED_FOR, "x-forwarded-for", "HTTP_X_FORWARDED_FOR")                                            \
    X(X_FORWARDED_HOST, "x-forwarded-host", "HTTP_X_FORWARDED_HOST")                                         \
    X(X_FORWARDED_PORT, "x-forwarded-port", "HTTP_X_FORWARDED_PORT")                                         \
    X(X_FORWARDED_PROTO, "x-forwarded-proto", "HTTP_X_FORWARDED_PROTO")                                      \
    X(X_FORWARDED_SCHEME, "x-forwarded-scheme", "HTTP_X_FORWARDED_SCHEME")                                   \
    X(X_FORWARDED_SSL, "x-forwarded-ssl", "HTTP_X_FORWARDED_SSL")                                            \
    X(X_REAL_IP, "x-real-ip", "HTTP_X_REAL_IP")                                                              \
    X(X_REQUEST_ID, "x-request-id", "HTTP_X_REQUEST_ID")                                                     \
    X(X_REQUESTED_WITH, "x-requested-with", "HTTP_X_REQUESTED_WITH")

typedef enum fl_header_id {
    FL_HEADER_OTHER,
#define X(id, name, key) FL_HEADER_##id,
    FL_HEADER_MAP(X)
#undef X
    FL_HEADER_IDS,
} fl_header_id;

typedef struct fl_header {
    fl_span name, value; /* the value without the white space around it */
    fl_header_id id;
} fl_header;

enum { FL_MOST_HEADERS = 256 }; /* the upper bound of fl_http1_limits.headers */

typedef struct fl_http1_limits {
    uint32_t request_line; /* bytes, without its CR LF: FL_TARGET_TOO_LONG */
    uint32_t head;         /* bytes of the whole head: FL_HEAD_TOO_LARGE */
    uint32_t headers;      /* how many: FL_HEAD_TOO_LARGE */
} fl_http1_limits;

typedef enum fl_target_form {
    FL_TARGET_ORIGIN,    /* "/path?query" */
    FL_TARGET_ABSOLUTE,  /* "http://authority/path?query", also https; without userinfo */
    FL_TARGET_AUTHORITY, /* "host:port", of CONNECT alone */
    FL_TARGET_ASTERISK,  /* "*", of OPTIONS alone */
} fl_target_form;

/* A request head. Zeroed before the first fl_http1_parse of a request. */
typedef struct fl_http1_head {
    /* where the parser stands */
    uint32_t line;    /* where the line not yet read begins */
    uint32_t scanned; /* up to where its end has been looked for */
    bool started;     /* the request line has been read */

    fl_span method, target; /* the target as sent */
    fl_span path;           /* of an origin-form or absolute-form target (there perhaps empty); "*" */
    fl_span query;          /* without its "?" */
    fl_span scheme;         /* of an absolute-form target, else empty */
    fl_span authority;      /* the host as the request means it: of an absolute-form or authority-form target,
                               else Host; a port is at most 65535 and not empty ("a:" is "a"). Empty without a
                               Host (1.0) and with an empty one (RFC 9112, 3.2). */
    fl_target_form form;
    uint8_t minor;          /* 0 or 1 of HTTP/1.x */
    bool head_method;       /* HEAD */
    bool keep_alive;        /* what the client wants, by its version and its Connection header */
    bool chunked;           /* the body is chunked */
    bool has_length;
    bool expect_continue;   /* Expect: 100-continue, of a 1.1 client that sends a body */
    bool upgrade;           /* Connection: upgrade together with an Upgrade header, 1.1 only */
    uint64_t content_length;
    uint32_t size;          /* of the head with its last CR LF, once parsed; the body begins here */

    uint32_t count;
    fl_header headers[FL_MOST_HEADERS];
} fl_http1_head;

/* Reads as much of a head as is there. `bytes` always begins with the first byte of the request; call again
 * with more (the memory may have moved). At most two empty lines before the request line are skipped (RFC
 * 9112, 2.2). Every line is read once, when it is complete, in its order, so the answer does not depend on how
 * the bytes were cut; a line beyond a limit is refused as soon as it is. The headers are judged together at
 * the head's end.
 * FL_OK: complete. FL_AGAIN: more is needed. Anything else: refuse with it and close.
 * With FL_MOST_HEADERS spans the structure is large: clear it with fl_http1_head_clear, which leaves them. */
fl_status fl_http1_parse(fl_http1_head *head, const char *bytes, size_t size, const fl_http1_limits *limits);

static inline void fl_http1_head_clear(fl_http1_head *head) {
    __builtin_memset(head, 0, offsetof(fl_http1_head, headers));
}

/* The chunked coding of a body, decoded as it comes. Zeroed before the first byte. */
typedef struct fl_chunks {
    uint64_t left;       /* of the present chunk */
    uint32_t line;       /* length so far of a size line, or of all trailers */
    uint32_t extensions; /* bytes of chunk extensions that the data has not yet paid for */
    uint8_t state;
    bool done;           /* the last chunk and the trailers have been read */
    size_t trailers;     /* where, in the bytes of the last call, those of the trailers began; behind them if none were */
} fl_chunks;

/* Decodes in place: `bytes` holds `size` coded bytes; afterwards its first `*decoded` bytes are body, and
 * `*used` coded bytes were consumed (all of them, unless done: what follows is the next request's, still at
 * bytes[*used]).
 * A size is at most 16 hexadecimal digits. Chunk extensions (4 KiB a line, and no more than the body
 * outweighs) are read, checked and dropped. So are trailers (8 KiB), which, with the empty line at their end, lie at
 * bytes[trailers] to bytes[*used].
 * FL_OK: done. FL_AGAIN: all was consumed, more is to come. FL_BAD_CHUNK: refuse and close; it stays that. */
fl_status fl_chunks_decode(fl_chunks *chunks, char *bytes, size_t size, size_t *used, size_t *decoded);

/* Likewise, and leaves the bytes as they are; what follows the body is wrong, too. */
fl_status fl_chunks_check(fl_chunks *chunks, const char *bytes, size_t size);

/* Whether a field may stand behind a body: none that frames or routes a message, says how to read it, or is needed before
 * the body (RFC 9110, 6.5.1). */
bool fl_http1_may_be_trailer(const char *name, size_t size);

/* Writers: they append to `out`, or leave it as it was. */

/* "HTTP/1.1 200 OK" CR LF. `code` is 100 to 999. */
fl_status fl_http1_write_status(fl_slab *slab, fl_buffer *out, int code);

/* One header field. Refuses a name that is not a token and a value with CR, LF, NUL or another control
 * character but HTAB. */
fl_status fl_http1_write_header(fl_slab *slab, fl_buffer *out, const char *name, size_t name_size,
                                const char *value, size_t value_size);

/* "content-length: 123" CR LF. */
fl_status fl_http1_write_length(fl_slab *slab, fl_buffer *out, uint64_t length);

/* A chunk's size line and, after its bytes, its end; nothing for no bytes, which would end the body: that is
 * what fl_http1_write_last_chunk is for. */
fl_status fl_http1_write_chunk(fl_slab *slab, fl_buffer *out, const char *bytes, size_t size);
fl_status fl_http1_write_last_chunk(fl_slab *slab, fl_buffer *out);

enum { FL_DATE_SIZE = 37 };
/* "date: Sun, 06 Nov 1994 08:49:37 GMT" CR LF: exactly FL_DATE_SIZE bytes, no NUL. No locale, no allocation. */
void fl_http1_date(char line[FL_DATE_SIZE], int64_t seconds_since_1970);

/* Which of the known headers a name is, in any case. */
fl_header_id fl_header_lookup(const char *name, size_t size);

#endif
