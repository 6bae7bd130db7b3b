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
    return true;
}

void fl_error_pages_free(fl_context *context) {
    for (int i = 0; i < FL_ERROR_PAGES; i++) fl_error_page_set(context, FIRST_CODE + i, NULL, 0);
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
