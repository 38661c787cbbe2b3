/* The driver's functions of the fake for memory that several devices map; fake_cuda.c hands them out. */
#ifndef TRI_TESTS_NCCL_FAKE_MAPPING_H
#define TRI_TESTS_NCCL_FAKE_MAPPING_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

/* Memory that was created. It lives until no handle and no mapping has it. */
struct fake_memory {
    char *home; /* where the fake itself has it */
    size_t bytes;
    int file, device;
    bool exportable;
    int users; /* handles and mappings */
};

/* Of whoever created the memory, or imported it. */
struct fake_handle {
    struct fake_memory *memory;
    bool imported; /* or retained: what is mapped may outlive it */
};

/* All of these under fake_lock. Does this call fail, as fake_fail_mapping has it? */
bool fake_mapping_fails(void);
/* More of what fake_mappings counts, or less. */
void fake_mapping_count(int change);
/* fake_memory.c. A handle that the driver has handed out; anything else ends the program. And a user
 * less. */
struct fake_handle *fake_handle_of(CUmemGenericAllocationHandle number);
void fake_memory_leave(struct fake_memory *memory);
/* One more handle of it. */
CUmemGenericAllocationHandle fake_handle_again(struct fake_memory *memory);
/* The handle is released: was something mapped by it that is mapped yet? */
bool fake_mapping_forget(const struct fake_handle *handle);
/* fake_peers.c. Can the device be given access to memory of the other one? */
bool fake_can_reach(int device, int peer);
/* Has it got access to what cudaMalloc makes there; and to a pool? */
bool fake_has_access(int device, int peer);
bool fake_pool_opens(CUmemoryPool pool, int device);
/* The device's default pool, or one that is its own alone. */
CUmemoryPool fake_pool_of(int device, bool is_default);
CUresult fake_pool_access(CUmemAccess_flags *out, CUmemoryPool pool, CUmemLocation *location);

/* What is mapped at the address: where that begins, its bytes, and the device that has the memory. False:
 * nothing is. */
bool fake_mapped_at(const void *address, CUdeviceptr *start, size_t *bytes, int *device);

CUresult fake_mem_granularity(size_t *out, const CUmemAllocationProp *wanted,
                              CUmemAllocationGranularity_flags flags);
CUresult fake_mem_create(CUmemGenericAllocationHandle *out, size_t bytes,
                         const CUmemAllocationProp *wanted, unsigned long long flags);
CUresult fake_mem_release(CUmemGenericAllocationHandle handle);
CUresult fake_mem_reserve(CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr wanted,
                          unsigned long long flags);
CUresult fake_mem_unreserve(CUdeviceptr address, size_t bytes);
CUresult fake_mem_map(CUdeviceptr address, size_t bytes, size_t offset,
                      CUmemGenericAllocationHandle handle, unsigned long long flags);
CUresult fake_mem_unmap(CUdeviceptr address, size_t bytes);
CUresult fake_mem_set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                             size_t n);
CUresult fake_mem_get_access(unsigned long long *out, const CUmemLocation *location,
                             CUdeviceptr address);
CUresult fake_mem_retain(CUmemGenericAllocationHandle *out, void *address);
CUresult fake_mem_export(void *out, CUmemGenericAllocationHandle handle,
                         CUmemAllocationHandleType type, unsigned long long flags);
CUresult fake_mem_import(CUmemGenericAllocationHandle *out, void *file,
                         CUmemAllocationHandleType type);

#endif
