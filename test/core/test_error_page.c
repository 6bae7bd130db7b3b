/* The operator's pages for the core's own errors. */
#include "peer.h"
#include "connection/error_page.h"

#define PAGE "<h1>later</h1>"
#define ASKING(method, accept) method " / HTTP/1.1\r\nHost: a\r\nAccept: " accept "\r\n\r\n"

static peer_server server_with_pages(void) {
    fl_limits limits = peer_limits;
    limits.request_timeout = 20 * MILLISECOND;
    peer_server server = server_with(limits);
    CHECK(fl_error_page_set(&server.loop->context, 504, PAGE, sizeof PAGE - 1));
    return server;
}

/* Returns what a client receives whose request takes too long. */
static received_bytes timed_out(peer_server *server, const char *request) {
    int socket = client(server);
    send_text(socket, request);
    fl_exchange *exchange = take(server->loop);
    fl_exchange_release_head(exchange);
    received_bytes received = receive_to_end(server->loop, socket);
    fl_exchange_abandon(exchange);
    close(socket);
    return received;
}

static void clients_that_name_html_get_the_page(void) {
    static const char *const requests[] = {ASKING("GET", "text/html"), ASKING("GET", "text/plain, TEXT/HTML;q=0.1"),
                                           ASKING("POST", "application/json;q=0, text/html ; level=1, */*;q=0.8")};
    peer_server server = server_with_pages();
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
        CHECK_RECEIVED("HTTP/1.1 504 Gateway Timeout\r\n",
                       "content-type: text/html; charset=utf-8\r\ncache-control: no-store\r\ncontent-length: 14\r\n\r\n" PAGE,
                       timed_out(&server, requests[i]));
    server_stop(&server);
}

static void others_get_text(void) {
    static const char *const requests[] = {GET("/"), ASKING("GET", "*/*"), ASKING("GET", "text/htmlx"), ASKING("GET", "text/html;q=0"),
                                           ASKING("GET", "text/html; q=0.000, text/plain;q=0.5"), ASKING("GET", "application/json")};
    peer_server server = server_with_pages();
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
        CHECK_RECEIVED("HTTP/1.1 504 Gateway Timeout\r\n",
                       "content-type: text/plain\r\ncontent-length: 26\r\n\r\nthe request took too long\n",
                       timed_out(&server, requests[i]));
    server_stop(&server);
}

static void HEAD_gets_the_length_alone(void) {
    peer_server server = server_with_pages();
    CHECK_RECEIVED("HTTP/1.1 504 Gateway Timeout\r\n", "no-store\r\ncontent-length: 14\r\n\r\n",
                   timed_out(&server, ASKING("HEAD", "text/html")));
    server_stop(&server);
}

static void pages_are_bounded_and_replaced(void) {
    peer_server server = server_with_pages();
    fl_context *context = &server.loop->context;
    static char large[FL_MAX_ERROR_PAGE + 1];
    CHECK(!fl_error_page_set(context, 504, large, sizeof large));
    CHECK(!fl_error_page_set(context, 500, PAGE, 1));
    CHECK(!fl_error_page_set(context, 505, PAGE, 1));
    CHECK(fl_error_page_set(context, 504, "new", 3));
    CHECK_RECEIVED("HTTP/1.1 504", "content-length: 3\r\n\r\nnew", timed_out(&server, ASKING("GET", "text/html")));
    CHECK(fl_error_page_set(context, 504, NULL, 0));
    CHECK_RECEIVED("HTTP/1.1 504", "too long\n", timed_out(&server, ASKING("GET", "text/html")));
    CHECK(fl_error_page_set(context, 503, large, FL_MAX_ERROR_PAGE));
    server_stop(&server);
}

int main(void) {
    TEST(clients_that_name_html_get_the_page);
    TEST(others_get_text);
    TEST(HEAD_gets_the_length_alone);
    TEST(pages_are_bounded_and_replaced);
    return test_summary();
}
