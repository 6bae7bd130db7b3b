#include "error_page.h"
#include "base/characters.h"
#include "context.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_CODE = 502 };

bool fl_error_page_set(fl_context *context, int code, const char *bytes, size_t size) {
    if (code < FIRST_CODE || code >= FIRST_CODE + FL_ERROR_PAGES || size > FL_MAX_ERROR_PAGE)
        return false;
    char *copy = size > 0 ? malloc(size) : NULL;
    if (size > 0 && copy == NULL)
        return false;
    if (size > 0)
        memcpy(copy, bytes, size);
    fl_error_page *page = &context->error_pages[code - FIRST_CODE];
    free(page->bytes);
    *page = (fl_error_page) {copy, size};
    context->has_error_pages = false;
    for (int i = 0; i < FL_ERROR_PAGES; i++) context->has_error_pages |= context->error_pages[i].bytes != NULL;
    return true;
}

void fl_error_pages_free(fl_context *context) {
    for (int i = 0; i < FL_ERROR_PAGES; i++) fl_error_page_set(context, FIRST_CODE + i, NULL, 0);
}

/* Whether a list of media ranges names text/html, and does not refuse it by a quality of 0. Wildcards do not count: clients that send
 * only those are no browsers. */
static bool names_html(const char *at, const char *end) {
    while (at < end) {
        const char *comma = memchr(at, ',', (size_t) (end - at)), *last = comma != NULL ? comma : end;
        while (at < last && (*at == ' ' || *at == '\t')) at++;
        const char *name_end = at;
        while (name_end < last && *name_end != ';' && *name_end != ' ' && *name_end != '\t') name_end++;
        if (FL_EQUALS_WORD(at, (size_t) (name_end - at), "text/html")) {
            const char *quality = memmem(name_end, (size_t) (last - name_end), "q=0", 3);
            while (quality != NULL && quality + 3 < last && (quality[3] == '.' || quality[3] == '0')) quality++;
            return quality == NULL || (quality + 3 < last && quality[3] >= '1' && quality[3] <= '9');
        }
        at = last + 1;
    }
    return false;
}

void fl_error_page_note_request(fl_exchange *exchange) {
    const fl_head *head = exchange->request.head;
    const char *bytes = fl_exchange_head_bytes(exchange);
    for (uint32_t i = 0; i < head->count; i++) {
        const fl_header *header = &head->headers[i];
        const char *value = bytes + header->value.at;
        if (header->id == FL_HEADER_ACCEPT && names_html(value, value + header->value.size))
            exchange->request.accepts_html = true;
    }
}

fl_canned_body fl_canned_body_of(const fl_exchange *exchange, int code, const char *text) {
    if (exchange != NULL && exchange->request.accepts_html && code >= FIRST_CODE && code < FIRST_CODE + FL_ERROR_PAGES) {
        const fl_error_page *page = &exchange->context->error_pages[code - FIRST_CODE];
        if (page->bytes != NULL)
            return (fl_canned_body) {"content-type: text/html; charset=utf-8\r\ncache-control: no-store\r\n", page->bytes, "",
                                     page->size, page->size};
    }
    size_t size = strlen(text);
    return (fl_canned_body) {"content-type: text/plain\r\n", text, "\n", size, size + 1};
}
