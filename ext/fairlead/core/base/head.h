/* The head of a request of any protocol, as spans of bytes that the caller keeps; and the table of known header names.
 * Nothing is allocated, nothing fails, any thread may call. Spans are offsets from the first byte of the head, so they stay valid
 * when the bytes move. */
#ifndef FL_HEAD_H
#define FL_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fl_span {
    uint32_t at, size;
} fl_span;

/* The known header names: those that the core interprets, and common ones, for which the binding keeps the Rack key ready.
 * X(id, lower-case name, Rack key) */
#define FL_HEADER_MAP(X)                                                                                     \
    X(HOST, "host", "HTTP_HOST")                                                                             \
    X(CONNECTION, "connection", "HTTP_CONNECTION")                                                           \
    X(CONTENT_LENGTH, "content-length", "CONTENT_LENGTH")                                                    \
    X(CONTENT_TYPE, "content-type", "CONTENT_TYPE")                                                          \
    X(TRANSFER_ENCODING, "transfer-encoding", "HTTP_TRANSFER_ENCODING")                                      \
    X(EXPECT, "expect", "HTTP_EXPECT")                                                                       \
    X(UPGRADE, "upgrade", "HTTP_UPGRADE")                                                                    \
    X(X_REQUEST_START, "x-request-start", "HTTP_X_REQUEST_START")                                            \
    X(MCP_SESSION_ID, "mcp-session-id", "HTTP_MCP_SESSION_ID")                                               \
    X(MCP_PROTOCOL_VERSION, "mcp-protocol-version", "HTTP_MCP_PROTOCOL_VERSION")                             \
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
    fl_span name, value; /* the value without surrounding white space */
    fl_header_id id;
} fl_header;

enum { FL_MAX_HEADERS = 256 }; /* the upper bound of fl_head_limits.headers */

typedef struct fl_head_limits {
    uint32_t request_line; /* bytes without the CR LF; beyond: FL_TARGET_TOO_LONG */
    uint32_t head;         /* bytes of the whole head; beyond: FL_HEAD_TOO_LARGE */
    uint32_t headers;      /* the number of headers; beyond: FL_HEAD_TOO_LARGE */
} fl_head_limits;

typedef enum fl_target_form {
    FL_TARGET_ORIGIN,    /* "/path?query" */
    FL_TARGET_ABSOLUTE,  /* "http://authority/path?query", also https; without userinfo */
    FL_TARGET_AUTHORITY, /* "host:port", with CONNECT only */
    FL_TARGET_ASTERISK,  /* "*", with OPTIONS only */
} fl_target_form;

/* Clear it with fl_head_clear before the first fl_http1_parse of a request. */
typedef struct fl_head {
    /* The parser's position */
    uint32_t line;    /* the beginning of the first line that is not parsed yet */
    uint32_t scanned; /* the parser has searched this far for its end */
    bool started;     /* the request line is parsed */

    fl_span method, target; /* the target as sent */
    fl_span path;           /* of an origin-form or absolute-form target (the latter may be empty); "*" */
    fl_span query;          /* without the "?" */
    fl_span scheme;         /* of an absolute-form target, else empty */
    fl_span authority;      /* of an absolute-form or authority-form target, else of Host, without the ":" of an empty port;
                             * empty if Host is empty (RFC 9112, 3.2) or missing (HTTP/1.0) */
    fl_span session;        /* Mcp-Session-Id; empty: none */
    bool noted;             /* has one of the headers that fl_exchange_note_head reads */
    fl_target_form form;
    uint8_t minor;          /* 0 or 1 of HTTP/1.x; 2: HTTP/2 */
    bool head_method;       /* HEAD */
    bool keep_alive;        /* the client's wish, by its version and its Connection header */
    bool chunked;           /* the body is chunked */
    bool has_length;
    bool expect_continue;   /* Expect: 100-continue, HTTP/1.1, and a body */
    bool upgrade;           /* Connection: upgrade with an Upgrade header, HTTP/1.1 */
    uint64_t content_length;
    uint32_t size;          /* once parsed: of the head with its last CR LF. The body begins here */

    uint32_t count;
    fl_header headers[FL_MAX_HEADERS];
} fl_head;

static inline void fl_head_clear(fl_head *head) {
    __builtin_memset(head, 0, offsetof(fl_head, headers));
}

/* Whether a field may be a trailer: not if it frames or routes the message, says how to read it, or is needed before the body (RFC 9110,
 * 6.5.1). */
bool fl_may_be_trailer(const char *name, size_t size);

/* The id of a name, ignoring case. */
fl_header_id fl_header_lookup(const char *name, size_t size);

#endif
