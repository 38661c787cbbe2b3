/* A socket as a sequence of messages in either direction. Reads and writes what is possible now and
 * never waits. The caller holds the lock of the service.
 *
 * Until tri_wire_secure it takes and sends messages of the handshake only, at most 256 bytes, and
 * no file descriptors: that is all that a stranger can make it hold. Afterwards it takes and sends
 * only others, each with its sequence and its MAC. */
#ifndef TRI_PEERS_WIRE_H
#define TRI_PEERS_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "csrc/peers/message.h"

enum { TRI_WIRE_QUEUE_MAX = 1 << 20, TRI_WIRE_SMALL = 256 };

struct tri_wire_key {
    uint8_t bytes[TRI_MAC_KEY];
};

struct tri_wire {
    int fd;
    bool local;        /* a Unix socket */
    int32_t own, peer; /* ranks; peer -1: not known yet */
    bool secure;
    struct tri_wire_key in_key, out_key;
    uint64_t in_sequence, out_sequence;

    struct tri_outgoing *first, **end; /* not yet written */
    size_t queued;                     /* bytes */

    uint8_t small[TRI_WIRE_SMALL];
    uint8_t *bytes; /* `small`, or allocated */
    size_t have, want;
    int passed; /* a file descriptor that came, or -1 */
};

void tri_wire_begin(struct tri_wire *wire, int fd, bool local, int32_t own, int32_t peer);
void tri_wire_secure(struct tri_wire *wire, const struct tri_wire_key *in,
                     const struct tri_wire_key *out);
/* Close the socket and everything that waits to be written. */
void tri_wire_end(struct tri_wire *wire);

/* Queue a message; `fd` -1, or a file descriptor that becomes the wire's if that succeeds.
 * TRIB_ERR_TIMEOUT: TRI_WIRE_QUEUE_MAX bytes wait already, and the message is one of the owner's.
 * TRIB_ERR_OUT_OF_MEMORY. */
trib_status tri_wire_queue(struct tri_wire *wire, enum tri_peer_type type, const void *payload,
                           size_t length, int fd);
/* Write. Returns 0, EAGAIN if something remains, or the errno of an end; then the queue is empty. */
int tri_wire_flush(struct tri_wire *wire);

enum tri_wire_got { TRI_WIRE_NOTHING, TRI_WIRE_MESSAGE, TRI_WIRE_END };
/* Read the next message; its payload stays valid until the next read. On TRI_WIRE_END *out_error is
 * 0 if the peer closed, EBADMSG if the bytes are no message that may come here, or an errno. */
enum tri_wire_got tri_wire_read(struct tri_wire *wire, struct tri_peer_message *out,
                                int *out_error);
/* Read and throw away; TRI_WIRE_MESSAGE: there may be more. */
enum tri_wire_got tri_wire_discard(struct tri_wire *wire);
/* The file descriptor that came with the last message, which becomes the caller's; or -1. */
int tri_wire_take_fd(struct tri_wire *wire);

#endif
