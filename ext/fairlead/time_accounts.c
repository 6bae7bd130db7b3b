/* Fairlead::RequestTimes: what the fibers of a request wait for, and Fairlead::Request#times. */
#include "fairlead.h"

#include <string.h>

enum { LONG_WAIT = 10000 }; /* microseconds */

/* The account of the request that the calling fiber works for; NULL: it works for none, or in the child of a fork. */
static fl_time_account *own_account(void) {
    fl_run *run = fl_own.reactor == NULL || fl_own.loop->forgotten ? NULL : fl_own.run;
    return run == NULL || run->account.id != run->id || run->account.ended ? NULL : &run->account;
}

/* wait(kind, seconds): the calling fiber is about to wait for something of this kind, a sleep for so many seconds. Returns true if it works
 * for a request; then waited(kind) has to follow. */
static VALUE times_wait(VALUE self, VALUE kind, VALUE seconds) {
    fl_time_account *account = own_account();
    if (account == NULL)
        return Qfalse;
    fl_kind number = (fl_kind) FIX2INT(kind);
    uint64_t due = 0;
    if (number == FL_KIND_sleep && !NIL_P(seconds)) {
        double length = NUM2DBL(seconds);
        due = length > 0 && length < FL_MAX_SECONDS ? fl_clock() + (uint64_t) (length * 1e6) : 0;
    }
    fl_account_wait(account, number, due);
    return Qtrue;
}

/* waited(kind): how many seconds that wait took, if it was long; otherwise nil. */
static VALUE times_waited(VALUE self, VALUE kind) {
    fl_time_account *account = own_account();
    if (account == NULL)
        return Qnil;
    fl_account_waited(account, (fl_kind) FIX2INT(kind));
    return account->waited >= LONG_WAIT ? DBL2NUM((double) account->waited / 1e6) : Qnil;
}

/* times: seconds by kind until now, without those that are 0; nil: unknown. */
static VALUE request_times(VALUE object) {
    const fl_ruby_request *self = fl_ruby_request_get(object);
    if (self->account == NULL || self->account->id != self->id)
        return Qnil;
    fl_time_account account = *self->account;
    fl_account_settle(&account, fl_clock());
    return fl_times_by_kind(account.kinds);
}

/* How much later a request has its turn for each second of CPU time that it has used beyond what is free. It has at most a part of the
 * time while others want it. */
enum { PENALTY = 4 };

enum { IN_A_TURN = 1024 }; /* requests whose first bytes came in one turn differ in their ranks */

/* rank(free): of requests that can go on, the one with the lowest rank goes first. Seconds of Clock.now: when its first byte came, later
 * once it has used more than so many seconds of CPU time. */
static VALUE request_rank(VALUE object, VALUE free) {
    const fl_ruby_request *self = fl_ruby_request_get(object);
    double rank = ((double) self->first_byte_at + (double) (self->id % IN_A_TURN) / IN_A_TURN) / 1e6;
    if (self->account == NULL || self->account->id != self->id)
        return DBL2NUM(rank);
    double beyond = (double) self->account->kinds[FL_KIND_cpu] / 1e6 - NUM2DBL(free);
    return DBL2NUM(beyond > 0 ? rank + PENALTY * beyond : rank);
}

/* usual_cpu: seconds of CPU time that a request has used on average since the worker's start; 0: unknown. */
static VALUE loop_usual_cpu(VALUE object) {
    const fl_request_times *times = fl_ruby_loop_get(object)->context.times.page;
    int64_t cpu = 0, requests = 0;
    for (int i = 0; times != NULL && i <= FL_TIMED_ROUTES; i++) {
        cpu += atomic_load_explicit(&times->routes[i].kinds[FL_KIND_cpu], memory_order_relaxed);
        requests += fl_histogram_count(&times->routes[i].service);
    }
    return DBL2NUM(requests == 0 ? 0 : (double) cpu / 1e6 / (double) requests);
}

enum { SERVER_TIMING = 512 };

