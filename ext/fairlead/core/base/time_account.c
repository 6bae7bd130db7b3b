#include "time_account.h"

#include <string.h>

_Atomic uint64_t fl_collected;

/* What a request waits for if its fibers wait for several things: the first of these. One that waits for a lock waits mostly for the
 * others. */
static const uint8_t precedence[] = {FL_KIND_database, FL_KIND_connection, FL_KIND_socket, FL_KIND_blocked,
                                     FL_KIND_sleep,    FL_KIND_write,      FL_KIND_other,  FL_KIND_lock};

static uint64_t get(const _Atomic uint64_t *value) {
    return atomic_load_explicit(value, memory_order_relaxed);
}

static void run(fl_time_account *account, const fl_thread_clock *clock, uint64_t now) {
    account->clock = clock;
    account->gvl = get(&clock->gvl);
    account->blocked = get(&clock->blocked);
    account->collected = get(&fl_collected);
    account->since = now;
}

void fl_account_begin(fl_time_account *account, uint64_t id, fl_thread_clock *clock, uint64_t now) {
    memset(account, 0, sizeof *account);
    account->id = id;
    atomic_store_explicit(&clock->looks, false, memory_order_relaxed);
    run(account, clock, now);
}

/* Moves up to `amount` of the time that is left to a kind. */
static void enter(fl_time_account *account, fl_kind kind, uint64_t amount, uint64_t *left) {
    if (amount > *left)
        amount = *left;
    account->kinds[kind] += amount;
    *left -= amount;
}

void fl_account_settle(fl_time_account *account, uint64_t now) {
    if (account->ended || now <= account->since)
        return;
    uint64_t left = now - account->since;
    account->since = now;
    if (account->clock == NULL) {
        account->kinds[account->waits_for] += left;
        return;
    }
    uint64_t gvl = get(&account->clock->gvl), blocked = get(&account->clock->blocked), collected = get(&fl_collected);
    enter(account, FL_KIND_gvl, gvl - account->gvl, &left);
    enter(account, FL_KIND_blocked, blocked - account->blocked, &left);
    enter(account, FL_KIND_gc, collected - account->collected, &left); /* also of other threads, while this one had no GVL */
    enter(account, FL_KIND_cpu, left, &left);
    account->gvl = gvl;
    account->blocked = blocked;
    account->collected = collected;
}

static fl_kind awaited(const fl_time_account *account) {
    for (size_t i = 0; i < sizeof precedence; i++)
        if (account->waits[precedence[i]] > 0)
            return (fl_kind) precedence[i];
    return FL_KIND_turn;
}

void fl_account_leave(fl_time_account *account, uint64_t now) {
    if (account->ended || account->clock == NULL)
        return;
    fl_account_settle(account, now);
    account->clock = NULL;
    account->waits_for = (uint8_t) awaited(account);
}

/* When the request could go on, as far as is known: neither before its reactor's look for events before the last one, nor while the
 * reactor slept. */
static uint64_t ready_since(const fl_time_account *account, const fl_thread_clock *clock) {
    uint64_t woken = get(&clock->ready_at);
    uint64_t ready = account->due != 0 ? account->due : woken > clock->polled_at[1] ? woken : clock->polled_at[1];
    return ready > account->since ? ready : account->since;
}

void fl_account_resume(fl_time_account *account, fl_thread_clock *clock, uint64_t now) {
    /* Also if it has ended: its fiber has more to do. */
    atomic_store_explicit(&clock->looks, false, memory_order_relaxed);
    if (account->ended || account->clock != NULL)
        return;
    account->waited = now > account->since ? now - account->since : 0;
    if (account->waits_for != FL_KIND_turn) {
        uint64_t ready = ready_since(account, clock);
        fl_account_settle(account, ready < now ? ready : now);
        account->waits_for = FL_KIND_turn;
    }
    uint64_t woken = get(&clock->ready_at), held = get(&clock->held_at);
    if (woken >= account->since && held > woken && held <= now) { /* the thread had to wait for the GVL meanwhile */
        fl_account_settle(account, woken);
        account->waits_for = FL_KIND_gvl;
        fl_account_settle(account, held);
        account->waits_for = FL_KIND_turn;
    }
    fl_account_settle(account, now);
    account->due = 0;
    run(account, clock, now);
}
