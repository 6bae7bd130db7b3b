/* A list of networks, such as those of trusted proxies. Nothing is allocated: the list is its owner's. Any thread may call. */
#ifndef FL_NETWORKS_H
#define FL_NETWORKS_H

#include "client.h"

typedef struct fl_network {
    fl_client address;
    uint8_t prefix; /* how many bits of the address count; family AF_UNIX with 0: all peers of Unix sockets */
} fl_network;

typedef struct fl_networks {
    fl_network *list;
    uint32_t count;
} fl_networks;

bool fl_networks_include(const fl_networks *networks, const fl_client *client);

#endif
