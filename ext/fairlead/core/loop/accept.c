/* The listeners: accepts connections, or leaves them to siblings. Part of the loop: its contract is in loop.h. */
#include "base/descriptors.h"
#include "base/platform.h"
#include "http1/protocol.h"
#include "http2/protocol.h"
#include "loop.h"
#include "internal.h"
#include "siblings/handoff.h"

#include <stdlib.h>
#include <sys/resource.h>

enum {
    ACCEPTS_BEFORE_LEAVING = 1024,
    LISTEN_AGAIN = 100000, /* microseconds, after the descriptors ran out */
    LONG_SILENT = 1000000, /* microseconds, after which a silent connection may be closed: for its descriptor, or to drain */
    UNEVEN = 2,            /* how much more load must be here than at a sibling, for a new connection to go there */
    MAX_SPARE = 128,       /* descriptors that are left to the app */
};

static const fl_protocol *const protocols[] = {&fl_http1_protocol, FL_HTTP2, NULL};

fl_status fl_loop_listen(fl_loop *loop, int descriptor, bool unix_socket) {
    fl_listener *listener = calloc(1, sizeof *listener);
    if (listener == NULL)
        return FL_NO_MEMORY;
    listener->source = FL_SOURCE_LISTENER;
    listener->transport = &fl_transport_plain;
    listener->protocols = protocols;
    listener->descriptor = descriptor;
    listener->unix_socket = unix_socket;
    listener->watched = true;
    listener->address_size = sizeof listener->address;
    if (getsockname(descriptor, (struct sockaddr *) &listener->address, &listener->address_size) < 0)
        listener->address.ss_family = AF_UNSPEC;
    fl_descriptor_track(descriptor);
    int one = 1;
    if (!unix_socket) { /* accepted connections inherit these options */
        setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        fl_limit_unsent(descriptor, FL_MAX_UNSENT);
    }
    if (fl_close_on_exec_nonblocking(descriptor) < 0 || fl_poll_add_listener(&loop->context.poll, descriptor, listener) < 0) {
        free(listener);
        return FL_SYSTEM;
    }
    listener->index = loop->accepting.listeners == NULL ? 0 : loop->accepting.listeners->index + 1;
    listener->next = loop->accepting.listeners;
    loop->accepting.listeners = listener;
    return FL_OK;
}

void fl_loop_serve_tls(fl_loop *loop, fl_tls *tls) {
    fl_listener *listener = loop->accepting.listeners;
    listener->transport = &fl_transport_tls;
    listener->configuration = tls;
    fl_tls_set_protocols(tls, listener->protocols);
}

void fl_loop_watch_listeners(fl_loop *loop, bool watch) {
    for (fl_listener *listener = loop->accepting.listeners; listener != NULL; listener = listener->next) {
        bool wanted = watch && !(loop->accepting.handshakes_paused && listener->transport->handshake != NULL);
        if (listener->watched == wanted)
            continue;
        if (!wanted)
            fl_poll_remove(&loop->context.poll, listener->descriptor);
        listener->watched = wanted && fl_poll_add_listener(&loop->context.poll, listener->descriptor, listener) == 0;
        if (wanted && !listener->watched) /* the kernel lacks memory, or its limit is reached */
            loop->accepting.again_at = loop->context.now + LISTEN_AGAIN;
    }
    loop->context.timer_stale |= loop->accepting.again_at != 0;
}

/* Limits the connections once the first has got its descriptor: as the lowest free one, its number says how many are in use. The app
 * gets some of those that are left. */
static void count_descriptors(fl_loop *loop, int first) {
    if (loop->accepting.most != 0)
        return;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur > UINT32_MAX)
        limit.rlim_cur = UINT32_MAX;
    rlim_t left = limit.rlim_cur > (rlim_t) first ? limit.rlim_cur - (rlim_t) first : 0;
    rlim_t spare = left / 8 < MAX_SPARE ? left / 8 : MAX_SPARE;
    loop->accepting.most = left > spare + 1 ? (uint32_t) (left - spare) : 1;
}

int64_t fl_loop_room(const fl_loop *loop) {
    if (loop->accepting.again_at != 0)
        return 0;
    if (loop->accepting.most == 0)
        return INT32_MAX;
    uint32_t used = loop->context.counts.connections + loop->context.relays.count;
    return loop->accepting.most > used ? loop->accepting.most - used : 0;
}

