#include "tests/pull/mapped.h"

#include "csrc/nccl/device.h"
#include "csrc/nccl/peer_memory.h"
#include "tests/conformance/cuda_must.h"

/* Its results have the numbers of cudaError_t. */
#define MUST_DRIVER(call) MUST((cudaError_t)(call))

static void open_to(CUdeviceptr start, size_t bytes, int device)
{
    const CUmemAccessDesc access = {
        {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = tri_nccl_cu_device(device)},
        CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    MUST_DRIVER(tri_nccl_driver.mem_set_access(start, bytes, &access, 1));
}

void *mapped_make(struct mapped *out, int device, int devices, size_t bytes, int open)
{
    const size_t unit = tri_nccl_peer_granularity(device);
    CUmemAllocationProp wanted = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted.location.id = tri_nccl_cu_device(device);
    out->part = (bytes / MAPPED_PARTS / unit + 1) * unit;
    MUST_DRIVER(tri_nccl_driver.mem_reserve(&out->start, MAPPED_PARTS * out->part, 0, 0, 0));
    for (int i = 0; i < MAPPED_PARTS; i++) {
        const CUdeviceptr at = out->start + (size_t)i * out->part;
        MUST_DRIVER(tri_nccl_driver.mem_create(&out->parts[i], out->part, &wanted, 0));
        MUST_DRIVER(tri_nccl_driver.mem_map(at, out->part, 0, out->parts[i], 0));
        for (int other = 0; other < devices; other++)
            if (other == device || i < open)
                open_to(at, out->part, other);
    }
    return (void *)(uintptr_t)out->start; /* NOLINT: as the driver has it */
}

void mapped_free(struct mapped *mapped)
{
    for (int i = 0; i < MAPPED_PARTS; i++) {
        MUST_DRIVER(
            tri_nccl_driver.mem_unmap(mapped->start + (size_t)i * mapped->part, mapped->part));
        MUST_DRIVER(tri_nccl_driver.mem_release(mapped->parts[i]));
    }
    MUST_DRIVER(tri_nccl_driver.mem_unreserve(mapped->start, MAPPED_PARTS * mapped->part));
}
