/* What proxies say of the client, and whom the server believes. */
#include "base/forwarded.h"
#include "http1/http1.h"
#include "test.h"

#include <arpa/inet.h>

static fl_network network(const char *address, uint8_t prefix) {
    fl_network network = {.prefix = prefix};
    if (!fl_client_parse(&network.address, address, strlen(address)))
        abort();
    return network;
}

static const char *name_of(const fl_client *client) {
    static char name[INET6_ADDRSTRLEN];
    return client->family == AF_UNIX ? "unix" : inet_ntop(client->family, client->address, name, sizeof name);
}

/* 10.0.0.0/9 is trusted, 2001:db8::/33 and Unix sockets; 10.0.0.1 is the peer unless the row names one. */
typedef struct row {
    const char *name, *fields, *client, *scheme, *peer;
} row;

static const row rows[] = {
    {"no header", "", "10.0.0.1", "unknown", NULL},
    {"one address", "X-Forwarded-For: 192.0.2.1\r\n", "192.0.2.1", "unknown", NULL},
    {"the last one that is not trusted", "X-Forwarded-For: 203.0.113.9, 192.0.2.1, 10.0.0.2\r\n", "192.0.2.1", "unknown", NULL},
    {"several headers are one", "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 10.0.0.2,10.1.1.1\r\n", "192.0.2.1", "unknown",
     NULL},
    {"all are trusted", "X-Forwarded-For: 10.0.0.3, 10.0.0.2\r\n", "10.0.0.3", "unknown", NULL},
    {"just outside of the network", "X-Forwarded-For: 192.0.2.1, 10.128.0.1\r\n", "10.128.0.1", "unknown", NULL},
    {"IPv6", "X-Forwarded-For: 2001:db8:8000::1, 2001:db8:7fff::1\r\n", "2001:db8:8000::1", "unknown", NULL},
    {"with ports", "X-Forwarded-For: [2001:db8:8000::1]:80, 10.0.0.2:4711\r\n", "2001:db8:8000::1", "unknown", NULL},
    {"what is no address ends the list", "X-Forwarded-For: 192.0.2.1, unknown, 10.0.0.2\r\n", "10.0.0.2", "unknown", NULL},
    {"empty elements", "X-Forwarded-For: ,192.0.2.1,, ,\r\n", "192.0.2.1", "unknown", NULL},
    {"https", "X-Forwarded-Proto: https\r\n", "10.0.0.1", "https", NULL},
    {"http", "X-Forwarded-Proto: http\r\n", "10.0.0.1", "http", NULL},
    {"the client's scheme is the first", "X-Forwarded-Proto: HTTPS , http\r\n", "10.0.0.1", "https", NULL},
    {"X-Forwarded-Ssl", "X-Forwarded-Ssl: on\r\n", "10.0.0.1", "https", NULL},
    {"X-Forwarded-Scheme", "X-Forwarded-Scheme: https\r\n", "10.0.0.1", "https", NULL},
    {"no scheme", "X-Forwarded-Proto: ftp\r\n", "10.0.0.1", "unknown", NULL},
    {"Forwarded", "Forwarded: for=192.0.2.1;proto=https;by=10.0.0.1\r\n", "192.0.2.1", "https", NULL},
    {"Forwarded, quoted", "Forwarded: proto=\"http\" ; For=\"[2001:db8:8000::1]:4711\"\r\n", "2001:db8:8000::1", "http", NULL},
    {"Forwarded by several",
     "Forwarded: for=203.0.113.9;proto=http, for=192.0.2.1;proto=https\r\nForwarded: for=10.0.0.2;proto=http\r\n", "192.0.2.1",
     "https", NULL},
    {"Forwarded with a comma in quotes", "Forwarded: for=192.0.2.1;host=\"a,for=203.0.113.9\"\r\n", "192.0.2.1", "unknown",
     NULL},
    {"Forwarded without an address", "Forwarded: for=_hidden;proto=https\r\n", "10.0.0.1", "https", NULL},
    {"Forwarded that a proxy passed on", "Forwarded: for=203.0.113.9;proto=https\r\nX-Forwarded-For: 192.0.2.1\r\n",
     "192.0.2.1", "unknown", NULL},
    {"a peer that is not trusted", "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\n", "203.0.113.9", "unknown",
     "203.0.113.9"},
    {"a Unix socket", "X-Forwarded-For: 192.0.2.1\r\n", "192.0.2.1", "unknown", "unix"},
};

static const char *const schemes[] = {"unknown", "http", "https"};

static fl_scheme read_fields(const char *fields, const fl_networks *trusted, fl_client *client) {
    static const fl_head_limits limits = {8192, 32768, 256};
    char text[16384];
    int size = snprintf(text, sizeof text, "GET / HTTP/1.1\r\nHost: a\r\n%s\r\n", fields);
    char *bytes = test_copy(text, (size_t) size);
    fl_head *head = malloc(sizeof *head);
    fl_head_clear(head);
    CHECK_NUMBER(FL_OK, fl_http1_parse(head, bytes, (size_t) size, &limits));
    fl_scheme scheme = fl_forwarded_read(head, bytes, trusted, client);
    free(head);
    free(bytes);
    return scheme;
}

static void check_row(const row *row) {
    fl_network list[] = {network("10.0.0.0", 9), network("2001:db8::", 33), {.address.family = AF_UNIX}};
    fl_networks trusted = {list, 3};
    fl_client client = network("10.0.0.1", 0).address;
    test_begin(row->name);
    if (row->peer != NULL && strcmp(row->peer, "unix") == 0)
        client = (fl_client) {.family = AF_UNIX};
    else if (row->peer != NULL)
        client = network(row->peer, 0).address;
    CHECK_TEXT(row->scheme, schemes[read_fields(row->fields, &trusted, &client)]);
    CHECK_TEXT(row->client, name_of(&client));
    test_end();
}

static void without_a_list_only_the_scheme_is_believed(void) {
    fl_client client = network("203.0.113.9", 0).address;
    CHECK_NUMBER(FL_SCHEME_HTTPS,
                 read_fields("X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\n", &(fl_networks) {0}, &client));
    CHECK_TEXT("203.0.113.9", name_of(&client));
}

/* However many addresses a request has, the work for it is bounded. */
static void only_so_many_addresses_are_looked_at(void) {
    char fields[8192] = "X-Forwarded-For: 192.0.2.1", *at = fields + strlen(fields);
    for (int i = 0; i < 64; i++) at += sprintf(at, ", 10.0.0.2");
    strcpy(at, "\r\n");
    fl_network list[] = {network("10.0.0.0", 9)};
    fl_client client = network("10.0.0.1", 0).address;
    read_fields(fields, &(fl_networks) {list, 1}, &client);
    CHECK_TEXT("10.0.0.2", name_of(&client));
    memcpy(fields, "Forwarded: for=192.0.2.1", 25);
    at = fields + 24;
    for (int i = 0; i < 80; i++) at += sprintf(at, ", for=10.0.0.2");
    strcpy(at, "\r\n");
    client = network("10.0.0.1", 0).address;
    read_fields(fields, &(fl_networks) {list, 1}, &client);
    CHECK_TEXT("10.0.0.2", name_of(&client));
}

int main(void) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) check_row(&rows[i]);
    TEST(without_a_list_only_the_scheme_is_believed);
    TEST(only_so_many_addresses_are_looked_at);
    return test_summary();
}
