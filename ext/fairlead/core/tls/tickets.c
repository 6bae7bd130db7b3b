/* The keys that seal session tickets: in memory that all workers share, and that newer code can map too. It is never in a file system. */
#include "tls.h"

#ifdef HAVE_OPENSSL
#include "base/platform.h"
#include "internal.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum {
    KEYS = 3,                     /* the newest, and two older ones that clients may still have */
    ABANDONED = 60 * 1000 * 1000, /* microseconds after which a writer has died */
};

typedef struct ticket_key {
    unsigned char name[16], cipher[32], mac[32];
} ticket_key;

/* A reader that finds the same even version before and after has read whole keys. */
struct fl_tickets {
    _Atomic uint32_t version; /* odd: they are being written */
    _Atomic uint64_t rotated_at;
    ticket_key keys[KEYS]; /* the newest first */
};

static struct fl_tickets *map(int descriptor) {
    int flags = descriptor < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
    void *memory = mmap(NULL, sizeof(struct fl_tickets), PROT_READ | PROT_WRITE, flags, descriptor, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

bool fl_tickets_open(fl_tls *tls, int descriptor) {
    struct stat file;
    bool fits = descriptor >= 0 && fstat(descriptor, &file) == 0 && file.st_size == sizeof(struct fl_tickets);
    struct fl_tickets *tickets = fits ? map(descriptor) : NULL; /* another version's memory may look different */
    if (tickets == NULL) {
        if (descriptor >= 0)
            close(descriptor);
        descriptor = fl_memory_descriptor("fairlead tickets", sizeof *tickets);
        tickets = map(descriptor);
    }
    if (tickets == NULL)
        return false;
    tls->tickets = tickets;
    tls->memory = descriptor;
    if (atomic_load(&tickets->rotated_at) == 0)
        fl_tls_rotate_tickets(tls, 0);
    return true;
}

void fl_tickets_close(fl_tls *tls) {
    if (tls->tickets != NULL)
        munmap(tls->tickets, sizeof *tls->tickets);
}

static bool begin_writing(struct fl_tickets *tickets, uint64_t now) {
    uint32_t version = atomic_load(&tickets->version);
    if (version % 2 == 1)
        return atomic_load(&tickets->rotated_at) + ABANDONED < now;
    return atomic_compare_exchange_strong(&tickets->version, &version, version + 1);
}

void fl_tls_rotate_tickets(fl_tls *tls, uint64_t age) {
    struct fl_tickets *tickets = tls->tickets;
    uint64_t now = fl_clock(), before = atomic_load(&tickets->rotated_at);
    ticket_key fresh;
    if ((before != 0 && now - before < age) || RAND_priv_bytes((unsigned char *) &fresh, sizeof fresh) != 1)
        return;
    if (begin_writing(tickets, now)) {
        atomic_store(&tickets->rotated_at, now);
        memmove(tickets->keys + 1, tickets->keys, sizeof *tickets->keys * (KEYS - 1));
        tickets->keys[0] = fresh;
        atomic_store(&tickets->version, (atomic_load(&tickets->version) | 1) + 1);
    }
    OPENSSL_cleanse(&fresh, sizeof fresh);
}

/* Copies the key of this name, or the newest. Returns its place; -1: there is none. */
static int find(const struct fl_tickets *tickets, const unsigned char *name, ticket_key *key) {
    uint32_t version = atomic_load(&tickets->version);
    int place = -1;
    for (int i = 0; i < (name == NULL ? 1 : KEYS) && place < 0; i++) {
        *key = tickets->keys[i];
        static const ticket_key none;
        bool there = memcmp(key, &none, sizeof none) != 0;
        if (there && (name == NULL || memcmp(key->name, name, sizeof key->name) == 0))
            place = i;
    }
    atomic_thread_fence(memory_order_acquire);
    return version % 2 == 0 && atomic_load(&tickets->version) == version ? place : -1;
}

static bool set_up(const ticket_key *key, const unsigned char *iv, EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac, int seals) {
    char digest[] = "SHA256";
    OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, (void *) key->mac, sizeof key->mac),
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_end(),
    };
    return EVP_CipherInit_ex(cipher, EVP_aes_256_cbc(), NULL, key->cipher, iv, seals) == 1 &&
           EVP_MAC_CTX_set_params(mac, parameters) == 1;
}

/* See SSL_CTX_set_tlsext_ticket_key_evp_cb(3). 0: no ticket is issued, or the session is not resumed. 2: a new ticket is issued, as always
 * in TLS 1.3, where clients use each ticket once (RFC 8446, C.4). */
static int use_key(SSL *session, unsigned char *name, unsigned char *iv, EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac, int seals) {
    const fl_tls *tls = SSL_CTX_get_app_data(SSL_get_SSL_CTX(session));
    ticket_key key;
    int place = find(tls->tickets, seals ? NULL : name, &key), result = 0;
    if (seals && place == 0) {
        memcpy(name, key.name, sizeof key.name);
        if (RAND_bytes(iv, EVP_CIPHER_get_iv_length(EVP_aes_256_cbc())) != 1)
            place = -1;
    }
    if (place >= 0 && set_up(&key, iv, cipher, mac, seals))
        result = place == 0 && (seals || SSL_version(session) != TLS1_3_VERSION) ? 1 : 2;
    OPENSSL_cleanse(&key, sizeof key);
    return result;
}

void fl_tickets_use(SSL_CTX *context, fl_tls *tls) {
    SSL_CTX_set_app_data(context, tls);
    SSL_CTX_set_tlsext_ticket_key_evp_cb(context, use_key);
}

#endif
