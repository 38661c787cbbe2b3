/* Where a rank is, and how to reach it: plain bytes that all ranks exchange at creation. */
#ifndef TRI_PEERS_ADDRESS_H
#define TRI_PEERS_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "csrc/base/status.h"

enum { TRI_PEER_UNIX_NAME = 40, TRI_PEER_TCP_MAX = 4, TRI_PEER_HOST = 48 };

/* An IPv4 or IPv6 address, in network byte order. */
struct tri_peer_tcp {
    uint8_t family; /* 4, 6 */
    uint8_t zero[3];
    uint8_t bytes[16];
};

struct tri_peer_address {
    uint32_t magic;
    uint32_t version;
    int32_t rank, size;
    uint64_t machine;                      /* tri_machine */
    uint64_t net_namespace, pid_namespace; /* of the machine; 0: unknown */
    int32_t pid;                           /* in its namespace */
    uint16_t port;                         /* of every TCP address */
    uint8_t unix_length, tcp_count;        /* used below; 0: not reachable that way */
    uint64_t start;                        /* tri_process_start */
    uint8_t unix_name[TRI_PEER_UNIX_NAME]; /* in the abstract namespace of Unix sockets */
    struct tri_peer_tcp tcp[TRI_PEER_TCP_MAX];
    char host[TRI_PEER_HOST]; /* for messages */
};

/* This process as `rank`, with no way to reach it yet. */
void tri_peer_address_fill(struct tri_peer_address *out, int32_t rank, int32_t size);

/* Is it what rank `rank` of `size` may have sent? TRIB_ERR_MISMATCH: another version of Tributary,
 * or not an address. */
trib_status tri_peer_address_check(const struct tri_peer_address *address, int32_t rank,
                                   int32_t size);

/* Do they name one process; are their pids comparable; do they share Unix sockets? "No" if the
 * system does not say. */
bool tri_peer_same_process(const struct tri_peer_address *a, const struct tri_peer_address *b);
bool tri_peer_same_pids(const struct tri_peer_address *a, const struct tri_peer_address *b);
bool tri_peer_same_unix(const struct tri_peer_address *a, const struct tri_peer_address *b);

/* "rank 3 (process 4711 on a)", of an address that passed the check, for logs: control characters of
 * the host become ?. */
struct tri_peer_text {
    char text[112];
};
struct tri_peer_text tri_peer_text(const struct tri_peer_address *address);

#endif
