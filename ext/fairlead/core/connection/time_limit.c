/* How long requests that are being served may take.
 * Each may have a limit of its own, so those whose time runs are kept in a pairing heap: entering and leaving cost the same
 * however many others there are, and whatever their limits. */
#include "base/platform.h"
#include "context.h"
#include "exchange.h"

static bool ends_before(const fl_exchange *exchange, const fl_exchange *other) {
    return exchange->time_ends_at < other->time_ends_at ||
           (exchange->time_ends_at == other->time_ends_at && exchange->id < other->id);
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
    other->timed_before = root;
    other->timed_after = root->timed_below;
    if (other->timed_after != NULL)
        other->timed_after->timed_before = other;
    root->timed_below = other;
    return root;
}

/* Makes one heap of siblings: in pairs first, which is what keeps the heap flat. */
static fl_exchange *meld_siblings(fl_exchange *first) {
    fl_exchange *pairs = NULL, *root = NULL;
    while (first != NULL) {
        fl_exchange *one = first, *other = one->timed_after;
        first = other != NULL ? other->timed_after : NULL;
        one->timed_before = one->timed_after = NULL;
        if (other != NULL)
            other->timed_before = other->timed_after = NULL;
        one = meld(one, other);
        one->timed_after = pairs;
        pairs = one;
    }
    while (pairs != NULL) {
        fl_exchange *one = pairs;
        pairs = one->timed_after;
        one->timed_after = NULL;
        root = meld(root, one);
    }
    return root;
}

static void leave_timed(fl_exchange *exchange) {
    fl_context *context = exchange->context;
    fl_exchange *below = meld_siblings(exchange->timed_below);
    exchange->timed_below = NULL;
    if (context->first_timed == exchange) {
        context->first_timed = below;
    } else {
        fl_exchange *before = exchange->timed_before, *after = exchange->timed_after;
        if (before->timed_below == exchange) /* its parent */
            before->timed_below = after;
        else
            before->timed_after = after;
        if (after != NULL)
            after->timed_before = before;
        context->first_timed = meld(context->first_timed, below);
    }
    exchange->timed_before = exchange->timed_after = NULL;
    exchange->timed = false;
}

static void enter_timed(fl_context *context, fl_exchange *exchange) {
    context->first_timed = meld(context->first_timed, exchange);
    exchange->timed = true;
    context->timer_stale = true;
    context->calls->time_limited(context);
}

void fl_exchange_stop_time(fl_exchange *exchange) {
    fl_context *context = exchange->context;
    if (exchange->timed)
        leave_timed(exchange);
    if (!exchange->overdue)
        return;
    if (exchange->timed_before != NULL)
        exchange->timed_before->timed_after = exchange->timed_after;
    else
        context->overdue.first = exchange->timed_after;
    if (exchange->timed_after != NULL)
        exchange->timed_after->timed_before = exchange->timed_before;
    else
        context->overdue.last = exchange->timed_before;
    exchange->timed_before = exchange->timed_after = NULL;
    exchange->overdue = false;
}

void fl_exchange_limit_time(fl_exchange *exchange, uint64_t microseconds) {
    if (exchange->context == NULL || exchange->timed_out || exchange->overdue)
        return;
    if (exchange->timed)
        fl_exchange_stop_time(exchange);
    exchange->time_limit = microseconds;
    if (microseconds == 0)
        return;
    exchange->time_ends_at = fl_clock() + microseconds;
    enter_timed(exchange->context, exchange);
}

void fl_exchange_moves_on(fl_exchange *exchange) {
    fl_exchange_limit_time(exchange, exchange->time_limit);
}

/* It is the client, not the app, who takes its time. */
static bool client_is_awaited(const fl_exchange *exchange) {
    return exchange->awaits_body || (exchange->awaits_room && exchange->connection->out.length > 0);
}

/* Its owner is told to end it. */
static void end_time(fl_exchange *exchange) {
    fl_context *context = exchange->context;
    if (exchange->timed)
        fl_exchange_stop_time(exchange);
    exchange->overdue = true;
    exchange->timed_before = context->overdue.last;
    if (context->overdue.last != NULL)
        context->overdue.last->timed_after = exchange;
    else
        context->overdue.first = exchange;
    context->overdue.last = exchange;
}

void fl_exchange_client_left(fl_exchange *exchange) {
    bool told = exchange->overdue || exchange->timed_out;
    if (exchange->context != NULL && exchange->context->limits.cancel_abandoned && !told && !exchange->takes_over)
        end_time(exchange);
}

static void time_out(fl_exchange *exchange) {
    fl_context *context = exchange->context;
    if (!exchange->overdue)
        end_time(exchange);
    exchange->timed_out = true;
    context->counts.timed_out++;
    if (exchange->connection != NULL)
        fl_exchange_time_out(exchange);
}

void fl_context_expire(fl_context *context, int most) {
    fl_exchange *exchange;
    for (int i = 0; i < most && (exchange = context->first_timed) != NULL && exchange->time_ends_at <= context->now; i++)
        if (exchange->connection != NULL && client_is_awaited(exchange))
            fl_exchange_moves_on(exchange);
        else
            time_out(exchange);
}

void fl_context_expire_all(fl_context *context) {
    for (fl_exchange *exchange = context->served; exchange != NULL; exchange = exchange->next)
        if (!exchange->timed_out)
            time_out(exchange);
}

uint64_t fl_context_next_expired(fl_context *context) {
    fl_exchange *exchange = context->overdue.first;
    if (exchange == NULL)
        return 0;
    fl_exchange_stop_time(exchange);
    return exchange->id;
}
