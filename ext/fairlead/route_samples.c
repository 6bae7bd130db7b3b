/* Fairlead::SharedPage: the figures of routes as lines for Prometheus. A hundred routes have thousands of them, and Ruby would take ten
 * times as long. The names of routes need no escapes here, see core/base/escape.h. */
#include "fairlead.h"

/* The samples of one route in a family. */
typedef struct fl_series {
    VALUE text; /* the lines are added to it */
    const char *name;
    void (*add)(const struct fl_series *series);
    VALUE route;
    const fl_route_times *times;
} fl_series;

static void add(VALUE text, const char *piece) {
    rb_str_cat(text, piece, (long) strlen(piece));
}

/* All of a line but its value. `label`: one more, or "". */
static void begin(const fl_series *series, const char *suffix, const char *label) {
    add(series->text, series->name);
    add(series->text, suffix);
    add(series->text, "{route=\"");
    rb_str_cat(series->text, RSTRING_PTR(series->route), RSTRING_LEN(series->route));
    add(series->text, "\"");
    add(series->text, label);
    add(series->text, "} ");
}

static void end(const fl_series *series, int64_t number) {
    char digits[24];
    rb_str_cat(series->text, digits, snprintf(digits, sizeof digits, "%" PRId64 "\n", number));
}

/* "0.025", "1.0" */
static const char *seconds_text(char text[32], uint64_t microseconds) {
    int size = snprintf(text, 32, "%" PRIu64 ".%06u", microseconds / 1000000, (unsigned) (microseconds % 1000000));
    while (text[size - 1] == '0' && text[size - 2] != '.') text[--size] = '\0';
    return text;
}

static void end_in_seconds(const fl_series *series, int64_t microseconds) {
    char text[32];
    add(series->text, seconds_text(text, (uint64_t) microseconds));
    add(series->text, "\n");
}

static char bucket_labels[FL_BUCKETS][48] = {[FL_BUCKETS - 1] = ",le=\"+Inf\""};

static int64_t add_buckets(const fl_series *series) {
    int64_t sum = 0;
    for (int bucket = 0; bucket < FL_BUCKETS; bucket++) {
        begin(series, "_bucket", bucket_labels[bucket]);
        end(series, sum += series->times->service.counts[bucket]);
    }
    return sum;
}

static void add_service(const fl_series *series) {
    int64_t count = add_buckets(series);
    begin(series, "_sum", "");
    end_in_seconds(series, series->times->service.sum);
    begin(series, "_count", "");
    end(series, count);
}

static char kind_labels[FL_KINDS][32];

static void add_kinds(const fl_series *series) {
    for (int kind = 0; kind < FL_KINDS; kind++) {
        if (series->times->kinds[kind] == 0)
            continue;
        begin(series, "", kind_labels[kind]);
        end_in_seconds(series, series->times->kinds[kind]);
    }
}

static void add_requests(const fl_series *series) {
    begin(series, "", "");
    end(series, fl_histogram_count(&series->times->service));
}

static void add_errors(const fl_series *series) {
    begin(series, "", "");
    end(series, series->times->errors);
}

static void add_route(VALUE route, const fl_route_times *times, void *data) {
    fl_series *series = data;
    series->route = route;
    series->times = times;
    series->add(series);
}

static VALUE add_family(VALUE self, VALUE text, VALUE name, void (*add)(const fl_series *series)) {
    fl_series series = {.text = StringValue(text), .name = StringValueCStr(name), .add = add};
    fl_each_timed_route(self, Qnil, add_route, &series);
    RB_GC_GUARD(name);
    return text;
}

/* add_route_…(text, "fairlead_route_…"): adds the lines of this family to `text`. */
static VALUE page_add_route_requests(VALUE self, VALUE text, VALUE name) {
    return add_family(self, text, name, add_requests);
}

static VALUE page_add_route_errors(VALUE self, VALUE text, VALUE name) {
    return add_family(self, text, name, add_errors);
}

static VALUE page_add_route_service(VALUE self, VALUE text, VALUE name) {
    return add_family(self, text, name, add_service);
}

static VALUE page_add_route_kinds(VALUE self, VALUE text, VALUE name) {
    return add_family(self, text, name, add_kinds);
}

void fl_init_route_samples(VALUE page) {
    char bound[32];
    for (int i = 0; i < FL_BUCKETS - 1; i++)
        snprintf(bucket_labels[i], sizeof bucket_labels[i], ",le=\"%s\"", seconds_text(bound, fl_bucket_bounds[i]));
    for (int kind = 0; kind < FL_KINDS; kind++)
        snprintf(kind_labels[kind], sizeof kind_labels[kind], ",kind=\"%s\"", fl_kind_text(kind));
    rb_define_method(page, "add_route_requests", page_add_route_requests, 2);
    rb_define_method(page, "add_route_errors", page_add_route_errors, 2);
    rb_define_method(page, "add_route_service", page_add_route_service, 2);
    rb_define_method(page, "add_route_kinds", page_add_route_kinds, 2);
}
