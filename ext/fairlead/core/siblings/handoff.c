#include "handoff.h"
#include "base/platform.h"
#include "connection/context.h"
#include "connection/exchange.h"
#include "internal.h"
#include "relay.h"

#include <string.h>

typedef struct message {
    uint64_t arrived; /* see fl_handover */
    int32_t listener, hand_overs;
    fl_client client;
    bool relayed;
    uint32_t identity_size; /* it follows */
} message;

enum {
    MAX_HAND_OVERS = 3, /* in quick succession, since workers that are stuck by turns would pass a request around; */
    STAY = 20000,       /* microseconds in one worker, after which the request may move again */
};

/* Room for one descriptor, aligned. */
typedef union control {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr header;
} control;

static struct msghdr envelope_of(struct iovec *parts, size_t count, control *control) {
    return (struct msghdr) {
        .msg_iov = parts, .msg_iovlen = count, .msg_control = control->bytes, .msg_controllen = sizeof control->bytes};
}

static bool send_descriptor(int channel, int descriptor, struct iovec *parts, size_t count) {
    control control = {0};
    struct msghdr envelope = envelope_of(parts, count, &control);
    struct cmsghdr *rights = CMSG_FIRSTHDR(&envelope);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(rights), &descriptor, sizeof(int));
    return sendmsg(channel, &envelope, MSG_DONTWAIT | FL_SEND_FLAGS) >= 0;
}

/* Not below 0: a message for a previous worker of this slot was never counted in it. */
static void decrement(fl_slot *slot, fl_slot_field field) {
    _Atomic int64_t *incoming = &slot->fields[field];
    int64_t count = atomic_load(incoming);
    while (count > 0 && !atomic_compare_exchange_weak(incoming, &count, count - 1)) continue;
}

static fl_slot_field incoming_field(uint64_t arrived) {
    return arrived != 0 ? FL_SLOT_incoming_requests : FL_SLOT_incoming_connections;
}

/* The first part is the message. */
static bool send_connection(const fl_siblings *siblings, int sibling, int descriptor, struct iovec *parts, size_t count) {
    fl_slot *slot = &siblings->page->slots[sibling];
    fl_slot_field field = incoming_field(((message *) parts->iov_base)->arrived);
    atomic_fetch_add(&slot->fields[field], 1);
    if (send_descriptor(siblings->sending[sibling], descriptor, parts, count))
        return true;
    decrement(slot, field); /* the socket is full, or too many descriptors are in flight */
    return false;
}

/* The queued request of a connection; NULL: it has none, or other exchanges too. */
static const fl_exchange *queued_request(const fl_connection *connection) {
    const fl_exchange *exchange = connection->exchanges;
    return exchange != NULL && exchange->state == FL_EXCHANGE_QUEUED && exchange->stream_next == NULL ? exchange : NULL;
}

bool fl_handoff_must_stay_for_now(const fl_exchange *exchange) {
    const fl_queueing *queueing = &exchange->queueing;
    const fl_context *context = exchange->context;
    return queueing->hand_overs >= MAX_HAND_OVERS && !context->draining && context->now < queueing->queued_at + STAY;
}

bool fl_handoff_may_move(const fl_exchange *exchange) {
    return !exchange->queueing.pinned && !fl_handoff_must_stay_for_now(exchange);
}

/* What precedes the bytes of a connection. Returns how many parts that are. */
static size_t begin_parts(const fl_connection *connection, message *message, struct iovec parts[2]) {
    fl_identity *identity = connection->transport.identity;
    *message = (struct message) {
        .listener = connection->listener->index, .client = connection->client, .relayed = connection->relayed};
    if (connection->awaits_proxy)
        message->client = (fl_client) {0}; /* the sibling awaits its header */
    parts[0] = (struct iovec) {message, sizeof *message};
    if (identity == NULL)
        return 1;
    message->identity_size = identity->size;
    parts[1] = (struct iovec) {identity->bytes, identity->size};
    return 2;
}

/* Whether all that its client has sent is still in the socket: a PROXY header is only looked at until it is complete. */
static bool is_unread(const fl_connection *connection) {
    const fl_transport *transport = &connection->transport;
    return connection->state == FL_CONNECTION_OPENING &&
           (connection->awaits_proxy || (transport->kind->is_unread != NULL && transport->kind->is_unread(transport)));
}

static bool may_move(const fl_connection *connection) {
    return connection->transport.kind->raw && connection->protocol != NULL && connection->protocol->moves;
}

static bool is_movable(const fl_connection *connection) {
    return may_move(connection) && connection->out.length == 0;
}

bool fl_handoff_possible(const fl_connection *connection) {
    struct iovec parts[3];
    const fl_exchange *exchange = queued_request(connection);
    if (is_unread(connection))
        return true;
    if (!is_movable(connection))
        return false;
    if (exchange == NULL)
        return connection->exchanges == NULL;
    return fl_handoff_may_move(exchange) && connection->protocol->serialize(exchange, parts) > 0;
}

