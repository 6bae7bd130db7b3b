/* Parses each input on standard input, to compare the parser with those of other servers.
 * Input: a size of four bytes, little-endian, and the bytes. Output: a line for each, like
 *
 *   POST /a 616263 486f73743a610a    GET /b  486f73743a610a    refused BAD_CHUNK 57
 *
 * The tab-separated fields are the requests, with their body and their headers in hexadecimal, and the end: "end", "more" if the last
 * request is incomplete, "closed" if the last request closes the connection, or "refused" with the status and the offset of the rejected
 * request. */
#include "http1/http1.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const fl_head_limits limits = {8192, 32768, 100};

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

static void print_hexadecimal(const char *bytes, size_t size) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < size; i++) {
        putchar(digits[(unsigned char) bytes[i] >> 4]);
        putchar(digits[bytes[i] & 15]);
    }
}

static void print_request(const fl_head *head, const char *bytes, size_t decoded) {
    printf("%.*s %.*s ", (int) head->method.size, bytes + head->method.at, (int) head->target.size,
           bytes + head->target.at);
    print_hexadecimal(bytes + head->size, decoded);
    putchar(' ');
    for (uint32_t i = 0; i < head->count; i++) {
        const fl_header *header = &head->headers[i];
        print_hexadecimal(bytes + header->name.at, header->name.size);
        print_hexadecimal(":", 1);
        print_hexadecimal(bytes + header->value.at, header->value.size);
        print_hexadecimal("\n", 1);
    }
    putchar('\t');
}

static void judge(char *bytes, size_t size) {
    static fl_head head;
    const char *begun = bytes;
    while (size > 0) {
        size_t used, decoded;
        fl_head_clear(&head);
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
                print_request(&head, bytes, decoded);
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
            puts(strspn(bytes, "\r\n") >= size ? "end" : "more"); /* main has added a NUL */
        else
            printf("refused %s %td\n", name_of(status), bytes - begun);
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
