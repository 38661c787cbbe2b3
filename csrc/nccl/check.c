/* May this rank use that buffer, that stream? One driver call each in the ordinary case. */
#include <cuda_runtime_api.h>
#include <stdint.h>

#include "csrc/nccl/device.h"
#include "csrc/nccl/ops.h"

/* What the driver knows of an address. Zeroes for one it does not know. */
struct facts {
    unsigned int type; /* CUmemorytype; 0 is unknown: pageable host memory */
    int ordinal;
    unsigned int exported; /* can be exported by the old IPC calls: memory of cudaMalloc */
    CUdeviceptr start;     /* of what was allocated, or reserved, around the address */
    size_t size;
};

static bool ask(struct facts *out, const void *address)
{
    CUpointer_attribute attributes[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE,
    };
    *out = (struct facts){0, -1, 0, 0, 0};
    void *places[] = {&out->type, &out->ordinal, &out->exported, &out->start, &out->size};
    return tri_nccl_driver.pointer_attributes(5, attributes, places, (CUdeviceptr)address) ==
           CUDA_SUCCESS;
}

static bool is_managed(const void *address)
{
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_IS_MANAGED};
    unsigned int managed = 0;
    void *places[] = {&managed};
    return tri_nccl_driver.pointer_attributes(1, attributes, places, (CUdeviceptr)address) ==
               CUDA_SUCCESS &&
           managed != 0;
}

/* Usually no context is needed for the question; where the driver wants one, it gets the device's.
 */
static bool ask_anyhow(struct facts *out, const void *address, int32_t device)
{
    struct tri_nccl_scope scope;
    if (ask(out, address))
        return true;
    if (tri_nccl_enter(&scope, device) != TRIB_OK)
        return false;
    bool known = ask(out, address);
    tri_nccl_leave(&scope);
    return known;
}

/* Was the memory at `address` mapped with cuMemMap, piece by piece? */
static bool is_mapping(const char *address)
{
    CUmemGenericAllocationHandle handle;
    if (tri_nccl_driver.retain_allocation == NULL || tri_nccl_driver.release_allocation == NULL ||
        tri_nccl_driver.retain_allocation(&handle, (void *)(uintptr_t)address) != CUDA_SUCCESS)
        return false;
    (void)tri_nccl_driver.release_allocation(handle);
    return true;
}

static enum tri_fault inside(const struct facts *facts, const char *data, size_t bytes,
                             size_t *found)
{
    if (facts->size == 0) /* the driver does not tell */
        return TRI_FAULT_NONE;
    *found = (size_t)(facts->start + facts->size - (CUdeviceptr)data);
    return *found >= bytes ? TRI_FAULT_NONE : TRI_FAULT_TOO_SHORT;
}

/* For memory of pools and mappings. Of a mapping, the driver's range is what was reserved, mapped
 * or not, and a tensor may lie on several mappings (PyTorch's expandable segments): walk over them.
 */
static enum tri_fault walk(int32_t device, const struct facts *first, const char *data,
                           size_t bytes, size_t *found)
{
    for (const char *at = data;;) {
        CUdeviceptr base = 0;
        size_t size = 0;
        *found = (size_t)(at - data);
        if (tri_nccl_driver.address_range(&base, &size, (CUdeviceptr)at) != CUDA_SUCCESS)
            return at == data && !is_mapping(at) ? inside(first, data, bytes, found)
                                                 : TRI_FAULT_TOO_SHORT;
        *found += (size_t)(base + size - (CUdeviceptr)at);
        if (*found >= bytes)
            return TRI_FAULT_NONE;
        if (at == data && !is_mapping(at))
            return TRI_FAULT_TOO_SHORT;
        at = data + *found;
        struct facts next;
        if (!ask(&next, at) || next.type != CU_MEMORYTYPE_DEVICE)
            return TRI_FAULT_TOO_SHORT;
        if (next.ordinal != device) {
            *found = (size_t)next.ordinal;
            return TRI_FAULT_OTHER_DEVICE;
        }
    }
}

/* What is not memory of cudaMalloc on this device. */
static enum tri_fault look_closer(int32_t device, const struct facts *facts, const char *data,
                                  size_t bytes, size_t *found)
{
    if (facts->type != CU_MEMORYTYPE_DEVICE && facts->type != CU_MEMORYTYPE_HOST)
        return TRI_FAULT_NOT_DEVICE_MEMORY;
    /* Every device can read and write managed and pinned host memory, and NCCL takes both. */
    if (facts->type == CU_MEMORYTYPE_HOST || is_managed(data))
        return inside(facts, data, bytes, found);
    if (facts->ordinal != device) {
        *found = (size_t)facts->ordinal;
        return TRI_FAULT_OTHER_DEVICE;
    }
    struct tri_nccl_scope scope;
    if (tri_nccl_enter(&scope, device) != TRIB_OK)
        return TRI_FAULT_NONE; /* not the buffer's fault; the collective will say what is wrong */
    enum tri_fault fault = walk(device, facts, data, bytes, found);
    tri_nccl_leave(&scope);
    return fault;
}

enum tri_fault tri_nccl_check_buffer(int32_t device, const void *data, size_t bytes, size_t *found)
{
    struct facts facts;
    *found = 0;
    if (!ask_anyhow(&facts, data, device))
        return TRI_FAULT_NOT_DEVICE_MEMORY;
    if (facts.type == CU_MEMORYTYPE_DEVICE && facts.ordinal == device && facts.exported &&
        facts.size != 0)
        return inside(&facts, data, bytes, found);
    return look_closer(device, &facts, data, bytes, found);
}

/* The device of a stream, before driver 570: that of its context. */
static CUresult device_by_context(CUstream stream, CUdevice *out, int32_t device)
{
    struct tri_nccl_scope scope;
    CUcontext context = NULL;
    *out = tri_nccl_handle(device);
    if (tri_nccl_driver.stream_context == NULL || tri_nccl_enter(&scope, device) != TRIB_OK)
        return CUDA_SUCCESS; /* cannot be known */
    CUresult result = tri_nccl_driver.stream_context(stream, &context);
    if (result == CUDA_SUCCESS && context != scope.current &&
        tri_nccl_driver.set_current(context) == CUDA_SUCCESS) {
        scope.current = context;
        result = tri_nccl_driver.current_device(out);
    }
    tri_nccl_leave(&scope);
    return result;
}

/* To ask for the device of a stream that is being captured would spoil the capture. */
static bool is_captured(CUstream stream)
{
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    return tri_nccl_driver.stream_capturing != NULL &&
           tri_nccl_driver.stream_capturing(stream, &capture) == CUDA_SUCCESS &&
           capture != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* An address that never was a stream cannot be told from one by CUDA: it is followed, as in every
 * CUDA call. The default stream is that of whichever device is current, and issuing makes it ours.
 */
enum tri_fault tri_nccl_check_stream(int32_t device, trib_stream stream, size_t *found)
{
    if (stream == NULL || stream == (trib_stream)cudaStreamLegacy || is_captured(stream))
        return TRI_FAULT_NONE;
    CUdevice owner = -1;
    CUresult result = tri_nccl_driver.stream_device != NULL
                          ? tri_nccl_driver.stream_device(stream, &owner)
                          : CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_NOT_INITIALIZED)
        result = device_by_context(stream, &owner, device);
    if (result != CUDA_SUCCESS)
        return TRI_FAULT_UNKNOWN_STREAM;
    if (owner == tri_nccl_handle(device))
        return TRI_FAULT_NONE;
    *found = (size_t)owner; /* the driver's handles count like CUDA's ordinals */
    return TRI_FAULT_OTHER_DEVICE;
}
