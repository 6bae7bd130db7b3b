#include "identity.h"

#include <stdlib.h>
#include <string.h>

static size_t count_texts(const char *bytes, size_t size) {
    size_t count = 0;
    for (size_t i = 0; i < size; i++) count += bytes[i] == '\0';
    return count;
}

fl_identity *fl_identity_new(const char *bytes, size_t size) {
    if (size == 0 || size > FL_IDENTITY_BYTES || bytes[size - 1] != '\0' || count_texts(bytes, size) != FL_IDENTITY_TEXTS)
        return NULL;
    fl_identity *identity = malloc(sizeof *identity + size);
    if (identity == NULL)
        return NULL;
    atomic_init(&identity->references, 1);
    identity->size = (uint32_t) size;
    memcpy(identity->bytes, bytes, size);
    return identity;
}

fl_identity *fl_identity_retain(fl_identity *identity) {
    atomic_fetch_add(&identity->references, 1);
    return identity;
}

void fl_identity_release(fl_identity *identity) {
    if (identity != NULL && atomic_fetch_sub(&identity->references, 1) == 1)
        free(identity);
}

const char *fl_identity_get(const fl_identity *identity, fl_identity_text text) {
    const char *at = identity->bytes;
    while (text-- > 0) at += strlen(at) + 1;
    return at;
}
