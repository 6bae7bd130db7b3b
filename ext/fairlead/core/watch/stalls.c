#include "report.h"
#include "watch.h"

enum {
    LASTING = 5000000,   /* microseconds after which a stall is reported though it goes on */
    GVL_KEPT = 1000000,  /* microseconds that one thread has held the GVL, after which the reporter cannot be relied on */
    FIRST_LOOK = 2000,   /* microseconds that the first look at a thread counts for: it does not show what was before */
    COMPUTING = 4,       /* times the limit: computing is ordinary work, and reported later */
    LOOKS = 4,           /* a stall of any length has its backtrace taken when it has grown by one part of so many */
    UNREPORTED = 100000, /* microseconds after which an absence is shown where none is reported; below, it is ordinary work */
};

static uint64_t get(const _Atomic uint64_t *field) {
    return atomic_load_explicit(field, memory_order_relaxed);
}

static void set(_Atomic uint64_t *field, uint64_t value) {
    atomic_store_explicit(field, value, memory_order_relaxed);
}

bool fl_stall_goes_on(const fl_watch *watch, int number) {
    return fl_watch_away_since(watch, number) == get(&watch->stalls[number].began);
}

fl_stall fl_stall_kind(const fl_stall_record *record) {
    uint64_t released = get(&record->released), asleep = get(&record->asleep), computed = get(&record->computed);
    if (released > asleep + computed)
        return FL_STALL_BLOCKED;
    return asleep > computed ? FL_STALL_STUCK : FL_STALL_COMPUTING;
}

static void open_record(fl_stall_record *record, const fl_thread *thread, uint64_t began) {
    set(&record->began, began);
    set(&record->lasted, 0);
    set(&record->released, 0);
    set(&record->asleep, 0);
    set(&record->computed, 0);
    set(&record->asked, 0);
    set(&record->handed, 0);
    atomic_store(&record->foreign, false);
    atomic_store(&record->relief, false);
    atomic_store(&record->sibling, -1);
    record->subject = NULL;
    record->thread = thread;
    record->delayed_before = fl_task_run_delay(&thread->task);
    atomic_store(&record->phase, FL_STALL_OPEN);
}

/* The thread to blame: the reactor's own, or a thread that is no reactor and holds the GVL that the reactor waits for. */
static const fl_thread *subject_of(const fl_thread *thread, int gvl) {
    const fl_thread *holder = atomic_load(&fl_gvl_holder);
    bool foreign = gvl == FL_GVL_WANTED && holder != NULL && atomic_load(&holder->watch) == NULL;
    return foreign ? holder : thread;
}

/* Adds the time since the last look to the record. Returns its kind. */
static fl_stall tally(fl_stall_record *record, const fl_thread *thread, const fl_thread *subject, int gvl, uint64_t now) {
    uint64_t clock = fl_task_clock(&subject->task);
    bool clock_stands = record->subject == subject && (clock - record->last_clock) * 10 < now - record->last_look;
    fl_stall kind = FL_STALL_COMPUTING;
    if (gvl == FL_GVL_RELEASED)
        kind = FL_STALL_BLOCKED;
    else if ((gvl == FL_GVL_HELD || subject != thread) && clock_stands && fl_task_sleeps(&subject->task))
        kind = FL_STALL_STUCK;
    _Atomic uint64_t *count = kind == FL_STALL_BLOCKED ? &record->released
                              : kind == FL_STALL_STUCK ? &record->asleep
                                                       : &record->computed;
    bool waits_for_gvl = gvl == FL_GVL_WANTED && subject == thread;
    uint64_t took = kind == FL_STALL_COMPUTING ? clock - record->last_clock : now - record->last_look;
    if (!waits_for_gvl)
        set(count, get(count) + (record->subject == subject ? took : FIRST_LOOK));
    record->subject = subject;
    record->last_look = now;
    record->last_clock = clock;
    atomic_store(&record->foreign, subject != thread);
    return kind;
}

