/* What a client has sent, for people, logs and strings of JSON: all but the printable characters of ASCII, and quotation
 * marks and backslashes too, as in a URL: "/gr%c3%b6%c3%9fe". Nothing is allocated, nothing fails, any thread may call. */
#ifndef FL_ESCAPE_H
#define FL_ESCAPE_H

#include <stddef.h>

/* So many bytes at most, with the NUL at the end. */
#define FL_ESCAPED(size) (3 * (size) + 1)

/* Answers where the NUL is that ends it. */
char *fl_escape(char *to, const char *bytes, size_t size);

#endif
