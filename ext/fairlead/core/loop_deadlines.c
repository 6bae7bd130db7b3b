/* Deadlines of connections and of requests that wait, and the timer that is set for the next one. Part of the loop: its
 * contract is in loop.h. */
#include "loop.h"
#include "loop_parts.h"

enum {
    HAND_OVER_AGAIN = 10000, /* microseconds, after siblings could not take what we have to give */
    ENDS_A_TURN = 64,        /* of each kind: who came with many may go with many, and each takes some microseconds */
    REFUSALS_A_TURN = FL_POLL_EVENTS, /* of each queue, and of requests whose time is up: no fewer than a turn may bring */
};

void fl_loop_set_deadline(fl_connection *connection, fl_deadline_kind kind) {
    fl_loop *loop = connection->loop;
    fl_deadline_kind before = connection->deadline_kind;
    if (before != FL_DEADLINE_NONE) {
        if (connection->deadline_before != NULL)
            connection->deadline_before->deadline_after = connection->deadline_after;
        else
            loop->deadlines[before].first = connection->deadline_after;
        if (connection->deadline_after != NULL)
            connection->deadline_after->deadline_before = connection->deadline_before;
        else
            loop->deadlines[before].last = connection->deadline_before;
    }
    connection->deadline_kind = (uint8_t) kind;
    if (kind == FL_DEADLINE_NONE)
        return;
    connection->deadline = loop->now + loop->limits.deadlines[kind];
    loop->timer_stale = true;
    connection->progress_at_deadline = connection->progress;
    connection->deadline_after = NULL;
    connection->deadline_before = loop->deadlines[kind].last;
    if (connection->deadline_before != NULL)
        connection->deadline_before->deadline_after = connection;
    else
        loop->deadlines[kind].first = connection;
    loop->deadlines[kind].last = connection;
}

void fl_loop_see_to_deadlines(fl_loop *loop) {
    for (int kind = FL_DEADLINE_NONE + 1; kind < FL_DEADLINE_KINDS; kind++)
        for (int i = 0; i < ENDS_A_TURN; i++) {
            fl_connection *connection = loop->deadlines[kind].first;
            if (connection == NULL || connection->deadline > loop->now)
                break;
            fl_connection_deadline(connection);
        }
    for (int queue = 0; queue < (loop->lanes_used ? FL_LANES : 1); queue++)
        for (int i = 0; i < REFUSALS_A_TURN; i++) {
            fl_exchange *exchange = loop->lanes[queue].first;
            if (exchange == NULL || !fl_loop_is_too_late(exchange))
                break;
            fl_connection_refuse(exchange->connection, FL_QUEUE_TIMEOUT);
        }
    if (loop->first_timed != NULL)
        fl_loop_see_to_time(loop, REFUSALS_A_TURN);
}

void fl_loop_set_timer(fl_loop *loop) {
    uint64_t earliest = UINT64_MAX;
    loop->timer_stale = false;
    for (int kind = FL_DEADLINE_NONE + 1; kind < FL_DEADLINE_KINDS; kind++)
        if (loop->deadlines[kind].first != NULL && loop->deadlines[kind].first->deadline < earliest)
            earliest = loop->deadlines[kind].first->deadline;
    for (int queue = 0; queue < (loop->lanes_used ? FL_LANES : 1); queue++) {
        fl_exchange *oldest = loop->lanes[queue].first;
        if (oldest != NULL && oldest->ready_at + loop->limits.queue_timeout < earliest)
            earliest = oldest->ready_at + loop->limits.queue_timeout;
    }
    if (loop->first_timed != NULL && loop->first_timed->time_ends_at < earliest)
        earliest = loop->first_timed->time_ends_at;
    if (loop->listen_again != 0 && loop->listen_again < earliest)
        earliest = loop->listen_again;
    if (loop->handing_over && loop->connections != NULL && loop->now + HAND_OVER_AGAIN < earliest)
        earliest = loop->now + HAND_OVER_AGAIN;
    /* A timer that fires too early costs one turn; setting it anew costs a system call each time. */
    if (earliest != UINT64_MAX && (loop->timer <= loop->now || earliest < loop->timer)) {
        loop->timer = earliest;
        fl_poll_set_timer(&loop->poll, earliest);
    }
}
