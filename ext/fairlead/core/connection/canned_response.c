#include "canned_response.h"
#include "context.h"

#include <stdio.h>
#include <string.h>

bool fl_canned_response(fl_connection *connection, int code, const char *text, bool head_method, bool close) {
    fl_context *context = connection->context;
    char answer[512];
    int size = snprintf(answer, sizeof answer,
                        "HTTP/1.1 %d %s\r\n%.*s%s%scontent-type: text/plain\r\ncontent-length: %zu\r\n\r\n%s\n", code,
                        fl_reason(code), FL_DATE_SIZE, fl_context_date(context), close ? "connection: close\r\n" : "",
                        code == 503 ? "retry-after: 1\r\n" : "", strlen(text) + 1, text);
    if (head_method)
        size -= (int) strlen(text) + 1;
    return fl_buffer_append(&context->slab, &connection->out, answer, (size_t) size) == FL_OK;
}

bool fl_asks_for_health(const fl_exchange *exchange) {
    const fl_http1_head *head = exchange->head;
    const char *path = exchange->context->limits.health_path, *bytes = fl_buffer_at(&exchange->connection->in);
    if (path[0] == '\0' || exchange->chunked || exchange->body_expected > 0 || head->path.size != strlen(path) ||
        memcmp(bytes + head->path.at, path, head->path.size) != 0)
        return false;
    return head->head_method || (head->method.size == 3 && memcmp(bytes + head->method.at, "GET", 3) == 0);
}

bool fl_answer_health(fl_exchange *exchange, bool close) {
    const fl_context *context = exchange->context;
    bool ends = context->draining && !context->handing_over;
    bool head_method = exchange->head_method;
    return fl_canned_response(exchange->connection, ends ? 503 : 200, ends ? "ending" : "ok", head_method, close);
}
