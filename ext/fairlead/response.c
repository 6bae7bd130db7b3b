/* Fairlead::Request: responding with what a Rack app returns. */
#include "fairlead.h"
#include "connection/file_body.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static ID id_each, id_to_i;
static VALUE word_upgrade, word_connection;

fl_exchange *fl_staged(VALUE self) {
    fl_exchange *exchange = fl_ruby_request_get(self)->exchange;
    fl_require_open(exchange);
    return exchange;
}

static void header_value(VALUE self, VALUE name, VALUE value) {
    fl_exchange *exchange = fl_staged(self);
    const char *bytes = RSTRING_PTR(value);
    long left = RSTRING_LEN(value);
    for (;;) { /* Rack 2 joins several values with line feeds */
        const char *end = memchr(bytes, '\n', (size_t) left);
        long size = end == NULL ? left : end - bytes;
        fl_check(fl_exchange_header(exchange, RSTRING_PTR(name), (size_t) RSTRING_LEN(name), bytes, (size_t) size));
        if (end == NULL)
            break;
        bytes = end + 1;
        left -= size + 1;
    }
    RB_GC_GUARD(name);
    RB_GC_GUARD(value);
}

static VALUE to_string(VALUE object) {
    return RB_TYPE_P(object, T_STRING) ? object : rb_obj_as_string(object);
}

static bool is(VALUE name, const char *known) {
    return (size_t) RSTRING_LEN(name) == strlen(known) && memcmp(RSTRING_PTR(name), known, strlen(known)) == 0;
}

/* Handles a header that is for the server. */
static void server_header(VALUE self, VALUE name, VALUE value) {
    if (is(name, "rack.hijack") && RTEST(value)) {
        fl_staged(self)->response.switches_protocol = true;
    } else if (is(name, "rack.protocol") && RTEST(value)) {
        value = to_string(value);
        fl_exchange *exchange = fl_staged(self);
        exchange->response.switches_protocol = exchange->response.names_protocol = true;
        header_value(self, word_upgrade, value);
        header_value(self, word_connection, word_upgrade);
    }
}

static void header(VALUE self, VALUE name, VALUE value) {
    name = to_string(name);
    if (RSTRING_LEN(name) > 5 && memcmp(RSTRING_PTR(name), "rack.", 5) == 0) {
        server_header(self, name, value);
        return;
    }
    if (RB_TYPE_P(value, T_ARRAY)) {
        for (long i = 0; i < RARRAY_LEN(value); i++) header_value(self, name, to_string(RARRAY_AREF(value, i)));
    } else if (!NIL_P(value)) {
        header_value(self, name, to_string(value));
    }
    RB_GC_GUARD(name);
}

static int header_of_hash(VALUE name, VALUE value, VALUE self) {
    header(self, name, value);
    return ST_CONTINUE;
}

static VALUE header_of_each(RB_BLOCK_CALL_FUNC_ARGLIST(pair, self)) {
    if (argc >= 2)
        header(self, argv[0], argv[1]);
    else
        header(self, rb_ary_entry(pair, 0), rb_ary_entry(pair, 1));
    return Qnil;
}

/* Stages a head. Iterating `headers` may call any Ruby. */
static void begin(VALUE self, VALUE status, VALUE headers) {
    int code = RB_INTEGER_TYPE_P(status) ? NUM2INT(status) : NUM2INT(rb_funcallv(status, id_to_i, 0, NULL));
    fl_ruby_request_get(self)->code = code;
    fl_check_request(self, fl_exchange_begin(fl_staged(self), code));
    if (RB_TYPE_P(headers, T_HASH))
        rb_hash_foreach(headers, header_of_hash, self);
    else
        rb_block_call(headers, id_each, 0, NULL, header_of_each, self);
    fl_add_server_timing(self);
    /* An app that upgrades returns 200, as in HTTP/2; HTTP/1.1 needs 101 (Rack specification, "The rack.protocol Header"). */
    if (code != 101 && fl_staged(self)->response.names_protocol)
        begin(self, INT2FIX(101), headers);
}

fl_exchange *fl_lock_open_request(VALUE self) {
    fl_exchange *exchange = fl_lock_request(self);
    fl_require_open(exchange);
    return exchange;
}

