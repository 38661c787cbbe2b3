/* Checks that a rank may use a buffer or a stream: one driver call each in the common case. */
#include <cuda_runtime_api.h>
#include <stdint.h>

#include "csrc/nccl/capture.h"
#include "csrc/nccl/convert.h"
#include "csrc/nccl/device.h"
#include "csrc/nccl/ops.h"

/* The driver's answer about an address. Zeroes if the driver does not know it. */
struct pointer_info {
    unsigned int type; /* CUmemorytype; 0 is unknown: pageable host memory */
    int ordinal;
    unsigned int exported; /* the old IPC calls can export it: memory of cudaMalloc */
    CUdeviceptr start;     /* of the allocation or reservation around the address */
    size_t size;
};

static CUresult query_pointer(struct pointer_info *out, const void *address)
{
    CUpointer_attribute attributes[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE,
    };
    *out = (struct pointer_info){.ordinal = -1};
    void *places[] = {&out->type, &out->ordinal, &out->exported, &out->start, &out->size};
    return tri_nccl_driver.pointer_attributes(5, attributes, places, (CUdeviceptr)address);
}

/* Not the argument's fault: the call that uses it reports it. */
static bool device_failed(CUresult result)
{
    return tri_nccl_device_failed((cudaError_t)result);
}

/* Usually the query needs no context; where the driver wants one, make the device's current. */
static CUresult query_pointer_on(struct pointer_info *out, const void *address, int32_t device)
{
    struct tri_nccl_device_guard guard;
    CUresult result = query_pointer(out, address);
    if (result == CUDA_SUCCESS || tri_nccl_push_device(&guard, device) != TRIB_OK)
        return result;
    result = query_pointer(out, address);
    tri_nccl_pop_device(&guard);
    return result;
}

/* Returns true if cuMemMap mapped the memory at `address`. */
static bool is_mapping(const char *address)
{
    CUmemGenericAllocationHandle handle;
    if (tri_nccl_driver.retain_allocation == NULL || tri_nccl_driver.mem_release == NULL ||
        tri_nccl_driver.retain_allocation(&handle, (void *)(uintptr_t)address) != CUDA_SUCCESS)
        return false;
    (void)tri_nccl_driver.mem_release(handle);
    return true;
}

static enum tri_fault check_range(const struct pointer_info *pointer_info, const char *data,
                                  size_t bytes, size_t *found)
{
    if (pointer_info->size == 0) /* the driver does not say */
        return TRI_FAULT_NONE;
    *found = (size_t)(pointer_info->start + pointer_info->size - (CUdeviceptr)data);
    return *found >= bytes ? TRI_FAULT_NONE : TRI_FAULT_TOO_SHORT;
}

/* For memory of pools and mappings. The driver's range of a mapping is the whole reservation,
 * mapped or not, and a tensor may lie on several mappings (PyTorch's expandable segments): check
 * one mapping after the other. */
static enum tri_fault check_mappings(int32_t device, const struct pointer_info *first,
                                     const char *data, size_t bytes, size_t *found)
{
    for (const char *at = data;;) {
        CUdeviceptr base = 0;
        size_t size = 0;
        *found = (size_t)(at - data);
        if (tri_nccl_driver.address_range(&base, &size, (CUdeviceptr)at) != CUDA_SUCCESS)
            return at == data && !is_mapping(at) ? check_range(first, data, bytes, found)
                                                 : TRI_FAULT_TOO_SHORT;
        *found += (size_t)(base + size - (CUdeviceptr)at);
        if (*found >= bytes)
            return TRI_FAULT_NONE;
        if (at == data && !is_mapping(at))
            return TRI_FAULT_TOO_SHORT;
        at = data + *found;
        struct pointer_info next;
        if (query_pointer(&next, at) != CUDA_SUCCESS || next.type != CU_MEMORYTYPE_DEVICE)
            return TRI_FAULT_TOO_SHORT;
        if (next.ordinal != device) {
            *found = (size_t)next.ordinal;
            return TRI_FAULT_OTHER_DEVICE;
        }
    }
}

/* For everything but memory of cudaMalloc on this device. */
static enum tri_fault check_other_memory(int32_t device, const struct pointer_info *pointer_info,
                                         const char *data, size_t bytes, size_t *found)
{
    if (pointer_info->type != CU_MEMORYTYPE_DEVICE && pointer_info->type != CU_MEMORYTYPE_HOST)
        return TRI_FAULT_NOT_DEVICE_MEMORY;
    /* Every device can read and write managed and pinned host memory, and NCCL takes both. */
    if (pointer_info->type == CU_MEMORYTYPE_HOST || tri_nccl_is_managed(data))
        return check_range(pointer_info, data, bytes, found);
    if (pointer_info->ordinal != device) {
        *found = (size_t)pointer_info->ordinal;
        return TRI_FAULT_OTHER_DEVICE;
    }
    struct tri_nccl_visit visit;
    if (tri_nccl_visit_begin(&visit, device) != TRIB_OK)
        return TRI_FAULT_NONE; /* not the buffer's fault; the collective will report it */
    enum tri_fault fault = check_mappings(device, pointer_info, data, bytes, found);
    tri_nccl_visit_end(&visit);
    return fault;
}

enum tri_fault tri_nccl_check_buffer(int32_t device, const void *data, size_t bytes, size_t *found)
{
    struct pointer_info pointer_info;
    *found = 0;
    const CUresult result = query_pointer_on(&pointer_info, data, device);
    if (result != CUDA_SUCCESS)
        return device_failed(result) ? TRI_FAULT_NONE : TRI_FAULT_NOT_DEVICE_MEMORY;
    if (pointer_info.type == CU_MEMORYTYPE_DEVICE && pointer_info.ordinal == device &&
        pointer_info.exported && pointer_info.size != 0)
        return check_range(&pointer_info, data, bytes, found);
    return check_other_memory(device, &pointer_info, data, bytes, found);
}

/* The device of a stream, before driver 570: that of its context. */
static CUresult device_by_context(CUstream stream, CUdevice *out, int32_t device)
{
    struct tri_nccl_device_guard guard;
    CUcontext context = NULL;
    *out = tri_nccl_cu_device(device);
    if (tri_nccl_driver.stream_context == NULL || tri_nccl_push_device(&guard, device) != TRIB_OK)
        return CUDA_SUCCESS; /* unknown */
    CUresult result = tri_nccl_driver.stream_context(stream, &context);
    if (result == CUDA_SUCCESS && context != guard.current &&
        tri_nccl_driver.set_current(context) == CUDA_SUCCESS) {
        guard.current = context;
        result = tri_nccl_driver.current_device(out);
    }
    tri_nccl_pop_device(&guard);
    return result;
}

/* Querying the device of a stream under capture would invalidate the capture. */
static bool is_captured(CUstream stream)
{
    if (!tri_nccl_in_capture(stream))
        return false;
    tri_nccl_saw_capture();
    return true;
}

/* CUDA cannot recognize an address that never was a stream: it follows the pointer, here as in
 * every CUDA call. The default stream belongs to whichever device is current; the collective makes
 * ours current. */
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
        return device_failed(result) ? TRI_FAULT_NONE : TRI_FAULT_UNKNOWN_STREAM;
    if (owner == tri_nccl_cu_device(device))
        return TRI_FAULT_NONE;
    *found = (size_t)owner; /* the driver's handles count like CUDA's ordinals */
    return TRI_FAULT_OTHER_DEVICE;
}
