/* Certificates of clients: which are accepted, and what the app sees of them. */
#include "tls.h"

#ifdef HAVE_OPENSSL
#include "internal.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>

/* A session is resumed only where the same clients are accepted: its ticket is not looked at by the authorities again. */
static bool set_session_context(SSL_CTX *context, const fl_tls_clients *clients) {
    unsigned char digest[EVP_MAX_MD_SIZE], bytes[4096];
    unsigned size = 0;
    size_t count;
    FILE *file = fopen(clients->authorities, "r");
    EVP_MD_CTX *sum = EVP_MD_CTX_new();
    bool good = file != NULL && sum != NULL && EVP_DigestInit_ex(sum, EVP_sha256(), NULL) == 1 &&
                EVP_DigestUpdate(sum, &clients->required, sizeof clients->required) == 1;
    while (good && (count = fread(bytes, 1, sizeof bytes, file)) > 0) good = EVP_DigestUpdate(sum, bytes, count) == 1;
    good = good && EVP_DigestFinal_ex(sum, digest, &size) == 1 && SSL_CTX_set_session_id_context(context, digest, size) == 1;
    EVP_MD_CTX_free(sum);
    if (file != NULL)
        fclose(file);
    return good;
}

bool fl_tls_verify_clients(SSL_CTX *context, const fl_tls_clients *clients) {
    STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(clients->authorities);
    if (names == NULL)
        return false;
    SSL_CTX_set_client_CA_list(context, names);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | (clients->required ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0), NULL);
    return SSL_CTX_load_verify_file(context, clients->authorities) == 1 && set_session_context(context, clients);
}

static void write_texts(BIO *out, X509 *certificate) {
    X509_NAME_print_ex(out, X509_get_subject_name(certificate), 0, XN_FLAG_RFC2253);
    BIO_write(out, "", 1);
    X509_NAME_print_ex(out, X509_get_issuer_name(certificate), 0, XN_FLAG_RFC2253);
    BIO_write(out, "", 1);
    i2a_ASN1_INTEGER(out, X509_get0_serialNumber(certificate));
    BIO_write(out, "", 1);
    PEM_write_bio_X509(out, certificate);
    BIO_write(out, "", 1);
}

bool fl_tls_identify(SSL *session, fl_identity **identity) {
    X509 *certificate = SSL_get0_peer_certificate(session);
    if (certificate == NULL)
        return true;
    BIO *out = BIO_new(BIO_s_mem());
    if (out == NULL)
        return false;
    write_texts(out, certificate);
    char *bytes;
    long size = BIO_get_mem_data(out, &bytes);
    *identity = fl_identity_new(bytes, (size_t) size);
    BIO_free(out);
    return *identity != NULL;
}

#endif
