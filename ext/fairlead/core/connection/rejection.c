#include "rejection.h"
#include "context.h"
#include "exchange.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_WAITING = 1024, /* bounds memory while the log falls behind */
    MAX_LINE = 1024,
};

void fl_rejection_record(const fl_exchange *exchange, fl_status status) {
    fl_context *context = exchange->context;
    const fl_connection *connection = exchange->connection;
    if (!context->limits.record_rejections || context->rejections.count >= MAX_WAITING)
        return;
    const char *line = fl_exchange_head_bytes(exchange);
    uint32_t left = exchange->request.head_bytes.length > 0 ? exchange->request.head_bytes.length : connection->in.length,
             size = 0;
    while (left > 0 && (*line == '\r' || *line == '\n')) line++, left--;
    while (size < left && size < MAX_LINE && line[size] != '\r' && line[size] != '\n') size++;
    fl_rejection *rejection = malloc(sizeof *rejection + size);
    if (rejection == NULL)
        return;
    *rejection = (fl_rejection) {.client = connection->client,
                                 .first_byte_at = exchange->request.first_byte_at,
                                 .rejected_at = context->now,
                                 .status = status,
                                 .size = size};
    if (size > 0)
        memcpy(rejection->line, line, size);
    fl_rejections *rejections = &context->rejections;
    if (rejections->last != NULL)
        rejections->last->next = rejection;
    else
        rejections->first = rejection;
    rejections->last = rejection;
    rejections->count++;
}

fl_rejection *fl_rejection_take(fl_rejections *rejections) {
    fl_rejection *rejection = rejections->first;
    if (rejection == NULL)
        return NULL;
    rejections->first = rejection->next;
    if (rejections->first == NULL)
        rejections->last = NULL;
    rejections->count--;
    return rejection;
}
