/* Makes bytes from clients safe for logs and JSON: percent-encodes double quotes, backslashes, and everything but printable ASCII, as in
 * "/gr%c3%b6%c3%9fe". Nothing is allocated, nothing fails, any thread may call. */
#ifndef FL_ESCAPE_H
#define FL_ESCAPE_H

#include <stddef.h>

/* The room that `size` bytes may need, with the NUL at the end. */
#define FL_ESCAPED(size) (3 * (size) + 1)

/* Returns the address of the NUL that it writes at the end. */
char *fl_escape(char *to, const char *bytes, size_t size);

#endif