static uint64_t limit_of(const fl_watch *watch, const fl_stall_record *record) {
    return watch->limits.reported * (fl_stall_kind(record) == FL_STALL_COMPUTING ? COMPUTING : 1);
}

static uint64_t own_time(const fl_stall_record *record, uint64_t until) {
    uint64_t away = until - get(&record->began), delayed = fl_task_run_delay(&record->thread->task) - record->delayed_before;
    return away > delayed ? away - delayed : 0;
}

/* Microseconds in which the thread was seen to do something. One that waits for a CPU or the GVL does nothing. */
static uint64_t time_seen(const fl_stall_record *record) {
    return get(&record->released) + get(&record->asleep) + get(&record->computed);
}

bool fl_stall_is_due(const fl_watch *watch, const fl_stall_record *record) {
    return fl_stall_lasted(record) >= limit_of(watch, record);
}

/* Asks the kernel last, in own_time: most reactors are away for a few milliseconds only. */
static bool has_lasted(const fl_stall_record *record, uint64_t until, uint64_t limit) {
    return until - get(&record->began) >= limit && time_seen(record) >= limit / 2 && own_time(record, until) >= limit;
}

static void count_stall(fl_slot *slot, fl_stall kind) {
    fl_slot_field of_kind = FL_SLOT_stalls + (fl_slot_field) kind;
    fl_slot_set(slot, FL_SLOT_stalls, fl_slot_get(slot, FL_SLOT_stalls) + 1);
    fl_slot_set(slot, of_kind, fl_slot_get(slot, of_kind) + 1);
}

static void close_record(fl_watch *watch, fl_stall_record *record, uint64_t ended) {
    if (!fl_stall_is_long(record) || !has_lasted(record, ended, limit_of(watch, record))) {
        atomic_store(&record->phase, FL_STALL_CALM);
        return;
    }
    set(&record->lasted, own_time(record, ended));
    atomic_store(&record->phase, FL_STALL_OVER);
    fl_slot *slot = watch->loop->siblings.slot;
    if (slot != NULL)
        count_stall(slot, fl_stall_kind(record));
    fl_notifier_notify(&watch->reporter);
}

/* Has the backtrace taken by the reporter, or by the stalled thread itself if that holds the GVL. */
static void request_backtrace(fl_watch *watch, fl_stall_record *record, fl_stall kind, int gvl) {
    atomic_store(&record->wanted, kind);
    set(&record->asked, time_seen(record));
    if (atomic_load(&record->phase) == FL_STALL_OPEN)
        atomic_store(&record->phase, FL_STALL_LONG);
    fl_notifier_notify(&watch->reporter);
    if (gvl != FL_GVL_RELEASED)
        watch->request_backtrace();
}

/* Whether another backtrace tells more: most of the time has turned out to be of another kind, or it may be spent elsewhere by now. */
static bool may_have_moved_on(const fl_watch *watch, const fl_stall_record *record, fl_stall kind) {
    uint64_t seen = time_seen(record), pause = limit_of(watch, record) / 2;
    if (pause < seen / LOOKS)
        pause = seen / LOOKS;
    return kind != (fl_stall) atomic_load(&record->wanted) || seen >= get(&record->asked) + pause;
}

/* Requests the backtrace after half of the limit, because the stall may end before it is taken, and again while it goes on. */
static void update_record(fl_watch *watch, int number, fl_stall_record *record, uint64_t now) {
    const fl_thread *thread = watch->reactors[number].thread;
    int gvl = atomic_load(&thread->gvl);
    const fl_thread *subject = subject_of(thread, gvl);
    fl_stall looks_like = tally(record, thread, subject, gvl, now), kind = fl_stall_kind(record);
    int phase = atomic_load(&record->phase);
    bool reachable = gvl != FL_GVL_WANTED || subject != thread;
    bool due =
        phase == FL_STALL_OPEN ? has_lasted(record, now, limit_of(watch, record) / 2) : may_have_moved_on(watch, record, kind);
    if (due && reachable && looks_like == kind)
        request_backtrace(watch, record, kind, gvl);
    if (phase == FL_STALL_LONG && has_lasted(record, now, LASTING)) {
        atomic_store(&record->phase, FL_STALL_LASTING);
        fl_notifier_notify(&watch->reporter);
        if (now > watch->held_since + GVL_KEPT)
            fl_report_lasting(watch, number);
    }
}

