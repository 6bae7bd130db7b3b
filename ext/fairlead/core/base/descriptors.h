/* Which descriptors of this process may be sockets of clients. The child of a fork, which must not keep them, asks for it.
 * Nothing takes a lock. What the child calls allocates nothing and cannot fail. */
#ifndef FL_DESCRIPTORS_H
#define FL_DESCRIPTORS_H

#include <stdbool.h>

/* A listener or a connection has this descriptor. From any thread. */
void fl_descriptor_is_used(int descriptor);

/* One more than the highest descriptor that a socket may have. */
int fl_descriptors_end(void);

/* The app owns this socket from now on, and its children keep it. One thread at a time. */
void fl_descriptor_gives_away(int descriptor);
bool fl_descriptor_is_given_away(int descriptor);

/* In the child: closes the file, but keeps the number in use. An IO object may close that number later, and must not close another
 * file. */
void fl_descriptor_replace(int descriptor);

#endif
