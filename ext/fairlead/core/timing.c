/* How long requests that are being served may take. Part of the loop: its contract is in loop.h.
 * Most have the same limit, so a list in order of time is kept by appending; one with a longer limit of its own is passed
 * by those that come after it. */
#include "loop.h"
#include "loop_parts.h"
#include "platform.h"

static void append(fl_loop *loop, fl_exchange *exchange) {
    fl_exchange *before = loop->timed.last;
    while (before != NULL && before->time_ends_at > exchange->time_ends_at)
        before = before->timed_before;
    exchange->timed_before = before;
    exchange->timed_after = before != NULL ? before->timed_after : loop->timed.first;
    if (exchange->timed_after != NULL)
        exchange->timed_after->timed_before = exchange;
    else
        loop->timed.last = exchange;
    if (before != NULL)
        before->timed_after = exchange;
    else
        loop->timed.first = exchange;
    exchange->timed = true;
    loop->timer_stale = true;
    if (atomic_load(&loop->resting)) /* who leads waits already, and whoever has this one may not come home in time */
        fl_loop_set_timer(loop);
}

void fl_loop_stop_time(fl_exchange *exchange) {
    fl_loop *loop = exchange->loop;
    fl_exchange **first = exchange->timed ? &loop->timed.first : &loop->overdue.first;
    fl_exchange **last = exchange->timed ? &loop->timed.last : &loop->overdue.last;
    if (exchange->timed_before != NULL)
        exchange->timed_before->timed_after = exchange->timed_after;
    else
        *first = exchange->timed_after;
    if (exchange->timed_after != NULL)
        exchange->timed_after->timed_before = exchange->timed_before;
    else
        *last = exchange->timed_before;
    exchange->timed_before = exchange->timed_after = NULL;
    exchange->timed = exchange->overdue = false;
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
    append(exchange->loop, exchange);
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
    for (int i = 0; i < most && (exchange = loop->timed.first) != NULL && exchange->time_ends_at <= loop->now; i++)
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
