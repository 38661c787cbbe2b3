/* What tests do with the fake's streams beside the library. */
#ifndef TRI_TESTS_NCCL_FAKE_STREAMS_H
#define TRI_TESTS_NCCL_FAKE_STREAMS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

/* While held, what is queued behind waits. */
struct fake_held {
    bool held; /* under fake_lock */
};
void fake_hold_stream(struct fake_held *held, cudaStream_t stream);
void fake_release_stream(struct fake_held *held);

/* Launch the graph once, on a stream of that device. */
void fake_replay(cudaGraph_t graph, int device, cudaStream_t stream);

#endif
