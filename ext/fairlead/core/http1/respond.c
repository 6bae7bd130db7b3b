/* Writes HTTP/1 responses: the head, the body in its framing, the end. */
#include "base/characters.h"
#include "internal.h"
#include "parser.h"

#include <string.h>

enum { MAX_STAGED = 65536 }; /* bytes that wait for the loop's next turn */

fl_status fl_http1_begin(fl_exchange *exchange) {
    fl_response *response = &exchange->response;
    fl_http1_exchange *own = fl_http1_exchange_state(exchange);
    if (response->code == 101 && own->minor == 0)
        return FL_BAD_STATUS;
    own->response_chunks = (fl_chunks) {0};
    own->trailers_begun = false;
    return fl_http1_write_status(exchange->staging, &response->out, response->code);
}

static bool has_token(fl_http1_list list, const char *token, size_t token_size) {
    const char *element;
    size_t size;
    while (fl_http1_next_element(&list, &element, &size))
        if (fl_equals_word(element, size, token, token_size))
            return true;
    return false;
}
#define HAS_TOKEN(list, token) has_token(list, token, sizeof(token) - 1)

/* The app sets no coding: the server frames the body. */
static bool is_identity(fl_http1_list codings) {
    return HAS_TOKEN(codings, "identity") && memchr(codings.at, ',', (size_t) (codings.end - codings.at)) == NULL;
}

/* A body with another last coding ends with the connection (RFC 9112, 6.3). */
static bool ends_in_chunked(fl_http1_list codings) {
    const char *last = "";
    size_t size = 0;
    while (fl_http1_next_element(&codings, &last, &size)) continue;
    return FL_EQUALS_WORD(last, size, "chunked");
}

#define IS(known) FL_EQUALS_WORD(name, name_size, known)

fl_status fl_http1_header(fl_exchange *exchange, const char *name, size_t name_size, const char *value, size_t value_size) {
    fl_response *response = &exchange->response;
    fl_http1_list elements = {value, value + value_size};
    switch (name_size) {
    case 10:
        if (IS("connection")) { /* the server decides; the app can only ask to close */
            if (HAS_TOKEN(elements, "close"))
                response->close = true;
            if (response->close || HAS_TOKEN(elements, "keep-alive"))
                return FL_OK;
        } else if (IS("keep-alive")) {
            return FL_OK;
        }
        break;
    case 17:
        if (IS("transfer-encoding")) {
            if (fl_exchange_has_no_framing(exchange) || is_identity(elements))
                return FL_OK;
            if (response->has_length || fl_http1_exchange_state(exchange)->minor == 0) /* ambiguous, or unknown to the client */
                return FL_BAD_HEADER_VALUE;
            response->framing = ends_in_chunked(elements) ? FL_FRAMING_RAW : FL_FRAMING_CLOSE;
        }
        break;
    }
    return fl_http1_write_header(exchange->staging, &response->out, name, name_size, value, value_size);
}

static fl_status append(fl_exchange *exchange, const char *text, size_t size) {
    return fl_buffer_append(&exchange->context->slab, &exchange->response.out, text, size);
}
#define APPEND(text) append(exchange, text, sizeof text - 1)

fl_status fl_http1_end_head(fl_exchange *exchange, int64_t length) {
    fl_response *response = &exchange->response;
    fl_slab *slab = &exchange->context->slab;
    fl_connection *connection = exchange->connection;
    fl_status status = FL_OK;
    uint8_t minor = fl_http1_exchange_state(exchange)->minor;
    bool no_body = fl_exchange_has_no_body(exchange);
    if (response->has_trailers && minor >= 1)
        length = -1; /* trailers need chunks */
    if (response->switches_protocol) {
        response->framing = FL_FRAMING_CLOSE;
        response->close = response->code != 101 && !fl_exchange_opens_tunnel(exchange);
    } else if (response->framing != FL_FRAMING_UNDECIDED) { /* the app has framed it */
        response->close |= response->framing == FL_FRAMING_CLOSE;
        if (no_body)
            response->framing = FL_FRAMING_NONE;
    } else if (response->code == 205) { /* RFC 9110, 15.3.6 */
        response->framing = FL_FRAMING_NONE;
        status = fl_http1_write_length(slab, &response->out, 0);
    } else if (response->has_length) {
        response->framing = no_body ? FL_FRAMING_NONE : FL_FRAMING_LENGTH;
    } else if (no_body) {
        response->framing = FL_FRAMING_NONE;
        if (length > 0 && response->code == 200 &&
            !fl_exchange_has_no_framing(exchange)) /* HEAD: the length that GET would have */
            status = fl_http1_write_length(slab, &response->out, (uint64_t) length);
    } else if (length >= 0) {
        response->framing = FL_FRAMING_LENGTH;
        response->length_left = (uint64_t) length;
        status = fl_http1_write_length(slab, &response->out, (uint64_t) length);
    } else if (minor >= 1) {
        response->framing = FL_FRAMING_CHUNKED;
        status = APPEND("transfer-encoding: chunked\r\n");
    } else {
        response->framing = FL_FRAMING_CLOSE;
        response->close = true;
    }
    if (connection != NULL && !response->switches_protocol &&
        (!fl_http1_connection_state(connection)->keep_alive || !exchange->request.complete || fl_http1_is_ending(connection)))
        response->close = true;
    if (status == FL_OK && response->close)
        status = APPEND("connection: close\r\n");
    else if (status == FL_OK && minor == 0 && !response->switches_protocol)
        status = APPEND("connection: keep-alive\r\n");
    if (status == FL_OK && !response->has_date)
        status = append(exchange, fl_context_date(exchange->context), FL_DATE_SIZE);
    if (status == FL_OK)
        status = APPEND("\r\n");
    return status;
}

