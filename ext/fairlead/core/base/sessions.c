#include "sessions.h"

enum { BUCKET = 8, SLOT = 0xff };

/* Never 0. */
static uint64_t hash_of(const char *id, size_t size) {
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < size; i++) hash = (hash ^ (unsigned char) id[i]) * 0x100000001b3u;
    return (hash & ~(uint64_t) SLOT) | 1u << 8;
}

static fl_session *bucket_of(fl_sessions *sessions, uint64_t hash) {
    return &sessions->sessions[(hash >> 16) % (FL_MAX_SESSIONS / BUCKET) * BUCKET];
}

static fl_session *find(fl_session *bucket, uint64_t hash) {
    for (int i = 0; i < BUCKET; i++)
        if ((atomic_load(&bucket[i].key) & ~(uint64_t) SLOT) == hash)
            return &bucket[i];
    return NULL;
}

static fl_session *least_recent(fl_session *bucket, uint64_t *used_at) {
    fl_session *found = NULL;
    for (int i = 0; i < BUCKET; i++) {
        uint64_t at = atomic_load(&bucket[i].used_at);
        if (found == NULL || at < *used_at) {
            found = &bucket[i];
            *used_at = at;
        }
    }
    return found;
}

void fl_sessions_began(fl_sessions *sessions, const char *id, size_t size, int slot, uint64_t now) {
    uint64_t hash = hash_of(id, size), used_at;
    fl_session *bucket = bucket_of(sessions, hash), *session = find(bucket, hash);
    if (session == NULL) { /* changing used_at claims the entry */
        do session = least_recent(bucket, &used_at);
        while (!atomic_compare_exchange_strong(&session->used_at, &used_at, now));
    }
    atomic_store(&session->key, hash | (uint64_t) slot);
    atomic_store(&sessions->used, true);
}

int fl_sessions_owner(fl_sessions *sessions, const char *id, size_t size, uint64_t now) {
    uint64_t hash = hash_of(id, size);
    fl_session *session = find(bucket_of(sessions, hash), hash);
    if (session == NULL)
        return -1;
    atomic_store_explicit(&session->used_at, now, memory_order_relaxed);
    uint64_t key = atomic_load(&session->key);
    return (key & ~(uint64_t) SLOT) == hash ? (int) (key & SLOT) : -1;
}
