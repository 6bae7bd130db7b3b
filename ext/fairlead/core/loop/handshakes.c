/* How much of a worker handshakes may take. They compute for long: a crowd of them would leave little to the requests. Part of the loop:
 * its contract is in loop.h. */
#include "internal.h"
#include "loop.h"

enum {
    LAST = 2000,                /* microseconds of a turn, */
    LAST_BESIDE_REQUESTS = 500, /* and while there are requests; a handshake that has begun goes on to its next wait */
    MANY = 256, /* handshakes that can go on: until they are fewer, no further connections are accepted for them */
    FEWER = MANY / 2,
};

/* A break is as long as what came before it. */
static void go_on(fl_loop *loop) {
    uint64_t began = fl_clock();
    bool beside_requests = loop->ready.count > 0 || loop->context.counts.in_flight > 0;
    fl_context_shake_hands(&loop->context, beside_requests ? LAST_BESIDE_REQUESTS : LAST);
    uint64_t ended = fl_clock();
    loop->turns.handshakes_again_at = ended + (ended - began);
}

/* The kernel's backlog keeps the connections that are not accepted, or siblings accept them. */
static void limit(fl_loop *loop) {
    bool many = loop->context.handshakes.count > (loop->accepting.handshakes_paused ? FEWER : MANY);
    if (many == loop->accepting.handshakes_paused)
        return;
    loop->accepting.handshakes_paused = many;
    fl_loop_resume_accepting(loop);
}

bool fl_loop_may_shake_hands(const fl_loop *loop) {
    return loop->context.handshakes.first != NULL && (loop->ready.count == 0 || fl_clock() >= loop->turns.handshakes_again_at);
}

void fl_loop_process_handshakes(fl_loop *loop, bool without_gvl) {
    bool may = fl_loop_may_shake_hands(loop);
    if (may && without_gvl)
        go_on(loop);
    limit(loop);
    if (may && loop->context.handshakes.first != NULL)
        fl_poll_wake(&loop->context.poll);
    loop->context.timer_stale |= !may;
}

void fl_loop_shake_hands(fl_loop *loop) {
    fl_loop_process_handshakes(loop, true);
}
