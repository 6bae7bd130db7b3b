/* The encrypted transport, with a client of OpenSSL. */
#include "peer.h"

#ifdef HAVE_OPENSSL
#include "tls_peer.h"

enum { LARGE = 3 << 20 };

/* Takes the next request and answers it with its path. */
static void answer_next(tls_client *client) {
    fl_exchange *exchange = NULL;
    uint64_t give_up = fl_clock() + 5 * SECOND;
    while ((exchange = fl_loop_take(client->loop)) == NULL && fl_clock() < give_up) tls_pass(client);
    CHECK(exchange != NULL);
    if (exchange == NULL)
        return;
    char path[256];
    snprintf(path, sizeof path, "%s", path_of(exchange));
    answer(exchange, 200, path);
}

static void skip_head(tls_client *client) {
    char last[4] = "";
    bool closed;
    while (memcmp(last, "\r\n\r\n", 4) != 0) {
        memmove(last, last + 1, 3);
        if (tls_receive(client, last + 3, 1, &closed) != 1) {
            CHECK(!"a head");
            return;
        }
    }
}

static void check_requests(size_t step, int version) {
    tls_server tls = tls_server_with(peer_limits);
    tls_client client = tls_client_of(&tls);
    client.step = step;
    SSL_set_max_proto_version(client.ssl, version);
    CHECK(tls_connect(&client));
    for (int i = 0; i < 3; i++) {
        tls_send(&client, GET("/hello"));
        answer_next(&client);
        tls_check_received(&client, "HTTP/1.1 200 OK\r\n");
        skip_head(&client);
        tls_check_received(&client, "/hello");
    }
    CHECK_NUMBER(1, tls.loop->context.counts.connections);
    tls_client_close(&client);
    tls_server_stop(&tls);
}

static void requests_are_answered(void) {
    check_requests(SIZE_MAX, TLS1_3_VERSION);
}

static void requests_are_answered_over_tls_1_2(void) {
    check_requests(SIZE_MAX, TLS1_2_VERSION);
}

static void bytes_may_come_one_by_one(void) {
    check_requests(1, TLS1_3_VERSION);
    check_requests(1, TLS1_2_VERSION);
}

static void older_versions_are_refused(void) {
    tls_server tls = tls_server_with(peer_limits);
    tls_client client = tls_client_of(&tls);
    SSL_set_security_level(client.ssl, 0);
    SSL_set_min_proto_version(client.ssl, TLS1_VERSION);
    SSL_set_max_proto_version(client.ssl, TLS1_1_VERSION);
    CHECK(!tls_connect(&client));
    TURN_UNTIL(tls.loop, tls.loop->context.counts.connections == 0);
    tls_client_close(&client);
    tls_server_stop(&tls);
}

/* The client gets all of a response that it is slow to read, and the owner is woken when there is room. */
static void transfer_large_response(uint32_t response_buffer) {
    fl_limits limits = peer_limits;
    limits.response_buffer = response_buffer;
    tls_server tls = tls_server_with(limits);
    tls_client client = tls_client_on(tls.loop, narrow_client(&tls.server), SIZE_MAX);
    CHECK(tls_connect(&client));
    tls_send(&client, GET("/"));
    fl_exchange *exchange = take(tls.loop);
    char *bytes = malloc(LARGE), *received = malloc(LARGE);
    for (size_t i = 0; i < LARGE; i++) bytes[i] = (char) (i * 7 + i / 251);
    fl_exchange_release_head(exchange);
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 200));
    CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, LARGE));
    size_t done = 0, used, got = 0;
    bool closed, waited = false, headless = true;
    while (done < LARGE) {
        fl_status status = fl_exchange_write(exchange, bytes + done, LARGE - done, &used);
        done += used;
        CHECK(status == FL_OK || status == FL_AGAIN);
        if (status == FL_OK || test.failing)
            continue;
        waited = true;
        if (headless)
            skip_head(&client);
        headless = false;
        while (fl_context_next_woken(&tls.loop->context) == 0 && got < LARGE)
            got += tls_receive(&client, received + got, got + 4096 < LARGE ? 4096 : LARGE - got, &closed);
    }
    CHECK(waited);
    fl_exchange_finish(exchange);
    got += tls_receive(&client, received + got, LARGE - got, &closed);
    CHECK_BYTES(bytes, LARGE, received, got);
    free(bytes);
    free(received);
    tls_client_close(&client);
    tls_server_stop(&tls);
}

