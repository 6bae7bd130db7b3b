#include "handoff.h"
#include "loop.h"
#include "platform.h"

#include <string.h>

typedef struct message {
    int32_t listener; /* its index */
} message;

enum { MOST_BYTES = 65536 };

int fl_siblings_choose(const fl_siblings *siblings) {
    int best = -1;
    int64_t least = 0;
    for (int i = 0; i < siblings->count; i++) {
        fl_slot *slot = &siblings->page->slots[i];
        if (i == siblings->own || fl_slot_get(slot, FL_SLOT_state) != FL_WORKER_SERVING)
            continue;
        int64_t load = fl_slot_get(slot, FL_SLOT_connections);
        if (best < 0 || load < least) {
            best = i;
            least = load;
        }
    }
    return best;
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

bool fl_handoff_give(fl_connection *connection) {
    fl_loop *loop = connection->loop;
    fl_siblings *siblings = &loop->siblings;
    int sibling = siblings->slot == NULL ? -1 : fl_siblings_choose(siblings);
    if (sibling < 0 || connection->transport.kind != &fl_transport_plain)
        return false;
    message message = {.listener = connection->listener->index};
    struct iovec part = {&message, sizeof message};
    int descriptor = connection->transport.descriptor;
    fl_poll_remove(&loop->poll, descriptor);
    if (!send_descriptor(siblings->sending[sibling], descriptor, &part, 1)) {
        /* Full, or too many descriptors on their way: not now. */
        if (fl_poll_add_connection(&loop->poll, descriptor, connection) < 0)
            fl_connection_close(connection);
        return false;
    }
    fl_connection_close(connection);
    return true;
}

void fl_handoff_receive(fl_loop *loop) {
    for (;;) {
        static char bytes[MOST_BYTES]; /* one loop at a time receives in a process */
        message message = {0};
        struct iovec parts[] = {{&message, sizeof message}, {bytes, sizeof bytes}};
        union {
            char bytes[CMSG_SPACE(sizeof(int))];
            struct cmsghdr header;
        } control;
        struct msghdr envelope = {
            .msg_iov = parts, .msg_iovlen = 2, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
        ssize_t size = recvmsg(loop->siblings.receiving, &envelope, MSG_DONTWAIT);
        if (size < 0)
            return;
        struct cmsghdr *rights = CMSG_FIRSTHDR(&envelope);
        if (rights == NULL || rights->cmsg_type != SCM_RIGHTS || size < (ssize_t) sizeof message)
            continue;
        int descriptor;
        memcpy(&descriptor, CMSG_DATA(rights), sizeof(int));
        fl_listener *listener = loop->listeners;
        while (listener != NULL && listener->index != message.listener)
            listener = listener->next;
        if (listener == NULL || fl_close_on_exec_nonblocking(descriptor) < 0) {
            close(descriptor);
            continue;
        }
        fl_connection_open(loop, listener, descriptor, bytes, (size_t) size - sizeof message);
    }
}
