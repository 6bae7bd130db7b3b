/* The child of a fork closes the sockets of its parent's server. Part of the loop: its contract is in loop.h. */
#include "loop.h"
#include "base/descriptors.h"

#include <netinet/in.h>
#include <string.h>

/* Whether a socket with this address was accepted from the listener, or is the listener. */
static bool belongs_to(const fl_listener *listener, const struct sockaddr_storage *address, socklen_t size) {
    if (listener->address.ss_family != address->ss_family)
        return false;
    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *bound = (const void *) &listener->address, *own = (const void *) address;
        return bound->sin_port == own->sin_port &&
               (bound->sin_addr.s_addr == htonl(INADDR_ANY) || bound->sin_addr.s_addr == own->sin_addr.s_addr);
    }
    if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *bound = (const void *) &listener->address, *own = (const void *) address;
        return bound->sin6_port == own->sin6_port &&
               (IN6_IS_ADDR_UNSPECIFIED(&bound->sin6_addr) || IN6_ARE_ADDR_EQUAL(&bound->sin6_addr, &own->sin6_addr));
    }
    return listener->address_size == size && memcmp(&listener->address, address, size) == 0;
}

static bool is_ours(const fl_loop *loop, int descriptor) {
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    if (getsockname(descriptor, (struct sockaddr *) &address, &size) < 0)
        return false;
    if (fl_descriptor_is_relayed(descriptor))
        return true;
    for (const fl_listener *listener = loop->accepting.listeners; listener != NULL; listener = listener->next)
        if (belongs_to(listener, &address, size))
            return true;
    return false;
}

static bool listens(int descriptor) {
    int accepts = 0;
    socklen_t size = sizeof accepts;
    return getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &size) == 0 && accepts != 0;
}

/* Closes connections first, so that a descriptor is free to replace the others with. */
void fl_loop_forget(fl_loop *loop) {
    int end = fl_descriptors_end();
    for (int descriptor = 0; descriptor < end; descriptor++)
        if (is_ours(loop, descriptor) && !listens(descriptor) && !fl_descriptor_is_hijacked(descriptor))
            close(descriptor);
    for (int descriptor = 0; descriptor < end; descriptor++)
        if (is_ours(loop, descriptor) && listens(descriptor))
            fl_descriptor_replace(descriptor);
    const fl_siblings *siblings = &loop->siblings;
    if (siblings->receiving >= 0)
        fl_descriptor_replace(siblings->receiving);
    for (int i = 0; i < siblings->count; i++)
        if (siblings->sending[i] >= 0)
            fl_descriptor_replace(siblings->sending[i]);
    fl_poll_forget(&loop->context.poll);
    loop->siblings.slot = NULL;
    loop->context.forgotten = true;
}
