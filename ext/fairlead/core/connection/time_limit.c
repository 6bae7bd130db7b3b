/* Time limits of served requests. Each request may have another limit, so the running limits form a pairing heap: inserting is O(1),
 * removing O(log n) amortised. */
#include "base/list.h"
#include "base/platform.h"
#include "context.h"
#include "exchange.h"

static bool expires_before(const fl_exchange *exchange, const fl_exchange *other) {
    return exchange->timing.expires_at < other->timing.expires_at ||
           (exchange->timing.expires_at == other->timing.expires_at && exchange->id < other->id);
}

/* Merges two heaps; either may be empty (NULL). */
static fl_exchange *meld(fl_exchange *root, fl_exchange *other) {
    if (root == NULL || other == NULL)
        return root != NULL ? root : other;
    if (expires_before(other, root)) {
        fl_exchange *later = root;
        root = other;
        other = later;
    }
    other->timing.before = root;
    other->timing.after = root->timing.child;
    if (other->timing.after != NULL)
        other->timing.after->timing.before = other;
    root->timing.child = other;
    return root;
}

/* Merges a list of siblings, in pairs first: that keeps the heap flat. */
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

static void remove_limit(fl_exchange *exchange) {
    fl_context *context = exchange->context;
    fl_exchange *children = meld_siblings(exchange->timing.child);
    exchange->timing.child = NULL;
    if (context->time_limits == exchange) {
        context->time_limits = children;
    } else {
        fl_exchange *before = exchange->timing.before, *after = exchange->timing.after;
        if (before->timing.child == exchange) /* `before` is its parent */
            before->timing.child = after;
        else
            before->timing.after = after;
        if (after != NULL)
            after->timing.before = before;
        context->time_limits = meld(context->time_limits, children);
    }
    exchange->timing.before = exchange->timing.after = NULL;
    exchange->timing.running = false;
}

static void insert_limit(fl_context *context, fl_exchange *exchange) {
    context->time_limits = meld(context->time_limits, exchange);
    exchange->timing.running = true;
    context->timer_stale = true;
    context->calls->time_limit_set(context);
}

void fl_exchange_clear_time_limit(fl_exchange *exchange) {
    fl_context *context = exchange->context;
    if (exchange->timing.running)
        remove_limit(exchange);
    if (!exchange->timing.expired)
        return;
    FL_LIST_REMOVE(&context->expired, exchange, timing.before, timing.after);
    exchange->timing.expired = false;
}

void fl_exchange_set_time_limit(fl_exchange *exchange, uint64_t microseconds) {
    if (exchange->context == NULL || exchange->timing.timed_out || exchange->timing.expired)
        return;
    if (exchange->timing.running)
        fl_exchange_clear_time_limit(exchange);
    exchange->timing.limit = microseconds;
    if (microseconds == 0)
        return;
    exchange->timing.expires_at = fl_clock() + microseconds;
    insert_limit(exchange->context, exchange);
}

void fl_exchange_restart_time_limit(fl_exchange *exchange) {
    fl_exchange_set_time_limit(exchange, exchange->timing.limit);
}

/* Whether the app waits for the client, so that the client's deadlines count instead. */
static bool awaits_client(const fl_exchange *exchange) {
    return exchange->request.awaited ||
           (exchange->response.awaits_room && exchange->response.out.length + exchange->connection->out.length > 0);
}

/* The loop reports it to the owner, see fl_context_next_expired. */
static void expire(fl_exchange *exchange) {
    fl_context *context = exchange->context;
    if (exchange->timing.running)
        fl_exchange_clear_time_limit(exchange);
    exchange->timing.expired = true;
    FL_LIST_APPEND(&context->expired, exchange, timing.before, timing.after);
}

/* All of its length has been sent: what the app still does is for nobody to cancel. */
static bool is_delivered(const fl_exchange *exchange) {
    const fl_response *response = &exchange->response;
    return response->head_complete && response->framing == FL_FRAMING_LENGTH && response->length_left == 0 &&
           response->out.length == 0;
}

void fl_exchange_client_gone(fl_exchange *exchange) {
    if (exchange->context == NULL || is_delivered(exchange))
        return;
    const fl_limits *limits = &exchange->context->limits;
    if (exchange->request.mcp_call) { /* nothing else limits it, once it lives long */
        if (!exchange->timing.running)
            fl_exchange_set_time_limit(exchange, limits->request_timeout);
        return;
    }
    bool cancelled = limits->cancel_abandoned || (limits->cancel_streams && exchange->long_lived);
    if (cancelled && !exchange->timing.expired && !exchange->timing.timed_out && !exchange->response.switches_protocol)
        expire(exchange);
}

static void time_out(fl_exchange *exchange) {
    fl_context *context = exchange->context;
    if (!exchange->timing.expired)
        expire(exchange);
    exchange->timing.timed_out = true;
    if (!exchange->timing.stopped)
        context->counts.timed_out++;
    if (exchange->connection != NULL)
        fl_exchange_time_out(exchange);
}

void fl_context_expire(fl_context *context, int most) {
    fl_exchange *exchange;
    for (int i = 0; i < most && (exchange = context->time_limits) != NULL && exchange->timing.expires_at <= context->now; i++)
        if (exchange->connection != NULL && awaits_client(exchange))
            fl_exchange_restart_time_limit(exchange);
        else
            time_out(exchange);
}

/* Whether nobody has told its owner to end. */
static bool goes_on(const fl_exchange *exchange) {
    return !exchange->timing.timed_out && !(exchange->timing.expired && exchange->connection == NULL);
}

void fl_context_stop_all(fl_context *context, bool streams) {
    for (fl_exchange *exchange = context->served; exchange != NULL; exchange = exchange->next)
        if (goes_on(exchange) && (streams || !exchange->long_lived)) {
            exchange->timing.stopped = true;
            time_out(exchange);
        }
}

uint64_t fl_context_next_expired(fl_context *context) {
    fl_exchange *exchange = context->expired.first;
    if (exchange == NULL)
        return 0;
    fl_exchange_clear_time_limit(exchange);
    return exchange->id;
}
