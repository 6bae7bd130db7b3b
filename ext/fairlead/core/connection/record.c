/* Records requests that have ended in the counters of the shared page (base/request_times.h). */
#include "context.h"
#include "exchange.h"

static int final_code(const fl_exchange *exchange) {
    const fl_response *response = &exchange->response;
    return exchange->timing.timed_out && !response->committed ? fl_status_http(fl_exchange_timeout(exchange)) : response->code;
}

/* A client may ask for any path and method: what no part of the app has known must not use up the table. */
static bool has_own_route(const fl_exchange *exchange, int code) {
    return exchange->queueing.route_named || (code != 404 && code != 405 && code != 501);
}

/* The account of the request until now; NULL: there is none, or it is another request's by now. */
static fl_time_account *settled_account(const fl_exchange *exchange) {
    fl_time_account *account = exchange->queueing.account;
    if (account == NULL || account->id != exchange->id)
        return NULL;
    fl_account_settle(account, exchange->context->now);
    return account;
}

static void record(fl_exchange *exchange, const fl_time_account *account) {
    fl_context *context = exchange->context;
    fl_queueing *queueing = &exchange->queueing;
    if (context->times.page == NULL || queueing->recorded)
        return;
    queueing->recorded = true;
    int code = final_code(exchange);
    int route =
        has_own_route(exchange, code) ? fl_timed_routes_number(context->times.routes, &queueing->timed_route) : FL_TIMED_ROUTES;
    uint64_t served = context->now > queueing->started_at ? context->now - queueing->started_at : 0;
    fl_request_times_add(context->times.page, route, code, queueing->started_at - exchange->request.first_byte_at, served,
                         account == NULL ? NULL : account->kinds);
}

void fl_exchange_record(fl_exchange *exchange) {
    fl_time_account *account = settled_account(exchange);
    record(exchange, account);
    if (account != NULL)
        account->ended = true;
}

void fl_exchange_record_stream(fl_exchange *exchange) {
    fl_context_update_clock(exchange->context);
    record(exchange, settled_account(exchange));
}

void fl_context_record_code(fl_context *context, int code) {
    if (context->times.page != NULL)
        fl_request_times_add_code(context->times.page, code);
}