void fl_wake_driver(VALUE request) {
    fl_ruby_loop *self = fl_ruby_loop_struct(fl_ruby_request_get(request)->loop);
    if (self->loop != NULL && !pthread_equal(self->driver, pthread_self()))
        fl_loop_wake(self->loop);
}

/* The fiber has done its part of the response, and touches the exchange no more. */
static void leave(fl_ruby_request *self, const fl_exchange *exchange) {
    self->exchange = NULL;
    if (self->run != NULL && self->run->id == self->id && exchange->context != NULL) /* not in a forked child */
        atomic_store_explicit(&self->run->since, 0, memory_order_relaxed);
}

void fl_end_request(VALUE object, void (*end)(fl_exchange *)) {
    fl_ruby_request *self = fl_ruby_request_get(object);
    fl_exchange *exchange = self->exchange;
    leave(self, exchange);
    self->timed_out = exchange->timing.timed_out;
    self->stopped = exchange->timing.stopped;
    if (end == fl_exchange_abandon && exchange->request.rejection != FL_OK && !exchange->response.committed)
        self->code = fl_status_http((fl_status) exchange->request.rejection);
    if (exchange->timing.timed_out && !exchange->response.committed)
        self->code = fl_status_http(fl_exchange_timeout(exchange)); /* whatever status the app has set since */
    else
        self->bytes_sent = exchange->response.body_sent + exchange->response.held.length;
    if (exchange->context == NULL)
        free(exchange);
    else
        end(exchange);
}

static VALUE end_if_open(VALUE object, void (*how)(fl_exchange *)) {
    fl_name_route(object);
    fl_exchange *exchange = fl_lock_request(object);
    if (exchange == NULL)
        return Qnil;
    fl_context *context = exchange->context;
    fl_end_request(object, how);
    if (context == NULL)
        return Qnil;
    fl_unlock(context);
    fl_wake_driver(object);
    return Qnil;
}

/* Sums up the bytes of the parts. Returns the first part that is neither String nor nil; nil: there is none. */
static VALUE measure(VALUE parts, size_t *length) {
    *length = 0;
    for (long i = 0; i < RARRAY_LEN(parts); i++) {
        VALUE part = RARRAY_AREF(parts, i);
        if (RB_TYPE_P(part, T_STRING))
            *length += (size_t) RSTRING_LEN(part);
        else if (!NIL_P(part))
            return part;
    }
    return Qnil;
}

/* Writes parts that there is room for. */
static fl_status write_all(fl_exchange *exchange, VALUE parts) {
    fl_status outcome = FL_OK;
    for (long i = 0; outcome == FL_OK && i < RARRAY_LEN(parts); i++) {
        VALUE part = RARRAY_AREF(parts, i);
        size_t used;
        if (!NIL_P(part))
            outcome = fl_exchange_write(exchange, RSTRING_PTR(part), (size_t) RSTRING_LEN(part), &used);
    }
    return outcome;
}

/* Whether a file of `size` bytes may be the whole body: it must be what the head announces. */
static bool may_be_file(const fl_response *response, size_t size) {
    return response->framing == FL_FRAMING_UNDECIDED && !response->switches_protocol && !response->has_trailers &&
           (!response->has_length || response->length_left == size);
}

/* Passes the request to the core, which sends the file. False: the caller has to write the parts. */
static bool pass_file(VALUE object, fl_exchange *exchange, int descriptor, size_t size) {
    fl_ruby_request *self = fl_ruby_request_get(object);
    int copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (copy < 0 || fl_file_body_begin(exchange, copy, 0, size) != FL_OK)
        return false;
    leave(self, exchange);
    self->bytes_sent = size;
    return true;
}

