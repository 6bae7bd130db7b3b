/* The certificate of a client, as texts for the app. Whoever keeps a pointer retains it; the last one that releases it frees it. It does
 * not change, so any thread may read it. */
#ifndef FL_IDENTITY_H
#define FL_IDENTITY_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { FL_IDENTITY_BYTES = 16384 }; /* the maximum */

typedef enum fl_identity_text {
    FL_IDENTITY_SUBJECT,
    FL_IDENTITY_ISSUER,
    FL_IDENTITY_SERIAL,
    FL_IDENTITY_CERTIFICATE, /* in PEM */
    FL_IDENTITY_TEXTS,
} fl_identity_text;

typedef struct fl_identity {
    _Atomic uint32_t references;
    uint32_t size;
    char bytes[]; /* the texts, each ended by 0 */
} fl_identity;

/* Copies the texts. NULL: they are not as many, or too large, or memory is lacking. */
fl_identity *fl_identity_new(const char *bytes, size_t size);
fl_identity *fl_identity_retain(fl_identity *identity);
/* `identity` may be NULL. */
void fl_identity_release(fl_identity *identity);

const char *fl_identity_get(const fl_identity *identity, fl_identity_text text);

#endif
