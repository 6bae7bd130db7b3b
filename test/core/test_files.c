/* Public files, as clients get them. */
#include "connection/file_body.h"
#include "files/public_files.h"
#include "peer.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static char folder[64];

static void write_file(const char *name, const char *bytes, size_t size) {
    char path[256];
    snprintf(path, sizeof path, "%s/public/%s", folder, name);
    FILE *file = fopen(path, "w");
    if (file == NULL || fwrite(bytes, 1, size, file) != size || fclose(file) != 0)
        abort();
}

static void write_text(const char *name, const char *text) {
    write_file(name, text, strlen(text));
}

static void make_folder(const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (mkdir(path, 0700) < 0)
        abort();
}

static void link_to(const char *target, const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/public/%s", folder, name);
    if (symlink(target, path) < 0)
        abort();
}

enum { BIG = 3000000 };
static char big[BIG];

static void make_files(void) {
    strcpy(folder, "/tmp/fairlead-files-XXXXXX");
    if (mkdtemp(folder) == NULL)
        abort();
    make_folder("public");
    make_folder("public/assets");
    make_folder("public/page");
    make_folder("public/empty");
    for (size_t i = 0; i < BIG; i++) big[i] = (char) (i * 7919 >> 8);
    write_text("a.txt", "0123456789");
    write_text("none.txt", "");
    write_text("index.html", "<index>");
    write_text("404.html", "<404>");
    write_text("page/index.html", "<page>");
    write_text("app.css", "plain");
    write_text("app.css.gz", "gzipped");
    write_text("app.css.br", "brotli");
    write_text("strange.xyz", "strange");
    write_text(".env", "secret");
    write_text("assets/app-0123abcd.css", "asset");
    write_file("big.bin", big, BIG);
    write_text("../outside.txt", "outside");
    link_to("../outside.txt", "link.txt");
    link_to("a.txt", "inside.txt");
    char path[256];
    snprintf(path, sizeof path, "%s/public/pipe.txt", folder);
    if (mkfifo(path, 0600) < 0)
        abort();
}

static void remove_files(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    if (system(command) != 0)
        abort();
}

static peer_server server_with_options(const fl_file_header *headers, bool known_types_only) {
    static const fl_file_header none[] = {{NULL, NULL}};
    peer_server server = server_start();
    char path[128];
    snprintf(path, sizeof path, "%s/public", folder);
    server.loop->context.public_files =
        fl_public_files_open(path, &(fl_public_options) {headers == NULL ? none : headers, known_types_only});
    CHECK(server.loop->context.public_files != NULL);
    return server;
}

static peer_server file_server(void) {
    return server_with_options(NULL, false);
}

static unsigned open_descriptors(void) {
    unsigned count = 0;
    DIR *directory = opendir("/dev/fd");
    while (directory != NULL && readdir(directory) != NULL) count++;
    closedir(directory);
    return count;
}

/* One request with these fields on a connection of its own. */
static received_bytes ask(peer_server *server, const char *method, const char *path, const char *fields) {
    char request[512];
    snprintf(request, sizeof request, "%s %s HTTP/1.1\r\nHost: a\r\n%s\r\n", method, path, fields);
    int socket = client(server);
    send_text(socket, request);
    received_bytes received = {0};
    turn(server->loop);
    answer_all(server->loop);
    for (size_t before = 1; received.size != before; turn(server->loop)) {
        before = received.size;
        receive_available(socket, &received);
    }
    close(socket);
    turn(server->loop);
    return received;
}

