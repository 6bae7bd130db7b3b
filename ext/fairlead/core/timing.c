/* How long requests that are being served may take. Part of the loop: its contract is in loop.h.
 * Each may have a limit of its own, so those whose time runs are kept in a pairing heap: entering and leaving cost the same
 * however many others there are, and whatever their limits. */
#include "loop.h"
#include "loop_parts.h"
#include "platform.h"

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
    fl_loop *loop = exchange->loop;
    fl_exchange *below = meld_siblings(exchange->timed_below);
    exchange->timed_below = NULL;
    if (loop->first_timed == exchange) {
        loop->first_timed = below;
    } else {
        fl_exchange *before = exchange->timed_before, *after = exchange->timed_after;
        if (before->timed_below == exchange) /* its parent */
            before->timed_below = after;
        else
            before->timed_after = after;
        if (after != NULL)
            after->timed_before = before;
        loop->first_timed = meld(loop->first_timed, below);
    }
    exchange->timed_before = exchange->timed_after = NULL;
    exchange->timed = false;
}

static void enter_timed(fl_loop *loop, fl_exchange *exchange) {
    loop->first_timed = meld(loop->first_timed, exchange);
    exchange->timed = true;
    loop->timer_stale = true;
    if (atomic_load(&loop->resting)) /* who leads waits already, and whoever has this one may not come home in time */
        fl_loop_set_timer(loop);
}

void fl_loop_stop_time(fl_exchange *exchange) {
    fl_loop *loop = exchange->loop;
    if (exchange->timed)
        leave_timed(exchange);
    if (!exchange->overdue)
        return;
    if (exchange->timed_before != NULL)
        exchange->timed_before->timed_after = exchange->timed_after;
    else
        loop->overdue.first = exchange->timed_after;
    if (exchange->timed_after != NULL)
        exchange->timed_after->timed_before = exchange->timed_before;
    else
        loop->overdue.last = exchange->timed_before;
    exchange->timed_before = exchange->timed_after = NULL;
    exchange->overdue = false;
}

void fl_exchange_limit_time(fl_exchange *exchange, uint64_t microseconds) {
    if (exchange->loop == NULL || exchange->timed_out || exchange->overdue)
        return;
    if (exchange->timed)
        fl_loop_stop_time(exchange);
    exchange->time_limit = microseconds;
    if (microseconds == 0)
        return;
    exchange->time_ends_at = fl_clock() + microseconds;
    enter_timed(exchange->loop, exchange);
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
    fl_loop *loop = exchange->loop;
    if (exchange->timed)
        fl_loop_stop_time(exchange);
    exchange->overdue = true;
    exchange->timed_before = loop->overdue.last;
    if (loop->overdue.last != NULL)
        loop->overdue.last->timed_after = exchange;
    else
        loop->overdue.first = exchange;
    loop->overdue.last = exchange;
}

void fl_loop_abandon_exchange(fl_exchange *exchange) {
    bool told = exchange->overdue || exchange->timed_out;
    if (exchange->loop != NULL && exchange->loop->limits.cancel_abandoned && !told && !exchange->takes_over)
        end_time(exchange);
}

static void time_out(fl_exchange *exchange) {
    fl_loop *loop = exchange->loop;
    if (!exchange->overdue)
        end_time(exchange);
    exchange->timed_out = true;
    loop->counts.timed_out++;
    if (exchange->connection != NULL)
        fl_connection_time_out(exchange->connection);
}

void fl_loop_see_to_time(fl_loop *loop, int most) {
    fl_exchange *exchange;
    for (int i = 0; i < most && (exchange = loop->first_timed) != NULL && exchange->time_ends_at <= loop->now; i++)
        if (exchange->connection != NULL && client_is_awaited(exchange))
            fl_exchange_moves_on(exchange);
        else
            time_out(exchange);
}

void fl_loop_time_all_out(fl_loop *loop) {
    for (fl_exchange *exchange = loop->served; exchange != NULL; exchange = exchange->next)
        if (!exchange->timed_out)
            time_out(exchange);
}

uint64_t fl_loop_overdue(fl_loop *loop) {
    fl_exchange *exchange = loop->overdue.first;
    if (exchange == NULL)
        return 0;
    fl_loop_stop_time(exchange);
    return exchange->id;
}
