/* The two halves of the head parser that http1.c puts together. For the http1 files alone; the contract of
 * http1.h holds here too. */
#ifndef FL_HTTP1_PARTS_H
#define FL_HTTP1_PARTS_H

#include "http1.h"

/* Reads the request line of `size` bytes at bytes[at], behind which its CR LF stands. */
fl_status fl_http1_read_request_line(fl_head *head, const char *bytes, uint32_t at, uint32_t size);

/* Checks an authority without userinfo: a host, then a port if `port_needed`, else perhaps a port. True with
 * its size without the ":" of an empty port in `*significant`. */
bool fl_http1_is_authority(const char *at, size_t size, bool port_needed, uint32_t *significant);

/* Judges the headers together, once all are read: host, framing of the body, connection, expectation. */
fl_status fl_http1_conclude(fl_head *head, const char *bytes);

#endif