/* `descriptor`: of a file with the bytes of the body; -1: none. */
static VALUE respond(VALUE object, VALUE status, VALUE headers, VALUE body, int descriptor) {
    if (fl_ruby_request_get(object)->hijacked)
        return end_if_open(object, fl_exchange_finish), Qtrue;
    begin(object, status, headers);
    fl_name_route(object);
    struct stat file;
    size_t length = 0;
    fl_exchange *exchange = fl_lock_open_request(object); /* from here on no other thread can change the body */
    fl_context *context = exchange->context;
    bool is_file = descriptor >= 0 && fstat(descriptor, &file) == 0 && S_ISREG(file.st_mode) &&
                   may_be_file(&exchange->response, length = (size_t) file.st_size);
    bool sends_file = is_file && exchange->request.complete; /* else the body may still read the rest */
    bool whole = RB_TYPE_P(body, T_ARRAY) && !exchange->response.switches_protocol && !exchange->response.has_trailers;
    VALUE wrong = whole ? measure(body, &length) : Qnil;
    if (!NIL_P(wrong)) {
        fl_unlock(context);
        Check_Type(wrong, T_STRING);
    }
    fl_status outcome = fl_exchange_head_end(exchange, whole || is_file ? (int64_t) length : -1);
    bool empty = outcome == FL_OK && (exchange->response.framing == FL_FRAMING_NONE || (sends_file && length == 0));
    bool passed = sends_file && outcome == FL_OK && !empty && exchange->connection != NULL &&
                  pass_file(object, exchange, descriptor, length);
    whole = empty || (whole && outcome == FL_OK && length <= fl_exchange_room(exchange));
    if (whole && !empty)
        outcome = write_all(exchange, body);
    if (whole && outcome == FL_OK)
        fl_end_request(object, fl_exchange_finish);
    fl_unlock(context);
    fl_check_request(object, outcome);
    if (whole || passed)
        fl_wake_driver(object);
    RB_GC_GUARD(body);
    return whole || passed ? Qtrue : Qfalse;
}

/* respond(status, headers, body): returns true if it has staged the whole response: if the body is an Array that fits into the response
 * buffer, is not sent (HEAD, 204, 304), or the app has hijacked the connection. Otherwise it only begins the head, and returns false:
 * the caller writes the parts and finishes, or checks takes_over?. */
static VALUE request_respond(VALUE object, VALUE status, VALUE headers, VALUE body) {
    return respond(object, status, headers, body, -1);
}

/* respond_with_file(status, headers, body, descriptor): the same for a body, no Array, whose bytes are those of the open file. Returns
 * true if the core sends them, for which it needs neither the descriptor nor the fiber any more. */
static VALUE request_respond_with_file(VALUE object, VALUE status, VALUE headers, VALUE body, VALUE descriptor) {
    return respond(object, status, headers, body, NUM2INT(descriptor));
}

/* A socket that the app has taken over. */
typedef struct detached {
    int descriptor;
    bool is_unix;
    fl_slab *staging;
    fl_buffer unsent, ahead;
} detached;

static VALUE taken_out(fl_slab *staging, fl_buffer *buffer) {
    VALUE bytes = rb_str_new(buffer->length > 0 ? fl_buffer_at(buffer) : "", buffer->length);
    fl_buffer_free(staging, buffer);
    return bytes;
}

/* The buffers are no longer the core's; the GVL is enough to free them. */
static VALUE hand_over(VALUE data) {
    detached *detached = (struct detached *) data;
    VALUE to_send = taken_out(detached->staging, &detached->unsent), read = taken_out(detached->staging, &detached->ahead);
    return rb_ary_new_from_args(4, INT2FIX(detached->descriptor), detached->is_unix ? Qtrue : Qfalse, to_send, read);
}

/* Detaches the socket for the app: its descriptor, whether it is a Unix socket, what must be sent first, and what was read ahead. The
 * request still has to be finished. */
static VALUE request_detach_socket(VALUE object) {
    fl_exchange *exchange = fl_lock_open_request(object);
    fl_context *context = exchange->context;
    bool gone = exchange->connection == NULL;
    /* An encrypted connection stays with the loop, and the app gets one end of a socket pair. */
    bool is_unix = exchange->client.family == AF_UNIX || (!gone && !exchange->connection->transport.kind->raw);
    detached detached = {.is_unix = is_unix, .staging = &context->staging};
    detached.descriptor = fl_exchange_hijack(exchange, &detached.unsent, &detached.ahead);
    fl_unlock(context);
    if (detached.descriptor < 0 && gone)
        fl_raise(FL_CLOSED);
    if (detached.descriptor < 0)
        rb_raise(rb_eIOError, "the connection can no longer be hijacked: a response has begun, or a chunked body has not been "
                              "read to its end");
    fl_ruby_request_get(object)->hijacked = true;
    rb_update_max_fd(detached.descriptor);
    int state;
    VALUE parts = rb_protect(hand_over, (VALUE) &detached, &state);
    if (state != 0) { /* no memory */
        fl_buffer_free(detached.staging, &detached.unsent);
        fl_buffer_free(detached.staging, &detached.ahead);
        close(detached.descriptor);
        rb_jump_tag(state);
    }
    return parts;
}

