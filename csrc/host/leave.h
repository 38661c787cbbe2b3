/* Ranks that leave, and the abort that frees the ranks that wait for them.
 *
 * A rank has left when it has closed and all its submissions have run: it takes part in nothing any
 * more. A rank that waits for one that has left aborts the communicator with TRIB_ERR_CLOSED, so
 * that every rank gets the reason. Ranks that have made equally many calls never wait for one that
 * has left. To find that a rank will not act, read `left` first and the result of its action
 * afterwards: a rank acts before it leaves. */
#ifndef TRI_HOST_LEAVE_H
#define TRI_HOST_LEAVE_H

#include <stdint.h>

#include "csrc/host/local.h"

/* Call after the rank has closed and after each of its submissions: if it has closed and all have
 * run, record that it has left and notify all waiting ranks. */
void tri_host_leave_check(struct tri_transport *self);

/* The ranks that have left, bit 1 << rank for each. A load. */
uint64_t tri_host_left_ranks(const struct tri_host_local *local);

/* Abort: `self` waits in `call` (NULL: in a split) for one of the ranks `left`. */
void tri_host_leave_abort(const struct tri_transport *self, uint64_t left,
                          const struct tri_call *call);

/* The number of the submission that this rank runs. */
uint64_t tri_host_call_number(const struct tri_transport *self);

#endif
