/* Deadlines of connections and of waiting requests, and the timer for the next one. Part of the loop: its contract is in loop.h. */
#include "loop.h"
#include "internal.h"

enum {
    HAND_OVER_AGAIN = 10000, /* microseconds, if siblings could not take all connections */
    ENDS_A_TURN = 64,        /* of each kind: thousands may expire together, and each takes some microseconds */
    REJECTIONS_A_TURN =
        FL_POLL_EVENTS, /* of each queue, and of requests past their time limit: no fewer than a turn may bring */
};

void fl_loop_process_deadlines(fl_loop *loop) {
    for (int kind = FL_DEADLINE_NONE + 1; kind < FL_DEADLINE_KINDS; kind++)
        for (int i = 0; i < ENDS_A_TURN; i++) {
            fl_deadline *deadline = loop->context.deadlines[kind].first;
            if (deadline == NULL || deadline->at > loop->context.now)
                break;
            fl_deadline_expired(deadline);
        }
    for (int queue = 0; queue < (loop->lanes.used ? FL_LANES : 1); queue++)
        for (int i = 0; i < REJECTIONS_A_TURN; i++) {
            fl_exchange *exchange = loop->queues[queue].first;
            if (exchange == NULL || !fl_loop_is_too_late(exchange))
                break;
            fl_exchange_reject(exchange, FL_QUEUE_TIMEOUT);
        }
    if (loop->context.time_limits != NULL)
        fl_context_expire(&loop->context, REJECTIONS_A_TURN);
}

void fl_loop_set_timer(fl_loop *loop) {
    uint64_t earliest = UINT64_MAX;
    loop->context.timer_stale = false;
    for (int kind = FL_DEADLINE_NONE + 1; kind < FL_DEADLINE_KINDS; kind++)
        if (loop->context.deadlines[kind].first != NULL && loop->context.deadlines[kind].first->at < earliest)
            earliest = loop->context.deadlines[kind].first->at;
    for (int queue = 0; queue < (loop->lanes.used ? FL_LANES : 1); queue++) {
        fl_exchange *oldest = loop->queues[queue].first;
        if (oldest != NULL && oldest->queueing.ready_at + loop->context.limits.queue_timeout < earliest)
            earliest = oldest->queueing.ready_at + loop->context.limits.queue_timeout;
    }
    if (loop->context.time_limits != NULL && loop->context.time_limits->timing.expires_at < earliest)
        earliest = loop->context.time_limits->timing.expires_at;
    if (loop->accepting.again_at != 0 && loop->accepting.again_at < earliest)
        earliest = loop->accepting.again_at;
    if (loop->context.handing_over && loop->context.connections != NULL && loop->context.now + HAND_OVER_AGAIN < earliest)
        earliest = loop->context.now + HAND_OVER_AGAIN;
    /* A timer that fires too early costs one turn; setting it anew costs a system call each time. */
    if (earliest != UINT64_MAX && (loop->turns.timer <= loop->context.now || earliest < loop->turns.timer)) {
        loop->turns.timer = earliest;
        fl_poll_set_timer(&loop->context.poll, earliest);
    }
}