static void GET_and_HEAD_of_a_file_do_not_reach_the_app(void) {
    peer_server server = file_server();
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nvary: accept-encoding\r\netag: \"", "\r\n\r\n0123456789",
                   ask(&server, "GET", "/a.txt", ""));
    received_bytes received = ask(&server, "HEAD", "/a.txt?x=1", "");
    CHECK_NUMBER(1, occurrences(&received, "\r\ncontent-length: 10\r\n"));
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", "GMT\r\n\r\n", received);
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", "GMT\r\n\r\n", ask(&server, "GET", "/none.txt", ""));
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", "\r\n\r\n<index>", ask(&server, "GET", "/", ""));
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", "\r\n\r\n<404>", ask(&server, "GET", "/404", ""));
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", "\r\n\r\n<page>", ask(&server, "GET", "/page/", ""));
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", "\r\n\r\nstrange", ask(&server, "GET", "/strange.xyz", ""));
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", "\r\n\r\n0123456789", ask(&server, "GET", "http://b/a.txt", ""));
    CHECK_NUMBER(8, server.loop->context.counts.requests);
    server_stop(&server);
}

static void all_else_reaches_the_app(void) {
    static const char *const paths[] = {
        "/b",        "/b.txt",    "/empty",   "/.env",       "/../outside.txt", "/%2e%2e/outside.txt",
        "/link.txt", "/pipe.txt", "/a.txt/x", "/a%2etxt%00", "/page.html"};
    peer_server server = file_server();
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", paths[i], ask(&server, "GET", paths[i], ""));
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", "/a.txt", ask(&server, "POST", "/a.txt", ""));
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", "/a.txt", ask(&server, "GETS", "/a.txt", ""));
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", "/a.txt", ask(&server, "GET", "/a.txt", "Content-Length: 1\r\n\r\nx"));
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", "/a.txt", ask(&server, "GET", "/a.txt", "Range: bytes=0-1\r\nRange: bytes=2-3\r\n"));
    server_stop(&server);
    server = server_with_options(NULL, true);
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", "/strange.xyz", ask(&server, "GET", "/strange.xyz", ""));
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", "\r\n\r\n<404>", ask(&server, "GET", "/404", ""));
    server_stop(&server);
}

static void a_symbolic_link_within_the_folder_is_followed_where_the_system_can_check_it(void) {
    peer_server server = file_server();
    received_bytes received = ask(&server, "GET", "/inside.txt", "");
    CHECK(occurrences(&received, "\r\n\r\n0123456789") + occurrences(&received, "\r\n\r\n/inside.txt") == 1);
    free(received.bytes);
    server_stop(&server);
}

static void conditions_and_ranges_are_answered(void) {
    peer_server server = file_server();
    received_bytes received = ask(&server, "GET", "/a.txt", "");
    char *etag = strstr(received.bytes, "etag: "), condition[128];
    snprintf(condition, sizeof condition, "If-None-Match: %.*s\r\n", (int) (strstr(etag, "\r\n") - etag - 6), etag + 6);
    free(received.bytes);
    received = ask(&server, "GET", "/a.txt", condition);
    CHECK_NUMBER(1, occurrences(&received, "vary: accept-encoding\r\n"));
    CHECK_NUMBER(0, occurrences(&received, "content-"));
    CHECK_RECEIVED("HTTP/1.1 304 Not Modified\r\n", "GMT\r\n\r\n", received);
    received = ask(&server, "GET", "/a.txt", "Range: bytes=2-4\r\n");
    CHECK_NUMBER(1, occurrences(&received, "content-range: bytes 2-4/10\r\ncontent-length: 3\r\n"));
    CHECK_RECEIVED("HTTP/1.1 206 Partial Content\r\n", "\r\n\r\n234", received);
    received = ask(&server, "GET", "/a.txt", "Range: bytes=10-\r\n");
    CHECK_NUMBER(1, occurrences(&received, "content-range: bytes */10\r\ncontent-length: 0\r\n"));
    CHECK_RECEIVED("HTTP/1.1 416 Range Not Satisfiable\r\n", "GMT\r\n\r\n", received);
    CHECK_RECEIVED("HTTP/1.1 412 Precondition Failed\r\n", "GMT\r\n\r\n", ask(&server, "GET", "/a.txt", "If-Match: \"x\"\r\n"));
    received = ask(&server, "GET", "/big.bin", "Range: bytes=1000000-2500000\r\n");
    char *body = strstr(received.bytes, "\r\n\r\n") + 4;
    CHECK_BYTES(big + 1000000, 1500001, body, received.size - (size_t) (body - received.bytes));
    free(received.bytes);
    server_stop(&server);
}

