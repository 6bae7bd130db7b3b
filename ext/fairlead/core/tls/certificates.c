/* Certificates and what is negotiated: the contexts of OpenSSL that new connections begin with. */
#include "tls.h"

#ifdef HAVE_OPENSSL
#include "internal.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Mozilla's recommendations for servers, "intermediate". */
static const char ciphers[] = "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:"
                              "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305";
static const char *const groups[] = {"X25519MLKEM768:X25519:P-256:P-384",
                                     "X25519:P-256:P-384"}; /* the first needs OpenSSL 3.5 */

/* The certificates for other hosts than that of the first one. They belong to its context, as its extra data. */
typedef struct others {
    size_t count;
    SSL_CTX *contexts[];
} others;

static int others_index = -1;
static pthread_once_t prepared = PTHREAD_ONCE_INIT;

static void free_others(void *parent, void *data, CRYPTO_EX_DATA *all, int index, long number, void *pointer) {
    others *others = data;
    (void) parent, (void) all, (void) index, (void) number, (void) pointer;
    for (size_t i = 0; others != NULL && i < others->count; i++) SSL_CTX_free(others->contexts[i]);
    free(others);
}

static void prepare(void) {
    others_index = SSL_CTX_get_ex_new_index(0, NULL, NULL, NULL, free_others);
}

fl_tls *fl_tls_open(int memory) {
    fl_tls *tls = calloc(1, sizeof *tls);
    if (tls == NULL)
        return NULL;
    if (!fl_tickets_open(tls, memory)) {
        free(tls);
        return NULL;
    }
    pthread_once(&prepared, prepare);
    pthread_mutex_init(&tls->lock, NULL);
    return tls;
}

int fl_tls_memory(const fl_tls *tls) {
    return tls->memory;
}

void fl_tls_close(fl_tls *tls) {
    SSL_CTX_free(tls->current);
    fl_tickets_close(tls);
    if (tls->memory >= 0)
        close(tls->memory);
    pthread_mutex_destroy(&tls->lock);
    free(tls);
}

void fl_tls_set_protocols(fl_tls *tls, const fl_protocol *const *protocols) {
    tls->protocols = protocols;
}

SSL *fl_tls_new_session(fl_tls *tls) {
    pthread_mutex_lock(&tls->lock);
    SSL *session = tls->current == NULL ? NULL : SSL_new(tls->current);
    pthread_mutex_unlock(&tls->lock);
    return session;
}

const fl_protocol *fl_tls_find_protocol(const fl_tls *tls, const unsigned char *name, size_t size) {
    for (const fl_protocol *const *protocol = tls->protocols; protocol != NULL && *protocol != NULL; protocol++)
        if (strlen((*protocol)->name) == size && memcmp((*protocol)->name, name, size) == 0)
            return *protocol;
    return NULL;
}

/* The last of our protocols that the client offers: a listener's first one is the oldest. */
static int choose_protocol(SSL *session, const unsigned char **chosen, unsigned char *chosen_size, const unsigned char *offered,
                           unsigned size, void *data) {
    const fl_tls *tls = data;
    const fl_protocol *best = NULL;
    (void) session;
    for (unsigned at = 0; at < size; at += 1u + offered[at]) {
        if (offered[at] > size - at - 1)
            break;
        const fl_protocol *found = fl_tls_find_protocol(tls, offered + at + 1, offered[at]);
        if (found == NULL || (best != NULL && best != tls->protocols[0]))
            continue;
        best = found;
        *chosen = offered + at + 1;
        *chosen_size = offered[at];
    }
    return best != NULL ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL; /* RFC 7301, 3.2 */
}

static bool is_for(const SSL_CTX *context, const char *host) {
    X509 *certificate = SSL_CTX_get0_certificate(context);
    return certificate != NULL && X509_check_host(certificate, host, 0, 0, NULL) == 1;
}

static int choose_certificate(SSL *session, int *alert, void *data) {
    const char *host = SSL_get_servername(session, TLSEXT_NAMETYPE_host_name);
    const SSL_CTX *first = SSL_get_SSL_CTX(session);
    const others *others = SSL_CTX_get_ex_data(first, others_index);
    (void) alert, (void) data;
    if (host == NULL || others == NULL || is_for(first, host))
        return SSL_TLSEXT_ERR_OK;
    for (size_t i = 0; i < others->count; i++)
        if (is_for(others->contexts[i], host)) {
            SSL_set_SSL_CTX(session, others->contexts[i]);
            break;
        }
    return SSL_TLSEXT_ERR_OK;
}

/* Else OpenSSL would ask for it at the terminal. */
static int no_passphrase(char *buffer, int size, int writes, void *data) {
    (void) buffer, (void) size, (void) writes, (void) data;
    return 0;
}

static SSL_CTX *new_context(fl_tls *tls) {
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    if (context == NULL)
        return NULL;
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_cipher_list(context, ciphers);
    if (SSL_CTX_set1_groups_list(context, groups[0]) != 1)
        SSL_CTX_set1_groups_list(context, groups[1]);
    /* A request that is cut off is known by its framing, whether the client ends the connection in order or not. */
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_read_ahead(context, 1); /* one system call for a record, not two */
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_default_passwd_cb(context, no_passphrase);
    SSL_CTX_set_alpn_select_cb(context, choose_protocol, tls);
    fl_tickets_use(context, tls);
    SSL_CTX_set_tlsext_servername_callback(context, choose_certificate);
    return context;
}