static void large_responses_wait_for_the_client(void) {
    transfer_large_response(1 << 20);
    transfer_large_response(4096); /* less than a record: after a wait, fewer bytes are offered than before */
}

/* The poll reports what comes meanwhile once; OpenSSL still holds bytes from before. */
static void bytes_that_come_while_nobody_reads_are_not_forgotten(void) {
    fl_limits limits = peer_limits;
    limits.body_buffer = 4;
    tls_server tls = tls_server_with(limits);
    tls_client client = tls_client_of(&tls);
    CHECK(tls_connect(&client));
    tls_send(&client, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n");
    tls_send(&client, "abcdefgh");
    TURN_UNTIL(tls.loop, tls.loop->ready.count == 1);
    tls_send(&client, "ijkl");
    turn(tls.loop);
    fl_exchange *exchange = take(tls.loop);
    char body[16] = "";
    uint64_t give_up = fl_clock() + 5 * SECOND;
    while (strlen(body) < 12 && fl_clock() < give_up) {
        const char *bytes;
        size_t size;
        fl_status status = fl_exchange_body(exchange, &bytes, &size);
        CHECK(status == FL_OK || status == FL_AGAIN);
        strncat(body, bytes, size);
        fl_exchange_consume_body(exchange, size);
        turn(tls.loop);
    }
    CHECK_TEXT("abcdefghijkl", body);
    answer(exchange, 200, "all");
    tls_check_received(&client, "HTTP/1.1 200 OK\r\n");
    tls_client_close(&client);
    tls_server_stop(&tls);
}

static void connections_end_in_order(void) {
    tls_server tls = tls_server_with(peer_limits);
    tls_client client = tls_client_of(&tls);
    char rest[256];
    bool closed;
    CHECK(tls_connect(&client));
    tls_send(&client, "GET /bye HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    answer_next(&client);
    skip_head(&client);
    CHECK_NUMBER(4, tls_receive(&client, rest, sizeof rest, &closed));
    CHECK(closed);
    tls_client_close(&client);
    tls_server_stop(&tls);
}

/* A body that only the end of the connection ends: the client sees that it is cut off. */
static void truncated_responses_do_not_end_in_order(void) {
    tls_server tls = tls_server_with(peer_limits);
    tls_client client = tls_client_of(&tls);
    char rest[256];
    bool closed;
    size_t used;
    CHECK(tls_connect(&client));
    tls_send(&client, "GET / HTTP/1.0\r\n\r\n");
    fl_exchange *exchange = take(tls.loop);
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, 200));
    CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, -1));
    CHECK_NUMBER(FL_OK, fl_exchange_write(exchange, "half", 4, &used));
    fl_exchange_flush(exchange);
    skip_head(&client);
    tls_check_received(&client, "half");
    fl_exchange_abandon(exchange);
    CHECK_NUMBER(0, tls_receive(&client, rest, sizeof rest, &closed));
    CHECK(!closed);
    tls_client_close(&client);
    tls_server_stop(&tls);
}

static void a_client_that_ends_its_side_gets_its_response(void) {
    tls_server tls = tls_server_with(peer_limits);
    tls_client client = tls_client_of(&tls);
    CHECK(tls_connect(&client));
    tls_send(&client, GET("/last"));
    fl_exchange *exchange = take(tls.loop);
    SSL_shutdown(client.ssl);
    while (BIO_ctrl_pending(client.outgoing) > 0) tls_pass(&client);
    shutdown(client.socket, SHUT_WR);
    turn(tls.loop);
    answer(exchange, 200, "read");
    tls_check_received(&client, "HTTP/1.1 200 OK\r\n");
    skip_head(&client);
    tls_check_received(&client, "read");
    TURN_UNTIL(tls.loop, tls.loop->context.counts.connections == 0);
    tls_client_close(&client);
    tls_server_stop(&tls);
}

