/* The parts of the head parser, for the files of this folder. The contract is that of http1.h. */
#ifndef FL_HTTP1_PARSER_H
#define FL_HTTP1_PARSER_H

#include "http1.h"

/* Parses the request line: `size` bytes at bytes[at], followed by CR LF. */
fl_status fl_http1_read_request_line(fl_head *head, const char *bytes, uint32_t at, uint32_t size);

/* Checks an authority: a host and a port, which is optional unless `port_needed`; no userinfo. Sets `*significant` to its size without the
 * ":" of an empty port. */
bool fl_http1_is_authority(const char *at, size_t size, bool port_needed, uint32_t *significant);

/* A comma-separated list of elements. */
typedef struct fl_http1_list {
    const char *at, *end;
} fl_http1_list;

/* Sets `element` to the next one, without surrounding white space. Returns false at the end of the list. */
bool fl_http1_next_element(fl_http1_list *list, const char **element, size_t *size);

/* Interprets the headers at the end of the head. */
fl_status fl_http1_interpret_headers(fl_head *head, const char *bytes);

#endif
