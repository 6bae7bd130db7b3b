/* TLS by OpenSSL 3: certificates, and the transport of a listener's connections.
 *
 * fl_tls_open allocates; fl_tls_close frees, once no listener refers to it any more. fl_tls_load may run beside everything else, in any
 * thread: connections that have begun keep the certificates that they began with. The functions of the transport have the contract of
 * connection/transport.h. Without OpenSSL's headers everything compiles, and FL_HAS_TLS is 0: fl_tls_open then returns NULL. */
#ifndef FL_TLS_H
#define FL_TLS_H

#include "connection/protocol.h"
#include "connection/transport.h"

#ifdef HAVE_OPENSSL
enum { FL_HAS_TLS = 1 };
#else
enum { FL_HAS_TLS = 0 };
#endif

enum { FL_TLS_ERROR = 512, FL_TLS_NAME = 256 };

typedef struct fl_tls fl_tls;

/* A certificate with those of its issuers, and its private key: paths of files in PEM. */
typedef struct fl_tls_files {
    const char *certificate, *key;
} fl_tls_files;

/* Clients with certificates: a file in PEM with the authorities that issue them, and whether a client without one is refused. */
typedef struct fl_tls_clients {
    const char *authorities;
    bool required;
} fl_tls_clients;

/* `memory`: a descriptor of fl_tls_memory in another process, which this one takes over, so that both accept each other's session
 * tickets; -1: none. */
fl_tls *fl_tls_open(int memory);
void fl_tls_close(fl_tls *tls);

/* Where the keys of session tickets lie, for processes that are no forks of this one; -1: only forks share them. It stays open. */
int fl_tls_memory(const fl_tls *tls);

/* Seals session tickets with a new key, if the current one is as old, in microseconds. Two older keys are still accepted. Each process
 * that shares the keys may call it. */
void fl_tls_rotate_tickets(fl_tls *tls, uint64_t age);

/* Loads certificates for new connections. Clients that name no host, or an unknown one, get the first one. `clients`: NULL if
 * they need no certificates. Returns false and writes a sentence to `error`, of FL_TLS_ERROR bytes, if one cannot be used: then all is as
 * it was. */
bool fl_tls_load(fl_tls *tls, const fl_tls_files *files, size_t count, const fl_tls_clients *clients, char *error);

/* A certificate in use: its first name, and when it expires, in seconds since 1970. */
typedef struct fl_tls_description {
    char name[FL_TLS_NAME];
    int64_t expires_at;
} fl_tls_description;

/* Describes the certificate at a place in what was loaded. Returns false if there is none. */
bool fl_tls_describe(fl_tls *tls, size_t place, fl_tls_description *description);

/* The protocols that a handshake may negotiate, ended by NULL. */
void fl_tls_set_protocols(fl_tls *tls, const fl_protocol *const *protocols);

/* `configuration` of its listener is a fl_tls. */
extern const fl_transport_kind fl_transport_tls;

#endif
