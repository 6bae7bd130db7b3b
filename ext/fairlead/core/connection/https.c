#include "https.h"
#include "base/forwarded.h"
#include "context.h"

#include <stdio.h>
#include <string.h>

static const char challenges[] = "/.well-known/acme-challenge/";

static void note_scheme(fl_exchange *exchange) {
    const fl_limits *limits = &exchange->context->limits;
    fl_client client = exchange->connection->client;
    fl_scheme scheme =
        fl_forwarded_read(exchange->request.head, fl_exchange_head_bytes(exchange), &limits->trusted_proxies, &client);
    /* A sibling that has received the request by relay has no TLS itself, but the listener. */
    bool encrypted = strcmp(exchange->connection->listener->transport->scheme, "https") == 0;
    exchange->request.https = scheme == FL_SCHEME_UNKNOWN ? encrypted : scheme == FL_SCHEME_HTTPS;
}

/* The host without its port: a client that names one gets that of our own https address, if there is one. */
static fl_status append_host(fl_slab *slab, fl_buffer *lines, const char *host, size_t size, uint16_t port) {
    char text[8];
    size_t name = size;
    while (name > 0 && host[name - 1] >= '0' && host[name - 1] <= '9') name--;
    bool has_port = name > 0 && host[name - 1] == ':';
    fl_status status = fl_buffer_append(slab, lines, host, has_port ? name - 1 : size);
    if (status != FL_OK || !has_port || port == 0 || port == 443)
        return status;
    return fl_buffer_append(slab, lines, text, (size_t) snprintf(text, sizeof text, ":%u", port));
}

static fl_status append_location(fl_exchange *exchange, fl_buffer *lines) {
    static const char start[] = "location: https://";
    const fl_head *head = exchange->request.head;
    const char *bytes = fl_exchange_head_bytes(exchange);
    fl_slab *slab = &exchange->context->slab;
    fl_status status = fl_buffer_append(slab, lines, start, sizeof start - 1);
    if (status == FL_OK)
        status =
            append_host(slab, lines, bytes + head->authority.at, head->authority.size, exchange->context->limits.https_port);
    if (status == FL_OK)
        status = fl_buffer_append(slab, lines, bytes + head->path.at, head->path.size);
    if (status == FL_OK && head->query.size > 0)
        status = fl_buffer_append(slab, lines, "?", 1);
    if (status == FL_OK && head->query.size > 0)
        status = fl_buffer_append(slab, lines, bytes + head->query.at, head->query.size);
    return status == FL_OK ? fl_buffer_append(slab, lines, "\r\n", 2) : status;
}

static bool is_redirectable(const fl_exchange *exchange) {
    const fl_head *head = exchange->request.head;
    const char *path = fl_exchange_head_bytes(exchange) + head->path.at;
    return head->authority.size > 0 && head->path.size > 0 && path[0] == '/' && !exchange->request.connect_method &&
           (head->path.size < sizeof challenges - 1 || memcmp(path, challenges, sizeof challenges - 1) != 0);
}

bool fl_https_redirect(fl_exchange *exchange) {
    fl_context *context = exchange->context;
    const fl_head *head = exchange->request.head;
    fl_buffer lines = {0};
    note_scheme(exchange);
    if (!context->limits.redirect_to_https || exchange->request.https || !is_redirectable(exchange))
        return false;
    bool get = head->method.size == 3 && memcmp(fl_exchange_head_bytes(exchange) + head->method.at, "GET", 3) == 0;
    if (append_location(exchange, &lines) == FL_OK) {
        context->canned_lines = &lines;
        exchange->protocol->canned_response(exchange, get || head->head_method ? 301 : 308, "Use https.", true);
        context->canned_lines = NULL;
    } else {
        exchange->protocol->canned_response(exchange, 503, "out of memory", false);
    }
    fl_buffer_free(&context->slab, &lines);
    fl_exchange_free(exchange);
    return true;
}

fl_status fl_https_add_header(fl_exchange *exchange) {
    static const char name[] = "strict-transport-security";
    const char *value = exchange->context->limits.hsts;
    if (value[0] == '\0' || !exchange->request.https || exchange->response.has_hsts)
        return FL_OK;
    return fl_exchange_header(exchange, name, sizeof name - 1, value, strlen(value));
}