static VALUE request_finish(VALUE self) {
    return end_if_open(self, fl_exchange_finish);
}

static VALUE request_abandon(VALUE self) {
    return end_if_open(self, fl_exchange_abandon);
}

/* limit_time(seconds): the time limit from now on, and from each piece of a body on; nil: none. */
static VALUE request_limit_time(VALUE self, VALUE seconds) {
    uint64_t microseconds = fl_microseconds(seconds, "the time of a request");
    if (microseconds == 0 && !NIL_P(seconds)) /* the core would take 0 as no limit */
        rb_raise(rb_eArgError, "the time of a request must be more than 0 and at most %d seconds, not %" PRIsVALUE,
                 FL_MAX_SECONDS, seconds);
    fl_exchange *exchange = fl_lock_request(self);
    if (exchange == NULL || exchange->context == NULL)
        return Qnil;
    fl_exchange_set_time_limit(exchange, microseconds);
    fl_unlock(exchange->context);
    return Qnil;
}

/* Whether its time limit has passed, or that of the server's end: then the core has sent 504 or 503, or cut the client off. */
static VALUE request_timed_out_p(VALUE object) {
    fl_ruby_request *self = fl_ruby_request_get(object);
    return self->timed_out || (self->exchange != NULL && self->exchange->timing.timed_out) ? Qtrue : Qfalse;
}

/* Whether the server has ended the response, since it stops: its client connects again, or timed_out?. */
static VALUE request_stopped_p(VALUE object) {
    return fl_is_stopped(fl_ruby_request_get(object)) ? Qtrue : Qfalse;
}

/* Whether it is a call by MCP, which goes on if its client disconnects. */
static VALUE request_mcp_call_p(VALUE object) {
    const fl_exchange *exchange = fl_ruby_request_get(object)->exchange;
    return exchange != NULL && exchange->request.mcp_call ? Qtrue : Qfalse;
}

/* Whether anything of the response was sent. */
static VALUE request_committed_p(VALUE object) {
    fl_ruby_request *self = fl_ruby_request_get(object);
    return self->hijacked || self->exchange == NULL || self->exchange->response.committed ? Qtrue : Qfalse;
}

static VALUE request_answered_p(VALUE object) {
    return fl_ruby_request_get(object)->exchange == NULL ? Qtrue : Qfalse;
}

static VALUE request_status(VALUE object) {
    return INT2NUM(fl_ruby_request_get(object)->code);
}

static VALUE request_bytes_sent(VALUE object) {
    return ULL2NUM(fl_ruby_request_get(object)->bytes_sent);
}

void fl_init_response(VALUE request) {
    id_each = rb_intern("each");
    id_to_i = rb_intern("to_i");
    word_upgrade = fl_kept_string("upgrade");
    word_connection = fl_kept_string("connection");
    rb_define_method(request, "respond", request_respond, 3);
    rb_define_method(request, "respond_with_file", request_respond_with_file, 4);
    rb_define_method(request, "finish", request_finish, 0);
    rb_define_method(request, "abandon", request_abandon, 0);
    rb_define_method(request, "detach_socket", request_detach_socket, 0);
    rb_define_method(request, "limit_time", request_limit_time, 1);
    rb_define_method(request, "timed_out?", request_timed_out_p, 0);
    rb_define_method(request, "stopped?", request_stopped_p, 0);
    rb_define_method(request, "mcp_call?", request_mcp_call_p, 0);
    rb_define_method(request, "committed?", request_committed_p, 0);
    rb_define_method(request, "answered?", request_answered_p, 0);
    rb_define_method(request, "status", request_status, 0);
    rb_define_method(request, "bytes_sent", request_bytes_sent, 0);
}
