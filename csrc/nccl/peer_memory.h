/* Device memory of one rank that other devices read and write, too.
 *
 * It is mapped by the driver's functions for virtual memory: making it waits for no work on any device,
 * and nothing else of the devices becomes accessible. It has the same address on all devices of a process.
 * Other processes map it at addresses of their own; then it is freed when none of them maps it any more. */
#ifndef TRI_NCCL_PEER_MEMORY_H
#define TRI_NCCL_PEER_MEMORY_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "csrc/base/symmetric.h"

struct tri_nccl_peer_memory {
    CUdeviceptr address; /* 0: there is none */
    size_t bytes;
    CUmemGenericAllocationHandle handle;
};

/* What the size of such memory on `device` is a multiple of; 0: the driver has no such memory. */
size_t tri_nccl_peer_granularity(int32_t device);

/* Allocate on devices[at], and map for all `n` devices. The contents are undefined. Some device's
 * context is current, as for free. With `exportable` NCCL, say, can export it. CUDA_SUCCESS, or nothing is
 * allocated. */
CUresult tri_nccl_peer_alloc(struct tri_nccl_peer_memory *out, const int32_t *devices, int32_t n,
                             int32_t at, size_t bytes, bool exportable);

/* Does the driver let other processes map it? */
bool tri_nccl_peer_can_export(void);
/* Allocate on `device`, map for it alone, and let other processes map it to whom the caller, whose it
 * becomes, hands *out_fd. */
CUresult tri_nccl_peer_export(struct tri_nccl_peer_memory *out, int *out_fd, int32_t device,
                              size_t bytes);
/* Map for `device` what another process has exported with that size. The descriptor stays the caller's. */
CUresult tri_nccl_peer_import(struct tri_nccl_peer_memory *out, int fd, int32_t device,
                              size_t bytes);

/* The part of `rank` of symmetric memory as this process has it: its own, or what it has mapped. */
struct tri_nccl_peer_memory tri_nccl_peer_part(const struct tri_symmetric *memory, int32_t rank);

/* No device of this process uses it any more. */
void tri_nccl_peer_free(struct tri_nccl_peer_memory *memory);

/* Can a device access another one's memory, and is that over NVLink? It has atomic operations, PCI Express
 * has none. */
bool tri_nccl_reaches(int32_t from, int32_t to);
bool tri_nccl_is_nvlink(int32_t from, int32_t to);

/* Do all `n` devices map the `bytes` bytes at `address`? Memory of cudaMalloc, of the current context, if they
 * have access to its device; memory of a pool, if they have access to the pool; device memory that cuMemMap has
 * mapped, if they may read and write each mapping that has some of the bytes. Of memory of cudaMalloc the driver
 * is asked once. */
bool tri_nccl_peers_map(const void *address, size_t bytes, const int32_t *devices, int32_t n);
/* Give all `n` devices access to the memory of devices[at]'s default pool, as long as there is one. */
void tri_nccl_peers_open_pool(const int32_t *devices, int32_t n, int32_t at);

#endif
