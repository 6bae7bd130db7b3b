/* Event streams: responses of type text/event-stream. The caller holds the lock, unless the function says otherwise. All of them may end
 * the response: check exchange->connection afterwards. */
#ifndef FL_EVENT_STREAM_H
#define FL_EVENT_STREAM_H

#include "exchange.h"

#include <stdbool.h>

/* Adds what proxies have to know, where the app has not said it. Needs the GVL only. */
fl_status fl_event_stream_add_headers(fl_exchange *exchange);

/* The head is about to be sent. From here on the core sends a comment whenever nothing was written for the deadline of FL_DEADLINE_EVENTS
 * (limits.deadlines; 0: never) to twice as long. */
void fl_event_stream_begin(fl_exchange *exchange);

/* The app has written these bytes. */
void fl_event_stream_written(fl_exchange *exchange, const char *bytes, size_t size);

/* The app has flushed an encoded stream with its last write. `nothing` are bytes that the decoder takes and that say nothing; `end` are
 * those that add fl_event_stream_last_text and end the body, of size 0 within an event. Copied; valid until the app writes again. Only with
 * them the core adds to an encoded stream. False: too long, or no memory. */
enum { FL_MAX_EVENT_NOTHING = 8, FL_MAX_EVENT_END = 64 };
bool fl_event_stream_set_coding(fl_exchange *exchange, const char *nothing, size_t nothing_size, const char *end,
                                size_t end_size);
void fl_event_stream_free(fl_event_stream *events);

/* What the core ends this stream with; returns the size. Needs the GVL only. */
enum { FL_MAX_LAST_TEXT = 32 };
size_t fl_event_stream_last_text(const fl_exchange *exchange, char text[FL_MAX_LAST_TEXT]);

/* FL_DEADLINE_EVENTS is due. */
void fl_event_stream_expired(fl_exchange *exchange);

/* The client has ended its side: a comment tells whether it still reads. */
void fl_event_stream_probe(fl_exchange *exchange);

/* The server drains: streams whose clients connect again end once they have been silent for a second after an event. */
void fl_event_streams_drain(struct fl_context *context);

/* The server stops: the same streams end now, but those within an event. */
void fl_event_streams_end(struct fl_context *context);

#endif
