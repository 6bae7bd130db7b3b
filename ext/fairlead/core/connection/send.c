/* Output, and waiting for a client that does not read. */
#include "context.h"
#include "internal.h"

/* Returns false if it has closed the connection. */
static bool write_out(fl_connection *connection, fl_buffer *bytes) {
    struct iovec part = {fl_buffer_at(bytes), bytes->length};
    ssize_t written = connection->transport.kind->write(&connection->transport, &part, 1);
    if (written == FL_TRANSPORT_BROKEN) {
        fl_connection_close(connection);
        return false;
    }
    if (written > 0) {
        connection->sent += (uint64_t) written;
        fl_buffer_consume(&connection->context->slab, bytes, (size_t) written);
    }
    return true;
}

void fl_connection_await(fl_connection *connection, uint8_t event) {
    if (event != FL_WRITABLE || connection->wants_writable)
        return;
    connection->wants_writable = true;
    fl_poll_want_writable(&connection->context->poll, connection->transport.descriptor, connection);
}

static void await_room(fl_connection *connection) {
    fl_connection_await(connection, connection->transport.write_needs);
    if (connection->awaits_room)
        return;
    connection->awaits_room = true;
    fl_context_update_clock(connection->context); /* the app may have run for long since the last turn */
    fl_connection_update_deadline(connection);
}

void fl_connection_send(fl_connection *connection, fl_buffer *staged) {
    fl_context *context = connection->context;
    fl_buffer *out = &connection->out;
    bool had_to_wait = connection->awaits_room;
    if (staged != NULL && staged->length > 0) {
        if (out->length == 0) {
            if (!write_out(connection, staged))
                return;
            if (staged->length > 0) {
                fl_buffer rest = *staged;
                *staged = *out;
                *out = rest;
            }
        } else if (fl_buffer_append(&context->slab, out, fl_buffer_at(staged), staged->length) == FL_OK) {
            fl_buffer_free(&context->slab, staged);
            if (!had_to_wait && !write_out(connection, out))
                return;
        } else {
            fl_connection_close(connection);
            return;
        }
    } else if (out->length > 0 && !write_out(connection, out)) {
        return;
    }
    if (out->length > 0)
        await_room(connection);
    else if (had_to_wait || connection->state == FL_CONNECTION_ENDING)
        fl_connection_all_sent(connection);
}

void fl_connection_stage(fl_connection *connection, fl_buffer *staged) {
    fl_context *context = connection->context;
    if (connection->out.length == 0) {
        fl_buffer_free(&context->slab, &connection->out);
        connection->out = *staged;
        *staged = (fl_buffer) {0};
    } else if (fl_buffer_append(&context->slab, &connection->out, fl_buffer_at(staged), staged->length) == FL_OK) {
        fl_buffer_free(&context->slab, staged);
    } else {
        fl_connection_close(connection);
        return;
    }
    fl_connection_mark_dirty(connection);
}

size_t fl_connection_send_directly(fl_connection *connection, fl_buffer *staged, const char *bytes, size_t size) {
    if (connection->out.length > 0)
        return 0;
    size_t before = staged->length;
    struct iovec parts[] = {{fl_buffer_at(staged), before}, {(void *) bytes, size}};
    int skipped = before == 0 ? 1 : 0;
    ssize_t result = connection->transport.kind->write(&connection->transport, parts + skipped, 2 - skipped);
    if (result == FL_TRANSPORT_BROKEN)
        fl_connection_close(connection);
    if (result <= 0)
        return 0;
    size_t written = (size_t) result;
    connection->sent += written;
    fl_buffer_consume(&connection->context->slab, staged, written);
    return written > before ? written - before : 0;
}

ssize_t fl_connection_send_file(fl_connection *connection, int file, off_t offset, size_t size) {
    fl_transport *transport = &connection->transport;
    ssize_t count = transport->kind->send_file(transport, file, offset, size);
    if (count > 0)
        connection->sent += (uint64_t) count;
    if (count > 0)
        return count; /* fewer bytes do not mean that there is no room: a signal may have ended the call */
    if (count == FL_TRANSPORT_BROKEN) {
        fl_connection_close(connection);
        return 0;
    }
    if (count == 0 || count == FL_TRANSPORT_UNREADABLE)
        return FL_TRANSPORT_UNREADABLE;
    await_room(connection);
    return 0;
}