/* Describes the first error: what OpenSSL reports afterwards only follows from it. */
static const char *reason(void) {
    unsigned long code = ERR_get_error();
    const char *text = code == 0 ? NULL : ERR_reason_error_string(code);
    return text != NULL ? text : "unknown error";
}

/* NULL: it cannot be used, and `error` says why. */
static SSL_CTX *load(fl_tls *tls, const fl_tls_files *files, const fl_tls_clients *clients, char *error) {
    SSL_CTX *context = new_context(tls);
    ERR_clear_error();
    if (context == NULL)
        snprintf(error, FL_TLS_ERROR, "OpenSSL lacks memory.");
    else if (SSL_CTX_use_certificate_chain_file(context, files->certificate) != 1)
        snprintf(error, FL_TLS_ERROR, "The certificate %s cannot be used: %s.", files->certificate, reason());
    else if (SSL_CTX_use_PrivateKey_file(context, files->key, SSL_FILETYPE_PEM) != 1 &&
             ERR_GET_REASON(ERR_peek_error()) != X509_R_KEY_VALUES_MISMATCH)
        snprintf(error, FL_TLS_ERROR, "The key %s cannot be used: %s.", files->key, reason());
    else if (SSL_CTX_check_private_key(context) != 1)
        snprintf(error, FL_TLS_ERROR, "The key %s does not belong to the certificate %s.", files->key, files->certificate);
    else if (clients != NULL && !fl_tls_verify_clients(context, clients))
        snprintf(error, FL_TLS_ERROR, "The authorities of clients in %s cannot be used: %s.", clients->authorities, reason());
    else
        return context;
    ERR_clear_error();
    SSL_CTX_free(context);
    return NULL;
}

bool fl_tls_load(fl_tls *tls, const fl_tls_files *files, size_t count, const fl_tls_clients *clients, char *error) {
    SSL_CTX *first = load(tls, files, clients, error), *before;
    others *others = calloc(1, sizeof *others + count * sizeof *others->contexts);
    if (first == NULL || others == NULL || SSL_CTX_set_ex_data(first, others_index, others) != 1) {
        SSL_CTX_free(first);
        free(others);
        return false;
    }
    for (size_t i = 1; i < count; i++) {
        SSL_CTX *context = load(tls, files + i, clients, error);
        if (context == NULL) {
            SSL_CTX_free(first);
            return false;
        }
        others->contexts[others->count++] = context;
    }
    pthread_mutex_lock(&tls->lock);
    before = tls->current;
    tls->current = first;
    pthread_mutex_unlock(&tls->lock);
    SSL_CTX_free(before);
    return true;
}

/* The first name of a host, else the common name. */
static void write_name(X509 *certificate, char *text) {
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    text[0] = '\0';
    for (int i = 0; i < sk_GENERAL_NAME_num(names) && text[0] == '\0'; i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        if (name->type == GEN_DNS)
            snprintf(text, FL_TLS_NAME, "%.*s", ASN1_STRING_length(name->d.dNSName),
                     (const char *) ASN1_STRING_get0_data(name->d.dNSName));
    }
    GENERAL_NAMES_free(names);
    if (text[0] == '\0')
        X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, text, FL_TLS_NAME);
}

static void describe(X509 *certificate, fl_tls_description *description) {
    int days = 0, seconds = 0;
    ASN1_TIME *epoch = ASN1_TIME_set(NULL, 0);
    ASN1_TIME_diff(&days, &seconds, epoch, X509_get0_notAfter(certificate));
    ASN1_TIME_free(epoch);
    description->expires_at = (int64_t) days * 86400 + seconds;
    write_name(certificate, description->name);
}

bool fl_tls_describe(fl_tls *tls, size_t place, fl_tls_description *description) {
    pthread_mutex_lock(&tls->lock);
    const SSL_CTX *context = tls->current;
    if (context != NULL && place > 0) {
        const others *others = SSL_CTX_get_ex_data(context, others_index);
        context = place <= others->count ? others->contexts[place - 1] : NULL;
    }
    X509 *certificate = context == NULL ? NULL : SSL_CTX_get0_certificate(context);
    if (certificate != NULL)
        describe(certificate, description);
    pthread_mutex_unlock(&tls->lock);
    return certificate != NULL;
}

#else

fl_tls *fl_tls_open(int memory) {
    (void) memory;
    return NULL;
}

int fl_tls_memory(const fl_tls *tls) {
    (void) tls;
    return -1;
}

void fl_tls_rotate_tickets(fl_tls *tls, uint64_t age) {
    (void) tls, (void) age;
}

bool fl_tls_describe(fl_tls *tls, size_t place, fl_tls_description *description) {
    (void) tls, (void) place, (void) description;
    return false;
}

void fl_tls_close(fl_tls *tls) {
    (void) tls;
}

bool fl_tls_load(fl_tls *tls, const fl_tls_files *files, size_t count, const fl_tls_clients *clients, char *error) {
    (void) tls, (void) files, (void) count, (void) clients, (void) error;
    return false;
}

void fl_tls_set_protocols(fl_tls *tls, const fl_protocol *const *protocols) {
    (void) tls, (void) protocols;
}

#endif