static void plain_http_is_told_what_is_wrong(void) {
    tls_server tls = tls_server_with(peer_limits);
    int socket = client(&tls.server);
    send_text(socket, GET("/"));
    received_bytes received = receive_to_end(tls.loop, socket);
    CHECK(!received.reset && strstr(received.bytes, "HTTP/1.1 400 Bad Request\r\n") == received.bytes);
    CHECK(strstr(received.bytes, "https://") != NULL);
    char *length = strstr(received.bytes, "content-length: "), *body = strstr(received.bytes, "\r\n\r\n");
    CHECK(length != NULL && body != NULL && strlen(body + 4) == strtoul(length + 16, NULL, 10));
    free(received.bytes);
    close(socket);
    tls_server_stop(&tls);
}

static void garbage_and_silence_are_cut_off(void) {
    static const struct {
        const char *name;
        size_t size;
        const char *bytes;
    } rows[] = {
        {"garbage", 5, "\1\2\3\4\5"},
        {"a record that is no handshake", 9, "\x16\3\1\0\4zzzz"},
        {"a huge record", 6, "\x16\3\1\xff\xff\1"},
        {"a client hello cut short", 6, "\x16\3\1\2\0\1"},
        {"nothing", 0, ""},
    };
    fl_limits limits = peer_limits;
    limits.deadlines[FL_DEADLINE_HEAD] = 100 * MILLISECOND;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tls_server tls = tls_server_with(limits);
        int socket = client(&tls.server);
        if (rows[i].size > 0)
            send_bytes(socket, rows[i].bytes, rows[i].size);
        received_bytes received = receive_to_end(tls.loop, socket);
        if (received.size > 16)
            test_fail(__FILE__, __LINE__, "%s: received %zu bytes", rows[i].name, received.size);
        free(received.bytes);
        close(socket);
        tls_server_stop(&tls);
    }
}

/* One worker of a pair drains. A client that has begun its handshake stays with it, a silent one and the next that comes go to the other. */
static void silent_clients_go_to_a_sibling(void) {
    tls_server old = tls_server_with(peer_limits), young = tls_server_with(peer_limits);
    int channels[4];
    fl_shared_page *page = make_siblings(&old.server, &young.server, channels);
    fl_slot_set(&page->slots[1], FL_SLOT_state, FL_WORKER_BOOTING); /* so that it gets no new connection */
    tls_client begun = tls_client_of(&old), silent = tls_client_of(&old), sent = tls_client_of(&old);
    begun.step = 20;
    SSL_do_handshake(begun.ssl);
    tls_pass(&begun);
    TURN_UNTIL(old.loop, old.loop->context.counts.connections == 3 && old.loop->context.handshakes.count == 0);
    SSL_do_handshake(sent.ssl); /* has come when it is handed over, and the old worker has not heard of it */
    char hello[4096];
    int size = BIO_read(sent.outgoing, hello, sizeof hello);
    send_bytes(sent.socket, hello, (size_t) size);
    fl_slot_set(&page->slots[1], FL_SLOT_state, FL_WORKER_SERVING);
    fl_loop_drain(old.loop, true);
    CHECK_NUMBER(1, old.loop->context.counts.connections);
    TURN_UNTIL(young.loop, young.loop->context.counts.connections == 2);

    tls_client *clients[] = {&sent, &silent, &begun};
    silent.loop = sent.loop = young.loop;
    begun.step = SIZE_MAX;
    for (int i = 0; i < 3; i++) {
        CHECK(tls_connect(clients[i]));
        tls_send(clients[i], GET("/asked"));
        answer_next(clients[i]);
        tls_check_received(clients[i], "HTTP/1.1 200 OK\r\n");
        skip_head(clients[i]);
        tls_check_received(clients[i], "/asked");
    }
    CHECK_NUMBER(2, young.loop->context.counts.connections);
    tls_client_close(&begun);
    TURN_UNTIL(old.loop, fl_loop_is_drained(old.loop));
    tls_client_close(&silent);
    tls_client_close(&sent);
    tls_server_stop(&old);
    tls_server_stop(&young);
    for (int i = 0; i < 4; i++) close(channels[i]);
    fl_shared_page_close(page);
}

