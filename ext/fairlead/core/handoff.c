#include "handoff.h"
#include "loop.h"
#include "platform.h"
#include "watch.h"

#include <string.h>

typedef struct message {
    uint64_t arrived;  /* of fl_clock; 0: no request comes with it */
    int32_t listener;  /* its index */
    int32_t hand_overs;/* how often it has been handed over */
} message;

enum {
    MOST_BYTES = 65536,
    MOST_HAND_OVERS = 3,
    STALE = 20000, /* microseconds: a worker that is busy tells more often than this */
    UNEVEN = 2, /* so much more than a sibling has must be here, for a new connection to go there */
};

bool fl_siblings_usable(const fl_siblings *siblings, int sibling) {
    fl_slot *slot = &siblings->page->slots[sibling];
    return sibling != siblings->own && fl_slot_get(slot, FL_SLOT_state) == FL_WORKER_SERVING &&
           fl_slot_get(slot, FL_SLOT_stall) != FL_STALL_STUCK && fl_slot_get(slot, FL_SLOT_lane) == 0;
}

/* What is on its way takes room too. */
static bool has_room(fl_slot *slot) {
    return fl_slot_get(slot, FL_SLOT_room) > fl_slot_get(slot, FL_SLOT_coming) + fl_slot_get(slot, FL_SLOT_arriving);
}

bool fl_siblings_has_room(const fl_siblings *siblings, int sibling) {
    return fl_siblings_usable(siblings, sibling) && has_room(&siblings->page->slots[sibling]);
}

bool fl_siblings_heard(const fl_siblings *siblings, int sibling, uint64_t now) {
    uint64_t heard = (uint64_t) fl_slot_get(&siblings->page->slots[sibling], FL_SLOT_heartbeat_ms) * 1000;
    return now < heard + STALE;
}

int fl_siblings_choose_lane(const fl_siblings *siblings) {
    int best = -1;
    int64_t least = 0;
    for (int i = 0; i < siblings->count; i++) {
        fl_slot *slot = &siblings->page->slots[i];
        if (i == siblings->own || fl_slot_get(slot, FL_SLOT_lane) == 0 ||
            fl_slot_get(slot, FL_SLOT_state) != FL_WORKER_SERVING || !has_room(slot))
            continue;
        int64_t load = fl_slot_get(slot, FL_SLOT_queued) + fl_slot_get(slot, FL_SLOT_coming) +
                       fl_slot_get(slot, FL_SLOT_in_flight);
        if (best < 0 || load < least) {
            best = i;
            least = load;
        }
    }
    return best;
}

/* Connections, those twice that are busy, or new: these are about to be. */
static int64_t load_of(fl_slot *slot) {
    return fl_slot_get(slot, FL_SLOT_connections) + fl_slot_get(slot, FL_SLOT_fresh) +
           fl_slot_get(slot, FL_SLOT_in_flight) + fl_slot_get(slot, FL_SLOT_queued) +
           2 * fl_slot_get(slot, FL_SLOT_coming) + 2 * fl_slot_get(slot, FL_SLOT_arriving);
}

static int least_loaded(const fl_siblings *siblings, int64_t *least) {
    int best = -1;
    for (int i = 0; i < siblings->count; i++) {
        if (!fl_siblings_has_room(siblings, i))
            continue;
        int64_t load = load_of(&siblings->page->slots[i]);
        if (best < 0 || load < *least) {
            best = i;
            *least = load;
        }
    }
    return best;
}

int fl_siblings_choose(const fl_siblings *siblings) {
    int64_t least = 0;
    return least_loaded(siblings, &least);
}

static bool send_descriptor(int channel, int descriptor, struct iovec *parts, size_t count) {
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr header;
    } control = {0};
    struct msghdr envelope = {
        .msg_iov = parts, .msg_iovlen = count, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&envelope);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(rights), &descriptor, sizeof(int));
    return sendmsg(channel, &envelope, MSG_DONTWAIT | FL_SEND_FLAGS) >= 0;
}

/* One that was on its way is here. What came for a worker that has ended was never counted here. */
static void has_come(fl_slot *slot, fl_slot_field field) {
    _Atomic int64_t *coming = &slot->fields[field];
    int64_t count = atomic_load(coming);
    while (count > 0 && !atomic_compare_exchange_weak(coming, &count, count - 1))
        continue;
}

static fl_slot_field counted_as(const message *message) {
    return message->arrived != 0 ? FL_SLOT_coming : FL_SLOT_arriving;
}

/* The first part is the message. */
static bool send_connection(const fl_siblings *siblings, int sibling, int descriptor, struct iovec *parts, size_t count) {
    fl_slot *slot = &siblings->page->slots[sibling];
    fl_slot_field field = counted_as(parts->iov_base);
    atomic_fetch_add(&slot->fields[field], 1);
    if (send_descriptor(siblings->sending[sibling], descriptor, parts, count))
        return true;
    has_come(slot, field); /* full, or too many descriptors on their way: not now */
    return false;
}

/* What has been read of a connection's request, as it was sent; 0 parts: it cannot be told. */
static size_t raw_bytes(fl_connection *connection, struct iovec parts[3]) {
    fl_exchange *exchange = connection->exchange;
    fl_buffer *in = &connection->in, *body = &exchange->body;
    if (exchange->chunked || !exchange->body_done || in->length + body->length > MOST_BYTES)
        return 0;
    char *bytes = fl_buffer_at(in);
    uint32_t head = exchange->head->size;
    size_t count = 0;
    parts[count++] = (struct iovec){bytes, head};
    if (body->length > 0)
        parts[count++] = (struct iovec){fl_buffer_at(body), body->length};
    if (in->length > head)
        parts[count++] = (struct iovec){bytes + head, in->length - head};
    return count;
}

