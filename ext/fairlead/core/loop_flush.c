/* When what has been staged is sent. Part of the loop: its contract is in loop.h. */
#include "loop.h"
#include "platform.h"

enum {
    SHORT = 100,           /* microseconds from one request to the next */
    GATHERED_BELOW = 2000, /* microseconds from one request to the next */
    GATHERED = 4,          /* requests that run meanwhile, as far as they take */
    LEAST_GATHERED = 200,  /* microseconds, */
    MOST_GATHERED = 1000,  /* between which that is */
};

void fl_loop_add_dirty(fl_connection *connection) {
    fl_loop *loop = connection->loop;
    if (atomic_load_explicit(&loop->staged_at, memory_order_relaxed) == 0)
        atomic_store_explicit(&loop->staged_at, loop->now, memory_order_relaxed);
    if (connection->dirty)
        return;
    connection->dirty = true;
    connection->dirty_next = loop->dirty;
    loop->dirty = connection;
}

/* With `only_complete`, a connection whose request is still being served stays on the list: that takes the GVL. */
static void send_staged(fl_loop *loop, bool only_complete) {
    fl_connection *connection = loop->dirty, *next;
    loop->dirty = NULL;
    atomic_store_explicit(&loop->staged_at, 0, memory_order_relaxed);
    for (; connection != NULL; connection = next) {
        next = connection->dirty_next;
        if (only_complete && connection->state == FL_CONNECTION_SERVED) {
            connection->dirty_next = loop->dirty;
            loop->dirty = connection;
            continue;
        }
        connection->dirty = false;
        if (connection->state == FL_CONNECTION_SERVED)
            fl_exchange_flush(connection->exchange);
        if (connection->state != FL_CONNECTION_CLOSED && connection->out.length > 0)
            fl_connection_send(connection, NULL);
    }
}

void fl_loop_flush(fl_loop *loop) {
    if (loop->dirty != NULL)
        send_staged(loop, false);
}

bool fl_loop_gathers(const fl_loop *loop) {
    uint32_t enough = loop->take_interval < SHORT ? 1 : GATHERED;
    bool more = loop->ready.count + loop->counts.in_flight > enough; /* one of these is what has been answered */
    return more && loop->watched && !loop->draining && loop->take_interval < GATHERED_BELOW;
}

static bool is_late(const fl_loop *loop, uint64_t now, uint64_t most) {
    uint64_t since = atomic_load_explicit(&loop->staged_at, memory_order_relaxed);
    return since != 0 && now >= since + most;
}

void fl_loop_flush_late(fl_loop *loop) {
    int64_t most = GATHERED * loop->take_interval;
    most = most < LEAST_GATHERED ? LEAST_GATHERED : most > MOST_GATHERED ? MOST_GATHERED : most;
    if (is_late(loop, loop->now, (uint64_t) most))
        fl_loop_flush(loop);
}

void fl_loop_flush_complete(fl_loop *loop, uint64_t microseconds) {
    if (!is_late(loop, fl_clock(), microseconds) || pthread_mutex_trylock(&loop->lock) != 0)
        return;
    send_staged(loop, true);
    pthread_mutex_unlock(&loop->lock);
}
