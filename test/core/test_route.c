#include "base/route.h"
#include "test.h"

static const struct {
    const char *method, *path, *expected;
} rows[] = {
    {"GET", "/", "GET /"},
    {"POST", "/orders", "POST /orders"},
    {"GET", "/orders/4711", "GET /orders/:id"},
    {"GET", "/orders/4711/", "GET /orders/:id/"},
    {"GET", "/orders/4711/items.json", "GET /orders/:id/items.json"},
    {"GET", "/orders/4711.json", "GET /orders/:id.json"},
    {"GET", "/posts/12-how-to-tie-a-knot", "GET /posts/:id"},
    {"GET", "/users/550e8400-e29b-41d4-a716-446655440000/edit", "GET /users/:token/edit"},
    {"GET", "/blobs/0123456789abcdef", "GET /blobs/:token"},
    {"GET", "/blobs/eyJfcmFpbHMiOnsibWVzc2FnZSI6IkJBaHBCZz09IiwiZXhwIjpudWxs/a.png", "GET /blobs/:token/a.png"},
    {"GET", "/t/V1StGXR8_Z5jdHi6B-myT", "GET /t/:token"},
    {"GET", "/12345678901234567890123", "GET /:id"},
    {"GET", "/api/v2/users", "GET /api/v2/users"},
    {"GET", "/md5", "GET /md5"},
    {"GET", "/a//b", "GET /a//b"},
    {"OPTIONS", "*", "OPTIONS *"},
    {"GET", "", "GET "},
    {"GET", "/.json", "GET /.json"},
    {"GET", "/1.", "GET /1."},
};

static void paths_have_routes_with_placeholders(void) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fl_route route;
        size_t size = strlen(rows[i].path);
        char *path = test_copy(rows[i].path, size);
        fl_route_from_path(&route, rows[i].method, strlen(rows[i].method), path, size);
        CHECK_TEXT(rows[i].expected, route.text);
        CHECK(route.key != 0);
        free(path);
    }
}

static void equal_routes_have_equal_keys(void) {
    fl_route one, same, other;
    fl_route_from_path(&one, "GET", 3, "/orders/1", 9);
    fl_route_from_path(&same, "GET", 3, "/orders/2", 9);
    fl_route_from_path(&other, "PUT", 3, "/orders/1", 9);
    CHECK(one.key == same.key);
    CHECK(one.key != other.key);
}

static void the_key_covers_more_of_a_long_path_than_the_text(void) {
    char path[FL_ROUTE_PATH];
    for (size_t i = 0; i < sizeof path; i++) path[i] = "/abcdefg"[i % 8];
    fl_route one, other;
    fl_route_from_path(&one, "GET", 3, path, sizeof path);
    CHECK_NUMBER(FL_ROUTE_SIZE - 1, strlen(one.text));
    fl_route_from_path(&other, "GET", 3, path, sizeof path - 1);
    CHECK_TEXT(one.text, other.text);
    CHECK(one.key != other.key);
}

static uint64_t matches(const char *pattern, const char *method, const char *path) {
    char *copy = test_copy(path, strlen(path));
    uint64_t match = fl_route_matches(pattern, method, strlen(method), copy, strlen(path));
    free(copy);
    return match;
}

static void a_pattern_matches_paths_of_its_shape(void) {
    CHECK(matches("GET /articles/:slug", "GET", "/articles/my-first-post"));
    CHECK(matches("GET /articles/:slug", "GET", "/articles/my-first-post/"));
    CHECK(matches("GET /articles/:slug", "GET", "/articles/my-first-post.json"));
    CHECK(matches("GET /articles/:slug/edit", "GET", "/articles/my-first-post/edit"));
    CHECK(matches("GET /articles/new", "GET", "/articles/new.json"));
    CHECK(matches("GET /", "GET", "/"));
    CHECK(matches("GET /:a-:b", "GET", "/one-two"));
    CHECK(!matches("GET /articles/:slug", "POST", "/articles/my-first-post"));
    CHECK(!matches("GET /articles/:slug", "GE", "/articles/my-first-post"));
    CHECK(!matches("GET /articles/:slug", "GET", "/articles/"));
    CHECK(!matches("GET /articles/:slug", "GET", "/articles"));
    CHECK(!matches("GET /articles/:slug", "GET", "/articles/a/b"));
    CHECK(!matches("GET /articles/:slug", "GET", "/article/a"));
    CHECK(!matches("GET /articles/new", "GET", "/articles/newer"));
    CHECK(!matches("GET /articles/new/it", "GET", "/articles/new.json/it"));
    CHECK(!matches("GET /", "GET", "/a"));
    CHECK(!matches("GET /:a", "GET", "/"));
    CHECK(!matches("GET /:a", "GET", ""));
    CHECK(!matches("GET /a", "OPTIONS", "*"));
}

static void the_more_literal_pattern_has_the_greater_rank(void) {
    const char *path = "/articles/new";
    CHECK(matches("GET /articles/new", "GET", path) > matches("GET /articles/:slug", "GET", path));
    CHECK(matches("GET /articles/:slug", "GET", path) > matches("GET /:kind/new", "GET", path));
}

static void a_pattern_and_paths_with_the_same_route_have_one_key(void) {
    fl_route looks, known;
    fl_route_from_path(&looks, "GET", 3, "/orders/12", 10);
    CHECK(fl_route_from_pattern(&known, "GET /orders/:id", 15));
    CHECK_TEXT(looks.text, known.text);
    CHECK(looks.key == known.key);
    char longer[FL_ROUTE_SIZE];
    memset(longer, 'a', sizeof longer);
    CHECK(!fl_route_from_pattern(&known, longer, sizeof longer));
}

int main(void) {
    TEST(paths_have_routes_with_placeholders);
    TEST(equal_routes_have_equal_keys);
    TEST(the_key_covers_more_of_a_long_path_than_the_text);
    TEST(a_pattern_matches_paths_of_its_shape);
    TEST(the_more_literal_pattern_has_the_greater_rank);
    TEST(a_pattern_and_paths_with_the_same_route_have_one_key);
    return test_summary();
}
