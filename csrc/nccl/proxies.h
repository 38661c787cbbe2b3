/* NCCL's proxy threads, one for each rank, end before the communicators of their process are freed.
 *
 * When the connections to a proxy thread close, it frees the memory that its rank lent to others.
 * ncclCommAbort and ncclCommDestroy close them, and at once unmap that memory, on another thread,
 * from the other ranks of the process. CUDA's driver does not bear the two at the same time: once in
 * about 500 aborts of two ranks it ends the process with "double free or corruption", inside
 * cuMemUnmap (2 x H200, NCCL 2.28.9, driver 580.159.04), without Tributary too. ncclCommFinalize
 * only closes the connections: it comes first, then a pause in which the proxies end, then the
 * freeing. */
#ifndef TRI_NCCL_PROXIES_H
#define TRI_NCCL_PROXIES_H

#include "csrc/nccl/local.h"

/* Both return for how many milliseconds to wait before the ranks are freed: 0 unless two or more of
 * them are connected in this process. No call is in flight on any of them. */

/* The ranks have been aborted in a group that the calling thread keeps open. */
uint32_t tri_nccl_stop_proxies(struct tri_nccl_local *local);
/* They have been finalized. */
uint32_t tri_nccl_stopped_proxies(const struct tri_nccl_local *local);

#endif