static void a_precompressed_copy_is_sent_to_clients_that_accept_it(void) {
    peer_server server = file_server();
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", "\r\n\r\nplain", ask(&server, "GET", "/app.css", ""));
    received_bytes received = ask(&server, "GET", "/app.css", "Accept-Encoding: gzip, zstd, br\r\n");
    CHECK_NUMBER(1, occurrences(&received, "content-type: text/css\r\nvary: accept-encoding\r\ncontent-encoding: br\r\n"));
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", "\r\n\r\nbrotli", received);
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", "\r\n\r\ngzipped",
                   ask(&server, "GET", "/app.css", "Accept-Encoding: br;q=0, gzip\r\n"));
    CHECK_RECEIVED("HTTP/1.1 200 OK\r\n", "\r\n\r\nplain", ask(&server, "GET", "/app.css", "Accept-Encoding: zstd\r\n"));
    server_stop(&server);
}

static void digested_assets_may_be_kept_for_ever_unless_the_app_says_otherwise(void) {
    static const struct {
        const char *own, *digested, *other;
    } rows[] = {
        {NULL, "cache-control: public, max-age=31536000, immutable\r\n", "x: y\r\ncontent-type"},
        {"public, max-age=60", "cache-control: public, max-age=31536000, immutable\r\n",
         "cache-control: public, max-age=60\r\n"},
        {"no-store", "cache-control: no-store\r\n", "cache-control: no-store\r\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fl_file_header headers[] = {{"x", "y"}, {rows[i].own == NULL ? NULL : "cache-control", rows[i].own}, {NULL, NULL}};
        peer_server server = server_with_options(headers, false);
        received_bytes received = ask(&server, "GET", "/assets/app-0123abcd.css", "");
        CHECK_NUMBER(1, occurrences(&received, rows[i].digested));
        CHECK_NUMBER(1, occurrences(&received, "cache-control: "));
        free(received.bytes);
        received = ask(&server, "GET", "/a.txt", "");
        CHECK_NUMBER(1, occurrences(&received, rows[i].other));
        CHECK_NUMBER(0, occurrences(&received, "immutable"));
        free(received.bytes);
        server_stop(&server);
    }
}

static void files_keep_their_order_among_pipelined_requests(void) {
    peer_server server = file_server();
    int socket = client(&server);
    send_text(socket, GET("/1") GET("/a.txt") GET("/404") GET("/2") GET("/big.bin") GET("/3") GET("/a.txt"));
    received_bytes received = {0};
    for (int i = 0; i < 100 && received.size < BIG + 1000; i++) {
        answer_all(server.loop);
        receive_available(socket, &received);
    }
    answer_all(server.loop);
    receive_available(socket, &received);
    static const char *const order[] = {"\r\n\r\n/1HTTP", "\r\n\r\n0123456789HTTP", "\r\n\r\n<404>HTTP", "\r\n\r\n/2HTTP"};
    const char *at = received.bytes;
    for (int i = 0; i < 4 && at != NULL; i++) at = strstr(at, order[i]) == NULL ? NULL : strstr(at, order[i]) + 5;
    CHECK(at != NULL);
    CHECK_RECEIVED("HTTP/1.1 200 OK", "\r\n\r\n0123456789", received);
    close(socket);
    server_stop(&server);
}

/* Many small requests at once are answered in turns, not in each other. */
static void thousands_of_pipelined_requests_take_no_stack(void) {
    peer_server server = file_server();
    int socket = client(&server);
    enum { COUNT = 2000 };
    received_bytes received = {0};
    for (int i = 0; i < COUNT; i++) {
        while (send(socket, GET("/a.txt"), sizeof GET("/a.txt") - 1, MSG_NOSIGNAL) < 0) {
            turn(server.loop);
            receive_available(socket, &received);
        }
    }
    uint64_t give_up = fl_clock() + 20 * SECOND;
    while (occurrences(&received, "HTTP/1.1 200") < COUNT && fl_clock() < give_up) {
        turn(server.loop);
        receive_available(socket, &received);
    }
    CHECK_NUMBER(COUNT, occurrences(&received, "HTTP/1.1 200"));
    free(received.bytes);
    close(socket);
    server_stop(&server);
}

static void receive_big(fl_loop *loop, int socket, received_bytes *received) {
    uint64_t give_up = fl_clock() + 20 * SECOND;
    while (received->size < BIG && fl_clock() < give_up) {
        receive_available(socket, received);
        fl_loop_turn(loop);
        fl_loop_wait(loop, MILLISECOND);
    }
}

static void a_slow_client_takes_no_memory(void) {
    peer_server server = file_server();
    unsigned before = open_descriptors();
    int socket = narrow_client(&server);
    send_text(socket, GET("/big.bin"));
    turn(server.loop);
    CHECK(fl_context_buffered(&server.loop->context) < 200000);
    received_bytes received = {0};
    receive_big(server.loop, socket, &received);
    turn(server.loop);
    receive_available(socket, &received);
    char *body = strstr(received.bytes, "\r\n\r\n") + 4;
    CHECK_BYTES(big, BIG, body, received.size - (size_t) (body - received.bytes));
    free(received.bytes);
    CHECK_NUMBER(before + 2, open_descriptors());
    send_text(socket, GET("/next"));
    CHECK_NUMBER(1, answer_all(server.loop));
    close(socket);
    turn(server.loop);
    CHECK_NUMBER(before, open_descriptors());
    server_stop(&server);
}

/* A file whose head an app has begun: the core sends it, and the request is the app's no more. */
static fl_exchange *hand_over_file(peer_server *server) {
    char path[256];
    snprintf(path, sizeof path, "%s/public/big.bin", folder);
    fl_exchange *exchange = take(server->loop);
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 200));
    CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, BIG));
    CHECK_NUMBER(FL_OK, fl_file_body_begin(exchange, open(path, O_RDONLY | O_CLOEXEC), 0, BIG));
    CHECK_NUMBER(0, server->loop->context.counts.in_flight);
    return exchange;
}

