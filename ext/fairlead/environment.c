/* Makes a Rack environment of a request head. */
#include "fairlead.h"

#include <arpa/inet.h>
#include <string.h>

static VALUE cRequestBody, cStringIO, protocol_1_0, protocol_2, scheme_http, scheme_https, port_80, port_443, client_success;
static ID id_new;

/* X(variable, Rack key) */
#define KEY_MAP(X)                                                                                           \
    X(request_method, "REQUEST_METHOD")                                                                      \
    X(query_string, "QUERY_STRING")                                                                          \
    X(server_protocol, "SERVER_PROTOCOL")                                                                    \
    X(server_name, "SERVER_NAME")                                                                            \
    X(server_port, "SERVER_PORT")                                                                            \
    X(url_scheme, "rack.url_scheme")                                                                         \
    X(input, "rack.input")                                                                                   \
    X(protocol, "rack.protocol")                                                                             \
    X(https, "HTTPS") \
    X(remote_port, "REMOTE_PORT")                                                                            \
    X(client_certificate, "SSL_CLIENT_CERT")                                                                 \
    X(client_verified, "SSL_CLIENT_VERIFY")                                                                  \
    X(client_subject, "SSL_CLIENT_S_DN")                                                                     \
    X(client_issuer, "SSL_CLIENT_I_DN")                                                                      \
    X(client_serial, "SSL_CLIENT_M_SERIAL")                                                                  \
    X(is_hijack, "rack.hijack?")                                                                             \
    X(request_trailers, "fairlead.request_trailers")                                                         \
    X(body_wait, "puma.request_body_wait")

/* Likewise: keys that every request sets. They come first in the template, in this order. */
#define FILLED_IN_MAP(X)                                                                                     \
    X(path_info, "PATH_INFO")                                                                                \
    X(request_path, "REQUEST_PATH")                                                                          \
    X(request_uri, "REQUEST_URI")                                                                            \
    X(remote_address, "REMOTE_ADDR")                                                                         \
    X(request_start, "HTTP_X_REQUEST_START")                                                                 \
    X(finished, "rack.response_finished")                                                                    \
    X(after_reply, "rack.after_reply")                                                                       \
    X(hijack, "rack.hijack")
#define X(name, key) static VALUE key_##name;
KEY_MAP(X) FILLED_IN_MAP(X)
#undef X
#define X(name, key) PLACE_##name,
enum { FILLED_IN_MAP(X) PLACES };
#undef X

/* X(method): methods with a prepared String */
#define METHOD_MAP(X) X(GET) X(POST) X(PUT) X(HEAD) X(PATCH) X(DELETE) X(OPTIONS)
#define X(method) static VALUE method_##method;
METHOD_MAP(X)
#undef X

static inline VALUE string_of(const char *bytes, fl_span span) {
    return rb_str_new(bytes + span.at, span.size);
}

