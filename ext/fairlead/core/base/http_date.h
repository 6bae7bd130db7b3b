/* The Date header. Independent of the locale. Nothing is allocated, nothing fails, any thread may call. */
#ifndef FL_HTTP_DATE_H
#define FL_HTTP_DATE_H

#include <stdint.h>

enum { FL_DATE_SIZE = 37 };

/* "date: Sun, 06 Nov 1994 08:49:37 GMT" CR LF: exactly FL_DATE_SIZE bytes, no NUL. */
void fl_http_date(char line[FL_DATE_SIZE], int64_t seconds_since_1970);

#endif
