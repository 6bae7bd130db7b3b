/* What the server has to know of a request once its head has been freed. */
#include "base/characters.h"
#include "exchange.h"

#include <string.h>

/* Of the media ranges of an Accept header those with a quality of 0 are refused. Wildcards do not count. */
static bool is_refused(const char *at, const char *end) {
    const char *quality = memmem(at, (size_t) (end - at), "q=0", 3);
    while (quality != NULL && quality + 3 < end && (quality[3] == '.' || quality[3] == '0')) quality++;
    return quality != NULL && (quality + 3 == end || quality[3] < '1' || quality[3] > '9');
}

static void note_accept(fl_request *request, const char *at, const char *end, bool get) {
    while (at < end) {
        const char *comma = memchr(at, ',', (size_t) (end - at)), *last = comma != NULL ? comma : end;
        while (at < last && (*at == ' ' || *at == '\t')) at++;
        const char *name_end = at;
        while (name_end < last && *name_end != ';' && *name_end != ' ' && *name_end != '\t') name_end++;
        size_t size = (size_t) (name_end - at);
        if (FL_EQUALS_WORD(at, size, "text/html"))
            request->accepts_html |= !is_refused(name_end, last);
        else if (get && FL_EQUALS_WORD(at, size, "text/event-stream"))
            request->reconnects |= !is_refused(name_end, last);
        at = last + 1;
    }
}

void fl_exchange_note_head(fl_exchange *exchange) {
    fl_request *request = &exchange->request;
    const fl_head *head = request->head;
    const char *bytes = fl_exchange_head_bytes(exchange);
    bool get = head->method.size == 3 && memcmp(bytes + head->method.at, "GET", 3) == 0;
    bool mcp = head->session.size > 0;
    for (uint32_t i = 0; i < head->count; i++) {
        const fl_header *header = &head->headers[i];
        if (header->id == FL_HEADER_ACCEPT && header->value.size >= sizeof "text/html" - 1)
            note_accept(request, bytes + header->value.at, bytes + header->value.at + header->value.size, get);
        else if (header->id == FL_HEADER_MCP_PROTOCOL_VERSION)
            mcp = true;
    }
    request->mcp_call = mcp && !get;
}
