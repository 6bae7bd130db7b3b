/* The route of a request: its method and path, with placeholders for IDs and tokens. "GET /orders/4711/items.json" has the route
 * "GET /orders/:id/items.json". Nothing is allocated, nothing fails, any thread may call. */
#ifndef FL_ROUTE_H
#define FL_ROUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FL_ROUTE_SIZE = 96,
    FL_ROUTE_PATH = 228, /* bytes of a path that count */
};

typedef struct fl_route {
    uint64_t key;             /* a hash of the method and the path; never 0 */
    char text[FL_ROUTE_SIZE]; /* its beginning, ended by NUL */
} fl_route;

/* A segment of the path counts as an ID (":id") if it is a number, or begins with a number and a hyphen. It counts as a token (":token")
 * if it is a UUID, at least 16 hexadecimal digits, at least 20 characters with a digit among them, or at least 32 characters. Extensions
 * like ".json" stay. */
void fl_route_from_path(fl_route *route, const char *method, size_t method_size, const char *path, size_t path_size);

/* The route of a pattern like "GET /articles/:slug". Returns false if it is too long. */
bool fl_route_from_pattern(fl_route *route, const char *pattern, size_t size);

/* Matches a request against a pattern. A segment with a colon matches any segment, other segments match literally, and the last one also
 * with an extension. The function ignores a slash at the end of the path. Returns 0 if the request does not match, else a rank: of two
 * patterns, the one with literal segments further to the left has the greater rank. */
uint64_t fl_route_matches(const char *pattern, const char *method, size_t method_size, const char *path, size_t path_size);

#endif
