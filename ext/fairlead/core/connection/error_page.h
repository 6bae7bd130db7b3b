/* The operator's pages for errors that the server reports itself (502, 503, 504), for clients that name text/html in Accept. Others get
 * plain text. The caller holds the lock. */
#ifndef FL_ERROR_PAGE_H
#define FL_ERROR_PAGE_H

#include "exchange.h"

/* The body of a canned response. `fields`: header lines for it. Valid until the next fl_error_page_set. */
typedef struct fl_canned_body {
    const char *fields, *text, *end; /* the body is `text`, then `end` */
    size_t text_size, size;          /* of both */
} fl_canned_body;

/* Copies the page, or removes that of this code if `size` is 0. False: no such code, larger than FL_MAX_ERROR_PAGE, or no memory. */
bool fl_error_page_set(struct fl_context *context, int code, const char *bytes, size_t size);
void fl_error_pages_free(struct fl_context *context);

/* `exchange`: NULL if there is no request. */
fl_canned_body fl_canned_body_of(const fl_exchange *exchange, int code, const char *text);

#endif
