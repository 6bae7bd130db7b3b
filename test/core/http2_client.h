/* A client of HTTP/2 for tests: a session of nghttp2 over a socket, with what it has received by stream. */
#ifndef FL_TEST_HTTP2_CLIENT_H
#define FL_TEST_HTTP2_CLIENT_H

#include "peer.h"
#include <nghttp2/nghttp2.h>

enum { H2_STREAMS = 256 };

typedef struct h2_stream {
    int status;        /* of the last head */
    int interim;       /* of an interim response; 0: none */
    char fields[2048]; /* "name: value" LF, trailers too */
    char *body;
    size_t size;
    bool ended, closed;
    uint32_t code; /* of RST_STREAM or NO_ERROR, once closed */
    const char *upload; /* bytes of the request's body that are left */
    size_t left;
    bool holds; /* the body does not end yet */
} h2_stream;

typedef struct h2_client {
    nghttp2_session *session;
    int descriptor;
    h2_stream streams[H2_STREAMS]; /* by id / 2 */
    int32_t order[H2_STREAMS * 8]; /* ids of streams, as their DATA came */
    unsigned order_count;
    unsigned goaways;
    uint32_t goaway_code;
    int32_t goaway_last;
    bool ended; /* the server has closed the connection */
    bool bytewise;
} h2_client;

static inline h2_stream *h2_at(h2_client *client, int32_t id) {
    return &client->streams[id / 2 % H2_STREAMS];
}

static inline int h2_on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_size,
                               const uint8_t *value, size_t value_size, uint8_t flags, void *data) {
    (void) session, (void) flags;
    h2_stream *stream = h2_at(data, frame->hd.stream_id);
    if (name_size == 7 && memcmp(name, ":status", 7) == 0) {
        int status = atoi((const char *) value);
        *(status < 200 ? &stream->interim : &stream->status) = status;
        return 0;
    }
    size_t used = strlen(stream->fields);
    snprintf(stream->fields + used, sizeof stream->fields - used, "%.*s: %.*s\n", (int) name_size, (const char *) name,
             (int) value_size, (const char *) value);
    return 0;
}

static inline int h2_on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes, size_t size, void *data) {
    (void) session, (void) flags;
    h2_client *client = data;
    h2_stream *stream = h2_at(client, id);
    stream->body = realloc(stream->body, stream->size + size + 1);
    memcpy(stream->body + stream->size, bytes, size);
    stream->size += size;
    stream->body[stream->size] = 0;
    if (client->order_count < H2_STREAMS * 8)
        client->order[client->order_count++] = id;
    return 0;
}

static inline int h2_on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *data) {
    (void) session;
    h2_client *client = data;
    if (frame->hd.type == NGHTTP2_GOAWAY) {
        client->goaways++;
        client->goaway_code = frame->goaway.error_code;
        client->goaway_last = frame->goaway.last_stream_id;
    } else if (frame->hd.stream_id > 0 && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) &&
               (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA)) {
        h2_at(client, frame->hd.stream_id)->ended = true;
    }
    return 0;
}

static inline int h2_on_close(nghttp2_session *session, int32_t id, uint32_t code, void *data) {
    (void) session;
    h2_stream *stream = h2_at(data, id);
    stream->closed = true;
    stream->code = code;
    return 0;
}

static inline ssize_t h2_upload(nghttp2_session *session, int32_t id, uint8_t *room, size_t most, uint32_t *flags,
                                nghttp2_data_source *source, void *data) {
    (void) session, (void) source;
    h2_stream *stream = h2_at(data, id);
    size_t size = stream->left < most ? stream->left : most;
    if (size == 0 && stream->holds)
        return NGHTTP2_ERR_DEFERRED;
    if (size > 0)
        memcpy(room, stream->upload, size);
    stream->upload += size;
    stream->left -= size;
    if (stream->left == 0 && !stream->holds)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t) size;
}

/* `window`: of each stream; 0: the usual. */
static inline h2_client *h2_client_new(peer_server *server, uint32_t window) {
    h2_client *client = calloc(1, sizeof *client);
    client->descriptor = client_socket(socket(AF_INET, SOCK_STREAM, 0));
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *options;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_option_new(&options);
    nghttp2_option_set_no_http_messaging(options, 1); /* sends what it is told to */
    nghttp2_option_set_no_auto_window_update(options, window != 0);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, h2_on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, h2_on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, h2_on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, h2_on_close);
    nghttp2_session_client_new2(&client->session, callbacks, client, options);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_option_del(options);
    nghttp2_settings_entry entry = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, window};
    nghttp2_submit_settings(client->session, NGHTTP2_FLAG_NONE, &entry, window != 0);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_port = htons((uint16_t) server->port)};
    int one = 1;
    setsockopt(client->descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    connect(client->descriptor, (struct sockaddr *) &address, sizeof address);
    return client;
}

