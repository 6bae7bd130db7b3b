/* The PROXY protocol's header: its parser, and connections that begin with it. */
#include "connection/proxy_header.h"
#include "peer.h"
#include "siblings/handoff.h"

#include <arpa/inet.h>

#define SIGNATURE "\r\n\r\n\0\r\nQUIT\n"
/* The bytes of a literal, which may contain zeros. */
#define BYTES(text) text, sizeof text - 1
#define FOUR "\x11\0\x0c\xc0\0\x02\x01\xcb\0\x71\x05\x9c\x40\x01\xbb"
#define SIX "\x21\0\x24\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x02\x9c\x40\x01\xbb"
#define MAPPED "\x21\0\x24\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\x02\x01\0\0\0\0\0\0\0\0\0\0\xff\xff\xcb\0\x71\x05\x9c\x40\x01\xbb"

static const char *name_of(const fl_client *client) {
    static char name[INET6_ADDRSTRLEN + 8], address[INET6_ADDRSTRLEN];
    if (client->family == AF_UNIX)
        return "the peer";
    inet_ntop(client->family, client->address, address, sizeof address);
    snprintf(name, sizeof name, "%s %u", address, client->port);
    return name;
}

/* `client`: NULL if the header is refused. */
typedef struct row {
    const char *name, *bytes;
    size_t size;
    const char *client;
} row;

static const row rows[] = {
    {"version 1, IPv4", BYTES("PROXY TCP4 192.0.2.1 203.0.113.5 40000 443\r\n"), "192.0.2.1 40000"},
    {"version 1, IPv6", BYTES("PROXY TCP6 2001:db8::1 2001:db8::2 1 65535\r\n"), "2001:db8::1 1"},
    {"version 1, IPv4 in IPv6", BYTES("PROXY TCP6 ::ffff:192.0.2.1 ::1 1 2\r\n"), "192.0.2.1 1"},
    {"version 1, unknown", BYTES("PROXY UNKNOWN\r\n"), "the peer"},
    {"version 1, unknown with more", BYTES("PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n"), "the peer"},
    {"a line feed alone", BYTES("PROXY TCP4 192.0.2.1 203.0.113.5 40000 443\n"), NULL},
    {"IPv6 as IPv4", BYTES("PROXY TCP4 ::1 ::1 1 2\r\n"), NULL},
    {"IPv4 as IPv6", BYTES("PROXY TCP6 192.0.2.1 203.0.113.5 1 2\r\n"), NULL},
    {"a port too many", BYTES("PROXY TCP4 192.0.2.1 203.0.113.5 1 2 3\r\n"), NULL},
    {"a port too few", BYTES("PROXY TCP4 192.0.2.1 203.0.113.5 1\r\n"), NULL},
    {"a port too large", BYTES("PROXY TCP4 192.0.2.1 203.0.113.5 65536 2\r\n"), NULL},
    {"a port with a sign", BYTES("PROXY TCP4 192.0.2.1 203.0.113.5 +1 2\r\n"), NULL},
    {"a port that begins with 0", BYTES("PROXY TCP4 192.0.2.1 203.0.113.5 01 2\r\n"), NULL},
    {"two spaces", BYTES("PROXY TCP4  192.0.2.1 203.0.113.5 1 2\r\n"), NULL},
    {"a space at the end", BYTES("PROXY TCP4 192.0.2.1 203.0.113.5 1 2 \r\n"), NULL},
    {"a zero byte", BYTES("PROXY TCP4 192.0.2.1\0 203.0.113.5 1 2\r\n"), NULL},
    {"an address that is none", BYTES("PROXY TCP4 192.0.2.256 203.0.113.5 1 2\r\n"), NULL},
    {"another protocol", BYTES("PROXY UDP4 192.0.2.1 203.0.113.5 1 2\r\n"), NULL},
    {"small letters", BYTES("proxy TCP4 192.0.2.1 203.0.113.5 1 2\r\n"), NULL},
    {"an empty line", BYTES("PROXY \r\n"), NULL},
    {"a line that is too long",
     BYTES("PROXY UNKNOWN 0123456789012345678901234567890123456789012345678901234567890123"
           "456789012345678901234567890123456789012345678901234567890123456789\r\n"),
     NULL},
    {"no header", BYTES("GET / HTTP/1.1\r\n"), NULL},
    {"version 2, IPv4", BYTES(SIGNATURE "\x21" FOUR), "192.0.2.1 40000"},
    {"version 2, IPv6", BYTES(SIGNATURE "\x21" SIX), "2001:db8::1 40000"},
    {"version 2, IPv4 in IPv6", BYTES(SIGNATURE "\x21" MAPPED), "192.0.2.1 40000"},
    {"version 2, with an extension", BYTES(SIGNATURE "\x21\x11\0\x11\xc0\0\x02\x01\xcb\0\x71\x05\x9c\x40\x01\xbb\x04\0\x02zz"),
     "192.0.2.1 40000"},
    {"version 2, local", BYTES(SIGNATURE "\x20\0\0\0"), "the peer"},
    {"version 2, local with addresses", BYTES(SIGNATURE "\x20" FOUR), "the peer"},
    {"version 2, no family", BYTES(SIGNATURE "\x21\0\0\x03zzz"), "the peer"},
    {"version 2, too short for IPv4", BYTES(SIGNATURE "\x21\x11\0\x0b\xc0\0\x02\x01\xcb\0\x71\x05\x9c\x40\x01"), NULL},
    {"version 2, too short for IPv6", BYTES(SIGNATURE "\x21\x21\0\x0c\xc0\0\x02\x01\xcb\0\x71\x05\x9c\x40\x01\xbb"), NULL},
    {"version 2, too short for a Unix socket", BYTES(SIGNATURE "\x21\x31\0\x01z"), NULL},
    {"version 2, another family", BYTES(SIGNATURE "\x21\x41\0\0"), NULL},
    {"version 3", BYTES(SIGNATURE "\x31\x11\0\0"), NULL},
    {"version 2, another command", BYTES(SIGNATURE "\x22\x11\0\0"), NULL},
    {"version 2, too long", BYTES(SIGNATURE "\x21\x11\xff\xff"), NULL},
};

