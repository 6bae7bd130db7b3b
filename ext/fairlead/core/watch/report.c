#include "report.h"

#include "base/escape.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Bytes of "GET /path". */
enum { MAX_REQUEST = FL_ESCAPED(sizeof((fl_run *) 0)->method) + FL_ESCAPED(sizeof((fl_run *) 0)->path) };

void fl_report(const fl_watch *watch, const char *line) {
    if (watch->supervisor >= 0)
        (void) !send(watch->supervisor, line, strlen(line), MSG_DONTWAIT | FL_SEND_FLAGS);
}

/* The request that the reactor runs; empty: none. */
static void name_request(fl_watch *watch, int reactor, char name[MAX_REQUEST]) {
    name[0] = '\0';
    pthread_mutex_lock(&watch->loop->context.lock);
    const fl_run *run = atomic_load(&watch->reactors[reactor].run);
    if (run != NULL && run->id != 0) {
        char *end = fl_escape(name, run->method, run->method_size);
        *end++ = ' ';
        fl_escape(end, run->path, run->path_size);
    }
    pthread_mutex_unlock(&watch->loop->context.lock);
}

void fl_report_lost(fl_watch *watch, int reactor, fl_stall kind) {
    char request[MAX_REQUEST], line[MAX_REQUEST + 128];
    name_request(watch, reactor, request);
    snprintf(line, sizeof line, "[\"stuck\",{\"kind\":\"%s\",\"request\":\"%s\"}]\n", fl_stall_name(kind), request);
    fl_report(watch, line);
}

static const char *json_bool(bool value) {
    return value ? "true" : "false";
}

void fl_report_lasting(fl_watch *watch, int reactor) {
    const fl_stall_record *record = &watch->stalls[reactor];
    char request[MAX_REQUEST], line[MAX_REQUEST + 512];
    name_request(watch, reactor, request);
    snprintf(line, sizeof line,
             "[\"lasting\",{\"number\":%d,\"began\":%" PRIu64 ",\"seconds\":%.3f,\"kind\":\"%s\",\"request\":\"%s\","
             "\"standby\":%s,\"relief\":%s,\"handed\":%" PRIu64 ",\"sibling\":%d}]\n",
             reactor, atomic_load(&record->began), (double) fl_stall_lasted(record) / 1e6, fl_stall_name(fl_stall_kind(record)),
             request, json_bool(fl_stall_has_standby(record)), json_bool(atomic_load(&record->relief)),
             atomic_load(&record->handed), atomic_load(&record->sibling));
    fl_report(watch, line);
}
