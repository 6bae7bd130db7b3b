/* Which descriptors of this process may be sockets of clients: asked in the child of a fork, which must not keep them.
 * Nothing here takes a lock. What the child calls allocates nothing either, and cannot fail. */
#ifndef FL_DESCRIPTORS_H
#define FL_DESCRIPTORS_H

#include <stdbool.h>

/* A listener, or a connection. From any thread. */
void fl_descriptor_is_used(int descriptor);

/* One more than the highest there may be. */
int fl_descriptors_end(void);

/* The app has this socket from now on, and so have its children. One thread at a time. */
void fl_descriptor_gives_away(int descriptor);
bool fl_descriptor_is_given_away(int descriptor);

/* In the child: closes the file, but not the number. An IO of Ruby's may close that later, and must not meet another file
 * there. */
void fl_descriptor_replace(int descriptor);

#endif