static void publish(const fl_watch *watch, fl_stall kind, uint64_t began) {
    fl_slot *slot = watch->loop->siblings.slot;
    if (slot == NULL)
        return;
    fl_slot_set(slot, FL_SLOT_stalled_kind, kind);
    fl_slot_set(slot, FL_SLOT_stalled_us, (int64_t) began);
}

/* The oldest stall that goes on and is due: what is shown now is in the counters later. */
static void publish_oldest(const fl_watch *watch, int count, uint64_t now) {
    const fl_stall_record *oldest = NULL;
    for (int i = 0; i < count; i++) {
        const fl_stall_record *record = &watch->stalls[i];
        bool is_oldest = oldest == NULL || get(&record->began) < get(&oldest->began);
        if (fl_stall_is_long(record) && is_oldest && has_lasted(record, now, limit_of(watch, record)))
            oldest = record;
    }
    publish(watch, oldest == NULL ? FL_STALL_NONE : fl_stall_kind(oldest), oldest == NULL ? 0 : get(&oldest->began));
}

void fl_stalls_show_leader(const fl_watch *watch, fl_stall stall, uint64_t away, uint64_t now) {
    if (watch->limits.reported != 0)
        return;
    bool shown = stall != FL_STALL_NONE && away >= UNREPORTED;
    publish(watch, shown ? stall : FL_STALL_NONE, shown ? now - away : 0);
}

void fl_stalls_update(fl_watch *watch, uint64_t now) {
    if (watch->limits.reported == 0)
        return;
    int count = atomic_load(&watch->count);
    for (int i = 0; i < count; i++) {
        fl_stall_record *record = &watch->stalls[i];
        int phase = atomic_load(&record->phase);
        uint64_t since = fl_watch_away_since(watch, i);
        if (phase == FL_STALL_OVER || (phase == FL_STALL_CALM && (since == 0 || now < since + watch->limits.blocked)))
            continue;
        if (phase == FL_STALL_CALM)
            open_record(record, watch->reactors[i].thread, since);
        if (since == get(&record->began))
            update_record(watch, i, record, now);
        else
            close_record(watch, record, since > get(&record->began) ? since : now);
    }
    publish_oldest(watch, count, now);
}

uint64_t fl_stall_lasted(const fl_stall_record *record) {
    int phase = atomic_load(&record->phase);
    return phase == FL_STALL_OVER ? get(&record->lasted) : own_time(record, fl_clock());
}

bool fl_stalls_open(const fl_watch *watch) {
    for (int i = 0; i < atomic_load(&watch->count); i++) {
        int phase = atomic_load(&watch->stalls[i].phase);
        if (phase != FL_STALL_CALM && phase != FL_STALL_OVER)
            return true;
    }
    return false;
}

/* The record may still be of the stall before, which has not been reported yet. */
void fl_stall_standby(fl_watch *watch, int reactor) {
    uint64_t since = fl_watch_away_since(watch, reactor);
    fl_stall_record *record = &watch->stalls[reactor];
    set(&record->standby_at, since != 0 ? since : get(&record->began));
}

bool fl_stall_has_standby(const fl_stall_record *record) {
    return get(&record->standby_at) == get(&record->began);
}

void fl_stall_handed(fl_watch *watch, int reactor, uint64_t count, int sibling) {
    if (count == 0)
        return;
    fl_stall_record *record = &watch->stalls[reactor];
    set(&record->handed, get(&record->handed) + count);
    atomic_store(&record->sibling, sibling);
}
