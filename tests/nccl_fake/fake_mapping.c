/* The fake's memory that several devices map: the driver's functions for virtual memory. A reservation
 * is ordinary memory, and what is created has none of its own. */
#include "tests/nccl_fake/fake_mapping.h"

#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/nccl_fake/fake.h"
#include "tests/nccl_fake/fake_work.h"

enum { MAPPINGS = 256 };

/* A reservation, and what is mapped there. */
static struct mapping {
    char *start; /* NULL: free */
    size_t bytes;
    CUmemGenericAllocationHandle handle; /* 0: nothing is mapped */
    unsigned int devices;                /* that may access it, a bit each */
} mappings[MAPPINGS];
static size_t created[MAPPINGS]; /* bytes of handle - 1; 0: free */
static int live, failing = -1;
static bool reach, nvlink = true;
static unsigned int
    enabled[FAKE_DEVICES]; /* devices that this one may access the memory of, a bit each */

void fake_reach(bool reaches, bool by_nvlink)
{
    pthread_mutex_lock(&fake_lock);
    reach = reaches;
    nvlink = by_nvlink;
    pthread_mutex_unlock(&fake_lock);
}

void fake_fail_mapping(int call)
{
    pthread_mutex_lock(&fake_lock);
    failing = call;
    pthread_mutex_unlock(&fake_lock);
}

int fake_mappings(void)
{
    pthread_mutex_lock(&fake_lock);
    const int n = live;
    pthread_mutex_unlock(&fake_lock);
    return n;
}

/* The lock is held. */
static bool fails(void)
{
    const bool now = failing == 0;
    failing -= failing >= 0;
    return now;
}

bool fake_reaches(int device, const void *begin, size_t bytes)
{
    const char *const at = begin;
    for (const struct mapping *mapping = mappings; mapping < mappings + MAPPINGS; mapping++)
        if (mapping->start != NULL && at >= mapping->start &&
            at + bytes <= mapping->start + mapping->bytes)
            return mapping->handle != 0 && (mapping->devices >> device & 1) != 0;
    return false;
}

