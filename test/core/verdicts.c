/* What the parser makes of each request given on standard input, for a comparison with other servers' parsers.
 * In: for each, its size as four bytes, the lowest first, and the bytes. Out: a line for each, like
 *
 *   POST /a 3;GET /b 0;refused BAD_CHUNK
 *
 * Requests with the size of their body; then what becomes of the rest: "end" when there is none, "more" when it is not
 * complete, "closed" when the connection ends after the last one, or the status it is refused with. */
#include "http1.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const fl_http1_limits limits = {8192, 32768, 100};

static const char *name_of(fl_status status) {
    switch (status) {
#define X(name, http, text)                                                                                            \
    case FL_##name:                                                                                                    \
        return #name;
        FL_STATUS_MAP(X)
#undef X
    }
    return "?";
}

static void judge(char *bytes, size_t size) {
    static fl_http1_head head;
    while (size > 0) {
        size_t used, decoded;
        fl_http1_head_clear(&head);
        fl_status status = fl_http1_parse(&head, bytes, size, &limits);
        if (status == FL_OK) {
            char *body = bytes + head.size;
            size_t rest = size - head.size;
            if (head.chunked) {
                fl_chunks chunks = {0};
                status = fl_chunks_decode(&chunks, body, rest, &used, &decoded);
            } else {
                used = decoded = rest < head.content_length ? rest : head.content_length;
                status = head.content_length > rest ? FL_AGAIN : FL_OK;
            }
            if (status == FL_OK) {
                printf("%.*s %.*s %zu;", (int) head.method.size, bytes + head.method.at, (int) head.target.size,
                       bytes + head.target.at, decoded);
                bytes = body + used;
                size = rest - used;
                if (!head.keep_alive) {
                    puts("closed");
                    return;
                }
                continue;
            }
        }
        if (status == FL_AGAIN)
            puts(strspn(bytes, "\r\n") >= size ? "end" : "more"); /* the bytes end with a NUL of judge's caller */
        else
            printf("refused %s\n", name_of(status));
        return;
    }
    puts("end");
}

int main(void) {
    unsigned char prefix[4];
    while (fread(prefix, 1, sizeof prefix, stdin) == sizeof prefix) {
        size_t size = prefix[0] | (size_t) prefix[1] << 8 | (size_t) prefix[2] << 16 | (size_t) prefix[3] << 24;
        char *bytes = malloc(size + 1);
        if (bytes == NULL || fread(bytes, 1, size, stdin) != size)
            return 1;
        bytes[size] = 0;
        judge(bytes, size);
        free(bytes);
    }
    return 0;
}
