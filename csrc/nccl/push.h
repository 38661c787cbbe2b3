/* Small calls by the push kernels, inside one host: allreduces, reduce_scatters, allgathers,
 * alltoalls and broadcasts. The barrier is an allreduce of one element. */
#ifndef TRI_NCCL_PUSH_H
#define TRI_NCCL_PUSH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "csrc/nccl/local.h"

/* What the push of a communicator needs. Once there, only pull is added, between processes, by the owner. */
struct tri_nccl_push;

/* `n` more ranks of a communicator, `self` among them, have everything but this. When all have, and
 * all are in this process, the last one makes it, and tries it once; the others wait for that, no
 * longer than until an abort. Not if ranks are elsewhere, or too many, or have no memory for it, or if their
 * devices do not reach each other: then NCCL serves all calls, and the log says why. Returns the status
 * of an abort. The caller is registered with the abort state. */
trib_status tri_nccl_push_meet(const struct tri_transport *self, int32_t n);

/* The same for ranks that each have a process of their own. */
extern const struct tri_share_ops tri_nccl_push_share;

/* Wait for the queued calls of all ranks of `local`, if they have it or symmetric memory; then free it, or
 * keep its memory for ever (local->kept), if CUDA does not tell that they have ended. The communicator was
 * aborted, or its calls have ended, and no graph repeats them. */
void tri_nccl_push_free(struct tri_nccl_local *local);

/* Device memory for barriers, as long as the rank's calls run. */
void *tri_nccl_push_word(const struct tri_transport *transport);

/* Bytes of the rank's device that push, pull and symmetric memory have. */
uint64_t tri_nccl_push_bytes(const struct tri_transport *transport);

/* Of TRIB_CAN_PEERS and TRIB_CAN_PEERS_LARGE. */
uint32_t tri_nccl_push_lacks(const struct tri_transport *transport);

/* Does push serve the call, the only one of its transport in a batch, unless it has another variant? The
 * same on all ranks. */
bool tri_nccl_push_serves(const struct tri_call *call);

/* Queue a call that push serves. Its device is current. */
trib_status tri_nccl_push_call(const struct tri_call *call);

#endif