static VALUE method_of(const char *bytes, fl_span span) {
    const char *method = bytes + span.at;
#define X(known)                                                                                             \
    if (span.size == sizeof #known - 1 && memcmp(method, #known, sizeof #known - 1) == 0)                    \
        return method_##known;
    METHOD_MAP(X)
#undef X
    return rb_str_new(method, span.size);
}

/* Whether the listener of this template speaks TLS. */
static bool is_https(VALUE template) {
    return RTEST(rb_str_equal(rb_hash_lookup2(template, key_url_scheme, Qnil), scheme_https));
}

/* A host without a port has that of the scheme. */
static void set_scheme(VALUE env, fl_scheme scheme) {
    bool tls = scheme == FL_SCHEME_HTTPS;
    rb_hash_aset(env, key_url_scheme, tls ? scheme_https : scheme_http);
    if (!tls)
        rb_hash_delete(env, key_https); /* that of a connection with TLS */
    if (rb_hash_lookup2(env, key_server_port, Qnil) == (tls ? port_80 : port_443))
        rb_hash_aset(env, key_server_port, tls ? port_443 : port_80);
}

/* Most requests of a process name the same host. The template with the keys that follow from the host is kept: setting a key costs some
 * 500 instructions. */
static struct {
    VALUE host, template, from; /* `from`: the listener's template */
} usual, last_host;

static bool is_host(VALUE known, const char *text, uint32_t size) {
    return !NIL_P(known) && RSTRING_LEN(known) == size && memcmp(RSTRING_PTR(known), text, size) == 0;
}

/* A host without a port has the port of its scheme (RFC 9110, 4.2), whatever port the server listens on behind a proxy. */
static void add_host(VALUE env, const char *text, uint32_t size) {
    uint32_t name_size = size;
    VALUE port = is_https(env) ? port_443 : port_80;
    for (uint32_t i = size; i > 0 && text[i - 1] != ']'; i--)
        if (text[i - 1] == ':') {
            name_size = i - 1;
            if (i < size)
                port = rb_obj_freeze(rb_str_new(text + i, size - i));
            break;
        }
    rb_hash_aset(env, key_server_port, port);
    if (name_size > 0)
        rb_hash_aset(env, key_server_name, rb_obj_freeze(rb_str_new(text, name_size)));
    rb_hash_aset(env, fl_header_keys[FL_HEADER_HOST], rb_obj_freeze(rb_str_new(text, size)));
}

static VALUE env_with_host(VALUE template, const char *text, uint32_t size) {
    if (size == 0)
        return rb_hash_dup(template);
    if (usual.from == template && is_host(usual.host, text, size))
        return rb_hash_dup(usual.template);
    VALUE env = rb_hash_dup(template);
    add_host(env, text, size);
    /* A host that comes twice in a row may be the usual one. */
    if (last_host.from == template && is_host(last_host.host, text, size)) {
        usual.template = rb_hash_dup(env);
        usual.host = last_host.host;
        usual.from = template;
    }
    last_host.host = rb_hash_aref(env, fl_header_keys[FL_HEADER_HOST]);
    last_host.from = template;
    return env;
}

VALUE fl_environment_address(const fl_client *client) {
    char text[INET6_ADDRSTRLEN];
    const uint8_t *address = client->address;
    if (client->family == AF_INET) {
        int size = 0;
        for (int i = 0; i < 4; i++) {
            uint8_t part = address[i];
            if (part >= 100)
                text[size++] = (char) ('0' + part / 100);
            if (part >= 10)
                text[size++] = (char) ('0' + part / 10 % 10);
            text[size++] = (char) ('0' + part % 10);
            text[size++] = '.';
        }
        return rb_usascii_str_new(text, size - 1);
    }
    if (client->family == AF_INET6 && inet_ntop(AF_INET6, address, text, sizeof text) != NULL)
        return rb_usascii_str_new_cstr(text);
    return rb_usascii_str_new_cstr("127.0.0.1"); /* the peer of a Unix socket is a local process */
}

/* Behind a proxy all clients have the same address. */
static struct {
    VALUE text;
    uint8_t address[16];
    uint8_t family;
} last_address;

static VALUE address_of(const fl_client *client) {
    if (NIL_P(last_address.text) || last_address.family != client->family ||
        memcmp(last_address.address, client->address, sizeof last_address.address) != 0) {
        last_address.text = rb_obj_freeze(fl_environment_address(client));
        last_address.family = client->family;
        memcpy(last_address.address, client->address, sizeof last_address.address);
    }
    return last_address.text;
}

/* "t=1700000000.123456": seconds since 1970 when the first byte was read */
static VALUE request_start(const fl_exchange *exchange) {
    uint64_t at = exchange->request.first_byte_at + exchange->context->wall_offset;
    char text[32] = "t=";
    int size = 2;
    char digits[24];
    int count = 0;
    for (uint64_t rest = at; rest > 0; rest /= 10) {
        digits[count++] = (char) ('0' + rest % 10);
        if (count == 6)
            digits[count++] = '.';
    }
    while (count > 0)
        text[size++] = digits[--count];
    return rb_usascii_str_new(text, size);
}

/* Milliseconds from the first byte until the request had arrived, under the name that autoscalers and APM know: they subtract it from
 * the time since X-Request-Start. Most requests arrive at once and have none. */
static void add_body_wait(VALUE env, const fl_exchange *exchange) {
    uint64_t began = exchange->request.first_byte_at, ready = exchange->queueing.ready_at;
    if (ready >= began + 1000)
        rb_hash_aset(env, key_body_wait, DBL2NUM((double) (ready - began) / 1e3));
}

void fl_environment_add_input(VALUE env, VALUE request) {
    rb_hash_aset(env, key_input, rb_funcallv(cRequestBody, id_new, 1, &request));
}

static VALUE whole_input(const fl_exchange *exchange) {
    VALUE bytes = rb_str_new(fl_buffer_at(&exchange->request.body), exchange->request.body.length);
    return rb_class_new_instance(1, &bytes, cStringIO);
}

/* The protocols that the client offers to upgrade to (Rack specification, "rack.protocol"). */
static VALUE protocols_of(const char *bytes, const fl_head *head) {
    VALUE protocols = rb_ary_new();
    for (uint32_t i = 0; i < head->count; i++) {
        if (head->headers[i].id != FL_HEADER_UPGRADE)
            continue;
        const char *at = bytes + head->headers[i].value.at, *end = at + head->headers[i].value.size;
        while (at < end) {
            const char *start = at;
            while (at < end && *at != ',' && *at != ' ' && *at != '\t')
                at++;
            if (at > start)
                rb_ary_push(protocols, rb_str_new(start, at - start));
            at++;
        }
    }
    return protocols;
}

/* A Hash and its copy keep their entries in order, so values of FILLED_IN_MAP are written to their places: each lookup would cost some
 * 700 instructions. Ruby does not promise this layout, so the key in the place is checked. */
typedef struct entry {
    st_index_t hash;
    VALUE key, value;
} entry;

static inline void fill_in(VALUE env, int place, VALUE key, VALUE value) {
    entry *entries = (entry *) RHASH_TBL(env)->entries;
    if (entries[place].key == key) {
        entries[place].value = value;
        RB_OBJ_WRITTEN(env, Qundef, value);
    } else {
        rb_hash_aset(env, key, value);
    }
}
#define FILL_IN(env, name, value) fill_in(env, PLACE_##name, key_##name, value)

/* Under the names of Apache and nginx. */
static void add_identity(VALUE env, const fl_identity *identity) {
    rb_hash_aset(env, key_client_verified, client_success);
    rb_hash_aset(env, key_client_subject, rb_utf8_str_new_cstr(fl_identity_get(identity, FL_IDENTITY_SUBJECT)));
    rb_hash_aset(env, key_client_issuer, rb_utf8_str_new_cstr(fl_identity_get(identity, FL_IDENTITY_ISSUER)));
    rb_hash_aset(env, key_client_serial, rb_utf8_str_new_cstr(fl_identity_get(identity, FL_IDENTITY_SERIAL)));
    rb_hash_aset(env, key_client_certificate, rb_utf8_str_new_cstr(fl_identity_get(identity, FL_IDENTITY_CERTIFICATE)));
}

VALUE fl_environment_build(fl_exchange *exchange, VALUE template, VALUE request, VALUE finished, VALUE after_reply, bool whole) {
    const fl_head *head = exchange->request.head;
    const char *bytes = fl_exchange_head_bytes(exchange);
    VALUE env = env_with_host(template, bytes + head->authority.at, head->authority.size);
    VALUE method = method_of(bytes, head->method);
    if (method != method_GET) /* GET is in the template */
        rb_hash_aset(env, key_request_method, method);
    fl_span path = head->form == FL_TARGET_AUTHORITY ? head->target : head->path;
    VALUE path_text = path.size > 0 ? string_of(bytes, path) : rb_str_new_cstr("/");
    FILL_IN(env, path_info, path_text);
    FILL_IN(env, request_path, path_text);
    if (head->query.size > 0)
        rb_hash_aset(env, key_query_string, string_of(bytes, head->query));
    FILL_IN(env, request_uri, string_of(bytes, head->target));
    if (head->minor != 1)
        rb_hash_aset(env, key_server_protocol, head->minor == 0 ? protocol_1_0 : protocol_2);
    const fl_networks *trusted = &exchange->context->limits.trusted_proxies;
    fl_client client = exchange->client;
    fl_scheme scheme = trusted->count > 0 ? fl_forwarded_read(head, bytes, trusted, &client) : FL_SCHEME_UNKNOWN;
    FILL_IN(env, remote_address, address_of(&client));
    FILL_IN(env, request_start, request_start(exchange));
    FILL_IN(env, finished, finished);
    FILL_IN(env, after_reply, after_reply);
    FILL_IN(env, hijack, request);
    if (exchange->protocol->hijack == NULL) {
        rb_hash_delete(env, key_hijack);
        rb_hash_aset(env, key_is_hijack, Qfalse);
    }
    add_body_wait(env, exchange);
    bool decoded = exchange->request.chunked && whole;
    if (fl_headers_add(env, bytes, head, decoded) && trusted->count == 0)
        scheme = FL_SCHEME_HTTPS;
    if (scheme != FL_SCHEME_UNKNOWN)
        set_scheme(env, scheme);
    if (exchange->identity != NULL)
        add_identity(env, exchange->identity);
    if (client.port != 0)
        rb_hash_aset(env, key_remote_port, rb_fix2str(INT2FIX(client.port), 10));
    if (decoded) /* RFC 9112, 7.1.3 */
        rb_hash_aset(env, fl_header_keys[FL_HEADER_CONTENT_LENGTH], rb_fix2str(UINT2NUM(exchange->request.body.length), 10));
    if (head->upgrade)
        rb_hash_aset(env, key_protocol, protocols_of(bytes, head));
    if (exchange->request.chunked) /* trailers of an incomplete body are added at its end */
        rb_hash_aset(env, key_request_trailers, whole ? fl_headers_trailers(exchange) : rb_hash_new());
    if (whole && exchange->request.body.length > 0)
        rb_hash_aset(env, key_input, whole_input(exchange)); /* last, since it might call Ruby */
    return env;
}

static VALUE constant(const char *name) {
    VALUE value = rb_path2class(name);
    rb_gc_register_mark_object(value);
    return value;
}

void fl_init_environment(void) {
    VALUE *kept[] = {&usual.host, &usual.template, &usual.from, &last_host.host, &last_host.template, &last_host.from,
                     &last_address.text};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        *kept[i] = Qnil;
        rb_gc_register_address(kept[i]);
    }
    rb_require("stringio");
    rb_require("fairlead/serving/request_body");
    id_new = rb_intern("new");
#define X(name, key) key_##name = fl_kept_string(key);
    KEY_MAP(X)
    FILLED_IN_MAP(X)
#undef X
    VALUE filled_in = rb_ary_new();
#define X(name, key) rb_ary_push(filled_in, key_##name);
    FILLED_IN_MAP(X)
#undef X
    rb_define_const(rb_define_module_under(fl_mFairlead, "EnvironmentTemplate"), "FILLED_IN", rb_obj_freeze(filled_in));
#define X(method) method_##method = fl_kept_string(#method);
    METHOD_MAP(X)
#undef X
    protocol_1_0 = fl_kept_string("HTTP/1.0");
    protocol_2 = fl_kept_string("HTTP/2");
    scheme_http = fl_kept_string("http");
    scheme_https = fl_kept_string("https");
    client_success = fl_kept_string("SUCCESS");
    port_80 = fl_kept_string("80");
    port_443 = fl_kept_string("443");
    cStringIO = constant("StringIO");
    cRequestBody = constant("Fairlead::RequestBody");
}
