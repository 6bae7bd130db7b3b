/* When staged responses are sent. Part of the loop: its contract is in loop.h. */
#include "loop.h"
#include "internal.h"
#include "base/platform.h"

enum {
    SHORT = 100,           /* microseconds from one request to the next */
    GATHERED_BELOW = 2000, /* microseconds from one request to the next */
    GATHERED = 4,          /* requests whose responses are gathered, within */
    MIN_GATHERED = 200,    /* at least, */
    MAX_GATHERED = 1000,   /* and at most so many microseconds */
};

/* Responses are gathered while requests are so short that waking a client for each costs more than the client waits. Other requests
 * must follow (several, unless they are very short), and the watch thread must be there to send what stays. */
bool fl_loop_gathers(const fl_context *context) {
    const fl_loop *loop = fl_loop_of(context);
    uint32_t enough = loop->pace.interval < SHORT ? 1 : GATHERED;
    bool more = loop->ready.count + loop->context.counts.in_flight > enough; /* one of these has just been answered */
    return more && loop->watched && !loop->context.draining && loop->pace.interval < GATHERED_BELOW;
}

static bool is_late(const fl_loop *loop, uint64_t now, uint64_t most) {
    uint64_t since = atomic_load_explicit(&loop->context.staged_at, memory_order_relaxed);
    return since != 0 && now >= since + most;
}

void fl_loop_flush_late(fl_context *context) {
    const fl_loop *loop = fl_loop_of(context);
    int64_t most = GATHERED * loop->pace.interval;
    most = most < MIN_GATHERED ? MIN_GATHERED : most > MAX_GATHERED ? MAX_GATHERED : most;
    if (is_late(loop, loop->context.now, (uint64_t) most))
        fl_context_flush(context);
}

void fl_loop_flush_complete(fl_loop *loop, uint64_t microseconds) {
    if (!is_late(loop, fl_clock(), microseconds) || pthread_mutex_trylock(&loop->context.lock) != 0)
        return;
    fl_context_send_staged(&loop->context, true);
    pthread_mutex_unlock(&loop->context.lock);
}