/* However the bytes are split, the result is the same, and a wrong header is refused before its end. */
static void check_row(const row *row) {
    test_begin(row->name);
    fl_client client = {.family = AF_UNIX};
    ssize_t size = 0;
    for (size_t available = 0; available <= row->size && size == 0; available++) {
        char *copy = test_copy(row->bytes, available);
        size = fl_proxy_header_parse(copy, available, &client);
        free(copy);
    }
    CHECK_NUMBER(row->client == NULL ? -1 : (ssize_t) row->size, size);
    CHECK_TEXT(row->client == NULL ? "the peer" : row->client, name_of(&client));
    test_end();
}

static void a_unix_socket_names_no_client(void) {
    char bytes[16 + 216] = SIGNATURE "\x21\x31\0\xd8";
    fl_client client = {.family = AF_UNIX};
    CHECK_NUMBER(0, fl_proxy_header_parse(bytes, sizeof bytes - 1, &client));
    CHECK_NUMBER(sizeof bytes, fl_proxy_header_parse(bytes, sizeof bytes, &client));
    CHECK_NUMBER(AF_UNIX, client.family);
}

static void extensions_have_room_up_to_the_limit(void) {
    char bytes[FL_PROXY_HEADER_MAX + 1] = SIGNATURE "\x21" FOUR;
    size_t rest = FL_PROXY_HEADER_MAX - 16;
    bytes[14] = (char) (rest >> 8);
    bytes[15] = (char) (rest & 255);
    fl_client client = {0};
    CHECK_NUMBER(FL_PROXY_HEADER_MAX, fl_proxy_header_parse(bytes, sizeof bytes, &client));
    CHECK_TEXT("192.0.2.1 40000", name_of(&client));
    bytes[15] = (char) (rest + 1);
    CHECK_NUMBER(-1, fl_proxy_header_parse(bytes, 16, &client));
}

static peer_server proxied_server(void) {
    peer_server server = server_start();
    server.loop->accepting.listeners->proxied = true;
    return server;
}

static void the_client_of_a_request_is_that_of_the_header(void) {
    peer_server server = proxied_server();
    int socket = client(&server);
    send_text(socket, "PROXY TCP4 192.0.2.1 203.0.113.5 40000 443\r\n" GET("/one") GET("/two"));
    fl_exchange *exchange = take(server.loop);
    CHECK_TEXT("/one", path_of(exchange));
    CHECK_TEXT("192.0.2.1 40000", name_of(&exchange->client));
    answer(exchange, 200, "one");
    exchange = take(server.loop); /* only the first request follows a header */
    CHECK_TEXT("192.0.2.1 40000", name_of(&exchange->client));
    answer(exchange, 200, "two");
    CHECK_RECEIVED("HTTP/1.1 200 OK", "two", receive(server.loop, socket));
    close(socket);
    server_stop(&server);
}

