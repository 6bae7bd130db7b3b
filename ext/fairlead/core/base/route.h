/* The route of a request, as far as a server can know it: its method, and its path with what differs from request to
 * request taken out. "GET /orders/4711/items.json" is "GET /orders/:id/items.json".
 * Nothing is allocated, nothing fails, any thread may call. */
#ifndef FL_ROUTE_H
#define FL_ROUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FL_ROUTE_SIZE = 96,
    FL_ROUTE_PATH = 228, /* so much of a path counts */
};

typedef struct fl_route {
    uint64_t key;             /* of all that counts; never 0 */
    char text[FL_ROUTE_SIZE]; /* for people: its beginning, ended by NUL */
} fl_route;

/* A part of the path is taken for an ID (":id") if it is a number, or begins with one and a hyphen; for a token
 * (":token") if it is a UUID, 16 or more hexadecimal digits, 20 or more characters with a digit among them, or 32 or
 * more of any kind. An extension like ".json" stays. */
void fl_route_make(fl_route *route, const char *method, size_t method_size, const char *path, size_t path_size);

/* The route of a pattern that is known as a whole: "GET /articles/:slug". Answers false if it is too long. */
bool fl_route_of_pattern(fl_route *route, const char *pattern, size_t size);

/* Whether a request is of that pattern. A part of it with a colon stands for any part of a path; all others for
 * themselves, the last one with any extension too. A slash at the end of the path makes no difference. Answers 0 if it is
 * not; else the more, the earlier parts are more than anything: of two patterns, the greater number is meant. */
uint64_t fl_route_matches(const char *pattern, const char *method, size_t method_size, const char *path, size_t path_size);

#endif
