/* The driver's functions of the fake for memory that several devices map; fake_cuda.c hands them out. */
#ifndef TRI_TESTS_NCCL_FAKE_MAPPING_H
#define TRI_TESTS_NCCL_FAKE_MAPPING_H

#include <cuda.h>
#include <stddef.h>

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

#endif
