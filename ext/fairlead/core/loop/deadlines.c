/* Deadlines of connections and of waiting requests, and the timer for the next one. Part of the loop: its contract is in loop.h. */
#include "loop.h"
#include "internal.h"

enum {
    RELEASE_AGAIN = 10000,              /* microseconds, as long as a draining loop has connections */
    ENDS_A_TURN = 64,                   /* of each kind: thousands may expire together, and each takes some microseconds */
    REJECTIONS_A_TURN = FL_POLL_EVENTS, /* of each queue, and by time limits: no fewer than a turn may bring */
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

static uint64_t earlier(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

void fl_loop_set_timer(fl_loop *loop) {
    fl_context *context = &loop->context;
    uint64_t earliest = UINT64_MAX;
    context->timer_stale = false;
    for (int kind = FL_DEADLINE_NONE + 1; kind < FL_DEADLINE_KINDS; kind++)
        if (context->deadlines[kind].first != NULL)
            earliest = earlier(earliest, context->deadlines[kind].first->at);
    for (int queue = 0; queue < (loop->lanes.used ? FL_LANES : 1); queue++)
        if (loop->queues[queue].first != NULL)
            earliest = earlier(earliest, loop->queues[queue].first->queueing.ready_at + context->limits.queue_timeout);
    if (context->time_limits != NULL)
        earliest = earlier(earliest, context->time_limits->timing.expires_at);
    if (loop->accepting.again_at != 0)
        earliest = earlier(earliest, loop->accepting.again_at);
    if (context->handshakes.first != NULL && loop->turns.handshakes_again_at > context->now)
        earliest = earlier(earliest, loop->turns.handshakes_again_at);
    if (context->draining && context->connections != NULL)
        earliest = earlier(earliest, context->now + RELEASE_AGAIN);
    /* A timer that fires too early costs one turn; setting it anew costs a system call each time. */
    if (earliest != UINT64_MAX && (context->timer <= context->now || earliest < context->timer)) {
        context->timer = earliest;
        fl_poll_set_timer(&context->poll, earliest);
    }
}