static void a_header_in_single_bytes_is_the_same_header(void) {
    static const char bytes[] = SIGNATURE "\x21" FOUR GET("/slow");
    peer_server server = proxied_server();
    int socket = client(&server);
    for (size_t i = 0; i + 1 < sizeof bytes; i++) {
        CHECK_NUMBER(0, server.loop->ready.count);
        send_bytes(socket, bytes + i, 1);
        fl_loop_wait(server.loop, 100 * MILLISECOND);
        fl_loop_turn(server.loop);
    }
    fl_exchange *exchange = take(server.loop);
    CHECK_TEXT("192.0.2.1 40000", name_of(&exchange->client));
    answer(exchange, 200, "hello");
    close(socket);
    server_stop(&server);
}

static void the_peer_of_a_health_check_is_its_client(void) {
    peer_server server = proxied_server();
    int socket = client(&server);
    send_bytes(socket, BYTES(SIGNATURE "\x20\0\0\0" GET("/check")));
    fl_exchange *exchange = take(server.loop);
    CHECK_TEXT("127.0.0.1 0", name_of(&exchange->client));
    answer(exchange, 200, "hello");
    close(socket);
    server_stop(&server);
}

/* Nothing is sent back: the client might be of any protocol. */
static void a_connection_without_a_header_is_closed(void) {
    peer_server server = proxied_server();
    int socket = client(&server);
    send_text(socket, GET("/"));
    received_bytes received = receive_to_end(server.loop, socket);
    CHECK_NUMBER(0, received.size);
    CHECK_NUMBER(1, server.loop->context.counts.refused);
    free(received.bytes);
    close(socket);
    int silent = client(&server), half = client(&server); /* one that ends without a byte is no error */
    TURN_UNTIL(server.loop, server.loop->context.counts.connections == 2);
    shutdown(silent, SHUT_WR);
    send_text(half, "PROXY TC");
    shutdown(half, SHUT_WR);
    TURN_UNTIL(server.loop, server.loop->context.counts.connections == 0);
    CHECK_NUMBER(2, server.loop->context.counts.refused);
    close(silent);
    close(half);
    server_stop(&server);
}

static void a_header_that_does_not_come_closes_the_connection(void) {
    fl_limits limits = peer_limits;
    limits.deadlines[FL_DEADLINE_HEAD] = 20 * MILLISECOND;
    peer_server server = server_with(limits);
    server.loop->accepting.listeners->proxied = true;
    int socket = client(&server);
    send_text(socket, "PROXY ");
    received_bytes received = receive_to_end(server.loop, socket);
    CHECK_NUMBER(0, received.size);
    free(received.bytes);
    close(socket);
    server_stop(&server);
}

static void a_sibling_learns_the_client(void) {
    peer_server old = proxied_server(), young = proxied_server();
    int channels[4];
    fl_shared_page *page = make_siblings(&old, &young, channels);
    int socket = client(&old);
    TURN_UNTIL(old.loop, old.loop->context.counts.connections == 1);
    send_text(socket, "PROXY TC"); /* stays in the socket, for whoever reads the whole */
    turn(old.loop);
    CHECK(fl_handoff_give(&old.loop->siblings, old.loop->context.connections, 1));
    TURN_UNTIL(young.loop, young.loop->context.counts.connections == 1);
    send_text(socket, "P4 192.0.2.1 203.0.113.5 40000 443\r\n" GET("/before"));
    fl_exchange *exchange = take(young.loop);
    CHECK_TEXT("192.0.2.1 40000", name_of(&exchange->client));
    answer(exchange, 200, "hello");
    close(socket);

    fl_slot_set(&page->slots[1], FL_SLOT_state, FL_WORKER_BOOTING);
    socket = client(&old);
    send_text(socket, "PROXY TCP4 192.0.2.1 203.0.113.5 40000 443\r\n" GET("/"));
    TURN_UNTIL(old.loop, old.loop->ready.count == 1);
    CHECK(fl_handoff_give(&old.loop->siblings, old.loop->ready.first->connection, 1));
    exchange = take(young.loop);
    CHECK_TEXT("192.0.2.1 40000", name_of(&exchange->client));
    answer(exchange, 200, "hello");
    close(socket);
    server_stop(&old);
    server_stop(&young);
    for (int i = 0; i < 4; i++) close(channels[i]);
    fl_shared_page_close(page);
}

int main(void) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) check_row(&rows[i]);
    TEST(a_unix_socket_names_no_client);
    TEST(extensions_have_room_up_to_the_limit);
    TEST(the_client_of_a_request_is_that_of_the_header);
    TEST(a_header_in_single_bytes_is_the_same_header);
    TEST(the_peer_of_a_health_check_is_its_client);
    TEST(a_connection_without_a_header_is_closed);
    TEST(a_header_that_does_not_come_closes_the_connection);
    TEST(a_sibling_learns_the_client);
    return test_summary();
}
