/* Exchanges whose owner can go on: a fiber, or the core that sends a file. Part of exchange.h and context.h. */
#include "base/list.h"
#include "context.h"
#include "exchange.h"

static fl_exchange_list *wakes_of(const fl_exchange *exchange) {
    return exchange->state == FL_EXCHANGE_FILE ? &exchange->context->files : &exchange->context->woken;
}

void fl_exchange_wake(fl_exchange *exchange) {
    if (exchange->state == FL_EXCHANGE_RELAYED) {
        exchange->context->calls->relay_notified(exchange);
        return;
    }
    if (exchange->woken || !(exchange->request.awaited || exchange->response.awaits_room))
        return;
    exchange->woken = true;
    fl_exchange_list *list = wakes_of(exchange);
    FL_LIST_APPEND(list, exchange, woken_before, woken_next);
}

void fl_exchange_cancel_wake(fl_exchange *exchange) {
    fl_exchange_list *list = wakes_of(exchange);
    FL_LIST_REMOVE(list, exchange, woken_before, woken_next);
    exchange->woken = false;
}

uint64_t fl_context_next_woken(fl_context *context) {
    fl_exchange *exchange = context->woken.first;
    if (exchange == NULL)
        return 0;
    fl_exchange_cancel_wake(exchange);
    exchange->request.awaited = exchange->response.awaits_room = false; /* whoever still has to wait says so again */
    return exchange->id;
}