static void an_app_leaves_a_file_to_the_core(void) {
    peer_server server = file_server();
    unsigned before = open_descriptors();
    int socket = client(&server);
    send_text(socket, "PUT /app HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab" GET("/a.txt"));
    hand_over_file(&server);
    received_bytes received = {0};
    TURN_UNTIL(server.loop, (receive_available(socket, &received),
                             received.size > BIG && strcmp(received.bytes + received.size - 10, "0123456789") == 0));
    char *body = strstr(received.bytes, "\r\n\r\n") + 4;
    CHECK(strstr(received.bytes, "content-length: 3000000\r\n") != NULL);
    CHECK_BYTES(big, BIG, body, BIG);
    CHECK(strncmp(body + BIG, "HTTP/1.1 200 OK\r\n", 17) == 0);
    free(received.bytes);
    close(socket);
    turn(server.loop);
    CHECK_NUMBER(before, open_descriptors());
    server_stop(&server);
}

static void a_client_that_goes_ends_a_file_that_the_app_has_left(void) {
    for (int how = 0; how < 3; how++) {
        peer_server server = file_server();
        unsigned before = open_descriptors();
        int socket = narrow_client(&server);
        send_text(socket, GET("/app"));
        fl_exchange *exchange = hand_over_file(&server);
        if (how == 0) /* before its first turn */
            fl_connection_close(exchange->connection);
        else if (how == 1)
            turn(server.loop);
        close(socket);
        if (how < 2) {
            TURN_UNTIL(server.loop, server.loop->context.counts.connections == 0);
            turn(server.loop);
            CHECK_NUMBER(before, open_descriptors());
        }
        server_stop(&server);
    }
}

