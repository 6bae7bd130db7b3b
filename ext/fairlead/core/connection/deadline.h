/* Deadlines: until when a client has to do what is awaited of it. The owner of a deadline holds it as a member, and takes it off its list
 * (FL_DEADLINE_NONE) before it frees it. The caller holds the lock. No function fails. */
#ifndef FL_DEADLINE_H
#define FL_DEADLINE_H

#include <stdbool.h>
#include <stdint.h>

struct fl_context;

/* All deadlines of a kind have the same length, so each kind has a list that is ordered by time. */
typedef enum fl_deadline_kind {
    FL_DEADLINE_NONE,
    FL_DEADLINE_IDLE,
    FL_DEADLINE_HEAD,   /* also of a PROXY header and a handshake */
    FL_DEADLINE_BODY,   /* of an exchange, */
    FL_DEADLINE_EVENTS, /* and so is that of an event stream, */
    FL_DEADLINE_END,    /* and of one that may end, since the server drains; all others belong to a connection */
    FL_DEADLINE_WRITE,
    FL_DEADLINE_LINGER,
    FL_DEADLINE_STREAM, /* of a protocol's stream, see fl_stream_deadline */
    FL_DEADLINE_KINDS,
} fl_deadline_kind;

typedef struct fl_deadline {
    struct fl_deadline *before, *after;
    uint64_t at; /* of fl_clock */
    uint64_t
        progress; /* bytes moved when it was set, to tell a slow client from a stalled one: see fl_deadline_has_progressed */
    uint8_t kind;
} fl_deadline;

/* A deadline of FL_DEADLINE_STREAM: the protocol has a stream whose client takes no more of its response. */
typedef struct fl_stream_deadline {
    fl_deadline deadline; /* first */
    void (*expired)(struct fl_stream_deadline *deadline);
} fl_stream_deadline;

/* Starts a deadline of this kind now; FL_DEADLINE_NONE removes it. */
void fl_deadline_set(struct fl_context *context, fl_deadline *deadline, fl_deadline_kind kind, uint64_t progress);

/* Whether the client has moved enough for this deadline to start again: at least a byte, and 32 bytes a second. `progress` counts the same
 * bytes as when it was set. */
bool fl_deadline_has_progressed(const struct fl_context *context, const fl_deadline *deadline, uint64_t progress);

/* The deadline is due. */
void fl_deadline_expired(fl_deadline *deadline);

#endif
