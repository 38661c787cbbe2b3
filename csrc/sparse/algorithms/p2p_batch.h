/* The sends and receives of one exchange, which the backend gets as one batch. */
#ifndef TRI_SPARSE_ALGORITHMS_P2P_BATCH_H
#define TRI_SPARSE_ALGORITHMS_P2P_BATCH_H

#include "csrc/sparse/link.h"

struct tri_p2p_batch {
    size_t nsends, nreceives;
    struct tri_message sends[2 * TRI_MAX_LISTS], receives[2 * TRI_MAX_LISTS];
};

/* All `capacity` entries of `part`, to `peer` or from it: one message of indices and one of values,
 * none without entries. At most one part per rank and direction. */
void tri_p2p_batch_send(struct tri_p2p_batch *batch, int32_t peer, const struct tri_entries *part);
void tri_p2p_batch_receive(struct tri_p2p_batch *batch, int32_t peer,
                           const struct tri_entries *part);

/* Bytes that count as payload; at most two messages per rank and direction. */
void tri_p2p_batch_send_bytes(struct tri_p2p_batch *batch, int32_t peer, void *data, size_t bytes);
void tri_p2p_batch_receive_bytes(struct tri_p2p_batch *batch, int32_t peer, void *data,
                                 size_t bytes);

/* All ranks call it, also those with nothing to send or receive. */
trib_status tri_p2p_batch_exchange(struct tri_run *run, const struct tri_p2p_batch *batch);

#endif
