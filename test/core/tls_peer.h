/* A client of TLS, of OpenSSL over memory, and certificates of its own. It passes its bytes over the socket as a test wants: all, or one
 * by one. */
#ifndef FL_TEST_TLS_PEER_H
#define FL_TEST_TLS_PEER_H

#include "peer.h"
#include "tls/tls.h"

#include <openssl/ssl.h>
#include <openssl/x509v3.h>

/* Writes a certificate for this host, and its key, to files. */
static inline fl_tls_files write_certificate(const char *host, char paths[2][64]) {
    X509 *certificate = X509_new();
    EVP_PKEY *key = EVP_EC_gen("P-256");
    char names[128];
    snprintf(names, sizeof names, "DNS:%s", host);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC, (const unsigned char *) host, -1, -1, 0);
    X509_set_issuer_name(certificate, X509_get_subject_name(certificate));
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, names);
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
    X509_sign(certificate, key, EVP_sha256());
    for (int i = 0; i < 2; i++) {
        snprintf(paths[i], 64, "/tmp/fairlead-test-XXXXXX");
        FILE *file = fdopen(mkstemp(paths[i]), "w");
        if (i == 0)
            PEM_write_X509(file, certificate);
        else
            PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL);
        fclose(file);
    }
    X509_free(certificate);
    EVP_PKEY_free(key);
    return (fl_tls_files) {paths[0], paths[1]};
}

typedef struct tls_server {
    peer_server server;
    fl_loop *loop;
    fl_tls *tls;
    char paths[2][64];
} tls_server;

static inline tls_server tls_server_with(fl_limits limits) {
    tls_server tls = {.server = server_with(limits), .tls = fl_tls_open(-1)};
    char error[FL_TLS_ERROR] = "";
    tls.loop = tls.server.loop;
    fl_tls_files files = write_certificate("a.test", tls.paths);
    CHECK(fl_tls_load(tls.tls, &files, 1, NULL, error));
    CHECK_TEXT("", error);
    fl_loop_serve_tls(tls.loop, tls.tls);
    return tls;
}

static inline void tls_server_stop(tls_server *tls) {
    server_stop(&tls->server);
    fl_tls_close(tls->tls);
    for (int i = 0; i < 2; i++) unlink(tls->paths[i]);
}

typedef struct tls_client {
    fl_loop *loop;
    int socket;
    size_t step; /* bytes that are passed on at once */
    SSL_CTX *context;
    SSL *ssl;
    BIO *incoming, *outgoing;
    bool ended; /* the server has closed the socket */
} tls_client;

static inline tls_client tls_client_on(fl_loop *loop, int socket, size_t step) {
    tls_client client = {.loop = loop, .socket = socket, .step = step, .context = SSL_CTX_new(TLS_client_method())};
    client.ssl = SSL_new(client.context);
    client.incoming = BIO_new(BIO_s_mem());
    client.outgoing = BIO_new(BIO_s_mem());
    SSL_set_bio(client.ssl, client.incoming, client.outgoing);
    SSL_set_connect_state(client.ssl);
    return client;
}

static inline tls_client tls_client_of(tls_server *tls) {
    return tls_client_on(tls->loop, client(&tls->server), SIZE_MAX);
}

static inline void tls_client_close(tls_client *client) {
    close(client->socket);
    SSL_free(client->ssl);
    SSL_CTX_free(client->context);
}

/* Passes bytes between the client and the socket, and turns the loop. */
static inline void tls_pass(tls_client *client) {
    char bytes[65536];
    size_t pending = BIO_ctrl_pending(client->outgoing), most = pending < client->step ? pending : client->step;
    int count = most == 0 ? 0 : BIO_read(client->outgoing, bytes, (int) (most < sizeof bytes ? most : sizeof bytes));
    if (count > 0 && send(client->socket, bytes, (size_t) count, MSG_NOSIGNAL) != count)
        client->ended = true;
    fl_loop_turn(client->loop);
    fl_loop_wait(client->loop, 0);
    ssize_t received = recv(client->socket, bytes, client->step < sizeof bytes ? client->step : sizeof bytes, 0);
    if (received > 0)
        BIO_write(client->incoming, bytes, (int) received);
    client->ended |= received == 0;
}

/* Whether the handshake is over; false also if it failed. */
static inline bool tls_connect(tls_client *client) {
    uint64_t give_up = fl_clock() + 5 * SECOND;
    while (fl_clock() < give_up && !client->ended) {
        int result = SSL_do_handshake(client->ssl);
        if (result == 1 && BIO_ctrl_pending(client->outgoing) == 0)
            return true;
        if (result != 1 && SSL_get_error(client->ssl, result) != SSL_ERROR_WANT_READ)
            return false;
        tls_pass(client);
    }
    return false;
}

static inline void tls_send(tls_client *client, const char *text) {
    CHECK_NUMBER(strlen(text), SSL_write(client->ssl, text, (int) strlen(text)));
    while (BIO_ctrl_pending(client->outgoing) > 0 && !client->ended) tls_pass(client);
}

/* Reads so many bytes, or to the end. Returns how many; `closed`: the server has said that no more comes. */
static inline size_t tls_receive(tls_client *client, char *bytes, size_t size, bool *closed) {
    uint64_t give_up = fl_clock() + 5 * SECOND;
    size_t done = 0;
    *closed = false;
    while (done < size && fl_clock() < give_up) {
        int count = SSL_read(client->ssl, bytes + done, (int) (size - done > 16384 ? 16384 : size - done));
        if (count > 0) {
            done += (size_t) count;
            continue;
        }
        *closed = SSL_get_error(client->ssl, count) == SSL_ERROR_ZERO_RETURN;
        if (*closed || (client->ended && BIO_ctrl_pending(client->incoming) == 0))
            break;
        tls_pass(client);
    }
    return done;
}

/* Checks that the next bytes are these. */
static inline void tls_check_received(tls_client *client, const char *expected) {
    char bytes[4096];
    bool closed;
    size_t size = tls_receive(client, bytes, strlen(expected), &closed);
    CHECK_BYTES(expected, strlen(expected), bytes, size);
}

#endif
