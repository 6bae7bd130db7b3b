#ifdef HAVE_NGHTTP2
/* What a connection may cost. Each has tokens, which come back with time and with progress; whatever makes work without progress spends
 * some. And nghttp2 gets only so much memory for it. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_TOKENS = 1000,
    TOKENS_A_SECOND = 200,
    MAX_MEMORY = 4 << 20,      /* bytes of nghttp2 for a connection */
    ROOM = 16,                 /* bytes before each block, for its size */
    BYTES_A_TOKEN = 1024,      /* of what is no body, */
    LIST_BYTES_A_TOKEN = 8192, /* and of header lists: HPACK names many bytes with one */
};

static void *measured(fl_http2_session *own, char *block, size_t size) {
    if (block == NULL)
        return NULL;
    own->allocated += size;
    memcpy(block, &size, sizeof size);
    return block + ROOM;
}

static bool fits(const fl_http2_session *own, size_t size) {
    return size <= MAX_MEMORY && own->allocated + size <= MAX_MEMORY;
}

static void *allocate(size_t size, void *data) {
    return fits(data, size) ? measured(data, malloc(size + ROOM), size) : NULL;
}

static void *allocate_zeroed(size_t count, size_t size, void *data) {
    size_t sum;
    if (__builtin_mul_overflow(count, size, &sum))
        return NULL;
    return fits(data, sum) ? measured(data, calloc(1, sum + ROOM), sum) : NULL;
}

static void release(void *bytes, void *data) {
    if (bytes == NULL)
        return;
    char *block = (char *) bytes - ROOM;
    size_t size;
    memcpy(&size, block, sizeof size);
    ((fl_http2_session *) data)->allocated -= size;
    free(block);
}

static void *reallocate(void *bytes, size_t size, void *data) {
    if (bytes == NULL)
        return allocate(size, data);
    fl_http2_session *own = data;
    char *block = (char *) bytes - ROOM;
    size_t before;
    memcpy(&before, block, sizeof before);
    if (size > before && !fits(own, size - before))
        return NULL;
    char *moved = realloc(block, size + ROOM);
    if (moved == NULL)
        return NULL;
    own->allocated -= before;
    return measured(own, moved, size);
}

void fl_http2_budget_open(fl_http2_session *own) {
    own->memory = (nghttp2_mem) {own, allocate, release, allocate_zeroed, reallocate};
    own->tokens = MAX_TOKENS;
    own->filled_at = own->connection->context->now;
}

static void refill(fl_http2_session *own) {
    uint64_t now = own->connection->context->now, passed = now - own->filled_at;
    if (passed < 1000000 / TOKENS_A_SECOND)
        return;
    own->filled_at = now;
    uint64_t gained = passed > 1000000 * (MAX_TOKENS / TOKENS_A_SECOND) ? MAX_TOKENS : passed * TOKENS_A_SECOND / 1000000;
    fl_http2_earn(own, (int) gained);
}

void fl_http2_earn(fl_http2_session *own, int tokens) {
    own->tokens += tokens;
    if (own->tokens > MAX_TOKENS)
        own->tokens = MAX_TOKENS;
}

void fl_http2_spend(fl_http2_session *own, int tokens) {
    own->tokens -= tokens;
    if (own->tokens < 0)
        refill(own);
    if (own->tokens < 0)
        fl_http2_end(own, NGHTTP2_ENHANCE_YOUR_CALM);
}

void fl_http2_received(fl_http2_session *own, size_t size) {
    uint32_t idle = (uint32_t) (size > own->body_bytes ? size - own->body_bytes : 0);
    own->turn += (uint32_t) own->body_bytes + FL_HTTP2_HEAVY * idle;
    own->idle_bytes += idle;
    own->body_bytes = 0;
    fl_http2_spend(own, (int) (own->idle_bytes / BYTES_A_TOKEN));
    own->idle_bytes %= BYTES_A_TOKEN;
}

void fl_http2_unpacked(fl_http2_session *own) {
    fl_http2_spend(own, (int) (own->list_size / LIST_BYTES_A_TOKEN));
}

void fl_http2_end(fl_http2_session *own, uint32_t code) {
    if (own->ending)
        return;
    own->ending = true;
    nghttp2_session_terminate_session(own->session, code);
    fl_connection_mark_dirty(own->connection); /* it settles at the next turn at the latest */
}

int fl_http2_on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *header, void *data) {
    (void) session;
    fl_http2_session *own = data;
    if (fl_http2_is_wrong_stream(own, header))
        fl_http2_end(own, NGHTTP2_PROTOCOL_ERROR);
    switch (header->type) {
    case NGHTTP2_DATA:
        if (header->length == 0 && !(header->flags & NGHTTP2_FLAG_END_STREAM))
            fl_http2_spend(own, FL_HTTP2_EMPTY_FRAME);
        break;
    case NGHTTP2_HEADERS:
        fl_http2_spend(own, 2);
        break;
    case NGHTTP2_WINDOW_UPDATE:
        fl_http2_spend(own, 1);
        break;
    case NGHTTP2_RST_STREAM:
    case NGHTTP2_CONTINUATION:
        fl_http2_spend(own, 10);
        break;
    case NGHTTP2_SETTINGS:
        fl_http2_spend(own, 20);
        break;
    default:
        fl_http2_spend(own, 4);
    }
    return 0;
}
#endif