cudaError_t cudaDeviceCanAccessPeer(int *out, int device, int peer)
{
    pthread_mutex_lock(&fake_lock);
    *out = reach && device != peer;
    pthread_mutex_unlock(&fake_lock);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetP2PAttribute(int *out, enum cudaDeviceP2PAttr attribute, int device,
                                      int peer)
{
    if (attribute != cudaDevP2PAttrNativeAtomicSupported)
        fake_die("an attribute of two devices that the fake does not have");
    pthread_mutex_lock(&fake_lock);
    *out = reach && nvlink && device != peer;
    pthread_mutex_unlock(&fake_lock);
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
    const int device = fake_current();
    if (flags != 0 || device == peer)
        fake_die("peer access with wishes, or to itself");
    pthread_mutex_lock(&fake_lock);
    fake_pass(FAKE_MAPPING);
    const bool known = (enabled[device] >> peer & 1) != 0;
    const bool good = reach && !fails();
    if (good)
        enabled[device] |= 1u << peer;
    pthread_mutex_unlock(&fake_lock);
    return !good   ? cudaErrorPeerAccessUnsupported
           : known ? cudaErrorPeerAccessAlreadyEnabled
                   : cudaSuccess;
}

bool fake_may_access(int device, int peer)
{
    return device == peer || (enabled[device] >> peer & 1) != 0;
}

/* --------------------------------------------------------------------------------- the driver's */

static struct mapping *mapping_at(CUdeviceptr address, size_t bytes)
{
    for (struct mapping *mapping = mappings; mapping < mappings + MAPPINGS; mapping++)
        if (mapping->start != NULL && (CUdeviceptr)(uintptr_t)mapping->start == address &&
            mapping->bytes == bytes)
            return mapping;
    fake_die("a range that was not reserved");
}

CUresult fake_mem_granularity(size_t *out, const CUmemAllocationProp *wanted,
                              CUmemAllocationGranularity_flags flags)
{
    (void)flags;
    if (wanted->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        wanted->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        fake_die("memory of a kind that no device has");
    pthread_mutex_lock(&fake_lock);
    *out = (size_t)FAKE_GRANULARITY << (wanted->location.id == FAKE_COARSE);
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

CUresult fake_mem_create(CUmemGenericAllocationHandle *out, size_t bytes,
                         const CUmemAllocationProp *wanted, unsigned long long flags)
{
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    const size_t unit = (size_t)FAKE_GRANULARITY << (wanted->location.id == FAKE_COARSE);
    if (flags != 0 || bytes == 0 || bytes % unit != 0)
        fake_die("memory to be mapped that is no multiple of the granularity");
    pthread_mutex_lock(&fake_lock);
    fake_pass(FAKE_MAPPING);
    const bool failed = fails();
    for (int i = 0; i < MAPPINGS && result != CUDA_SUCCESS && !failed; i++)
        if (created[i] == 0) {
            created[i] = bytes;
            *out = (CUmemGenericAllocationHandle)i + 1;
            live++;
            result = CUDA_SUCCESS;
        }
    pthread_mutex_unlock(&fake_lock);
    return result;
}

/* What is mapped stays until it is unmapped, but whoever releases it first is not careful. */
CUresult fake_mem_release(CUmemGenericAllocationHandle handle)
{
    pthread_mutex_lock(&fake_lock);
    for (int i = 0; i < MAPPINGS; i++)
        if (mappings[i].start != NULL && mappings[i].handle == handle)
            fake_die("memory is released that is mapped");
    if (handle == 0 || created[handle - 1] == 0)
        fake_die("memory is released that was not created");
    created[handle - 1] = 0;
    live--;
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

CUresult fake_mem_reserve(CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr wanted,
                          unsigned long long flags)
{
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (alignment != 0 || wanted != 0 || flags != 0)
        fake_die("a reservation with wishes");
    pthread_mutex_lock(&fake_lock);
    const bool failed = fails();
    for (int i = 0; i < MAPPINGS && result != CUDA_SUCCESS && !failed; i++)
        if (mappings[i].start == NULL) {
            mappings[i] = (struct mapping){.start = aligned_alloc(4096, bytes), .bytes = bytes};
            *out = (CUdeviceptr)(uintptr_t)mappings[i].start;
            live++;
            result = CUDA_SUCCESS;
        }
    pthread_mutex_unlock(&fake_lock);
    return result;
}

CUresult fake_mem_unreserve(CUdeviceptr address, size_t bytes)
{
    pthread_mutex_lock(&fake_lock);
    struct mapping *mapping = mapping_at(address, bytes);
    if (mapping->handle != 0)
        fake_die("a reservation is freed where memory is mapped");
    free(mapping->start);
    mapping->start = NULL;
    live--;
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

CUresult fake_mem_map(CUdeviceptr address, size_t bytes, size_t offset,
                      CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    pthread_mutex_lock(&fake_lock);
    struct mapping *mapping = mapping_at(address, bytes);
    if (offset != 0 || flags != 0 || mapping->handle != 0 || created[handle - 1] != bytes)
        fake_die("memory is mapped where it does not fit");
    const bool failed = fails();
    if (!failed) {
        mapping->handle = handle;
        mapping->devices = 0;
        memset(mapping->start, 0xa5, bytes);
        live++;
    }
    pthread_mutex_unlock(&fake_lock);
    return failed ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult fake_mem_unmap(CUdeviceptr address, size_t bytes)
{
    pthread_mutex_lock(&fake_lock);
    struct mapping *mapping = mapping_at(address, bytes);
    if (mapping->handle == 0)
        fake_die("memory is unmapped that is not mapped");
    if (fake_in_use(mapping->start, mapping->bytes))
        fake_die("memory is unmapped while a stream uses it");
    mapping->handle = 0;
    live--;
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

CUresult fake_mem_set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                             size_t n)
{
    pthread_mutex_lock(&fake_lock);
    struct mapping *mapping = mapping_at(address, bytes);
    const bool failed = fails();
    for (size_t i = 0; i < n && !failed; i++)
        if (access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            mapping->devices |= 1u << access[i].location.id;
    pthread_mutex_unlock(&fake_lock);
    return failed ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}
