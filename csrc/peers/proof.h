/* What the two ends of a channel derive from the communicator's id, which never travels.
 *
 *   connector                                        acceptor
 *             HELLO      rank, nonce           ->
 *             <-                    CHALLENGE  nonce
 *             PROOF      "I know the id"       ->              verified; the channel is open
 *   open      <-                        PROOF  "so do I"
 *
 * The acceptor, whom anybody can reach, says nothing that depends on the key until the connector
 * has proved itself. Every derived value is bound to its purpose, to both ranks, to the number of
 * ranks and to both nonces: no proof serves in another direction, in another channel or again. */
#ifndef TRI_PEERS_PROOF_H
#define TRI_PEERS_PROOF_H

#include <stddef.h>
#include <stdint.h>

#include "csrc/base/status.h"
#include "csrc/peers/mac.h"

enum { TRI_NONCE = 32, TRI_PROOF = 32 };

/* What is public of one handshake. */
struct tri_session {
    int32_t connector, acceptor, size; /* ranks, and how many there are */
    uint8_t connector_nonce[TRI_NONCE];
    uint8_t acceptor_nonce[TRI_NONCE];
};

enum tri_purpose {
    TRI_CONNECTOR_PROVES = 1,
    TRI_ACCEPTOR_PROVES = 2,
    TRI_CONNECTOR_SENDS = 3, /* key of the MACs of its messages */
    TRI_ACCEPTOR_SENDS = 4
};

/* The key of a communicator: a hash of what only its ranks know. */
void tri_proof_key(uint8_t key[TRI_MAC_KEY], const uint8_t *material, size_t n);

void tri_proof_derive(uint8_t out[TRI_PROOF], const uint8_t key[TRI_MAC_KEY],
                      const struct tri_session *session, enum tri_purpose purpose);

#endif
