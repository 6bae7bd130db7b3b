/* Fairlead::SharedPage: where the time of requests went, as core/base/request_times.h counts it. */
#include "fairlead.h"

static const char *const kind_texts[] = {
#define X(name) #name,
    FL_KIND_MAP(X)
#undef X
};
static VALUE kind_names[FL_KINDS];

static int64_t number(const _Atomic int64_t *counter) {
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static VALUE seconds(const _Atomic int64_t *microseconds) {
    return DBL2NUM((double) number(microseconds) / 1e6);
}

static VALUE histogram(const fl_histogram *from) {
    VALUE hash = rb_hash_new(), counts = rb_ary_new_capa(FL_BUCKETS);
    for (int i = 0; i < FL_BUCKETS; i++) rb_ary_push(counts, LL2NUM(number(&from->counts[i])));
    fl_hash_set(hash, "counts", counts);
    fl_hash_set(hash, "sum", seconds(&from->sum));
    return hash;
}

static VALUE times_by_kind(const _Atomic int64_t from[FL_KINDS]) {
    VALUE hash = rb_hash_new();
    for (int kind = 0; kind < FL_KINDS; kind++) rb_hash_aset(hash, kind_names[kind], seconds(&from[kind]));
    return hash;
}

VALUE fl_times_by_kind(const uint64_t microseconds[FL_KINDS]) {
    VALUE hash = rb_hash_new();
    for (int kind = 0; kind < FL_KINDS; kind++)
        if (microseconds[kind] > 0)
            rb_hash_aset(hash, kind_names[kind], DBL2NUM((double) microseconds[kind] / 1e6));
    return hash;
}

const char *fl_kind_text(fl_kind kind) {
    return kind_texts[kind];
}

VALUE fl_kind_name(fl_kind kind) {
    return kind_names[kind];
}

void fl_define_kinds(VALUE module) {
    for (int kind = 0; kind < FL_KINDS; kind++) {
        char name[16] = "";
        for (int i = 0; kind_texts[kind][i] != '\0'; i++) name[i] = (char) (kind_texts[kind][i] - 32);
        rb_define_const(module, name, INT2FIX(kind));
    }
}

int64_t fl_histogram_count(const fl_histogram *histogram) {
    int64_t sum = 0;
    for (int i = 0; i < FL_BUCKETS; i++) sum += number(&histogram->counts[i]);
    return sum;
}

static fl_request_times *read_times(VALUE self, VALUE slot, VALUE *buffer) {
    fl_shared_page *page = fl_ruby_shared_page_get(self);
    if (!NIL_P(slot) && NUM2SIZET(slot) > page->count)
        rb_raise(rb_eIndexError, "the page has %zu slots", page->count);
    int index = NIL_P(slot) ? -1 : NUM2INT(slot);
    fl_request_times *sum = ALLOCV_N(fl_request_times, *buffer, 1);
    fl_shared_page_times(page, index, sum);
    return sum;
}

static VALUE optional(int argc, VALUE *argv) {
    rb_check_arity(argc, 0, 1);
    return argc == 0 ? Qnil : argv[0];
}

/* times(slot = nil): { service:, queue:, kinds:, codes: } of all workers since the server's start, also of those that have ended. A
 * histogram is { counts:, sum: }, with the count of each bucket alone, whose bounds are BOUNDS; kinds are seconds by KINDS; codes are
 * counts by "1xx" to "5xx". */
static VALUE page_times(int argc, VALUE *argv, VALUE self) {
    VALUE buffer, hash = rb_hash_new(), codes = rb_hash_new();
    fl_request_times *times = read_times(self, optional(argc, argv), &buffer);
    fl_route_times all = {0};
    for (int route = 0; route <= FL_TIMED_ROUTES; route++) fl_route_times_sum(&all, &times->routes[route]);
    fl_hash_set(hash, "service", histogram(&all.service));
    fl_hash_set(hash, "queue", histogram(&times->queue));
    fl_hash_set(hash, "kinds", times_by_kind(all.kinds));
    for (int class = 0; class < FL_CODE_CLASSES; class ++)
        rb_hash_aset(codes, rb_sprintf("%dxx", class + 1), LL2NUM(number(&times->codes[class])));
    fl_hash_set(hash, "codes", codes);
    ALLOCV_END(buffer);
    return hash;
}

static VALUE route_name(fl_shared_page *page, int route) {
    char text[FL_ROUTE_SIZE] = "other";
    if (route < FL_TIMED_ROUTES && !fl_timed_routes_text(&page->timed_routes, route, text))
        return Qnil;
    return fl_ruby_escaped(text, (long) strlen(text));
}

void fl_each_timed_route(VALUE page, VALUE slot, void (*call)(VALUE name, const fl_route_times *times, void *data),
                         void *data) {
    VALUE buffer;
    fl_request_times *times = read_times(page, slot, &buffer);
    for (int route = 0; route <= FL_TIMED_ROUTES; route++) {
        VALUE name =
            fl_histogram_count(&times->routes[route].service) == 0 ? Qnil : route_name(fl_ruby_shared_page_get(page), route);
        if (!NIL_P(name))
            call(name, &times->routes[route], data);
    }
    ALLOCV_END(buffer);
}

static void add_row(VALUE name, const fl_route_times *times, void *rows) {
    VALUE row = rb_hash_new();
    fl_hash_set(row, "route", name);
    fl_hash_set(row, "count", LL2NUM(fl_histogram_count(&times->service)));
    fl_hash_set(row, "errors", LL2NUM(number(&times->errors)));
    fl_hash_set(row, "service", histogram(&times->service));
    fl_hash_set(row, "kinds", times_by_kind(times->kinds));
    rb_ary_push((VALUE) rows, row);
}

/* route_times(slot = nil): [{ route:, count:, errors:, service:, kinds: }] of the routes that have had requests: "articles#show" where the
 * app's router names them, else "GET /articles/:id", and "other" for all that are not in the table. */
static VALUE page_route_times(int argc, VALUE *argv, VALUE self) {
    VALUE rows = rb_ary_new();
    fl_each_timed_route(self, optional(argc, argv), add_row, (void *) rows);
    RB_GC_GUARD(rows);
    return rows;
}

/* counters: the fields of slots that only grow, summed over all workers since the server's start, also those that have ended. */
static VALUE page_counters(VALUE self) {
    int64_t sum[FL_SLOT_FIELDS];
    VALUE hash = rb_hash_new();
    fl_shared_page_counters(fl_ruby_shared_page_get(self), sum);
#define X(field) fl_hash_set(hash, #field, LL2NUM(sum[FL_SLOT_##field]));
    FL_SLOT_COUNTER_MAP(X)
#undef X
    return hash;
}

static VALUE key_parameters, controller, action;

/* Whether the app has the router of Rails; others are spared the look into the env. */
static bool has_router;

/* name_routes_by_action = true: for an app with the router of Rails. */
static VALUE page_name_routes(VALUE self, VALUE value) {
    has_router = RTEST(value);
    return value;
}

/* "articles#show" as a route. Returns false if that is too long. */
static bool route_of_action(fl_route *route, VALUE controller_name, VALUE action_name) {
    char text[FL_ROUTE_SIZE];
    long size = RSTRING_LEN(controller_name), all = size + 1 + RSTRING_LEN(action_name);
    if (all >= FL_ROUTE_SIZE)
        return false;
    memcpy(text, RSTRING_PTR(controller_name), (size_t) size);
    text[size] = '#';
    memcpy(text + size + 1, RSTRING_PTR(action_name), (size_t) RSTRING_LEN(action_name));
    return fl_route_from_pattern(route, text, (size_t) all);
}

void fl_name_route(VALUE request) {
    if (!has_router)
        return;
    fl_ruby_request *self = fl_ruby_request_get(request);
    VALUE parameters = self->exchange == NULL ? Qnil : rb_hash_lookup(self->env, key_parameters);
    if (!RB_TYPE_P(parameters, T_HASH))
        return;
    VALUE controller_name = rb_hash_lookup(parameters, controller), action_name = rb_hash_lookup(parameters, action);
    fl_exchange *exchange = self->exchange; /* a lookup may call Ruby */
    if (exchange == NULL || !RB_TYPE_P(controller_name, T_STRING) || !RB_TYPE_P(action_name, T_STRING))
        return;
    fl_route route;
    if (!route_of_action(&route, controller_name, action_name))
        return;
    exchange->queueing.timed_route = route;
    exchange->queueing.route_named = true;
}

void fl_init_request_times(VALUE page) {
    key_parameters = fl_kept_string("action_dispatch.request.path_parameters");
    controller = ID2SYM(rb_intern("controller"));
    action = ID2SYM(rb_intern("action"));
    VALUE bounds = rb_ary_new();
    for (int i = 0; i < FL_BUCKETS - 1; i++) rb_ary_push(bounds, DBL2NUM((double) fl_bucket_bounds[i] / 1e6));
    VALUE kinds = rb_ary_new();
    for (int kind = 0; kind < FL_KINDS; kind++) kind_names[kind] = ID2SYM(rb_intern(kind_texts[kind]));
    for (int kind = 0; kind < FL_KINDS; kind++) rb_ary_push(kinds, kind_names[kind]);
    rb_define_const(page, "BOUNDS", rb_obj_freeze(bounds));
    rb_define_const(page, "KINDS", rb_obj_freeze(kinds));
    rb_define_method(page, "times", page_times, -1);
    rb_define_method(page, "route_times", page_route_times, -1);
    rb_define_method(page, "counters", page_counters, 0);
    rb_define_singleton_method(page, "name_routes_by_action=", page_name_routes, 1);
}
