/* Which worker keeps a session in its memory: a table in the shared page, by the id that requests carry in Mcp-Session-Id or their query.
 * Nothing is allocated, and nothing fails. If there is no room, the least recently used session is forgotten; its requests then stay in
 * the worker that receives them. Everything is atomic; any thread of any process may call at any time. */
#ifndef FL_SESSIONS_H
#define FL_SESSIONS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FL_MAX_SESSIONS = 32768 };

typedef struct fl_session {
    _Atomic uint64_t key;     /* a hash of the id, with the worker's slot in the lowest byte; 0: free */
    _Atomic uint64_t used_at; /* of fl_clock */
} fl_session;

typedef struct fl_sessions {
    _Atomic bool used; /* a session has begun */
    fl_session sessions[FL_MAX_SESSIONS];
} fl_sessions;

/* The worker in `slot`, at most 255, has begun the session. */
void fl_sessions_began(fl_sessions *sessions, const char *id, size_t size, int slot, uint64_t now);

/* Returns the slot of the worker that began the session; -1: unknown. */
int fl_sessions_owner(fl_sessions *sessions, const char *id, size_t size, uint64_t now);

#endif