/* Without siblings: the handshake of a client that has just connected goes on, and its request is answered; an older one ends. */
static void handshakes_on_their_way_end_in_a_draining_loop(void) {
    tls_server tls = tls_server_with(peer_limits);
    tls_client asking = tls_client_of(&tls);
    SSL_do_handshake(asking.ssl);
    tls_pass(&asking);
    TURN_UNTIL(tls.loop, tls.loop->context.counts.connections == 1 && tls.loop->context.handshakes.count == 0);
    tls.loop->context.connections->deadline.at += 60 * SECOND;
    fl_loop_drain(tls.loop, false);
    CHECK(tls_connect(&asking));
    TURN_UNTIL(tls.loop, tls.loop->context.connections->state == FL_CONNECTION_OPEN);
    tls.loop->context.connections->deadline.at += 60 * SECOND;
    tls_send(&asking, GET("/asked"));
    answer_next(&asking);
    tls_check_received(&asking, "HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n");
    tls_client_close(&asking);
    TURN_UNTIL(tls.loop, fl_loop_is_drained(tls.loop));
    tls_server_stop(&tls);

    tls = tls_server_with(peer_limits);
    int silent = client(&tls.server);
    TURN_UNTIL(tls.loop, tls.loop->context.counts.connections == 1 && tls.loop->context.handshakes.count == 0);
    tls.loop->context.connections->deadline.at -= SECOND;
    fl_loop_drain(tls.loop, false);
    TURN_UNTIL(tls.loop, fl_loop_is_drained(tls.loop));
    close(silent);
    tls_server_stop(&tls);
}

/* Its turn comes late: the client is not to blame. */
static void a_handshake_that_waits_for_its_turn_goes_on_in_a_draining_loop(void) {
    tls_server tls = tls_server_with(peer_limits);
    tls_client asking = tls_client_of(&tls);
    TURN_UNTIL(tls.loop, tls.loop->context.counts.connections == 1 && tls.loop->context.handshakes.count == 0);
    SSL_do_handshake(asking.ssl);
    char hello[4096];
    int size = BIO_read(asking.outgoing, hello, sizeof hello);
    send_bytes(asking.socket, hello, (size_t) size);
    fl_loop_drain(tls.loop, false);
    tls.loop->context.connections->deadline.at -= SECOND;
    for (int i = 0; i < 3; i++) fl_loop_turn(tls.loop);
    CHECK_NUMBER(1, tls.loop->context.handshakes.count);
    TURN_UNTIL(tls.loop, tls.loop->context.handshakes.count == 0);
    CHECK_NUMBER(1, tls.loop->context.counts.connections);
    CHECK(tls_connect(&asking));
    tls_client_close(&asking);
    TURN_UNTIL(tls.loop, fl_loop_is_drained(tls.loop));
    tls_server_stop(&tls);
}

static const fl_protocol other_protocol = {.name = "other"};

/* Returns what is negotiated; "-": the handshake failed; "": nothing. */
static const char *negotiated(tls_server *tls, const char *offered, size_t size) {
    static char name[32];
    tls_client client = tls_client_of(tls);
    if (size > 0)
        SSL_set_alpn_protos(client.ssl, (const unsigned char *) offered, (unsigned) size);
    bool connected = tls_connect(&client);
    const unsigned char *chosen;
    unsigned chosen_size;
    SSL_get0_alpn_selected(client.ssl, &chosen, &chosen_size);
    snprintf(name, sizeof name, "%.*s", (int) chosen_size, chosen_size > 0 ? (const char *) chosen : "");
    tls_client_close(&client);
    return connected ? name : "-";
}