/* Where the time went until now. Returns the length of the text. */
static size_t server_timing(const fl_ruby_request *self, char text[SERVER_TIMING]) {
    fl_time_account account = *self->account;
    fl_account_settle(&account, fl_clock());
    size_t size =
        (size_t) snprintf(text, SERVER_TIMING, "queue;dur=%.3f", (double) (self->started_at - self->first_byte_at) / 1e3);
    for (int kind = 0; kind < FL_KINDS; kind++)
        if (account.kinds[kind] > 0 && size < SERVER_TIMING - 40)
            size += (size_t) snprintf(text + size, SERVER_TIMING - size, ", %s;dur=%.3f", fl_kind_text((fl_kind) kind),
                                      (double) account.kinds[kind] / 1e3);
    return size;
}

void fl_add_server_timing(VALUE object) {
    static const char name[] = "server-timing";
    const fl_ruby_request *self = fl_ruby_request_get(object);
    if (!fl_ruby_loop_struct(self->loop)->server_timing || self->account == NULL || self->account->id != self->id)
        return;
    fl_require_open(self->exchange);
    if (self->exchange->response.switches_protocol) /* what follows is not HTTP */
        return;
    char text[SERVER_TIMING];
    size_t size = server_timing(self, text);
    fl_check(fl_exchange_header(self->exchange, name, sizeof name - 1, text, size));
}

bool fl_is_observed(const fl_ruby_request *self, const fl_ruby_loop *loop) {
    if (NIL_P(loop->observer) || self->account == NULL || self->account->id != self->id)
        return false;
    uint64_t total = 0;
    for (int kind = 0; kind < FL_KINDS; kind++) total += self->account->kinds[kind];
    return total >= loop->observed_from && (loop->observed_from == 0 || !self->long_lived);
}

/* observe(callable, seconds): it is called like those of `rack.response_finished` after each request that has been served for so long.
 * Streams count only for 0. */
static VALUE loop_observe(VALUE object, VALUE observer, VALUE seconds) {
    fl_ruby_loop *loop = fl_ruby_loop_struct(object);
    loop->observed_from = fl_microseconds(seconds, "the time of a request");
    return loop->observer = observer;
}

static VALUE loop_set_server_timing(VALUE object, VALUE value) {
    fl_ruby_loop_struct(object)->server_timing = RTEST(value);
    return value;
}

/* Whether the response lives long. */
static VALUE request_stream_p(VALUE object) {
    return fl_ruby_request_get(object)->long_lived ? Qtrue : Qfalse;
}

enum {
    MAX_SHOWN = 64,       /* requests in flight */
    PREEMPTED_FOR = 50000 /* microseconds: the thread that asks has the GVL, so one that computes waits for that long at most */
};

/* What there is to say of a request in flight, copied under the loop's lock. */
typedef struct running {
    uint64_t id, age, waited;
    fl_kind kind;
    bool waits; /* in its scheduler */
    uint16_t method_size, path_size;
    char method[16], path[FL_ROUTE_PATH], route[FL_ROUTE_SIZE];
} running;

static fl_thread *thread_of(const fl_thread_clock *clock) {
    return (fl_thread *) ((char *) clock - offsetof(fl_thread, clock));
}

/* What a request does that runs in some thread, and since when. */
static fl_kind doing(const fl_time_account *account, uint64_t now, uint64_t *since) {
    fl_thread *thread = thread_of(account->clock);
    int gvl = atomic_load(&thread->gvl);
    uint64_t changed = atomic_load(&thread->gvl_since);
    *since = account->since;
    if (gvl == FL_GVL_HELD)
        return atomic_load(&fl_collecting_since) != 0 ? FL_KIND_gc : FL_KIND_cpu;
    if (gvl == FL_GVL_WANTED && now < changed + PREEMPTED_FOR)
        return FL_KIND_cpu;
    *since = changed > account->since ? changed : account->since;
    return gvl == FL_GVL_WANTED ? FL_KIND_gvl : FL_KIND_blocked;
}

