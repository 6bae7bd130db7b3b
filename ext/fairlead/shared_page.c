/* Fairlead::SharedPage, and the numbers in its slots. */
#include "fairlead.h"

static void page_free(void *data) {
    fl_shared_page_close(data);
}

static const rb_data_type_t page_type = {
    .wrap_struct_name = "Fairlead::SharedPage",
    .function = {.dfree = page_free},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

static VALUE page_new(VALUE class, VALUE slots) {
    fl_shared_page *page = fl_shared_page_open(NUM2SIZET(slots));
    if (page == NULL)
        rb_sys_fail("shared page");
    return TypedData_Wrap_Struct(class, &page_type, page);
}

fl_shared_page *fl_ruby_shared_page_get(VALUE self) {
    return rb_check_typeddata(self, &page_type);
}

static fl_slot *slot_at(VALUE self, VALUE index) {
    fl_shared_page *page = fl_ruby_shared_page_get(self);
    size_t slot = NUM2SIZET(index);
    if (slot >= page->count)
        rb_raise(rb_eIndexError, "the page has %zu slots", page->count);
    return &page->slots[slot];
}

static fl_slot_field field_named(VALUE name) {
    ID id = rb_sym2id(rb_to_symbol(name));
#define X(field)                                                                                                               \
    if (id == rb_intern(#field))                                                                                               \
        return FL_SLOT_##field;
    FL_SLOT_MAP(X)
#undef X
    rb_raise(rb_eKeyError, "a slot has no field %" PRIsVALUE, name);
}

static VALUE page_slots(VALUE self) {
    return SIZET2NUM(fl_ruby_shared_page_get(self)->count);
}

static VALUE page_write(VALUE self, VALUE slot, VALUE field, VALUE value) {
    fl_slot_set(slot_at(self, slot), field_named(field), NUM2LL(value));
    return value;
}

static VALUE page_get(VALUE self, VALUE slot, VALUE field) {
    return LL2NUM(fl_slot_get(slot_at(self, slot), field_named(field)));
}

static VALUE page_read(VALUE self, VALUE index) {
    fl_slot *slot = slot_at(self, index);
    VALUE hash = rb_hash_new();
#define X(field) fl_hash_set(hash, #field, LL2NUM(fl_slot_get(slot, FL_SLOT_##field)));
    FL_SLOT_MAP(X)
#undef X
    return hash;
}

/* max_lanes = count: how many lane workers the supervisor would fork. */
static VALUE page_set_max_lanes(VALUE self, VALUE count) {
    atomic_store(&fl_ruby_shared_page_get(self)->max_lanes, NUM2INT(count));
    return count;
}

/* database(key): the number of the database server with this key, which is not 0. */
static VALUE page_database(VALUE self, VALUE key) {
    return INT2NUM(fl_shared_page_database(fl_ruby_shared_page_get(self), NUM2ULL(key)));
}

/* databases: the keys of the database servers, in the order of their numbers; 0: none yet. */
static VALUE page_databases(VALUE self) {
    fl_shared_page *page = fl_ruby_shared_page_get(self);
    VALUE keys = rb_ary_new_capa(FL_MAX_DATABASES);
    for (int i = 0; i < FL_MAX_DATABASES; i++) rb_ary_push(keys, ULL2NUM(atomic_load(&page->databases[i])));
    return keys;
}

/* routes: those that have stalled, with their text (see core/base/escape.h), the app's action, the lane, the number of stalls, and the
 * longest one in seconds. */
static VALUE page_routes(VALUE self) {
    static const char *const lanes[FL_LANES] = {"none", "threads", "process"};
    fl_routes *routes = &fl_ruby_shared_page_get(self)->routes;
    VALUE list = rb_ary_new();
    for (int i = 0; i < FL_MAX_ROUTES; i++) {
        fl_route_record *record = &routes->records[i];
        char text[FL_ROUTE_SIZE];
        if (!fl_routes_text(record, text))
            continue;
        VALUE row = rb_hash_new();
        fl_hash_set(row, "route", fl_ruby_escaped(text, (long) strlen(text)));
        const char *name = fl_routes_name(routes, text);
        fl_hash_set(row, "action", name == NULL || *name == '\0' ? Qnil : rb_utf8_str_new_cstr(name));
        fl_hash_set(row, "lane", ID2SYM(rb_intern(lanes[atomic_load(&record->lane)])));
        fl_hash_set(row, "stalls", LL2NUM(atomic_load(&record->stalls)));
        fl_hash_set(row, "longest", DBL2NUM((double) atomic_load(&record->longest) / 1e6));
        rb_ary_push(list, row);
    }
    return list;
}

/* add_route_pattern("GET /articles/:slug", "articles#show"): returns false if there is no room for it. */
static VALUE page_add_route_pattern(VALUE self, VALUE pattern, VALUE name) {
    StringValueCStr(pattern);
    StringValueCStr(name);
    bool known = fl_routes_add_pattern(&fl_ruby_shared_page_get(self)->routes, RSTRING_PTR(pattern),
                                       (size_t) RSTRING_LEN(pattern), RSTRING_PTR(name), (size_t) RSTRING_LEN(name));
    return known ? Qtrue : Qfalse;
}

/* merge_route("GET", "/articles/my-first-post"): moves what was learnt of this path to the pattern that is known for it. */
static VALUE page_merge_route(VALUE self, VALUE method, VALUE path) {
    StringValue(method);
    StringValue(path);
    fl_routes_merge_into_pattern(&fl_ruby_shared_page_get(self)->routes, RSTRING_PTR(method), (size_t) RSTRING_LEN(method),
                                 RSTRING_PTR(path), (size_t) RSTRING_LEN(path));
    return Qnil;
}

/* forget_routes(began): forgets stalls since this time of the core's clock. */
static VALUE page_forget_routes(VALUE self, VALUE began) {
    fl_routes_forget_since(&fl_ruby_shared_page_get(self)->routes, NUM2ULL(began));
    return Qnil;
}

/* route("GET", "/articles/my-first-post"): its route as the lanes know it. */
static VALUE page_route(VALUE self, VALUE method, VALUE path) {
    fl_route route;
    StringValue(method);
    StringValue(path);
    fl_routes_find(&fl_ruby_shared_page_get(self)->routes, &route, RSTRING_PTR(method), (size_t) RSTRING_LEN(method),
                   RSTRING_PTR(path), (size_t) RSTRING_LEN(path));
    return rb_str_new_cstr(route.text);
}

/* requests(slot): those of a worker that run or wait in a fiber, also after it was killed: [{ method:, path:, age:, switched:,
 * waits_for: }]. `age` and `switched` are in seconds; `switched` is how long ago its fiber last began to run. `waits_for` is a kind; a
 * request that runs, or has been killed while it ran, computes. */
static VALUE page_requests(VALUE self, VALUE index) {
    fl_slot *slot = slot_at(self, index);
    fl_shared_page *page = fl_ruby_shared_page_get(self);
    const fl_run *runs = &page->runs[(size_t) (slot - page->slots) * FL_MAX_RUNS];
    uint64_t now = fl_clock();
    VALUE list = rb_ary_new();
    for (int64_t i = 0; i < fl_slot_get(slot, FL_SLOT_runs); i++) {
        fl_run run = runs[i]; /* its worker may write to it */
        if (run.since == 0 || run.since > now || run.method_size > sizeof run.method || run.path_size > sizeof run.path)
            continue;
        VALUE row = rb_hash_new();
        fl_hash_set(row, "method", fl_ruby_escaped(run.method, run.method_size));
        fl_hash_set(row, "path", fl_ruby_escaped(run.path, run.path_size));
        fl_hash_set(row, "age", DBL2NUM((double) (now - run.since) / 1e6));
        fl_hash_set(row, "switched", DBL2NUM(run.switched_at > now ? 0 : (double) (now - run.switched_at) / 1e6));
        fl_kind kind =
            run.account.clock == NULL && run.account.waits_for < FL_KINDS ? (fl_kind) run.account.waits_for : FL_KIND_cpu;
        fl_hash_set(row, "waits_for", fl_kind_name(kind));
        rb_ary_push(list, row);
    }
    return list;
}

/* clear(slot): its worker has ended. What it has counted stays in the totals. */
static VALUE page_clear(VALUE self, VALUE index) {
    slot_at(self, index);
    fl_shared_page_retire(fl_ruby_shared_page_get(self), NUM2SIZET(index));
    return Qnil;
}

/* Defines a module with the numbers of a slot's field `state` or `stall` as constants, and their names in that order as NAMES. */
static void define_numbers(const char *module_name, const char *const *constants, const char *const *names, int count) {
    VALUE module = rb_define_module_under(fl_mFairlead, module_name), list = rb_ary_new();
    for (int i = 0; i < count; i++) {
        rb_define_const(module, constants[i], INT2NUM(i));
        rb_ary_push(list, names[i][0] == '\0' ? Qnil : ID2SYM(rb_intern(names[i])));
    }
    rb_define_const(module, "NAMES", rb_obj_freeze(list));
}

static void define_states(void) {
#define X(constant, name) #constant,
    static const char *const states[] = {FL_WORKER_STATE_MAP(X)}, *const stalls[] = {FL_STALL_MAP(X)};
#undef X
#define X(constant, name) name,
    static const char *const state_names[] = {FL_WORKER_STATE_MAP(X)}, *const stall_names[] = {FL_STALL_MAP(X)};
#undef X
    define_numbers("WorkerState", states, state_names, sizeof states / sizeof *states);
    define_numbers("StallKind", stalls, stall_names, sizeof stalls / sizeof *stalls);
}

void fl_init_shared_page(void) {
    define_states();
    VALUE page = rb_define_class_under(fl_mFairlead, "SharedPage", rb_cObject);
    rb_undef_alloc_func(page);
    rb_define_singleton_method(page, "new", page_new, 1);
    rb_define_method(page, "slots", page_slots, 0);
    rb_define_method(page, "write", page_write, 3);
    rb_define_method(page, "get", page_get, 2);
    rb_define_method(page, "read", page_read, 1);
    rb_define_method(page, "clear", page_clear, 1);
    rb_define_method(page, "requests", page_requests, 1);
    rb_define_method(page, "max_lanes=", page_set_max_lanes, 1);
    rb_define_method(page, "routes", page_routes, 0);
    rb_define_method(page, "route", page_route, 2);
    rb_define_method(page, "add_route_pattern", page_add_route_pattern, 2);
    rb_define_method(page, "merge_route", page_merge_route, 2);
    rb_define_method(page, "forget_routes", page_forget_routes, 1);
    rb_define_method(page, "database", page_database, 1);
    rb_define_method(page, "databases", page_databases, 0);
    rb_define_const(page, "DATABASES", INT2NUM(FL_MAX_DATABASES));
    fl_init_request_times(page);
    fl_init_route_samples(page);
}
