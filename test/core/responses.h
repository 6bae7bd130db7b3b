/* Helpers that write a response. */
#ifndef FL_TEST_RESPONSES_H
#define FL_TEST_RESPONSES_H

#include "peer.h"

static inline void header(fl_exchange *exchange, const char *name, const char *value) {
    CHECK_NUMBER(FL_OK, fl_exchange_header(exchange, name, strlen(name), value, strlen(value)));
}

static inline fl_exchange *begin(fl_loop *loop, int code, int64_t length) {
    fl_exchange *exchange = take(loop);
    fl_exchange_release_head(exchange);
    CHECK_NUMBER(FL_OK, fl_exchange_begin(exchange, code));
    header(exchange, "date", "now");
    CHECK_NUMBER(FL_OK, fl_exchange_head_end(exchange, length));
    return exchange;
}

static inline void put(fl_exchange *exchange, const char *text) {
    size_t used;
    CHECK_NUMBER(FL_OK, fl_exchange_write(exchange, text, strlen(text), &used));
    CHECK_NUMBER(strlen(text), used);
}

#endif
