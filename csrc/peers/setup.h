/* What the owner of a rank's peers sets, and what it is told. */
#ifndef TRI_PEERS_SETUP_H
#define TRI_PEERS_SETUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "csrc/peers/message.h"

/* How a rank is reached. */
enum tri_peer_way {
    TRI_PEER_GONE, /* not connected yet, or dead, or closed */
    TRI_PEER_HERE, /* a rank of this process: no channel */
    TRI_PEER_UNIX,
    TRI_PEER_TCP
};

/* All but `leaving` are called on the service thread; they are called one at a time, from tri_peers_connect until
 * tri_peers_close returns. They must not block, nor call tri_peers_listen, _connect or _close of
 * any communicator; they may send. Each may be NULL. */
struct tri_peers_callbacks {
    /* Once for each rank that dies: "rank 3 (process 4711 on a) was killed by signal 9 (SIGKILL)". `ended`: the
     * system says so of its process; else it is the connection that has been lost. */
    void (*dead)(void *context, int32_t rank, const char *text, bool ended);
    /* The rank has closed; it will not be called dead. */
    void (*left)(void *context, int32_t rank);
    /* In the order in which the rank sent them. The bytes are valid until it returns. */
    void (*message)(void *context, int32_t rank, enum tri_peer_type type, const uint8_t *bytes,
                    size_t length);
    /* The bye is sent next, because the owner closes or the process exits: the last chance to send.
     * Called once, on the thread that closes or exits. */
    void (*leaving)(void *context);
    /* Return true to take the descriptor, which exec closes; else it is closed. */
    bool (*fd)(void *context, int32_t rank, uint64_t tag, int fd);
};

enum {
    TRI_PEERS_NO_UNIX = 1,  /* TCP also inside a host */
    TRI_PEERS_NO_PIDFD = 2, /* deaths by the ends of connections alone */
    TRI_PEERS_LOOPBACK = 4  /* TCP on the loopback interface alone */
};

struct tri_peers_setup {
    const uint8_t *key_material; /* what only the ranks of this communicator know, and of no other:
                                    its id, and for a child of a split what tells it apart */
    size_t key_bytes;
    int32_t rank, size;
    uint32_t flags; /* TRI_PEERS_ */
    struct tri_peers_callbacks callbacks;
    void *context;
};

#endif