static inline void h2_client_free(h2_client *client) {
    for (int i = 0; i < H2_STREAMS; i++) free(client->streams[i].body);
    nghttp2_session_del(client->session);
    close(client->descriptor);
    free(client);
}

static inline void h2_write(h2_client *client, const uint8_t *bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t count = send(client->descriptor, bytes + done, size - done, MSG_NOSIGNAL);
        if (count < 0 && (errno == EAGAIN || errno == ENOTCONN))
            continue;
        if (count < 0)
            return; /* the server has gone */
        done += (size_t) count;
    }
}

/* Sends what the session has, and reads what has come. */
static inline void h2_exchange_bytes(h2_client *client, fl_loop *loop) {
    const uint8_t *bytes;
    for (ssize_t size; (size = nghttp2_session_mem_send(client->session, &bytes)) > 0;) {
        if (!client->bytewise) {
            h2_write(client, bytes, (size_t) size);
            continue;
        }
        for (ssize_t i = 0; i < size; i++) {
            h2_write(client, bytes + i, 1);
            fl_loop_wait(loop, 0);
            fl_loop_turn(loop);
        }
    }
    uint8_t room[16384];
    for (ssize_t count; (count = recv(client->descriptor, room, sizeof room, 0)) >= 0 || errno == ECONNRESET;) {
        client->ended |= count <= 0;
        if (count <= 0)
            break;
        nghttp2_session_mem_recv(client->session, room, (size_t) count);
    }
}

#define H2_UNTIL(client, loop, condition)                                                                      \
    do {                                                                                                       \
        uint64_t give_up_ = fl_clock() + 20 * SECOND;                                                          \
        bool came_ = false;                                                                                    \
        for (h2_exchange_bytes(client, loop); !(came_ = (condition)) && fl_clock() < give_up_;                 \
             h2_exchange_bytes(client, loop)) {                                                                \
            fl_loop_wait(loop, MILLISECOND);                                                                   \
            fl_loop_turn(loop);                                                                                \
        }                                                                                                      \
        if (!came_)                                                                                            \
            test_fail(__FILE__, __LINE__, "never became true: %s", #condition);                                \
    } while (0)

/* Exchanges bytes until both sides are idle. */
static inline void h2_turn(h2_client *client, fl_loop *loop) {
    for (int i = 0; i < 8; i++) {
        h2_exchange_bytes(client, loop);
        turn(loop);
    }
    h2_exchange_bytes(client, loop);
}

#define H2_FIELD(name_, value_)                                                                                \
    (nghttp2_nv) {                                                                                             \
        .name = (uint8_t *) (name_), .namelen = strlen(name_), .value = (uint8_t *) (value_),                  \
        .valuelen = strlen(value_)                                                                             \
    }

/* `upload`: the body; NULL: none. `holds`: it does not end yet. Further fields: up to four names and values. */
static inline int32_t h2_request(h2_client *client, const char *method, const char *path, const char *upload, bool holds,
                                 const char *const *more) {
    nghttp2_nv fields[8] = {H2_FIELD(":method", method), H2_FIELD(":scheme", "http"), H2_FIELD(":authority", "a"),
                            H2_FIELD(":path", path)};
    size_t count = 4;
    for (; more != NULL && *more != NULL; more += 2) fields[count++] = H2_FIELD(more[0], more[1]);
    int32_t id = nghttp2_session_get_next_stream_id(client->session) > 0
                     ? (int32_t) nghttp2_session_get_next_stream_id(client->session)
                     : 1;
    h2_stream *stream = h2_at(client, id);
    stream->upload = upload;
    stream->left = upload == NULL ? 0 : strlen(upload);
    stream->holds = holds;
    nghttp2_data_provider provider = {.read_callback = h2_upload};
    return nghttp2_submit_request(client->session, NULL, fields, count, upload != NULL ? &provider : NULL, NULL);
}

static inline int32_t h2_get(h2_client *client, const char *path) {
    return h2_request(client, "GET", path, NULL, false, NULL);
}

/* More of a body that holds. */
static inline void h2_continue(h2_client *client, int32_t id, const char *upload, bool holds) {
    h2_stream *stream = h2_at(client, id);
    stream->upload = upload;
    stream->left = strlen(upload);
    stream->holds = holds;
    nghttp2_session_resume_data(client->session, id);
}

#endif
