/* Functions that only the files of this folder call. */
#ifndef FL_TLS_INTERNAL_H
#define FL_TLS_INTERNAL_H

#include "tls.h"

#include <openssl/ssl.h>
#include <pthread.h>

struct fl_tls {
    pthread_mutex_t lock;
    SSL_CTX *current; /* of new connections; NULL until certificates are loaded */
    const fl_protocol *const *protocols;
    struct fl_tickets *tickets; /* see tickets.c */
    int memory;                 /* what they lie in */
};

/* Maps the keys of tickets, of older code if there is a descriptor of them. Returns false if there is no memory. */
bool fl_tickets_open(fl_tls *tls, int descriptor);
void fl_tickets_close(fl_tls *tls);
void fl_tickets_use(SSL_CTX *context, fl_tls *tls);

/* A connection with the certificates that are current now; NULL: out of memory. */
SSL *fl_tls_new_session(fl_tls *tls);

/* The protocol of this name; NULL: none of ours. */
const fl_protocol *fl_tls_find_protocol(const fl_tls *tls, const unsigned char *name, size_t size);

/* Accepts clients with a certificate of these authorities. Returns false if the file cannot be used. */
bool fl_tls_verify_clients(SSL_CTX *context, const fl_tls_clients *clients);

/* Sets `identity` to that of the client, if it has a certificate. Returns false if that is too large. */
bool fl_tls_identify(SSL *session, fl_identity **identity);

#endif
