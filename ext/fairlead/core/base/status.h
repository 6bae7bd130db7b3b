/* The return codes of the core, and HTTP's reason phrases. Nothing is allocated, nothing fails, any thread may call. */
#ifndef FL_STATUS_H
#define FL_STATUS_H

/* X(name, http, text)
 * http: the HTTP status that the client gets if this ends its request; 0: no response.
 * text: the body of that response. */
#define FL_STATUS_MAP(X)                                                                                     \
    X(OK, 0, "done")                                                                                         \
    X(AGAIN, 0, "more input or more room is needed")                                                         \
    X(CLOSED, 0, "the peer has closed the connection")                                                       \
    X(NO_MEMORY, 503, "out of memory")                                                                       \
    X(SYSTEM, 0, "a system call failed, see errno")                                                          \
    X(BAD_LINE_ENDING, 400, "a line does not end with CR LF")                                                \
    X(BAD_METHOD, 400, "the method is not a token")                                                          \
    X(BAD_TARGET, 400, "the request target is malformed")                                                    \
    X(BAD_VERSION, 400, "the HTTP version is malformed")                                                     \
    X(BAD_HEADER_NAME, 400, "a header name is not a token, or a space precedes its colon")                   \
    X(BAD_HEADER_VALUE, 400, "a header value contains a control character")                                  \
    X(FOLDED_HEADER, 400, "a header is folded over several lines")                                           \
    X(BAD_HOST, 400, "the Host header is missing, repeated or malformed")                                    \
    X(BAD_LENGTH, 400, "the Content-Length header is repeated or not a plain number")                        \
    X(BAD_ENCODING, 400, "Transfer-Encoding is combined with Content-Length or does not end in chunked")     \
    X(BAD_CHUNK, 400, "a chunk is malformed")                                                                \
    X(BAD_STATUS, 500, "the status of a response is not a number from 200 to 999")                           \
    X(HEAD_TIMEOUT, 408, "the request head took too long")                                                   \
    X(BODY_TIMEOUT, 408, "the request body took too long")                                                   \
    X(BODY_TOO_LARGE, 413, "the request body is larger than allowed")                                        \
    X(TARGET_TOO_LONG, 414, "the request line is longer than allowed")                                       \
    X(EXPECTATION_FAILED, 417, "the expectation is not supported")                                           \
    X(HEAD_TOO_LARGE, 431, "the request headers are too large or too many")                                  \
    X(UNKNOWN_ENCODING, 501, "the transfer encoding is not implemented")                                     \
    X(REQUEST_TIMEOUT, 504, "the request took too long")                                                     \
    X(QUEUE_TIMEOUT, 503, "the request waited too long in the queue")                                        \
    X(OVERLOADED, 503, "the server is overloaded")                                                           \
    X(ENDING, 503, "the server is shutting down")                                                            \
    X(UNKNOWN_VERSION, 505, "the HTTP version is not supported")

typedef enum fl_status {
#define X(name, http, text) FL_##name,
    FL_STATUS_MAP(X)
#undef X
} fl_status;

/* RFC 9110, 6585, 8470, 7725, 8297 */
#define FL_REASON_MAP(X)                                                                                     \
    X(100, "Continue")                                                                                       \
    X(101, "Switching Protocols")                                                                            \
    X(102, "Processing")                                                                                     \
    X(103, "Early Hints")                                                                                    \
    X(200, "OK")                                                                                             \
    X(201, "Created")                                                                                        \
    X(202, "Accepted")                                                                                       \
    X(203, "Non-Authoritative Information")                                                                  \
    X(204, "No Content")                                                                                     \
    X(205, "Reset Content")                                                                                  \
    X(206, "Partial Content")                                                                                \
    X(207, "Multi-Status")                                                                                   \
    X(208, "Already Reported")                                                                               \
    X(226, "IM Used")                                                                                        \
    X(300, "Multiple Choices")                                                                               \
    X(301, "Moved Permanently")                                                                              \
    X(302, "Found")                                                                                          \
    X(303, "See Other")                                                                                      \
    X(304, "Not Modified")                                                                                   \
    X(305, "Use Proxy")                                                                                      \
    X(307, "Temporary Redirect")                                                                             \
    X(308, "Permanent Redirect")                                                                             \
    X(400, "Bad Request")                                                                                    \
    X(401, "Unauthorized")                                                                                   \
    X(402, "Payment Required")                                                                               \
    X(403, "Forbidden")                                                                                      \
    X(404, "Not Found")                                                                                      \
    X(405, "Method Not Allowed")                                                                             \
    X(406, "Not Acceptable")                                                                                 \
    X(407, "Proxy Authentication Required")                                                                  \
    X(408, "Request Timeout")                                                                                \
    X(409, "Conflict")                                                                                       \
    X(410, "Gone")                                                                                           \
    X(411, "Length Required")                                                                                \
    X(412, "Precondition Failed")                                                                            \
    X(413, "Content Too Large")                                                                              \
    X(414, "URI Too Long")                                                                                   \
    X(415, "Unsupported Media Type")                                                                         \
    X(416, "Range Not Satisfiable")                                                                          \
    X(417, "Expectation Failed")                                                                             \
    X(421, "Misdirected Request")                                                                            \
    X(422, "Unprocessable Content")                                                                          \
    X(423, "Locked")                                                                                         \
    X(424, "Failed Dependency")                                                                              \
    X(425, "Too Early")                                                                                      \
    X(426, "Upgrade Required")                                                                               \
    X(428, "Precondition Required")                                                                          \
    X(429, "Too Many Requests")                                                                              \
    X(431, "Request Header Fields Too Large")                                                                \
    X(451, "Unavailable For Legal Reasons")                                                                  \
    X(500, "Internal Server Error")                                                                          \
    X(501, "Not Implemented")                                                                                \
    X(502, "Bad Gateway")                                                                                    \
    X(503, "Service Unavailable")                                                                            \
    X(504, "Gateway Timeout")                                                                                \
    X(505, "HTTP Version Not Supported")                                                                     \
    X(506, "Variant Also Negotiates")                                                                        \
    X(507, "Insufficient Storage")                                                                           \
    X(508, "Loop Detected")                                                                                  \
    X(511, "Network Authentication Required")

static inline int fl_status_http(fl_status status) {
    switch (status) {
#define X(name, http, text)                                                                                  \
    case FL_##name:                                                                                          \
        return http;
        FL_STATUS_MAP(X)
#undef X
    }
    return 500;
}

static inline const char *fl_status_text(fl_status status) {
    switch (status) {
#define X(name, http, text)                                                                                  \
    case FL_##name:                                                                                          \
        return text;
        FL_STATUS_MAP(X)
#undef X
    }
    return "unknown";
}

/* Returns an empty string if the code has no registered phrase. */
static inline const char *fl_reason(int code) {
    switch (code) {
#define X(number, text)                                                                                      \
    case number:                                                                                             \
        return text;
        FL_REASON_MAP(X)
#undef X
    }
    return "";
}

#endif
