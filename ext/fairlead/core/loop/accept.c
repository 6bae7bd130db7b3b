/* The listeners: what is accepted of each, and when they are left alone. Part of the loop: its contract is in loop.h. */
#include "base/descriptors.h"
#include "base/platform.h"
#include "http1/protocol.h"
#include "loop.h"
#include "parts.h"
#include "siblings/handoff.h"

#include <stdlib.h>
#include <sys/resource.h>

enum {
    ACCEPTS_BEFORE_LEAVING = 1024,
    /* Bytes that the kernel keeps for a client who does not take them: by itself it keeps 4 MB, which are copied and thrown
     * away for who never reads. Enough of them are left, when we are told of room, for a moment in which we do not come. */
    MOST_UNSENT = 512 << 10,
    LISTEN_AGAIN = 100000, /* microseconds, after the descriptors ran out */
    LONG_SILENT = 1000000, /* microseconds, after which an idle connection may be closed for want of descriptors */
    UNEVEN = 2,            /* so much more than a sibling has must be here, for a new connection to go there */
    MOST_SPARE = 128,      /* descriptors that are left to the app */
};

static const fl_protocol *const protocols[] = {&fl_http1_protocol, NULL};

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
    if (!unix_socket) { /* accepted connections inherit it */
        setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        fl_limit_unsent(descriptor, MOST_UNSENT);
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

void fl_loop_watch_listeners(fl_loop *loop, bool watch) {
    for (fl_listener *listener = loop->accepting.listeners; listener != NULL; listener = listener->next) {
        if (listener->watched == watch)
            continue;
        if (!watch)
            fl_poll_remove(&loop->context.poll, listener->descriptor);
        listener->watched = watch && fl_poll_add_listener(&loop->context.poll, listener->descriptor, listener) == 0;
        if (watch && !listener->watched) /* the kernel has no memory, or lets nobody watch more: later */
            loop->accepting.again_at = loop->context.now + LISTEN_AGAIN;
    }
    loop->context.timer_stale |= loop->accepting.again_at != 0;
}

/* The first connection has got this descriptor: the lowest that is free, so many are in use already. The app needs some of
 * those that are left. */
static void count_descriptors(fl_loop *loop, int first) {
    if (loop->accepting.most != 0)
        return;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur > UINT32_MAX)
        limit.rlim_cur = UINT32_MAX;
    rlim_t left = limit.rlim_cur > (rlim_t) first ? limit.rlim_cur - (rlim_t) first : 0;
    rlim_t spare = left / 8 < MOST_SPARE ? left / 8 : MOST_SPARE;
    loop->accepting.most = left > spare + 1 ? (uint32_t) (left - spare) : 1;
}

int64_t fl_loop_room(const fl_loop *loop) {
    if (loop->accepting.again_at != 0)
        return 0;
    if (loop->accepting.most == 0)
        return INT32_MAX;
    return loop->accepting.most > loop->context.counts.connections ? loop->accepting.most - loop->context.counts.connections
                                                                   : 0;
}

static void show_room(fl_loop *loop) {
    if (loop->siblings.slot != NULL)
        fl_slot_set(loop->siblings.slot, FL_SLOT_room, fl_loop_room(loop));
}

/* The listener stays readable: look away for a while instead of spinning. */
static void look_away(fl_loop *loop) {
    if (loop->context.draining)
        return;
    fl_loop_watch_listeners(loop, false);
    loop->accepting.again_at = loop->context.now + LISTEN_AGAIN;
    loop->context.timer_stale = true;
    show_room(loop);
}

void fl_loop_give_up_reserve(fl_loop *loop) {
    if (loop->accepting.reserve >= 0)
        close(loop->accepting.reserve);
    loop->accepting.reserve = -1;
}

void fl_loop_keep_reserve(fl_loop *loop) {
    if (loop->siblings.slot == NULL || loop->accepting.reserve >= 0)
        return;
    loop->accepting.reserve = fcntl(loop->context.poll.descriptor, F_DUPFD_CLOEXEC, 0);
    if (loop->accepting.reserve < 0)
        look_away(loop);
}

void fl_loop_listen_again(fl_loop *loop) {
    if (loop->accepting.again_at > loop->context.now || loop->context.draining)
        return;
    loop->accepting.again_at = 0;
    fl_loop_keep_reserve(loop);
    if (loop->accepting.again_at == 0 && !loop->accepting.paused && !loop->lanes.dedicated)
        fl_loop_watch_listeners(loop, true);
    show_room(loop);
}

