/* Header and trailer fields of a request in its Rack environment. */
#include "fairlead.h"

#include <string.h>

VALUE fl_header_keys[FL_HEADER_IDS];

/* "HTTP_…" for a name that is not among the known headers. */
static VALUE key_of(const char *name, size_t size) {
    char stack[256];
    char *key = size + 5 <= sizeof stack ? stack : ALLOC_N(char, size + 5);
    memcpy(key, "HTTP_", 5);
    for (size_t i = 0; i < size; i++) {
        char c = name[i];
        key[5 + i] = c == '-' ? '_' : c >= 'a' && c <= 'z' ? (char) (c - 32) : c;
    }
    VALUE string = rb_interned_str(key, (long) size + 5);
    if (key != stack)
        xfree(key);
    return string;
}

/* Joins the values of a header that is sent several times (RFC 9110, 5.3; cookies: RFC 6265, 5.4), by appending to the first String:
 * each value is copied once, however many there are. */
static void add_header(VALUE env, VALUE key, const char *value, size_t size, fl_header_id id, bool may_be_there) {
    VALUE present = may_be_there ? rb_hash_lookup2(env, key, Qnil) : Qnil;
    if (NIL_P(present) || OBJ_FROZEN(present)) { /* values of the template are frozen */
        VALUE first = NIL_P(present) ? rb_str_new(value, (long) size) : rb_str_dup(present);
        rb_hash_aset(env, key, first);
        if (NIL_P(present))
            return;
        present = first;
    }
    rb_str_cat_cstr(present, id == FL_HEADER_COOKIE ? "; " : ", ");
    rb_str_cat(present, value, (long) size);
}

/* Whether a name with underscores would get the key of a known header. */
static bool forges_known(const char *name, size_t size) {
    char hyphens[64]; /* longer than any known name */
    if (size > sizeof hyphens)
        return false;
    for (size_t i = 0; i < size; i++) hyphens[i] = name[i] == '_' ? '-' : name[i];
    return fl_header_lookup(hyphens, size) != FL_HEADER_OTHER;
}

static bool is_scheme(fl_header_id id) {
    return id == FL_HEADER_X_FORWARDED_PROTO || id == FL_HEADER_X_FORWARDED_SCHEME || id == FL_HEADER_X_FORWARDED_SSL;
}

bool fl_headers_add(VALUE env, const char *bytes, const fl_head *head, bool decoded) {
    uint64_t seen[(FL_HEADER_IDS + 63) / 64] = {0};
    bool underscores = false, tls = false;
    for (uint32_t i = 0; i < head->count; i++) {
        const fl_header *header = &head->headers[i];
        const char *name = bytes + header->name.at, *value = bytes + header->value.at;
        if (header->id == FL_HEADER_HOST || (decoded && header->id == FL_HEADER_TRANSFER_ENCODING))
            continue; /* set from the authority; no longer true */
        if (header->id != FL_HEADER_OTHER) {
            uint64_t bit = 1ull << (header->id % 64);
            bool again = seen[header->id / 64] & bit;
            seen[header->id / 64] |= bit;
            tls |= !again && is_scheme(header->id) &&
                   fl_forwarded_scheme_of(header->id, value, header->value.size) == FL_SCHEME_HTTPS;
            add_header(env, fl_header_keys[header->id], value, header->value.size, header->id, again);
        } else if (memchr(name, '_', header->name.size) != NULL) {
            underscores = true;
        } else {
            add_header(env, key_of(name, header->name.size), value, header->value.size, header->id, true);
        }
    }
    /* "x_y" and "x-y" have the same key. A name with an underscore must neither replace nor extend the other, and is ignored if it would
     * get the key of a known header. */
    for (uint32_t i = 0; underscores && i < head->count; i++) {
        const fl_header *header = &head->headers[i];
        const char *name = bytes + header->name.at;
        if (header->id != FL_HEADER_OTHER || memchr(name, '_', header->name.size) == NULL ||
            forges_known(name, header->name.size))
            continue;
        VALUE key = key_of(name, header->name.size);
        if (NIL_P(rb_hash_lookup2(env, key, Qnil)))
            rb_hash_aset(env, key, rb_str_new(bytes + header->value.at, header->value.size));
    }
    return tls;
}

VALUE fl_headers_trailers(const fl_exchange *exchange) {
    VALUE trailers = rb_hash_new();
    const char *at = fl_buffer_at(&exchange->request.trailers), *end = at + exchange->request.trailers.length;
    while (end - at > 2) { /* the decoder has checked that these are lines "name: value" */
        const char *line_end = memchr(at, '\r', (size_t) (end - at));
        const char *colon = memchr(at, ':', (size_t) (line_end - at)), *value = colon + 1, *value_end = line_end;
        const char *next = line_end + 2;
        if (!fl_may_be_trailer(at, (size_t) (colon - at))) {
            at = next;
            continue;
        }
        while (value < value_end && (*value == ' ' || *value == '\t')) value++;
        while (value_end > value && (value_end[-1] == ' ' || value_end[-1] == '\t')) value_end--;
        VALUE name = rb_str_new(at, colon - at);
        for (char *c = RSTRING_PTR(name); c < RSTRING_END(name); c++) *c = *c >= 'A' && *c <= 'Z' ? (char) (*c + 32) : *c;
        add_header(trailers, rb_obj_freeze(name), value, (size_t) (value_end - value), FL_HEADER_OTHER, true);
        at = next;
    }
    return trailers;
}

void fl_init_headers(void) {
#define X(id, name, key) fl_header_keys[FL_HEADER_##id] = fl_kept_string(key);
    FL_HEADER_MAP(X)
#undef X
}
