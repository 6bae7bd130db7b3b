/* Dates of HTTP (RFC 9110, 5.6.7). Independent of the locale. Nothing is allocated, nothing fails, any thread may call. */
#ifndef FL_HTTP_DATE_H
#define FL_HTTP_DATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FL_HTTP_DATE_SIZE = 29, FL_DATE_SIZE = 6 + FL_HTTP_DATE_SIZE + 2 };

/* "date: Sun, 06 Nov 1994 08:49:37 GMT" CR LF: exactly FL_DATE_SIZE bytes, no NUL. */
void fl_http_date(char line[FL_DATE_SIZE], int64_t seconds_since_1970);

/* "Sun, 06 Nov 1994 08:49:37 GMT": exactly FL_HTTP_DATE_SIZE bytes, no NUL. */
void fl_http_date_format(char text[FL_HTTP_DATE_SIZE], int64_t seconds_since_1970);

/* Reads a date in any of the three forms; false: it is none. */
bool fl_http_date_parse(const char *text, size_t size, int64_t *seconds_since_1970);

#endif
