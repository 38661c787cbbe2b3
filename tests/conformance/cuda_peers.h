/* GPUs of this process that map each other's memory of cudaMalloc, for tests and benchmarks. */
#ifndef TRI_TESTS_CONFORMANCE_CUDA_PEERS_H
#define TRI_TESTS_CONFORMANCE_CUDA_PEERS_H

#include <stdbool.h>

#include "tests/conformance/cuda_must.h"

/* Every pair of the first `devices` GPUs, both ways. False if some pair cannot. */
static inline bool cuda_map_peers(int devices)
{
    for (int d = 0; d < devices; d++)
        for (int p = 0; p < devices; p++) {
            int can = 0;
            if (p == d)
                continue;
            MUST(cudaDeviceCanAccessPeer(&can, d, p));
            if (!can)
                return false;
            MUST(cudaSetDevice(d));
            const cudaError_t error = cudaDeviceEnablePeerAccess(p, 0);
            if (error != cudaErrorPeerAccessAlreadyEnabled)
                MUST(error);
            (void)cudaGetLastError(); /* it was enabled already */
        }
    return true;
}

#endif