/* The first part is the message. */
static bool give(fl_siblings *siblings, fl_connection *connection, int sibling, struct iovec *parts, size_t count) {
    bool has_request = ((message *) parts->iov_base)->arrived != 0;
    if (!send_connection(siblings, sibling, connection->transport.descriptor, parts, count))
        return false;
    fl_connection_close(connection);
    if (has_request)
        connection->context->counts.handed++;
    siblings->receiver = sibling;
    return true;
}

bool fl_handoff_give(fl_siblings *siblings, fl_connection *connection, int sibling) {
    if (!fl_handoff_possible(connection))
        return false;
    message message;
    struct iovec parts[5];
    size_t count = begin_parts(connection, &message, parts);
    const fl_exchange *exchange = queued_request(connection);
    if (exchange != NULL) {
        count += connection->protocol->serialize(exchange, parts + count);
        message.arrived = exchange->queueing.ready_at;
        message.hand_overs = exchange->queueing.hand_overs + 1;
    }
    return give(siblings, connection, sibling, parts, count);
}

bool fl_handoff_may_give_unread(const fl_connection *connection) {
    const fl_exchange *exchange = connection->exchanges;
    return may_move(connection) && exchange->stream_next == NULL && exchange->queueing.hand_overs < MAX_HAND_OVERS &&
           connection->in.length <= FL_HANDOFF_BYTES;
}

bool fl_handoff_give_unread(fl_siblings *siblings, fl_connection *connection, int sibling) {
    const fl_exchange *exchange = connection->exchanges;
    const fl_buffer *in = &connection->in;
    /* It has not been queued: the time in which its client sent the head is no wait. */
    const fl_context *context = connection->context;
    uint64_t arrived = context->handed.arrived != 0 ? context->handed.arrived : context->now;
    message message;
    struct iovec parts[3];
    size_t count = begin_parts(connection, &message, parts);
    message.arrived = arrived;
    message.hand_overs = exchange->queueing.hand_overs + 1;
    parts[count++] = (struct iovec) {fl_buffer_at(in), in->length};
    return give(siblings, connection, sibling, parts, count);
}

bool fl_handoff_request_possible(const fl_exchange *exchange) {
    return fl_handoff_possible(exchange->connection) || fl_relay_possible(exchange);
}

bool fl_handoff_give_request(fl_siblings *siblings, fl_exchange *exchange, int sibling) {
    if (fl_handoff_possible(exchange->connection))
        return fl_handoff_give(siblings, exchange->connection, sibling);
    return fl_relay_possible(exchange) && fl_relay_give(siblings, exchange, sibling);
}

bool fl_handoff_send_request(const fl_siblings *siblings, const fl_exchange *exchange, int sibling, int descriptor) {
    message message;
    struct iovec parts[5];
    size_t first = begin_parts(exchange->connection, &message, parts);
    message.arrived = exchange->queueing.ready_at;
    message.hand_overs = exchange->queueing.hand_overs + 1;
    message.relayed = true;
    size_t count = exchange->protocol->serialize(exchange, parts + first), own = exchange->request.body.length > 0 ? 2 : 1;
    return count >= own && send_connection(siblings, sibling, descriptor, parts, first + own);
}

bool fl_handoff_give_to_least_loaded(fl_siblings *siblings, fl_connection *connection) {
    int sibling = fl_siblings_choose(siblings);
    return sibling >= 0 && fl_handoff_give(siblings, connection, sibling);
}

bool fl_handoff_forward(const fl_siblings *siblings, int sibling, const fl_handover *handover) {
    message message = {handover->arrived, handover->listener, handover->hand_overs,
                       handover->client,  handover->relayed,  (uint32_t) handover->identity_size};
    struct iovec parts[] = {
        {&message, sizeof message}, {handover->identity, handover->identity_size}, {handover->bytes, handover->size}};
    if (!send_connection(siblings, sibling, handover->descriptor, parts, 3))
        return false;
    close(handover->descriptor);
    return true;
}

bool fl_handoff_receive(const fl_siblings *siblings, char *bytes, fl_handover *handover) {
    message message = {0};
    struct iovec parts[] = {{&message, sizeof message}, {bytes, FL_HANDOFF_ROOM}};
    control control;
    struct msghdr envelope = envelope_of(parts, 2, &control);
    ssize_t size = recvmsg(siblings->receiving, &envelope, MSG_DONTWAIT | FL_RECEIVE_FLAGS);
    if (size < (ssize_t) (sizeof message + message.identity_size))
        return false;
    size_t identity_size = message.identity_size, rest = (size_t) size - sizeof message - identity_size;
    *handover = (fl_handover) {
        message.arrived, message.listener, message.hand_overs, message.client, -1, bytes + identity_size, rest, message.relayed,
        bytes,           identity_size};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&envelope);
    if (rights != NULL && rights->cmsg_type == SCM_RIGHTS)
        memcpy(&handover->descriptor, CMSG_DATA(rights), sizeof(int));
    return true;
}

void fl_handoff_received(const fl_siblings *siblings, const fl_handover *handover) {
    decrement(siblings->slot, incoming_field(handover->arrived));
}

bool fl_handoff_is_pending(const fl_siblings *siblings) {
    return fl_slot_get(siblings->slot, FL_SLOT_incoming_requests) + fl_slot_get(siblings->slot, FL_SLOT_incoming_connections) >
           0;
}
