/* A loop with fake siblings: figures in the shared page, and the receiving ends of their sockets. */
#ifndef FL_TEST_SIBLINGS_H
#define FL_TEST_SIBLINGS_H

#include "peer.h"
#include "watch/stalls.h"

enum { MAX_CLIENTS = 128, OURS = 0, USUAL = 10 * MILLISECOND };

typedef struct scene {
    peer_server server;
    fl_loop *loop;
    fl_shared_page *page;
    int count, clients[MAX_CLIENTS], client_count;
    int sending[FL_MAX_SIBLINGS], receiving[FL_MAX_SIBLINGS];
} scene;

static inline void publish(scene *scene, int sibling, fl_slot_field field, int64_t value) {
    fl_slot_set(&scene->page->slots[sibling], field, value);
}

/* Starts `count` workers including ours. All of them have room and empty queues. */
static inline scene begin(int count) {
    scene scene = {.server = server_start(), .count = count, .page = fl_shared_page_open((size_t) count)};
    scene.loop = scene.server.loop;
    for (int i = 0; i < count; i++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) < 0)
            abort();
        scene.sending[i] = client_socket(pair[0]);
        scene.receiving[i] = client_socket(pair[1]);
        publish(&scene, i, FL_SLOT_state, FL_WORKER_SERVING);
        publish(&scene, i, FL_SLOT_room, 100);
        publish(&scene, i, FL_SLOT_heartbeat_ms, (int64_t) (fl_clock() / 1000) + 60000); /* responsive for a minute */
    }
    CHECK_NUMBER(FL_OK, fl_loop_join(scene.loop, scene.page, OURS, -1, scene.sending, count));
    return scene;
}

static inline void end(scene *scene) {
    for (int i = 0; i < scene->client_count; i++) close(scene->clients[i]);
    for (int i = 0; i < scene->count; i++) {
        close(scene->sending[i]);
        close(scene->receiving[i]);
    }
    server_stop(&scene->server);
    fl_shared_page_close(scene->page);
}

/* Queues requests for /1, /2, … */
static inline void queue_requests(scene *scene, int requests) {
    for (int i = 1; i <= requests; i++) {
        char text[64];
        int pair[2], size = snprintf(text, sizeof text, "GET /%d HTTP/1.1\r\nHost: a\r\n\r\n", i);
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
            abort();
        scene->clients[scene->client_count++] = pair[1];
        scene->loop->context.now = fl_clock();
        fl_connection_open(&scene->loop->context, scene->loop->accepting.listeners, client_socket(pair[0]), text, (size_t) size);
    }
    CHECK_NUMBER(requests, scene->loop->ready.count);
    scene->loop->pace.interval = USUAL;
}

/* The requests that a sibling has received, as the digits of their paths. */
static inline const char *sent_to(scene *scene, int sibling) {
    static char paths[MAX_CLIENTS];
    char message[512];
    size_t count = 0;
    for (ssize_t size; (size = recv(scene->receiving[sibling], message, sizeof message - 1, 0)) > 0;) {
        message[size] = 0;
        char *target = memmem(message, (size_t) size, "GET /", 5);
        paths[count++] = target == NULL ? '?' : target[5];
    }
    paths[count] = 0;
    return paths;
}

#endif
