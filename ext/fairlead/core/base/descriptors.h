/* Tracks which descriptors may be sockets of clients: the child of a fork must not keep them open.
 * No function takes a lock. The functions that the child calls allocate nothing and cannot fail. */
#ifndef FL_DESCRIPTORS_H
#define FL_DESCRIPTORS_H

#include <stdbool.h>

/* A listener or a connection uses this descriptor. Any thread may call. */
void fl_descriptor_track(int descriptor);

/* One more than the highest descriptor that a socket may have. */
int fl_descriptors_end(void);

/* From now on the app owns this socket, and its child processes keep it. One thread at a time may call. */
void fl_descriptor_mark_hijacked(int descriptor);
bool fl_descriptor_is_hijacked(int descriptor);

/* The socket is one end of a relay, which has no address to know it by; or it is to be closed. Any thread may call. */
void fl_descriptor_set_relayed(int descriptor, bool relayed);
bool fl_descriptor_is_relayed(int descriptor);

/* In the child: closes the file, but keeps the descriptor in use (/dev/null). An IO object may close it later, and must not close
 * another file then. */
void fl_descriptor_replace(int descriptor);

#endif
