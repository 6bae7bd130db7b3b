/* Event streams: responses of type text/event-stream. The caller holds the lock, unless the function says otherwise. All of them may end
 * the response: check exchange->connection afterwards. */
#ifndef FL_EVENT_STREAM_H
#define FL_EVENT_STREAM_H

#include "exchange.h"

/* Adds what proxies have to know, where the app has not said it. Needs the GVL only. */
fl_status fl_event_stream_add_headers(fl_exchange *exchange);

/* The head is about to be sent. From here on the core sends a comment whenever nothing was written for the deadline of FL_DEADLINE_EVENTS
 * (limits.deadlines; 0: never) to twice as long. */
void fl_event_stream_begin(fl_exchange *exchange);

/* The app has written these bytes. */
void fl_event_stream_written(fl_exchange *exchange, const char *bytes, size_t size);

/* FL_DEADLINE_EVENTS is due. */
void fl_event_stream_expired(fl_exchange *exchange);

/* The client has ended its side: a comment tells whether it still reads. */
void fl_event_stream_probe(fl_exchange *exchange);

/* The server drains: streams end once they have been silent for a second after an event. */
void fl_event_streams_drain(struct fl_context *context);

/* The server stops: streams end, but those within an event. */
void fl_event_streams_end(struct fl_context *context);

#endif