static void publish_room(fl_loop *loop) {
    if (loop->siblings.slot != NULL)
        fl_slot_set(loop->siblings.slot, FL_SLOT_room, fl_loop_room(loop));
}

/* Stops watching the listeners for a while: they stay readable, and the loop would spin. */
static void suspend_listeners(fl_loop *loop) {
    if (loop->context.draining)
        return;
    fl_loop_watch_listeners(loop, false);
    loop->accepting.again_at = loop->context.now + LISTEN_AGAIN;
    loop->context.timer_stale = true;
    publish_room(loop);
}

void fl_loop_close_reserve(fl_loop *loop) {
    if (loop->accepting.reserve >= 0)
        close(loop->accepting.reserve);
    loop->accepting.reserve = -1;
}

void fl_loop_open_reserve(fl_loop *loop) {
    if (loop->siblings.slot == NULL || loop->accepting.reserve >= 0)
        return;
    loop->accepting.reserve = fcntl(loop->context.poll.descriptor, F_DUPFD_CLOEXEC, 0);
    if (loop->accepting.reserve < 0)
        suspend_listeners(loop);
}

void fl_loop_resume_accepting(fl_loop *loop) {
    if (!loop->accepting.paused && loop->accepting.again_at == 0 && !loop->context.draining && !loop->lanes.dedicated)
        fl_loop_watch_listeners(loop, true);
}

void fl_loop_listen_again(fl_loop *loop) {
    if (loop->accepting.again_at > loop->context.now || loop->context.draining)
        return;
    loop->accepting.again_at = 0;
    fl_loop_open_reserve(loop);
    fl_loop_resume_accepting(loop);
    publish_room(loop);
}

bool fl_loop_has_lasted(const fl_loop *loop, const fl_deadline *deadline) {
    return loop->context.now + loop->context.limits.deadlines[deadline->kind] >= deadline->at + LONG_SILENT;
}

/* The oldest connection that is not open yet, though it has had LONG_SILENT for that. NULL: none. */
static fl_connection *find_unopened(const fl_loop *loop) {
    const fl_deadline *deadline = loop->context.deadlines[FL_DEADLINE_HEAD].first;
    for (; deadline != NULL && fl_loop_has_lasted(loop, deadline); deadline = deadline->after) {
        fl_connection *connection = fl_connection_of_deadline(deadline);
        if (connection->state == FL_CONNECTION_OPENING && !connection->shakes)
            return connection;
    }
    return NULL;
}

/* The longest idle connection, if it has been silent for LONG_SILENT. NULL: none. */
static fl_connection *find_idle(const fl_loop *loop) {
    const fl_deadline *first = loop->context.deadlines[FL_DEADLINE_IDLE].first;
    fl_connection *connection = first == NULL ? NULL : fl_connection_of_deadline(first);
    return connection != NULL && fl_connection_is_idle(connection) && fl_loop_has_lasted(loop, first) ? connection : NULL;
}

/* Closes a connection that has long been silent, for a new one. */
static bool close_silent(fl_loop *loop) {
    fl_connection *silent = find_unopened(loop);
    if (silent == NULL)
        silent = find_idle(loop);
    if (silent != NULL)
        fl_connection_close(silent);
    return silent != NULL;
}

static fl_connection *open_connection(fl_loop *loop, fl_listener *listener, int descriptor, const char *bytes, size_t size) {
    count_descriptors(loop, descriptor);
    return fl_connection_open(&loop->context, listener, descriptor, bytes, size);
}

/* Hands a new connection to a sibling that has less to do: the kernel wakes any worker, and would leave one with most of a crowd that
 * comes at once. If this worker has no room, any sibling will do. */
static bool pass_on(fl_loop *loop, const fl_listener *listener, int descriptor) {
    const fl_siblings *siblings = &loop->siblings;
    const fl_counts *counts = &loop->context.counts;
    if (siblings->slot == NULL)
        return false;
    int64_t own = (int64_t) counts->connections + counts->fresh + counts->in_flight + loop->ready.count, least = 0;
    bool full = fl_loop_room(loop) == 0;
    int sibling = own < UNEVEN && !full ? -1 : fl_siblings_least_loaded(siblings, &least);
    if (sibling < 0 || (own < least + UNEVEN && !full))
        return false;
    return fl_handoff_forward(siblings, sibling, &(fl_handover) {.listener = listener->index, .descriptor = descriptor});
}

