/* Looks up header names: one probe of a hash table, then a comparison of whole words. */
#include "head.h"
#include "characters.h"

enum { SLOTS = 256, MAX_NAME_SIZE = 31 };

typedef struct known_name {
    char name[MAX_NAME_SIZE + 1];
    uint8_t size;
    uint8_t id;
} known_name;

static known_name table[SLOTS];

/* The last bytes and the length tell the known names apart. "| 0x20" makes letters lower case; it may change other characters, but the
 * comparison is exact. */
static inline uint32_t slot_of(const char *name, size_t size) {
    uint32_t tail;
    if (size >= 4)
        memcpy(&tail, name + size - 4, 4);
    else
        tail = (uint32_t) (unsigned char) name[0] << 8 | (unsigned char) name[size - 1];
    tail |= 0x20202020u;
    return ((tail + (uint32_t) size * 0x9e3779b1u) * 0x85ebca6bu) >> 24;
}

/* Runs before main, so that lookups need no lock. */
__attribute__((constructor)) static void fill_table(void) {
#define X(id, text, key) {text, sizeof(text) - 1, FL_HEADER_##id},
    static const known_name names[] = {FL_HEADER_MAP(X)};
#undef X
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        uint32_t slot = slot_of(names[i].name, names[i].size);
        while (table[slot].size)
            slot = (slot + 1) % SLOTS;
        table[slot] = names[i];
    }
}

/* Known names consist of lower-case letters, "-" and digits. A letter (bit 0x40) may differ in bit 0x20. */
static inline uint64_t difference(uint64_t word, uint64_t known) {
    return (word ^ known) & ~((known & 0x4040404040404040u) >> 1);
}

/* All bytes of a name of one to seven bytes, some of them twice. */
static inline uint64_t short_word(const char *at, size_t size) {
    if (size < 4)
        return (uint64_t) (unsigned char) at[0] << 16 | (uint64_t) (unsigned char) at[size / 2] << 8 |
               (unsigned char) at[size - 1];
    uint32_t first, last;
    memcpy(&first, at, 4);
    memcpy(&last, at + size - 4, 4);
    return (uint64_t) first << 32 | last;
}

static inline bool same_name(const char *name, size_t size, const char *known) {
    if (size >= 8) {
        uint64_t different = difference(fl_word(name + size - 8), fl_word(known + size - 8));
        for (size_t i = 0; i + 8 < size; i += 8)
            different |= difference(fl_word(name + i), fl_word(known + i));
        return different == 0;
    }
    return difference(short_word(name, size), short_word(known, size)) == 0;
}

fl_header_id fl_header_lookup(const char *name, size_t size) {
    if (size == 0 || size > MAX_NAME_SIZE)
        return FL_HEADER_OTHER;
    for (uint32_t slot = slot_of(name, size); table[slot].size; slot = (slot + 1) % SLOTS)
        if (table[slot].size == size && same_name(name, size, table[slot].name))
            return (fl_header_id) table[slot].id;
    return FL_HEADER_OTHER;
}

bool fl_may_be_trailer(const char *name, size_t size) {
    static const char *const forbidden[] = {
        "age", "authorization", "cache-control", "connection", "content-encoding", "content-length", "content-range",
        "content-type", "cookie", "date", "expect", "expires", "host", "keep-alive", "location", "max-forwards", "pragma",
        "proxy-authenticate", "proxy-authorization", "range", "retry-after", "set-cookie", "te", "trailer",
        "transfer-encoding", "upgrade", "vary", "www-authenticate"};
    for (size_t i = 0; i < sizeof forbidden / sizeof *forbidden; i++)
        if (strlen(forbidden[i]) == size && strncasecmp(name, forbidden[i], size) == 0)
            return false;
    return true;
}