static void a_client_that_goes_leaves_nothing_open(void) {
    for (int how = 0; how < 3; how++) {
        peer_server server = file_server();
        unsigned before = open_descriptors();
        int socket = narrow_client(&server);
        send_text(socket, GET("/big.bin"));
        turn(server.loop);
        CHECK_NUMBER(before + 3, open_descriptors()); /* the file too */
        if (how == 0)
            close(socket);
        else if (how == 1)
            fl_loop_stop(server.loop, true);
        else
            server_stop(&server);
        if (how < 2)
            turn(server.loop);
        if (how > 0)
            close(socket);
        CHECK_NUMBER(before - (how == 2 ? 5 : 0), open_descriptors());
        server_stop(&server);
    }
}

static void a_client_that_does_not_read_is_reset_in_time(void) {
    fl_limits limits = peer_limits;
    limits.deadlines[FL_DEADLINE_WRITE] = 50 * MILLISECOND;
    peer_server server = file_server();
    server.loop->context.limits = limits;
    int socket = narrow_client(&server);
    send_text(socket, GET("/big.bin"));
    turn(server.loop);
    TURN_UNTIL(server.loop, server.loop->context.counts.connections == 0);
    close(socket);
    server_stop(&server);
}

static void a_file_that_becomes_shorter_ends_the_connection(void) {
    peer_server server = file_server();
    int socket = narrow_client(&server);
    write_file("shrinks.bin", big, BIG);
    send_text(socket, GET("/shrinks.bin"));
    turn(server.loop);
    write_file("shrinks.bin", big, 1000);
    received_bytes received = receive_to_end(server.loop, socket);
    CHECK(received.size < BIG);
    free(received.bytes);
    CHECK_NUMBER(0, server.loop->context.counts.connections);
    close(socket);
    server_stop(&server);
}

/* As sendfile(2) does if a signal comes: the socket has room, so that no event will come. */
static ssize_t send_half(fl_transport *transport, int file, off_t offset, size_t size) {
    return fl_transport_plain.send_file(transport, file, offset, size > 1000 ? size / 2 : size);
}

