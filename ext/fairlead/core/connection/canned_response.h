/* What the core answers itself, without any app: that a request is refused or took too long, and that the worker is
 * alive. It allocates nothing but room in the connection's output. Only the holder of the loop may call. */
#ifndef FL_OWN_ANSWER_H
#define FL_OWN_ANSWER_H

#include "exchange.h"
#include <stdbool.h>

/* Puts a short plain text behind what is to be sent. `close`: says that the connection ends with it. False when there is
 * no memory: nothing was put. */
bool fl_canned_response(fl_connection *connection, int code, const char *text, bool head_method, bool close);

/* Whether a request that is complete asks how the worker is: GET or HEAD of the health path, without a body. */
bool fl_asks_for_health(const fl_exchange *exchange);

/* Puts the answer to that behind what is to be sent: 200, or 503 once the server is about to end. */
bool fl_answer_health(fl_exchange *exchange, bool close);

#endif