bool fl_handoff_possible(fl_connection *connection) {
    struct iovec parts[3];
    if (connection->transport.kind != &fl_transport_plain || connection->out.length > 0)
        return false;
    return connection->state != FL_CONNECTION_QUEUED ||
           (connection->exchange->hand_overs < MOST_HAND_OVERS && raw_bytes(connection, parts) > 0);
}

bool fl_handoff_give(fl_connection *connection, int sibling) {
    fl_loop *loop = connection->loop;
    fl_siblings *siblings = &loop->siblings;
    if (!fl_handoff_possible(connection))
        return false;
    message message = {.listener = connection->listener->index};
    struct iovec parts[4] = {{&message, sizeof message}};
    size_t count = 1;
    bool queued = connection->state == FL_CONNECTION_QUEUED;
    if (queued) {
        count += raw_bytes(connection, parts + 1);
        message.arrived = connection->exchange->ready_at;
        message.hand_overs = connection->exchange->hand_overs + 1;
    }
    if (!send_connection(siblings, sibling, connection->transport.descriptor, parts, count))
        return false;
    fl_connection_close(connection);
    if (queued)
        loop->counts.handed++;
    loop->siblings.receiver = sibling;
    return true;
}

bool fl_handoff_leave(fl_connection *connection) {
    int sibling = fl_siblings_choose(&connection->loop->siblings);
    return sibling >= 0 && fl_handoff_give(connection, sibling);
}

bool fl_handoff_pass_on(fl_loop *loop, const fl_listener *listener, int descriptor) {
    fl_siblings *siblings = &loop->siblings;
    if (siblings->slot == NULL)
        return false;
    int64_t own = (int64_t) loop->counts.connections + loop->counts.fresh + loop->counts.in_flight + loop->ready.count;
    int64_t least = 0;
    bool full = fl_loop_room(loop) == 0;
    int sibling = own < UNEVEN && !full ? -1 : least_loaded(siblings, &least);
    if (sibling < 0 || (own < least + UNEVEN && !full))
        return false;
    message message = {.listener = listener->index};
    struct iovec part = {&message, sizeof message};
    if (!send_connection(siblings, sibling, descriptor, &part, 1))
        return false;
    close(descriptor);
    return true;
}

static void take_in(fl_loop *loop, message *message, int descriptor, char *bytes, size_t size) {
    struct iovec parts[] = {{message, sizeof *message}, {bytes, size}};
    int sibling = fl_loop_room(loop) == 0 ? fl_siblings_choose(&loop->siblings) : -1;
    if (sibling >= 0 && send_connection(&loop->siblings, sibling, descriptor, parts, 2)) {
        close(descriptor);
        return;
    }
    fl_listener *listener = loop->listeners;
    while (listener != NULL && listener->index != message->listener)
        listener = listener->next;
    loop->handed = (fl_handed){message->arrived, message->hand_overs};
    if (listener == NULL || fl_close_on_exec_nonblocking(descriptor) < 0)
        close(descriptor);
    else if (fl_connection_open(loop, listener, descriptor, bytes, size) != NULL && message->arrived != 0)
        loop->counts.received++;
    loop->handed = (fl_handed){0};
}

/* As far as the senders have told; what they have not, the poll tells of again. */
static bool more_comes(fl_slot *slot) {
    return fl_slot_get(slot, FL_SLOT_coming) + fl_slot_get(slot, FL_SLOT_arriving) > 0;
}

void fl_handoff_receive(fl_loop *loop) {
    fl_slot *slot = loop->siblings.slot;
    fl_buffer room = {0};
    if (fl_buffer_reserve(&loop->slab, &room, MOST_BYTES) != FL_OK)
        return;
    char *bytes = fl_buffer_room(&room);
    do {
        message message = {0};
        struct iovec parts[] = {{&message, sizeof message}, {bytes, MOST_BYTES}};
        union {
            char bytes[CMSG_SPACE(sizeof(int))];
            struct cmsghdr header;
        } control;
        struct msghdr envelope = {
            .msg_iov = parts, .msg_iovlen = 2, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
        fl_loop_give_up_reserve(loop); /* where there is no room for the descriptor, it is lost with its message */
        ssize_t size = recvmsg(loop->siblings.receiving, &envelope, MSG_DONTWAIT | FL_RECEIVE_FLAGS);
        fl_loop_keep_reserve(loop);
        if (size < 0)
            break;
        if (size < (ssize_t) sizeof message)
            continue;
        struct cmsghdr *rights = CMSG_FIRSTHDR(&envelope);
        if (rights != NULL && rights->cmsg_type == SCM_RIGHTS) {
            int descriptor;
            memcpy(&descriptor, CMSG_DATA(rights), sizeof(int));
            take_in(loop, &message, descriptor, bytes, (size_t) size - sizeof message);
        }
        /* Only now: for a moment it counts twice, and never not at all. */
        has_come(slot, counted_as(&message));
    } while (more_comes(slot));
    fl_buffer_free(&loop->slab, &room);
}