static void describe(running *row, const fl_exchange *exchange, uint64_t now) {
    *row = (running) {.id = exchange->id, .age = now - exchange->queueing.started_at, .kind = FL_KIND_other};
    fl_time_account *account = exchange->queueing.account;
    if (account == NULL || account->id != exchange->id)
        return;
    uint64_t since = account->since;
    row->waits = account->clock == NULL;
    row->kind = row->waits ? (fl_kind) account->waits_for : doing(account, now, &since);
    row->waited = now > since ? now - since : 0;
    const fl_run *run = fl_run_of_account(account);
    memcpy(row->method, run->method, row->method_size = run->method_size);
    memcpy(row->path, run->path, row->path_size = run->path_size);
    if (exchange->context->times.page != NULL)
        memcpy(row->route, exchange->queueing.timed_route.text, sizeof row->route);
}

/* The oldest requests in flight, without streams. Returns how many. */
static int find_running(fl_loop *loop, running rows[MAX_SHOWN], uint64_t older_than) {
    uint64_t now = fl_clock();
    int count = 0;
    for (const fl_exchange *exchange = loop->context.served; exchange != NULL; exchange = exchange->next) {
        if (exchange->long_lived || now < exchange->queueing.started_at + older_than)
            continue;
        describe(&rows[count % MAX_SHOWN], exchange, now); /* the last ones are the oldest */
        count++;
    }
    return count < MAX_SHOWN ? count : MAX_SHOWN;
}

/* in_flight(seconds): the oldest requests that have run for longer, as { id:, method:, path:, route:, age:, waits_for:, waited:, waits: }.
 * `waited`: for how long it has waited, or computed; `waits`: whether in its scheduler. */
static VALUE loop_in_flight(VALUE object, VALUE seconds) {
    VALUE buffer, list = rb_ary_new();
    uint64_t older_than = fl_microseconds(seconds, "the age of a request");
    running *rows = ALLOCV_N(running, buffer, MAX_SHOWN);
    fl_loop *loop = fl_lock(fl_ruby_loop_struct(object));
    int count = find_running(loop, rows, older_than);
    fl_unlock(&loop->context);
    for (int i = 0; i < count; i++) {
        const running *row = &rows[i];
        VALUE hash = rb_hash_new();
        fl_hash_set(hash, "id", ULL2NUM(row->id));
        fl_hash_set(hash, "method", fl_ruby_escaped(row->method, row->method_size));
        fl_hash_set(hash, "path", fl_ruby_escaped(row->path, row->path_size));
        fl_hash_set(hash, "route", fl_ruby_escaped(row->route, (long) strnlen(row->route, sizeof row->route)));
        fl_hash_set(hash, "age", DBL2NUM((double) row->age / 1e6));
        fl_hash_set(hash, "waits_for", fl_kind_name(row->kind));
        fl_hash_set(hash, "waited", DBL2NUM((double) row->waited / 1e6));
        fl_hash_set(hash, "waits", row->waits ? Qtrue : Qfalse);
        rb_ary_push(list, hash);
    }
    ALLOCV_END(buffer);
    return list;
}

void fl_init_time_accounts(VALUE loop) {
    VALUE request = rb_define_class_under(fl_mFairlead, "Request", rb_cObject);
    VALUE times = rb_define_module_under(fl_mFairlead, "RequestTimes");
    rb_define_singleton_method(times, "wait", times_wait, 2);
    rb_define_singleton_method(times, "waited", times_waited, 1);
    rb_define_method(request, "times", request_times, 0);
    rb_define_method(request, "stream?", request_stream_p, 0);
    rb_define_method(request, "rank", request_rank, 1);
    rb_define_method(loop, "usual_cpu", loop_usual_cpu, 0);
    rb_define_method(loop, "server_timing=", loop_set_server_timing, 1);
    rb_define_method(loop, "observe", loop_observe, 2);
    rb_define_method(loop, "in_flight", loop_in_flight, 1);
    fl_define_kinds(times);
    rb_require("fairlead/fiber_safety/request_times");
}