static void the_handshake_negotiates_a_protocol_that_is_there(void) {
    tls_server tls = tls_server_with(peer_limits);
    const fl_protocol *usual = tls.loop->accepting.listeners->protocols[0];
    const fl_protocol *alone[] = {usual, NULL}, *both[] = {usual, &other_protocol, NULL};
    fl_tls_set_protocols(tls.tls, alone);
    CHECK_TEXT("", negotiated(&tls, "", 0));
    CHECK_TEXT("http/1.1", negotiated(&tls, "\2h2\10http/1.1", 12));
    CHECK_TEXT("-", negotiated(&tls, "\2h2", 3));
    fl_tls_set_protocols(tls.tls, both);
    CHECK_TEXT("other", negotiated(&tls, "\10http/1.1\5other", 15));
    CHECK_TEXT("http/1.1", negotiated(&tls, "\10http/1.1", 9));
    fl_tls_set_protocols(tls.tls, tls.loop->accepting.listeners->protocols);
    tls_server_stop(&tls);
}

static void check_subject(tls_server *tls, const char *host, const char *expected) {
    tls_client client = tls_client_of(tls);
    if (host != NULL)
        SSL_set_tlsext_host_name(client.ssl, host);
    CHECK(tls_connect(&client));
    X509 *certificate = SSL_get0_peer_certificate(client.ssl);
    char name[64] = "";
    if (certificate != NULL)
        X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name, sizeof name);
    CHECK_TEXT(expected, name);
    tls_client_close(&client);
}

static void hosts_have_their_certificates(void) {
    tls_server tls = tls_server_with(peer_limits);
    char paths[3][2][64], error[FL_TLS_ERROR];
    const char *hosts[] = {"a.test", "b.test", "*.c.test"};
    fl_tls_files files[3];
    for (int i = 0; i < 3; i++) files[i] = write_certificate(hosts[i], paths[i]);
    CHECK(fl_tls_load(tls.tls, files, 3, NULL, error));
    check_subject(&tls, NULL, "a.test");
    check_subject(&tls, "a.test", "a.test");
    check_subject(&tls, "b.test", "b.test");
    check_subject(&tls, "x.c.test", "*.c.test");
    check_subject(&tls, "unknown.test", "a.test");
    fl_tls_description description;
    for (size_t i = 0; i < 3; i++) {
        CHECK(fl_tls_describe(tls.tls, i, &description));
        CHECK_TEXT(hosts[i], description.name);
        CHECK(llabs(description.expires_at - (int64_t) time(NULL) - 3600) < 60);
    }
    CHECK(!fl_tls_describe(tls.tls, 3, &description));
    for (int i = 0; i < 6; i++) unlink(paths[i / 2][i % 2]);
    tls_server_stop(&tls);
}

