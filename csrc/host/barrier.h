/* The barrier at the start and at the end of a collective. */
#ifndef TRI_HOST_BARRIER_H
#define TRI_HOST_BARRIER_H

#include "csrc/host/local.h"

enum tri_barrier_at { TRI_AT_START, TRI_AT_END };

/* Wait for all ranks at the start or at the end of `call`. False if the communicator is aborted,
 * also by this function because a rank has left. */
bool tri_host_barrier(struct tri_transport *self, const struct tri_call *call,
                      enum tri_barrier_at at);

/* The same at the end of a call that no abort interrupts: every rank finishes it. */
void tri_host_barrier_always(struct tri_transport *self, const struct tri_call *call);

#endif
