/* When staged responses are sent. Part of the loop: its contract is in loop.h. */
#include "loop.h"
#include "internal.h"
#include "base/platform.h"

enum {
    VERY_SHORT = 100,      /* microseconds from one request to the next */
    SHORT = 2000,          /* likewise: longer requests are not batched */
    BATCH = 4,             /* requests: their usual time is how long responses wait, */
    MIN_BATCH_TIME = 200,  /* but at least, */
    MAX_BATCH_TIME = 1000, /* and at most so many microseconds */
};

/* Responses are batched while requests are so short that waking a client for each costs more than the client waits. Other requests must
 * follow (several, unless they are very short), and the watch thread must be there to send what stays. */
bool fl_loop_batches_responses(const fl_context *context) {
    const fl_loop *loop = fl_loop_of(context);
    uint32_t enough = loop->pace.interval < VERY_SHORT ? 1 : BATCH;
    bool more = loop->ready.count + loop->context.counts.in_flight > enough; /* one of these has just been answered */
    return more && loop->watched && !loop->context.draining && loop->pace.interval < SHORT;
}

static bool is_late(const fl_loop *loop, uint64_t now, uint64_t most) {
    uint64_t since = atomic_load_explicit(&loop->context.staged_at, memory_order_relaxed);
    return since != 0 && now >= since + most;
}

void fl_loop_flush_late(fl_context *context) {
    const fl_loop *loop = fl_loop_of(context);
    int64_t most = BATCH * loop->pace.interval;
    most = most < MIN_BATCH_TIME ? MIN_BATCH_TIME : most > MAX_BATCH_TIME ? MAX_BATCH_TIME : most;
    if (is_late(loop, loop->context.now, (uint64_t) most))
        fl_context_flush(context);
}

void fl_loop_flush_complete(fl_loop *loop, uint64_t microseconds) {
    if (!is_late(loop, fl_clock(), microseconds) || pthread_mutex_trylock(&loop->context.lock) != 0)
        return;
    uint32_t ready = loop->ready.count;
    fl_context_send_staged(&loop->context, true);
    if (loop->ready.count > ready || loop->context.woken.first != NULL)
        fl_loop_wake(loop); /* the driver may be about to wait */
    pthread_mutex_unlock(&loop->context.lock);
}