static void take_connection(fl_loop *loop, fl_listener *listener, int descriptor) {
    if (!pass_on(loop, listener, descriptor))
        open_connection(loop, listener, descriptor, "", 0);
}

/* Suspends the listeners, and gives siblings what is in the backlog, as long as they have room: only this worker may have been woken
 * for it. */
static void leave_to_siblings(fl_loop *loop, fl_listener *listener) {
    suspend_listeners(loop);
    for (int i = 0; i < ACCEPTS_BEFORE_LEAVING && fl_siblings_choose(&loop->siblings) >= 0; i++) {
        fl_loop_close_reserve(loop);
        int descriptor = fl_accept(listener->descriptor, NULL, NULL);
        if (descriptor < 0)
            break;
        take_connection(loop, listener, descriptor);
    }
    fl_loop_open_reserve(loop);
}

void fl_loop_accept(fl_loop *loop, fl_listener *listener, int most) {
    for (int i = 0; i < most; i++) {
        bool full = fl_loop_room(loop) == 0;
        int descriptor = full ? -1 : fl_accept(listener->descriptor, NULL, NULL);
        if (descriptor >= 0) {
            take_connection(loop, listener, descriptor);
        } else if (full || errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            if (loop->accepting.again_at != 0 || fl_siblings_choose(&loop->siblings) >= 0 || !close_silent(loop)) {
                leave_to_siblings(loop, listener);
                return;
            }
        } else if (errno != ECONNABORTED && errno != EINTR) {
            return;
        }
    }
}

static void open_received(fl_loop *loop, const fl_handover *handover) {
    int sibling = fl_loop_room(loop) == 0 ? fl_siblings_choose(&loop->siblings) : -1;
    if (sibling >= 0 && fl_handoff_forward(&loop->siblings, sibling, handover))
        return;
    fl_listener *listener = loop->accepting.listeners;
    while (listener != NULL && listener->index != handover->listener) listener = listener->next;
    fl_identity *identity = fl_identity_new(handover->identity, handover->identity_size);
    loop->context.handed = (fl_handed) {handover->arrived, handover->hand_overs, handover->client, handover->relayed, identity};
    if (listener == NULL || fl_close_on_exec_nonblocking(handover->descriptor) < 0)
        close(handover->descriptor);
    else if (open_connection(loop, listener, handover->descriptor, handover->bytes, handover->size) != NULL &&
             handover->arrived != 0)
        loop->context.counts.received++;
    loop->context.handed = (fl_handed) {0};
    fl_identity_release(identity);
}

void fl_loop_receive(fl_loop *loop) {
    fl_buffer room = {0};
    if (loop->accepting.ended || fl_buffer_reserve(&loop->context.slab, &room, FL_HANDOFF_ROOM) != FL_OK)
        return;
    fl_handover handover;
    do {
        fl_loop_close_reserve(loop); /* without a free descriptor, the received one would be lost with its message */
        bool received = fl_handoff_receive(&loop->siblings, fl_buffer_room(&room), &handover);
        fl_loop_open_reserve(loop);
        if (!received)
            break;
        if (handover.descriptor >= 0)
            open_received(loop, &handover);
        fl_handoff_received(&loop->siblings, &handover); /* afterwards: it may count twice for a moment, but always counts */
    } while (fl_handoff_is_pending(&loop->siblings));
    fl_buffer_free(&loop->context.slab, &room);
}

void fl_loop_stop_accepting(fl_loop *loop) {
    /* Only this worker may have been woken for what is in the backlog. */
    for (fl_listener *listener = loop->accepting.listeners; listener != NULL && !loop->lanes.dedicated;
         listener = listener->next)
        fl_loop_accept(loop, listener, ACCEPTS_BEFORE_LEAVING);
    fl_loop_watch_listeners(loop, false);
}

void fl_loop_pause_accepting(fl_loop *loop, bool pause) {
    if (loop->accepting.paused == pause || loop->context.draining || loop->lanes.dedicated || loop->accepting.again_at != 0)
        return;
    loop->accepting.paused = pause;
    if (pause)
        fl_loop_stop_accepting(loop);
    else
        fl_loop_resume_accepting(loop);
}
