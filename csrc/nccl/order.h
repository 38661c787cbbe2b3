/* Calls of one rank run in the order in which they were made, whichever streams they name: for calls
 * that are not NCCL's, which orders its own. */
#ifndef TRI_NCCL_ORDER_H
#define TRI_NCCL_ORDER_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

/* So many captures may go on at once, of which each keeps its order: of one that is behind by so many others
 * the next call counts as its first. */
enum { TRI_NCCL_CAPTURES = 4 };

/* Where the newest call ended: the newest one that runs, and the newest one that each graph captured. */
struct tri_nccl_order {
    cudaEvent_t event;
    bool queued;     /* `event` was recorded, */
    uint64_t stream; /* on this stream */
    bool lost;       /* of some call nobody will ever know that it has ended for good */
    struct {
        cudaEvent_t event;
        uint64_t capture; /* `event` was recorded in this one; 0: never */
    } captured[TRI_NCCL_CAPTURES];
    uint32_t captures; /* that there were, modulo 2^32 */

    /* The call that has begun. Streams are told apart by the driver's numbers, which no other stream
     * ever has; 0: unknown, or in capture. */
    struct {
        uint64_t capture, stream; /* capture 0: it runs */
    } begun;
};

/* Make the events, on the current device, or destroy them. */
cudaError_t tri_nccl_order_create(struct tri_nccl_order *order);
void tri_nccl_order_destroy(struct tri_nccl_order *order);

/* Before and after the queueing of a call on `stream`, whose device is current: it waits for the one before if
 * that was made on another stream. After, also where a batch fails: some of its calls may have been queued.
 * Nothing orders a call that a graph captures and one that it does not capture: that is for the caller. */
cudaError_t tri_nccl_order_begin(struct tri_nccl_order *order, int32_t device, cudaStream_t stream);
cudaError_t tri_nccl_order_end(struct tri_nccl_order *order, cudaStream_t stream);

/* Make `stream` wait for the newest call that runs. */
cudaError_t tri_nccl_order_wait(const struct tri_nccl_order *order, cudaStream_t stream);

#endif
