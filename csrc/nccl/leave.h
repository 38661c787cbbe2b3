/* Ranks that leave: what each has handed to NCCL is counted, so that local peers learn that a call
 * of theirs can never end. */
#ifndef TRI_NCCL_LEAVE_H
#define TRI_NCCL_LEAVE_H

#include <stdbool.h>

#include "csrc/backend.h"
#include "csrc/nccl/clique.h"

/* What one rank has sent to and received from another one. */
struct tri_nccl_mail {
    _Atomic uint64_t sent, received;
};

/* Count `calls` before they are handed to NCCL. If a rank of this process has left that will not
 * make its part, nothing is to be handed over: the clique is stopped, and its status returned. Hot:
 * an increment and a load for each call. */
trib_status tri_nccl_note_calls(const struct tri_call *calls, size_t n);
/* NCCL has refused them. */
void tri_nccl_unnote_calls(const struct tri_call *calls, size_t n);
/* tri_nccl_note_calls for a split, which is a call of all ranks. */
trib_status tri_nccl_note_split(struct tri_transport *transport);

/* `transport` makes no more calls. False, with the detail set, if a local peer has made more than it
 * did: the clique is to be stopped with TRIB_ERR_CLOSED. The clique is locked, and OPEN. */
bool tri_nccl_leave_even(struct tri_transport *transport);

#endif
