/* The end of local ranks: abort, destroy, and the last reference. */
#ifndef TRI_NCCL_TEARDOWN_H
#define TRI_NCCL_TEARDOWN_H

#include "csrc/nccl/local.h"

/* The hook of the abort state; `context` is the local ranks. Posts a background job that aborts and
 * frees them, unless it has run before or they are being destroyed. Does not wait. */
void tri_nccl_abort_async(void *context);

/* What the abort state asks about it; the context is the same. */
extern const struct tri_abort_ending tri_nccl_ending;

/* In the background, destroy local ranks in stage DESTROYING whose queued work has all run. */
void tri_nccl_destroy_async(struct tri_nccl_local *local);

/* Drop a reference; the last one frees the local ranks. */
void tri_nccl_release(struct tri_nccl_local *local);

#endif