static void a_file_goes_on_after_the_kernel_has_sent_less_than_asked(void) {
    fl_transport_kind halving = fl_transport_plain;
    if (halving.send_file == NULL)
        return; /* this system sends no files */
    halving.send_file = send_half;
    peer_server server = file_server();
    int socket = client(&server);
    turn(server.loop);
    fl_transport *transport = &server.loop->context.connections->transport;
    if (transport->kind == &fl_transport_plain) /* no other sends files */
        transport->kind = &halving;
    send_text(socket, "GET /big.bin HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    received_bytes received = receive_to_end(server.loop, socket);
    CHECK(received.size > BIG && memcmp(received.bytes + received.size - BIG, big, BIG) == 0);
    free(received.bytes);
    close(socket);
    server_stop(&server);
}

#if defined(TCP_NOTSENT_LOWAT) && !defined(FL_FALLBACKS)
static int unsent_limit(const peer_server *server) {
    int most = 0;
    socklen_t size = sizeof most;
    getsockopt(server->loop->context.connections->transport.descriptor, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &most, &size);
    return most;
}

/* The kernel copies nothing then, and needs to be asked less often. */
static void more_of_a_large_file_than_of_other_responses_is_left_unsent(void) {
    peer_server server = file_server();
    int socket = client(&server);
    send_text(socket, GET("/big.bin"));
    TURN_UNTIL(server.loop, server.loop->context.connections != NULL);
    bool sends = server.loop->context.connections->transport.kind->send_file != NULL;
    TURN_UNTIL(server.loop, unsent_limit(&server) == (sends ? 2 << 20 : FL_MAX_UNSENT));
    received_bytes received = {0};
    receive_big(server.loop, socket, &received);
    free(received.bytes);
    TURN_UNTIL(server.loop, unsent_limit(&server) == FL_MAX_UNSENT);
    close(socket);
    server_stop(&server);
}
#endif

static void one_turn_sends_a_part_of_many_files(void) {
    enum { CLIENTS = 16, MOST = 4 << 20, PIECE = 544 << 10 };
    peer_server server = file_server();
    fl_context *context = &server.loop->context;
    int sockets[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        sockets[i] = client(&server);
        send_text(sockets[i], GET("/big.bin"));
    }
    size_t sent[CLIENTS] = {0}, least = 0;
    uint64_t give_up = fl_clock() + 20 * SECOND;
    while (least < 1000000 && fl_clock() < give_up) {
        uint64_t before = context->file_bytes;
        fl_loop_turn(server.loop);
        CHECK(context->file_bytes - before < MOST + PIECE);
        fl_loop_wait(server.loop, 0);
        least = SIZE_MAX;
        for (int i = 0; i < CLIENTS; i++) {
            received_bytes received = {0};
            receive_available(sockets[i], &received);
            sent[i] += received.size;
            least = sent[i] < least ? sent[i] : least;
            free(received.bytes);
        }
    }
    CHECK(least >= 1000000); /* of each */
    for (int i = 0; i < CLIENTS; i++) close(sockets[i]);
    server_stop(&server);
}

static void a_draining_server_finishes_a_file(void) {
    peer_server server = file_server();
    int socket = narrow_client(&server);
    send_text(socket, GET("/big.bin"));
    turn(server.loop);
    fl_loop_drain(server.loop, false);
    CHECK(!fl_loop_is_drained(server.loop));
    received_bytes received = {0};
    uint64_t give_up = fl_clock() + 20 * SECOND;
    while (!fl_loop_is_drained(server.loop) && fl_clock() < give_up) {
        receive_available(socket, &received);
        fl_loop_turn(server.loop);
        fl_loop_wait(server.loop, MILLISECOND);
    }
    receive_available(socket, &received);
    CHECK(received.size > BIG);
    free(received.bytes);
    close(socket);
    server_stop(&server);
}

/* As a client may find it, if the descriptors have run out. */
static void without_a_free_descriptor_the_app_answers(void) {
    peer_server server = file_server();
    int socket = client(&server), held[256], count = 0;
    struct rlimit limit;
    turn(server.loop);
    getrlimit(RLIMIT_NOFILE, &limit);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit) {200, limit.rlim_max});
    while (count < 256 && (held[count] = dup(socket)) >= 0) count++;
    send_text(socket, GET("/a.txt"));
    CHECK_NUMBER(1, answer_all(server.loop));
    while (count > 0) close(held[--count]);
    setrlimit(RLIMIT_NOFILE, &limit);
    close(socket);
    server_stop(&server);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN); /* as Ruby does */
    make_files();
    TEST(GET_and_HEAD_of_a_file_do_not_reach_the_app);
    TEST(all_else_reaches_the_app);
    TEST(a_symbolic_link_within_the_folder_is_followed_where_the_system_can_check_it);
    TEST(conditions_and_ranges_are_answered);
    TEST(a_precompressed_copy_is_sent_to_clients_that_accept_it);
    TEST(digested_assets_may_be_kept_for_ever_unless_the_app_says_otherwise);
    TEST(files_keep_their_order_among_pipelined_requests);
    TEST(thousands_of_pipelined_requests_take_no_stack);
    TEST(an_app_leaves_a_file_to_the_core);
    TEST(a_client_that_goes_ends_a_file_that_the_app_has_left);
    TEST(a_slow_client_takes_no_memory);
    TEST(a_client_that_goes_leaves_nothing_open);
    TEST(a_client_that_does_not_read_is_reset_in_time);
    TEST(a_file_that_becomes_shorter_ends_the_connection);
    TEST(a_file_goes_on_after_the_kernel_has_sent_less_than_asked);
#if defined(TCP_NOTSENT_LOWAT) && !defined(FL_FALLBACKS)
    TEST(more_of_a_large_file_than_of_other_responses_is_left_unsent);
#endif
    TEST(one_turn_sends_a_part_of_many_files);
    TEST(a_draining_server_finishes_a_file);
    TEST(without_a_free_descriptor_the_app_answers);
    remove_files();
    return test_summary();
}
