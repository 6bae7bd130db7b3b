/* Clients that open a TLS connection for each request: connect, shake hands, ask, read the response to its end, close, and again.
 *
 *   handshakes PORT PATH SECONDS CLIENTS RESUME
 *
 * With RESUME 1 each client resumes the session of its last connection. A thread for each client; speaks HTTP/1.1 to 127.0.0.1,
 * believes every certificate, and prints one JSON object. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "samples.h"

enum { READ_SIZE = 16384, PATIENCE_SECONDS = 5 };

typedef struct client {
    pthread_t thread;
    SSL_SESSION *session; /* of the last connection, where sessions are resumed */
    samples latencies;
    long errors, non_2xx, resumed;
} client;

static struct sockaddr_in address;
static char request[2048];
static SSL_CTX *context;
static bool resume;
static double end;

/* The server sends tickets when it likes; the last one counts. */
static int keep_session(SSL *ssl, SSL_SESSION *session) {
    client *c = SSL_get_app_data(ssl);
    SSL_SESSION_free(c->session);
    c->session = session;
    return 1;
}

static int open_socket(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    struct timeval patience = {.tv_sec = PATIENCE_SECONDS};
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
    close(fd);
    return -1;
}

/* The response's status once the server has ended it; 0 without a whole response. */
static int ask(SSL *ssl) {
    static _Thread_local char bytes[READ_SIZE];
    if (SSL_connect(ssl) != 1 || SSL_write(ssl, request, (int)strlen(request)) <= 0) return 0;

    int length = SSL_read(ssl, bytes, sizeof bytes - 1), piece = length;
    if (length < 12) return 0;
    bytes[length] = '\0';
    int status = atoi(bytes + 9);
    while (piece > 0) piece = SSL_read(ssl, bytes, sizeof bytes - 1);
    return SSL_get_error(ssl, piece) == SSL_ERROR_ZERO_RETURN ? status : 0;
}

static void connect_and_ask(client *c) {
    double begun = now();
    int fd = open_socket(), status = 0;
    if (fd >= 0) {
        SSL *ssl = SSL_new(context);
        SSL_set_app_data(ssl, c);
        SSL_set_fd(ssl, fd);
        SSL_set_tlsext_host_name(ssl, "127.0.0.1");
        if (resume && c->session) SSL_set_session(ssl, c->session);
        status = ask(ssl);
        if (status) c->resumed += SSL_session_reused(ssl);
        SSL_shutdown(ssl);
        SSL_free(ssl);
        ERR_clear_error();
        close(fd);
    }
    if (status == 0) {
        c->errors++;
        return;
    }
    push(&c->latencies, now() - begun);
    if (status < 200 || status > 299) c->non_2xx++;
}

static void *run(void *argument) {
    while (now() < end) connect_and_ask(argument);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 6) return 2;
    int count = atoi(argv[4]);
    double seconds = atof(argv[3]);
    resume = atoi(argv[5]) != 0;
    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", argv[2]);
    signal(SIGPIPE, SIG_IGN);
    context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_session_cache_mode(context, resume ? SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL : SSL_SESS_CACHE_OFF);
    SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF); /* some servers close without a word */
    if (resume) SSL_CTX_sess_set_new_cb(context, keep_session);

    client *clients = calloc((size_t)count, sizeof *clients);
    double begun = now();
    end = begun + seconds;
    for (int i = 0; i < count; i++) pthread_create(&clients[i].thread, NULL, run, &clients[i]);
    for (int i = 0; i < count; i++) pthread_join(clients[i].thread, NULL);
    seconds = now() - begun;

    client all = {0};
    for (int i = 0; i < count; i++) {
        client *c = &clients[i];
        for (long j = 0; j < c->latencies.count; j++) push(&all.latencies, c->latencies.values[j]);
        all.errors += c->errors;
        all.non_2xx += c->non_2xx;
        all.resumed += c->resumed;
    }
    printf("{\"requests\":%ld,\"errors\":%ld,\"non_2xx\":%ld,\"resumed\":%ld,", all.latencies.count, all.errors, all.non_2xx, all.resumed);
    print_latencies(&all.latencies);
    printf("\"seconds\":%.3f}\n", seconds);
    return 0;
}
