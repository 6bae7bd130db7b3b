/* Why a reactor is away: blocked without the GVL, stuck with it, or computing. The contract is in internal.h. */
#include "internal.h"

enum {
    ANSWER_WITHIN = 60000, /* microseconds of its own CPU time, since a busy machine may delay a thread */
    SAMPLE = 4000,         /* microseconds between two looks at a thread's CPU clock */
};

_Atomic(fl_thread *) fl_gvl_holder;
_Atomic uint64_t fl_gvl_progress;
_Atomic uint64_t fl_collecting_since;

/* A thread stays asleep if its CPU clock stands still, and the kernel reports that it sleeps. */
bool fl_stays_asleep(fl_sample *sample, const fl_thread *thread, uint64_t now) {
    uint64_t clock = fl_task_clock(&thread->task);
    if (sample->thread != thread) {
        *sample = (fl_sample) {.thread = thread, .at = now, .clock = clock};
    } else if (now - sample->at >= SAMPLE) {
        bool asleep = (clock - sample->clock) * 10 < now - sample->at && fl_task_sleeps(&thread->task);
        if (!asleep)
            sample->asleep_since = 0;
        else if (sample->asleep_since == 0)
            sample->asleep_since = sample->at;
        sample->at = now;
        sample->clock = clock;
    }
    return sample->asleep_since != 0;
}

void fl_watch_check_gvl(fl_watch *watch, uint64_t now) {
    const fl_thread *holder = atomic_load(&fl_gvl_holder);
    uint64_t progress = atomic_load(&fl_gvl_progress);
    bool collects = atomic_load(&fl_collecting_since) != 0;
    if (progress != watch->progress_seen || holder == NULL)
        watch->held_since = now;
    if (collects || watch->held_since == now)
        watch->asked_at = 0;
    watch->progress_seen = progress;
    watch->unresponsive = false;
    if (collects || watch->request_yield == NULL || now < watch->held_since + watch->limits.computing)
        return;
    uint64_t clock = fl_task_clock(&holder->task);
    if (watch->asked_at == 0)
        watch->asked_at = clock;
    watch->request_yield();
    watch->unresponsive = clock > watch->asked_at + ANSWER_WITHIN;
}

fl_stall fl_watch_classify(fl_watch *watch, const fl_reactor *reactor, uint64_t now, uint64_t *away) {
    *away = 0;
    if (atomic_load(&reactor->retired)) /* it retired while it was given the lead */
        return FL_STALL_BLOCKED;
    const fl_thread *thread = reactor->thread;
    int gvl = atomic_load(&thread->gvl);
    bool in_loop = atomic_load_explicit(&reactor->in_loop, memory_order_acquire);
    uint64_t stamp = atomic_load_explicit(&reactor->stamp, memory_order_relaxed);
    uint64_t since = atomic_load(&thread->gvl_since);
    uint64_t from = in_loop ? since : stamp;
    *away = now > from ? now - from : 0;
    /* A reactor in its loop only waits for work, unless it has work and does not get the GVL. */
    if (in_loop ? gvl != FL_GVL_WANTED || now < since + watch->limits.blocked : *away < watch->limits.blocked) {
        watch->sample.thread = NULL;
        return FL_STALL_NONE;
    }
    /* Many short calls are as bad as a long one. */
    if (gvl == FL_GVL_RELEASED)
        return now > since + watch->limits.blocked || *away > watch->limits.computing ? FL_STALL_BLOCKED : FL_STALL_NONE;
    const fl_thread *holder = atomic_load(&fl_gvl_holder);
    if (holder == NULL)
        return FL_STALL_NONE;
    if (fl_stays_asleep(&watch->sample, holder, now) ? *away > watch->limits.stuck : watch->unresponsive)
        return FL_STALL_STUCK;
    return FL_STALL_COMPUTING;
}