/* What cannot be loaded changes nothing; what can is used for new connections, and older ones go on. */
static void certificates_are_renewed(void) {
    tls_server tls = tls_server_with(peer_limits);
    tls_client older = tls_client_of(&tls);
    char paths[2][64], error[FL_TLS_ERROR];
    CHECK(tls_connect(&older));
    fl_tls_files files = write_certificate("new.test", paths);
    const struct {
        const char *name;
        fl_tls_files files;
        const char *message;
    } rows[] = {
        {"a missing file", {"/nowhere", files.key}, "The certificate /nowhere cannot be used"},
        {"a key of another certificate", {files.certificate, tls.paths[1]}, "does not belong to the certificate"},
        {"a key that is none", {files.certificate, files.certificate}, "The key"},
        {"a certificate that is none", {files.key, files.key}, "The certificate"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK(!fl_tls_load(tls.tls, &rows[i].files, 1, NULL, error));
        if (strstr(error, rows[i].message) == NULL)
            test_fail(__FILE__, __LINE__, "%s: %s", rows[i].name, error);
        check_subject(&tls, NULL, "a.test");
    }
    CHECK(fl_tls_load(tls.tls, &files, 1, NULL, error));
    check_subject(&tls, NULL, "new.test");
    tls_send(&older, GET("/old"));
    answer_next(&older);
    skip_head(&older);
    tls_check_received(&older, "/old");
    tls_client_close(&older);
    for (int i = 0; i < 2; i++) unlink(paths[i]);
    tls_server_stop(&tls);
}

/* Returns what the server knows of a client: its subject; "-": it has no certificate; "": it is refused. */
static const char *known_subject(tls_server *tls, const fl_tls_files *own, SSL_SESSION **session) {
    static char subject[64];
    subject[0] = '\0';
    tls_client client = tls_client_of(tls);
    if (own != NULL && own->key != NULL) {
        SSL_use_certificate_file(client.ssl, own->certificate, SSL_FILETYPE_PEM);
        SSL_use_PrivateKey_file(client.ssl, own->key, SSL_FILETYPE_PEM);
    }
    if (session != NULL && *session != NULL)
        SSL_set_session(client.ssl, *session);
    fl_exchange *exchange = NULL;
    if (tls_connect(&client)) {
        SSL_write(client.ssl, GET("/"), sizeof GET("/") - 1);
        uint64_t give_up = fl_clock() + 5 * SECOND;
        while (!client.ended && fl_clock() < give_up && (exchange = fl_loop_take(tls->loop)) == NULL) tls_pass(&client);
    }
    if (exchange != NULL) {
        snprintf(subject, sizeof subject, "%s",
                 exchange->identity == NULL ? "-" : fl_identity_get(exchange->identity, FL_IDENTITY_SUBJECT));
        answer(exchange, 200, "");
        tls_check_received(&client, "HTTP/1.1 200 OK\r\n");
        skip_head(&client);
    }
    if (session != NULL && *session == NULL)
        *session = SSL_get1_session(client.ssl);
    else if (session != NULL && subject[0] != '\0')
        CHECK(SSL_session_reused(client.ssl));
    SSL_set_shutdown(client.ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN); /* else its session could not be resumed */
    tls_client_close(&client);
    return subject;
}

/* Whether the session of a client is resumed; a new one takes its place. */
static bool resumes(tls_server *tls, SSL_SESSION **session) {
    tls_client client = tls_client_of(tls);
    if (*session != NULL)
        SSL_set_session(client.ssl, *session);
    CHECK(tls_connect(&client));
    tls_send(&client, GET("/"));
    answer_next(&client);
    tls_check_received(&client, "HTTP/1.1 200 OK\r\n");
    skip_head(&client);
    bool resumed = SSL_session_reused(client.ssl);
    SSL_SESSION_free(*session);
    *session = SSL_get1_session(client.ssl);
    SSL_set_shutdown(client.ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN); /* else its session could not be resumed */
    tls_client_close(&client);
    return resumed;
}

static void a_resumed_session_gets_a_new_ticket(void) {
    tls_server tls = tls_server_with(peer_limits);
    SSL_SESSION *session = NULL;
    CHECK(!resumes(&tls, &session));
    SSL_SESSION *first = SSL_SESSION_dup(session);
    CHECK(resumes(&tls, &session));
    const unsigned char *tickets[2];
    size_t sizes[2];
    SSL_SESSION_get0_ticket(first, &tickets[0], &sizes[0]);
    SSL_SESSION_get0_ticket(session, &tickets[1], &sizes[1]);
    CHECK(sizes[0] > 0 && sizes[1] > 0);
    CHECK(sizes[0] != sizes[1] || memcmp(tickets[0], tickets[1], sizes[0]) != 0);
    SSL_SESSION_free(session);
    SSL_SESSION_free(first);
    tls_server_stop(&tls);
}

static void keys_of_tickets_rotate_and_are_shared(void) {
    tls_server tls = tls_server_with(peer_limits);
    SSL_SESSION *session = NULL, *older;
    CHECK(!resumes(&tls, &session));
    older = SSL_SESSION_dup(session);
    fl_tls_rotate_tickets(tls.tls, 3600 * (uint64_t) SECOND); /* not due */
    CHECK(resumes(&tls, &session));
    for (int i = 0; i < 5; i++) { /* one that is used goes on for ever */
        fl_tls_rotate_tickets(tls.tls, 0);
        CHECK(resumes(&tls, &session));
    }
    CHECK(!resumes(&tls, &older));
    if (fl_tls_memory(tls.tls) >= 0) { /* as newer code does */
        tls_server newer = tls_server_with(peer_limits);
        char error[FL_TLS_ERROR];
        fl_tls_files files = {newer.paths[0], newer.paths[1]};
        fl_tls *others = newer.tls;
        newer.tls = fl_tls_open(dup(fl_tls_memory(tls.tls)));
        CHECK(fl_tls_load(newer.tls, &files, 1, NULL, error));
        fl_loop_serve_tls(newer.loop, newer.tls);
        newer.loop->accepting.listeners->configuration = newer.tls;
        CHECK(resumes(&newer, &session));
        fl_tls_rotate_tickets(newer.tls, 0);
        CHECK(resumes(&newer, &session));
        CHECK(resumes(&tls, &session));
        tls_server_stop(&newer);
        fl_tls_close(others);
    }
    SSL_SESSION_free(session);
    SSL_SESSION_free(older);
    tls_server_stop(&tls);
}

static void clients_show_certificates(void) {
    tls_server tls = tls_server_with(peer_limits);
    fl_tls_files own = {tls.paths[0], tls.paths[1]}, client_files, stranger;
    char client_paths[2][64], stranger_paths[2][64], error[FL_TLS_ERROR];
    client_files = write_certificate("client.test", client_paths); /* it is its own authority */
    stranger = write_certificate("stranger.test", stranger_paths);
    CHECK_TEXT("-", known_subject(&tls, &client_files, NULL));
    CHECK(fl_tls_load(tls.tls, &own, 1, &(fl_tls_clients) {client_files.certificate, false}, error));
    SSL_SESSION *with = NULL, *without = NULL;
    CHECK_TEXT("CN=client.test", known_subject(&tls, &client_files, &with));
    CHECK_TEXT("CN=client.test", known_subject(&tls, NULL, &with));
    CHECK_TEXT("-", known_subject(&tls, NULL, &without));
    CHECK_TEXT("", known_subject(&tls, &stranger, NULL));
    CHECK(fl_tls_load(tls.tls, &own, 1, &(fl_tls_clients) {client_files.certificate, true}, error));
    CHECK_TEXT("CN=client.test", known_subject(&tls, &client_files, NULL));
    CHECK_TEXT("", known_subject(&tls, NULL, NULL));
    CHECK_TEXT("", known_subject(&tls, NULL, &without)); /* a session of before is not resumed */
    CHECK_TEXT("", known_subject(&tls, &stranger, NULL));
    CHECK(!fl_tls_load(tls.tls, &own, 1, &(fl_tls_clients) {client_files.key, true}, error));
    CHECK(strstr(error, "The authorities of clients in") == error);
    CHECK(!fl_tls_load(tls.tls, &own, 1, &(fl_tls_clients) {"/nowhere", true}, error));
    SSL_SESSION_free(with);
    SSL_SESSION_free(without);
    for (int i = 0; i < 2; i++) unlink(client_paths[i]), unlink(stranger_paths[i]);
    tls_server_stop(&tls);
}

/* A turn that holds Ruby's lock leaves handshakes to the next wait. */
static void handshakes_go_on_without_the_lock_of_ruby(void) {
    tls_server tls = tls_server_with(peer_limits);
    tls_client client = tls_client_of(&tls);
    char bytes[4096];
    SSL_do_handshake(client.ssl);
    int size = BIO_read(client.outgoing, bytes, sizeof bytes);
    send_bytes(client.socket, bytes, (size_t) size);
    uint64_t give_up = fl_clock() + 5 * SECOND;
    while (tls.loop->context.handshakes.first == NULL && fl_clock() < give_up) fl_loop_turn(tls.loop);
    for (int i = 0; i < 10; i++) fl_loop_turn(tls.loop);
    CHECK(recv(client.socket, bytes, sizeof bytes, 0) < 0 && errno == EAGAIN);
    CHECK(!fl_loop_may_spin(tls.loop));
    CHECK(fl_loop_wait(tls.loop, 5 * SECOND));
    CHECK(tls.loop->context.handshakes.first == NULL);
    CHECK(recv(client.socket, bytes, sizeof bytes, 0) > 0);
    tls_client_close(&client);
    tls_server_stop(&tls);
}

/* One that closes while its handshake waits for its turn. */
static void connections_may_close_before_their_handshake_goes_on(void) {
    fl_limits limits = peer_limits;
    limits.deadlines[FL_DEADLINE_HEAD] = 20 * MILLISECOND;
    tls_server tls = tls_server_with(limits);
    int socket = client(&tls.server);
    send_bytes(socket, "\x16", 1);
    uint64_t give_up = fl_clock() + 5 * SECOND;
    while (tls.loop->context.handshakes.first == NULL && fl_clock() < give_up) fl_loop_turn(tls.loop);
    while (tls.loop->context.counts.connections > 0 && fl_clock() < give_up) fl_loop_turn(tls.loop);
    CHECK(tls.loop->context.handshakes.first != NULL);
    fl_loop_wait(tls.loop, 0);
    CHECK(tls.loop->context.handshakes.first == NULL);
    close(socket);
    socket = client(&tls.server);
    send_bytes(socket, "\x16", 1);
    while (tls.loop->context.handshakes.first == NULL && fl_clock() < give_up) fl_loop_turn(tls.loop);
    close(socket);
    tls_server_stop(&tls); /* frees it */
}

/* Writes so many renewals of the client's key, none of which asks for one of ours, into its outgoing bytes. */
static void renew_key(tls_client *client, int times) {
    for (int i = 0; i < times; i++) {
        CHECK(SSL_key_update(client->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1);
        CHECK(SSL_do_handshake(client->ssl) == 1);
    }
}

/* Reads and answers a request. */
static void check_request(tls_client *client) {
    tls_send(client, GET("/asked"));
    answer_next(client);
    tls_check_received(client, "HTTP/1.1 200 OK\r\n");
    skip_head(client);
    tls_check_received(client, "/asked");
}

/* Each renewal computes, and OpenSSL returns only once it has bytes for the app: such a client would keep the loop for as long as it likes. */
static void clients_that_only_renew_keys_are_cut_off(void) {
    tls_server tls = tls_server_with(peer_limits);
    tls_client client = tls_client_of(&tls), other = tls_client_of(&tls);
    CHECK(tls_connect(&client) && tls_connect(&other));
    for (int i = 0; i < 10; i++) {
        renew_key(&client, 5);
        check_request(&client);
    }
    renew_key(&client, 500);
    while (BIO_ctrl_pending(client.outgoing) > 0 && !client.ended) tls_pass(&client);
    TURN_UNTIL(tls.loop, tls.loop->context.counts.connections == 1);
    check_request(&other);
    tls_client_close(&client);
    tls_client_close(&other);
    tls_server_stop(&tls);
}

int main(void) {
    TEST(requests_are_answered);
    TEST(requests_are_answered_over_tls_1_2);
    TEST(bytes_may_come_one_by_one);
    TEST(older_versions_are_refused);
    TEST(large_responses_wait_for_the_client);
    TEST(bytes_that_come_while_nobody_reads_are_not_forgotten);
    TEST(connections_end_in_order);
    TEST(truncated_responses_do_not_end_in_order);
    TEST(a_client_that_ends_its_side_gets_its_response);
    TEST(plain_http_is_told_what_is_wrong);
    TEST(garbage_and_silence_are_cut_off);
    TEST(silent_clients_go_to_a_sibling);
    TEST(a_handshake_that_waits_for_its_turn_goes_on_in_a_draining_loop);
    TEST(handshakes_on_their_way_end_in_a_draining_loop);
    TEST(the_handshake_negotiates_a_protocol_that_is_there);
    TEST(hosts_have_their_certificates);
    TEST(certificates_are_renewed);
    TEST(a_resumed_session_gets_a_new_ticket);
    TEST(keys_of_tickets_rotate_and_are_shared);
    TEST(clients_show_certificates);
    TEST(handshakes_go_on_without_the_lock_of_ruby);
    TEST(connections_may_close_before_their_handshake_goes_on);
    TEST(clients_that_only_renew_keys_are_cut_off);
    return test_summary();
}

#else
int main(void) {
    return test_summary();
}
#endif
