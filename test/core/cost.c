/* The core's hot paths, for run_costs, which counts instructions under callgrind.  cost NAME COUNT  runs one of them COUNT times. */
#include "http1/http1.h"
#include "peer.h"

static const char hello[] = "GET / HTTP/1.1\r\nHost: 127.0.0.1:9292\r\n\r\n";

static const char browser[] =
    "GET /articles/42?page=2 HTTP/1.1\r\nHost: www.example.com\r\nConnection: keep-alive\r\n"
    "Cache-Control: max-age=0\r\nsec-ch-ua: \"Chromium\";v=\"140\", \"Not=A?Brand\";v=\"24\"\r\nsec-ch-ua-mobile: ?0\r\n"
    "sec-ch-ua-platform: \"Linux\"\r\nUpgrade-Insecure-Requests: 1\r\n"
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36\r\n"
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n"
    "Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-User: ?1\r\nSec-Fetch-Dest: document\r\n"
    "Referer: https://www.example.com/articles?page=1\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n"
    "Accept-Language: en-GB,en;q=0.9,de;q=0.8\r\nCookie: _session=c2Vzc2lvbmMyVnpjMmx2Ym1NeVZuTg; theme=dark\r\n"
    "If-None-Match: W/\"0123456789abcdef\"\r\nPriority: u=0, i\r\nDNT: 1\r\n\r\n";

static fl_head head;

static void parse(const char *bytes, size_t size) {
    fl_head_clear(&head);
    if (fl_http1_parse(&head, bytes, size, &peer_limits.head) != FL_OK)
        abort();
}

static void parse_hello(void) { parse(hello, sizeof hello - 1); }
static void parse_browser(void) { parse(browser, sizeof browser - 1); }

static void encode_head(void) {
    static fl_slab slab;
    fl_buffer out = {0};
    fl_status status = fl_http1_write_status(&slab, &out, 200);
    static const char *const fields[][2] = {
        {"content-type", "text/html; charset=utf-8"}, {"etag", "W/\"0123456789abcdef\""},
        {"cache-control", "max-age=0, private, must-revalidate"}, {"x-request-id", "01234567-89ab-cdef-0123-456789abcdef"},
        {"set-cookie", "_session=c2Vzc2lvbmMyVnpjMmx2Ym1NeVZuTg; path=/; HttpOnly; SameSite=Lax"}};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        status |= fl_http1_write_header(&slab, &out, fields[i][0], strlen(fields[i][0]), fields[i][1], strlen(fields[i][1]));
    status |= fl_http1_write_length(&slab, &out, 12345);
    if (status != FL_OK)
        abort();
    fl_buffer_free(&slab, &out);
}

static void decode_chunks(void) {
    static const char coded[] = "5\r\nHello\r\n10;name=value\r\n0123456789abcdef\r\n1\r\n!\r\n0\r\ntrailer: value\r\n\r\n";
    char bytes[sizeof coded];
    memcpy(bytes, coded, sizeof coded);
    fl_chunks chunks = {0};
    size_t used, decoded;
    if (fl_chunks_decode(&chunks, bytes, sizeof coded - 1, &used, &decoded) != FL_OK || decoded != 22)
        abort();
}

/* A whole request and its response, without an app. */
static void loop_turn(void) {
    static peer_server server;
    static int client;
    static char received[1024];
    if (server.loop == NULL) {
        server = server_start();
        client = narrow_client(&server);
    }
    send_bytes(client, hello, sizeof hello - 1);
    fl_loop_turn(server.loop);
    fl_exchange *exchange = fl_loop_take(server.loop);
    if (exchange == NULL)
        abort();
    fl_exchange_release_head(exchange);
    size_t used;
    if (fl_exchange_begin(exchange, 200) != FL_OK ||
        fl_exchange_header(exchange, "content-type", 12, "text/plain", 10) != FL_OK ||
        fl_exchange_head_end(exchange, 11) != FL_OK || fl_exchange_write(exchange, "Hello World", 11, &used) != FL_OK)
        abort();
    fl_exchange_finish(exchange);
    fl_loop_turn(server.loop);
    if (recv(client, received, sizeof received, 0) < 50)
        abort();
}

int main(int argc, char **argv) {
    static const struct { const char *name; void (*work)(void); } all[] = {
        {"parse_hello", parse_hello},     {"parse_browser", parse_browser}, {"encode_head", encode_head},
        {"decode_chunks", decode_chunks}, {"loop_turn", loop_turn}};
    for (size_t i = 0; argc == 3 && i < sizeof all / sizeof all[0]; i++)
        if (strcmp(argv[1], all[i].name) == 0) {
            for (long left = atol(argv[2]); left > 0; left--) all[i].work();
            return test.failing;
        }
    for (size_t i = 0; argc == 1 && i < sizeof all / sizeof all[0]; i++) puts(all[i].name);
    return argc != 1;
}