bool fl_http1_is_well_formed(fl_exchange *exchange, const char *bytes, size_t size) {
    return fl_chunks_check(&fl_http1_exchange_state(exchange)->response_chunks, bytes, size) != FL_BAD_CHUNK;
}

fl_status fl_http1_body(fl_exchange *exchange, const char *bytes, size_t size) {
    fl_response *response = &exchange->response;
    if (response->framing == FL_FRAMING_CHUNKED)
        return fl_http1_write_chunk(&exchange->context->slab, &response->out, bytes, size);
    return append(exchange, bytes, size);
}

size_t fl_http1_body_directly(fl_exchange *exchange, const char *bytes, size_t size) {
    return fl_connection_send_directly(exchange->connection, &exchange->response.out, bytes, size);
}

fl_status fl_http1_trailer(fl_exchange *exchange, const char *name, size_t name_size, const char *value, size_t value_size) {
    fl_response *response = &exchange->response;
    fl_http1_exchange *own = fl_http1_exchange_state(exchange);
    if (response->framing != FL_FRAMING_CHUNKED)
        return FL_OK;
    fl_status status = own->trailers_begun ? FL_OK : APPEND("0\r\n");
    own->trailers_begun = true;
    if (status != FL_OK)
        return status;
    return fl_http1_write_header(&exchange->context->slab, &response->out, name, name_size, value, value_size);
}

void fl_http1_flush(fl_exchange *exchange) {
    fl_connection_send(exchange->connection, &exchange->response.out);
}

static fl_status end_body(fl_exchange *exchange) {
    fl_response *response = &exchange->response;
    const fl_http1_exchange *own = fl_http1_exchange_state(exchange);
    if (response->framing == FL_FRAMING_RAW)
        return own->response_chunks.done ? FL_OK : FL_BAD_CHUNK;
    if (response->framing != FL_FRAMING_CHUNKED)
        return FL_OK;
    return own->trailers_begun ? APPEND("\r\n") : fl_http1_write_last_chunk(&exchange->context->slab, &response->out);
}

bool fl_http1_finish(fl_exchange *exchange) {
    fl_response *response = &exchange->response;
    fl_connection *connection = exchange->connection;
    fl_http1_connection *own = fl_http1_connection_state(connection);
    const fl_context *context = exchange->context;
    if (end_body(exchange) != FL_OK)
        return false;
    if (response->close || !exchange->request.complete)
        own->keep_alive = false;
    bool body_unread = !exchange->request.complete;
    /* Sends responses to pipelined requests, and to short ones, together. */
    bool batch = own->keep_alive && (connection->in.length > 0 || context->calls->batches_responses(context));
    if (batch && connection->out.length + response->out.length < MAX_STAGED)
        fl_connection_stage(connection, &response->out);
    else
        fl_connection_send(connection, &response->out);
    connection->readable |= body_unread; /* lingers, so that the client reads the response before it sees a reset */
    return true;
}

void fl_http1_reset(fl_exchange *exchange) {
    fl_connection *connection = exchange->connection;
    if (exchange->response.framing == FL_FRAMING_CLOSE)
        connection->transport.kind->reset(&connection->transport);
    fl_connection_close(connection);
}

fl_status fl_http1_send_interim(fl_exchange *exchange, int code, const char *fields, size_t size) {
    fl_connection *connection = exchange->connection;
    fl_slab *slab = &exchange->context->slab;
    if (fl_http1_exchange_state(exchange)->minor == 0) /* RFC 9110, 15.2 */
        return FL_OK;
    if (fl_buffer_reserve(slab, &connection->out, size + 128) != FL_OK) /* makes the appends below succeed */
        return FL_NO_MEMORY;
    fl_http1_write_status(slab, &connection->out, code);
    fl_buffer_append(slab, &connection->out, fields, size);
    fl_buffer_append(slab, &connection->out, "\r\n", 2);
    fl_connection_send(connection, NULL);
    return FL_OK;
}
