#include "client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

void fl_client_set(fl_client *client, int family, const void *address) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    *client = (fl_client) {.family = (uint8_t) family};
    if (family == AF_INET6 && memcmp(address, mapped, sizeof mapped) == 0) { /* a socket on [::] accepts IPv4 too */
        client->family = AF_INET;
        address = (const uint8_t *) address + sizeof mapped;
    }
    memcpy(client->address, address, client->family == AF_INET ? 4 : 16);
}

fl_client fl_client_of_peer(int descriptor) {
    fl_client client = {0};
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    if (getpeername(descriptor, (struct sockaddr *) &address, &size) < 0)
        return client;
    client.family = (uint8_t) address.ss_family;
    if (address.ss_family == AF_INET)
        fl_client_set(&client, AF_INET, &((struct sockaddr_in *) &address)->sin_addr);
    else if (address.ss_family == AF_INET6)
        fl_client_set(&client, AF_INET6, &((struct sockaddr_in6 *) &address)->sin6_addr);
    return client;
}

bool fl_client_parse(fl_client *client, const char *text, size_t size) {
    char name[INET6_ADDRSTRLEN];
    uint8_t address[16];
    if (size >= sizeof name)
        return false;
    memcpy(name, text, size);
    name[size] = 0;
    if (strlen(name) != size)
        return false;
    int family = memchr(name, ':', size) != NULL ? AF_INET6 : AF_INET;
    if (inet_pton(family, name, address) != 1)
        return false;
    fl_client_set(client, family, address);
    return true;
}
