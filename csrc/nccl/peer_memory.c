/* Device memory of one rank that other devices read and write, too. */
#include "csrc/nccl/peer_memory.h"

#include <cuda_runtime_api.h>

#include "csrc/nccl/device.h"

static bool has_driver(void)
{
    const struct tri_nccl_driver *driver = &tri_nccl_driver;
    return driver->mem_granularity != NULL && driver->mem_create != NULL &&
           driver->mem_release != NULL && driver->mem_reserve != NULL &&
           driver->mem_unreserve != NULL && driver->mem_map != NULL && driver->mem_unmap != NULL &&
           driver->mem_set_access != NULL;
}

static CUmemAllocationProp properties(int32_t device, bool exportable)
{
    CUmemAllocationProp found = {0};
    found.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    found.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    found.location.id = tri_nccl_cu_device(device);
    if (exportable)
        found.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return found;
}

size_t tri_nccl_peer_granularity(int32_t device)
{
    const CUmemAllocationProp wanted = properties(device, false);
    size_t bytes = 0;
    if (!has_driver() || tri_nccl_driver.mem_granularity(
                             &bytes, &wanted, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) != CUDA_SUCCESS)
        return 0;
    return bytes;
}

/* At the memory's address, for all devices. */
static CUresult map(const struct tri_nccl_peer_memory *memory, const int32_t *devices, int32_t n)
{
    CUmemAccessDesc access[TRI_NCCL_MAX_DEVICES] = {0};
    for (int32_t i = 0; i < n; i++) {
        access[i].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access[i].location.id = tri_nccl_cu_device(devices[i]);
        access[i].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    CUresult result = tri_nccl_driver.mem_map(memory->address, memory->bytes, 0, memory->handle, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = tri_nccl_driver.mem_set_access(memory->address, memory->bytes, access, (size_t)n);
    if (result != CUDA_SUCCESS)
        (void)tri_nccl_driver.mem_unmap(memory->address, memory->bytes);
    return result;
}

/* Reserve addresses for `memory`, which has a handle, and map it for all devices; or release the handle. */
static CUresult place(struct tri_nccl_peer_memory *out, struct tri_nccl_peer_memory memory,
                      const int32_t *devices, int32_t n)
{
    CUresult result = tri_nccl_driver.mem_reserve(&memory.address, memory.bytes, 0, 0, 0);
    if (result == CUDA_SUCCESS) {
        result = map(&memory, devices, n);
        if (result != CUDA_SUCCESS)
            (void)tri_nccl_driver.mem_unreserve(memory.address, memory.bytes);
    }
    if (result == CUDA_SUCCESS)
        *out = memory;
    else
        (void)tri_nccl_driver.mem_release(memory.handle);
    return result;
}

CUresult tri_nccl_peer_alloc(struct tri_nccl_peer_memory *out, const int32_t *devices, int32_t n,
                             int32_t at, size_t bytes, bool exportable)
{
    const CUmemAllocationProp wanted = properties(devices[at], exportable);
    struct tri_nccl_peer_memory memory = {.bytes = bytes};
    *out = (struct tri_nccl_peer_memory){0};
    const CUresult result = tri_nccl_driver.mem_create(&memory.handle, bytes, &wanted, 0);
    return result == CUDA_SUCCESS ? place(out, memory, devices, n) : result;
}

bool tri_nccl_peer_can_export(void)
{
    return tri_nccl_driver.mem_export != NULL && tri_nccl_driver.mem_import != NULL;
}

CUresult tri_nccl_peer_export(struct tri_nccl_peer_memory *out, int *out_fd, int32_t device,
                              size_t bytes)
{
    const CUresult made = tri_nccl_peer_alloc(out, &device, 1, 0, bytes, true);
    if (made != CUDA_SUCCESS)
        return made;
    const CUresult result = tri_nccl_driver.mem_export(out_fd, out->handle,
                                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result != CUDA_SUCCESS)
        tri_nccl_peer_free(out);
    return result;
}

CUresult tri_nccl_peer_import(struct tri_nccl_peer_memory *out, int fd, int32_t device,
                              size_t bytes)
{
    struct tri_nccl_peer_memory memory = {.bytes = bytes};
    *out = (struct tri_nccl_peer_memory){0};
    const CUresult result = tri_nccl_driver.mem_import(
        &memory.handle, (void *)(uintptr_t)fd, /* NOLINT: as the driver has it */
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    return result == CUDA_SUCCESS ? place(out, memory, &device, 1) : result;
}

struct tri_nccl_peer_memory tri_nccl_peer_part(const struct tri_symmetric *memory, int32_t rank)
{
    return (struct tri_nccl_peer_memory){.address = (CUdeviceptr)(uintptr_t)memory->of[rank].here,
                                         .bytes = memory->mapped,
                                         .handle = memory->of[rank].handle};
}

void tri_nccl_peer_free(struct tri_nccl_peer_memory *memory)
{
    if (memory->address == 0)
        return;
    (void)tri_nccl_driver.mem_unmap(memory->address, memory->bytes);
    (void)tri_nccl_driver.mem_unreserve(memory->address, memory->bytes);
    (void)tri_nccl_driver.mem_release(memory->handle);
    memory->address = 0;
}

bool tri_nccl_is_nvlink(int32_t from, int32_t to)
{
    int atomics = 0;
    return cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, from, to) ==
               cudaSuccess &&
           atomics != 0;
}

bool tri_nccl_reaches(int32_t from, int32_t to)
{
    int can = 0;
    return cudaDeviceCanAccessPeer(&can, from, to) == cudaSuccess && can != 0;
}

/* The pool or, if that is NULL, the mapping at `address`. Of memory that cuMemMap has not mapped the driver tells no
 * access. */
static bool opens_to(CUmemoryPool pool, CUdeviceptr address, int32_t device)
{
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
                              .id = tri_nccl_cu_device(device)};
    CUmemAccess_flags of_pool = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    unsigned long long of_mapping = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    if (pool != NULL)
        return tri_nccl_driver.pool_access != NULL &&
               tri_nccl_driver.pool_access(&of_pool, pool, &location) == CUDA_SUCCESS &&
               of_pool == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return tri_nccl_driver.mem_access != NULL &&
           tri_nccl_driver.mem_access(&of_mapping, &location, address) == CUDA_SUCCESS &&
           of_mapping == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

static bool opens_to_all(CUmemoryPool pool, CUdeviceptr address, const int32_t *devices, int32_t n)
{
    bool opens = true;
    for (int32_t i = 0; i < n && opens; i++)
        opens = opens_to(pool, address, devices[i]);
    return opens;
}

/* Each mapping has its own access, and a tensor may lie on several of them. */
static bool mappings_open_to_all(CUdeviceptr address, size_t bytes, const int32_t *devices,
                                 int32_t n)
{
    const CUdeviceptr end = address + bytes;
    while (address < end) {
        CUdeviceptr base = 0;
        size_t size = 0;
        if (!opens_to_all(NULL, address, devices, n) ||
            tri_nccl_driver.address_range(&base, &size, address) != CUDA_SUCCESS)
            return false;
        address = base + size;
    }
    return true;
}

/* Managed memory is where its pages are. */
static bool stays_on_a_device(const void *address)
{
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
    unsigned int type = 0;
    void *places[] = {&type};
    return tri_nccl_driver.pointer_attributes(1, attributes, places, (CUdeviceptr)address) ==
               CUDA_SUCCESS &&
           type == CU_MEMORYTYPE_DEVICE && !tri_nccl_is_managed(address);
}

/* Of memory that cudaMalloc has not made: of that pool, or of cuMemMap. The driver may take the questions for
 * ones that spoil a capture. */
static bool other_opens_to_all(CUmemoryPool pool, const void *address, size_t bytes,
                               const int32_t *devices, int32_t n)
{
    if (!stays_on_a_device(address))
        return false;
    const enum cudaStreamCaptureMode before = tri_nccl_relax_capture();
    const bool opens = pool != NULL ? opens_to_all(pool, 0, devices, n)
                                    : mappings_open_to_all((CUdeviceptr)address, bytes, devices, n);
    tri_nccl_restore_capture(before);
    return opens;
}

bool tri_nccl_peers_map(const void *address, size_t bytes, const int32_t *devices, int32_t n)
{
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                        CU_POINTER_ATTRIBUTE_CONTEXT,
                                        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
    unsigned int exported = 0;
    CUcontext owner = NULL, current = NULL;
    CUmemoryPool pool = NULL;
    void *places[] = {&exported, &owner, &pool};
    if (tri_nccl_driver.pointer_attributes(3, attributes, places, (CUdeviceptr)address) !=
        CUDA_SUCCESS)
        return false;
    if (pool == NULL && exported != 0)
        return tri_nccl_driver.get_current(&current) == CUDA_SUCCESS && owner == current;
    return other_opens_to_all(pool, address, bytes, devices, n);
}

void tri_nccl_peers_open_pool(const int32_t *devices, int32_t n, int32_t at)
{
    struct cudaMemAccessDesc others[TRI_NCCL_MAX_DEVICES] = {{.flags = cudaMemAccessFlagsProtNone}};
    cudaMemPool_t pool = NULL;
    size_t count = 0;
    for (int32_t i = 0; i < n; i++)
        if (devices[i] != devices[at])
            others[count++] = (struct cudaMemAccessDesc){
                .location = {.type = cudaMemLocationTypeDevice, .id = devices[i]},
                .flags = cudaMemAccessFlagsProtReadWrite};
    if (cudaDeviceGetDefaultMemPool(&pool, devices[at]) != cudaSuccess ||
        cudaMemPoolSetAccess(pool, others, count) != cudaSuccess)
        (void)cudaGetLastError(); /* a device without pools: nobody has such memory */
}
