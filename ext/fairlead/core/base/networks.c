#include "networks.h"

#include <string.h>

static bool includes(const fl_network *network, const fl_client *client) {
    size_t whole = network->prefix / 8, bits = network->prefix % 8;
    if (network->address.family != client->family || memcmp(network->address.address, client->address, whole) != 0)
        return false;
    return bits == 0 || ((network->address.address[whole] ^ client->address[whole]) >> (8 - bits)) == 0;
}

bool fl_networks_include(const fl_networks *networks, const fl_client *client) {
    for (uint32_t i = 0; i < networks->count; i++)
        if (includes(&networks->list[i], client))
            return true;
    return false;
}
