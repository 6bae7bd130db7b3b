/* How long requests that are being served may take.
 * Each may have a limit of its own, so those whose time runs are kept in a pairing heap: entering and leaving cost the same
 * however many others there are, and whatever their limits. */
#include "base/list.h"
#include "base/platform.h"
#include "context.h"
#include "exchange.h"

static bool ends_before(const fl_exchange *exchange, const fl_exchange *other) {
    return exchange->timing.ends_at < other->timing.ends_at ||
           (exchange->timing.ends_at == other->timing.ends_at && exchange->id < other->id);
}

/* Makes one heap of two; either may be empty (NULL). */
static fl_exchange *meld(fl_exchange *root, fl_exchange *other) {
    if (root == NULL || other == NULL)
        return root != NULL ? root : other;
    if (ends_before(other, root)) {
        fl_exchange *later = root;
        root = other;
        other = later;
    }
    other->timing.before = root;
    other->timing.after = root->timing.below;
    if (other->timing.after != NULL)
        other->timing.after->timing.before = other;
    root->timing.below = other;
    return root;
}

/* Makes one heap of siblings: in pairs first, which is what keeps the heap flat. */
static fl_exchange *meld_siblings(fl_exchange *first) {
    fl_exchange *pairs = NULL, *root = NULL;
    while (first != NULL) {
        fl_exchange *one = first, *other = one->timing.after;
        first = other != NULL ? other->timing.after : NULL;
        one->timing.before = one->timing.after = NULL;
        if (other != NULL)
            other->timing.before = other->timing.after = NULL;
        one = meld(one, other);
        one->timing.after = pairs;
        pairs = one;
    }
    while (pairs != NULL) {
        fl_exchange *one = pairs;
        pairs = one->timing.after;
        one->timing.after = NULL;
        root = meld(root, one);
    }
    return root;
}

static void leave_timed(fl_exchange *exchange) {
    fl_context *context = exchange->context;
    fl_exchange *below = meld_siblings(exchange->timing.below);
    exchange->timing.below = NULL;
    if (context->first_timed == exchange) {
        context->first_timed = below;
    } else {
        fl_exchange *before = exchange->timing.before, *after = exchange->timing.after;
        if (before->timing.below == exchange) /* its parent */
            before->timing.below = after;
        else
            before->timing.after = after;
        if (after != NULL)
            after->timing.before = before;
        context->first_timed = meld(context->first_timed, below);
    }
    exchange->timing.before = exchange->timing.after = NULL;
    exchange->timing.runs = false;
}

static void enter_timed(fl_context *context, fl_exchange *exchange) {
    context->first_timed = meld(context->first_timed, exchange);
    exchange->timing.runs = true;
    context->timer_stale = true;
    context->calls->time_limited(context);
}

void fl_exchange_stop_time(fl_exchange *exchange) {
    fl_context *context = exchange->context;
    if (exchange->timing.runs)
        leave_timed(exchange);
    if (!exchange->timing.expired)
        return;
    FL_LIST_REMOVE(&context->expired, exchange, timing.before, timing.after);
    exchange->timing.expired = false;
}

void fl_exchange_limit_time(fl_exchange *exchange, uint64_t microseconds) {
    if (exchange->context == NULL || exchange->timing.out || exchange->timing.expired)
        return;
    if (exchange->timing.runs)
        fl_exchange_stop_time(exchange);
    exchange->timing.limit = microseconds;
    if (microseconds == 0)
        return;
    exchange->timing.ends_at = fl_clock() + microseconds;
    enter_timed(exchange->context, exchange);
}

void fl_exchange_restart_time(fl_exchange *exchange) {
    fl_exchange_limit_time(exchange, exchange->timing.limit);
}

/* It is the client, not the app, who takes its time. */
static bool client_is_awaited(const fl_exchange *exchange) {
    return exchange->request.awaited ||
           (exchange->response.awaits_room && exchange->response.out.length + exchange->connection->out.length > 0);
}

/* Its owner is told to end it. */
static void end_time(fl_exchange *exchange) {
    fl_context *context = exchange->context;
    if (exchange->timing.runs)
        fl_exchange_stop_time(exchange);
    exchange->timing.expired = true;
    FL_LIST_APPEND(&context->expired, exchange, timing.before, timing.after);
}

void fl_exchange_client_left(fl_exchange *exchange) {
    bool told = exchange->timing.expired || exchange->timing.out;
    if (exchange->context != NULL && exchange->context->limits.cancel_abandoned && !told && !exchange->response.takes_over)
        end_time(exchange);
}

static void time_out(fl_exchange *exchange) {
    fl_context *context = exchange->context;
    if (!exchange->timing.expired)
        end_time(exchange);
    exchange->timing.out = true;
    context->counts.timed_out++;
    if (exchange->connection != NULL)
        fl_exchange_time_out(exchange);
}

void fl_context_expire(fl_context *context, int most) {
    fl_exchange *exchange;
    for (int i = 0; i < most && (exchange = context->first_timed) != NULL && exchange->timing.ends_at <= context->now; i++)
        if (exchange->connection != NULL && client_is_awaited(exchange))
            fl_exchange_restart_time(exchange);
        else
            time_out(exchange);
}

void fl_context_expire_all(fl_context *context) {
    for (fl_exchange *exchange = context->served; exchange != NULL; exchange = exchange->next)
        if (!exchange->timing.out)
            time_out(exchange);
}

uint64_t fl_context_next_expired(fl_context *context) {
    fl_exchange *exchange = context->expired.first;
    if (exchange == NULL)
        return 0;
    fl_exchange_stop_time(exchange);
    return exchange->id;
}