/* A client that has long been silent makes room for a new one. */
static bool make_room(fl_loop *loop) {
    fl_deadline *first = loop->context.deadlines[FL_DEADLINE_IDLE].first;
    fl_connection *silent = first == NULL ? NULL : fl_connection_of_deadline(first);
    uint64_t timeout = loop->context.limits.deadlines[FL_DEADLINE_IDLE];
    if (silent == NULL || !fl_connection_is_idle(silent) || loop->context.now + timeout < first->at + LONG_SILENT)
        return false;
    fl_connection_close(silent);
    return true;
}

static fl_connection *open_connection(fl_loop *loop, fl_listener *listener, int descriptor, const char *bytes, size_t size) {
    count_descriptors(loop, descriptor);
    return fl_connection_open(&loop->context, listener, descriptor, bytes, size);
}

/* A connection that has just been accepted goes to a sibling that has less to do than we, if there is one: the kernel
 * wakes whom it likes, and would leave one worker with most of a crowd that comes at once. If we have no room, to any. */
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

/* A wake-up meant for all may have come to us alone: what is there goes to siblings, as long as they have room. */
static void leave_to_siblings(fl_loop *loop, fl_listener *listener) {
    look_away(loop);
    for (int i = 0; i < ACCEPTS_BEFORE_LEAVING && fl_siblings_choose(&loop->siblings) >= 0; i++) {
        fl_loop_give_up_reserve(loop);
        int descriptor = fl_accept(listener->descriptor, NULL, NULL);
        if (descriptor < 0)
            break;
        if (!pass_on(loop, listener, descriptor))
            open_connection(loop, listener, descriptor, "", 0);
    }
    fl_loop_keep_reserve(loop);
}

void fl_loop_accept(fl_loop *loop, fl_listener *listener, int most) {
    for (int i = 0; i < most; i++) {
        bool full = fl_loop_room(loop) == 0;
        int descriptor = full ? -1 : fl_accept(listener->descriptor, NULL, NULL);
        if (descriptor >= 0) {
            if (!pass_on(loop, listener, descriptor))
                open_connection(loop, listener, descriptor, "", 0);
        } else if (full || errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            if (loop->accepting.again_at != 0 || fl_siblings_choose(&loop->siblings) >= 0 || !make_room(loop)) {
                leave_to_siblings(loop, listener);
                return;
            }
        } else if (errno != ECONNABORTED && errno != EINTR) {
            return;
        }
    }
}

static void take_in(fl_loop *loop, const fl_handover *handover) {
    int sibling = fl_loop_room(loop) == 0 ? fl_siblings_choose(&loop->siblings) : -1;
    if (sibling >= 0 && fl_handoff_forward(&loop->siblings, sibling, handover))
        return;
    fl_listener *listener = loop->accepting.listeners;
    while (listener != NULL && listener->index != handover->listener) listener = listener->next;
    loop->context.handed = (fl_handed) {handover->arrived, handover->hand_overs};
    if (listener == NULL || fl_close_on_exec_nonblocking(handover->descriptor) < 0)
        close(handover->descriptor);
    else if (open_connection(loop, listener, handover->descriptor, handover->bytes, handover->size) != NULL &&
             handover->arrived != 0)
        loop->context.counts.received++;
    loop->context.handed = (fl_handed) {0};
}

void fl_loop_receive(fl_loop *loop) {
    fl_buffer room = {0};
    if (fl_buffer_reserve(&loop->context.slab, &room, FL_HANDOFF_BYTES) != FL_OK)
        return;
    fl_handover handover;
    do {
        fl_loop_give_up_reserve(loop); /* where there is no room for the descriptor, it is lost with its message */
        bool received = fl_handoff_receive(&loop->siblings, fl_buffer_room(&room), &handover);
        fl_loop_keep_reserve(loop);
        if (!received)
            break;
        if (handover.descriptor >= 0)
            take_in(loop, &handover);
        fl_handoff_received(&loop->siblings, &handover); /* only now: for a moment it counts twice, and never not at all */
    } while (fl_handoff_is_pending(&loop->siblings));
    fl_buffer_free(&loop->context.slab, &room);
}

void fl_loop_stop_accepting(fl_loop *loop) {
    /* A wake-up meant for all may have come to us alone: take what is there before looking away. */
    for (fl_listener *listener = loop->accepting.listeners; listener != NULL && !loop->lanes.dedicated;
         listener = listener->next)
        fl_loop_accept(loop, listener, ACCEPTS_BEFORE_LEAVING);
    fl_loop_watch_listeners(loop, false);
}

void fl_loop_pause_accepting(fl_loop *loop, bool aside) {
    if (loop->accepting.paused == aside || loop->context.draining || loop->lanes.dedicated || loop->accepting.again_at != 0)
        return;
    loop->accepting.paused = aside;
    if (aside)
        fl_loop_stop_accepting(loop);
    else
        fl_loop_watch_listeners(loop, true);
}
