/* The address of a client: of the peer of its socket, or as a trusted proxy names it. A value; any thread may call. */
#ifndef FL_CLIENT_H
#define FL_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

typedef struct fl_client {
    uint8_t address[16]; /* 4 or 16 bytes are used, by the family; the others are 0 */
    uint8_t family;      /* AF_INET, AF_INET6 or AF_UNIX; 0: not known */
    uint16_t port;       /* as a PROXY header says; 0: not known */
} fl_client;

/* `address` has 4 bytes of AF_INET or 16 of AF_INET6. An IPv4 address within IPv6 becomes one of AF_INET. */
void fl_client_set(fl_client *client, int family, const void *address);

/* The peer of a connected socket. */
fl_client fl_client_of_peer(int descriptor);

/* Parses an address in text that need not end with 0. False: it is none, and `client` is unchanged. */
bool fl_client_parse(fl_client *client, const char *text, size_t size);

#endif
