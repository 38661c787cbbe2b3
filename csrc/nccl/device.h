/* GPUs of this process: the driver's entry points, the current device, the launch locks. */
#ifndef TRI_NCCL_DEVICE_H
#define TRI_NCCL_DEVICE_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "csrc/base/abort.h"
#include "csrc/base/line.h"
#include "csrc/base/status.h"

/* A set of devices fits into the bits of a uint64_t. */
enum { TRI_NCCL_MAX_DEVICES = 64 };

/* Driver functions, found at run time, so that the library loads on a machine without a driver.
 * Once tri_nccl_device_count has returned more than 0, all but the optional ones are present. */
struct tri_nccl_driver {
    /* What every call uses, on one line; the last two are optional. */
    _Alignas(TRI_LINE) CUresult (*get_current)(CUcontext *context);
    CUresult (*set_current)(CUcontext context);
    CUresult (*pointer_attributes)(unsigned int n, CUpointer_attribute *attributes, void **data,
                                   CUdeviceptr pointer);
    CUresult (*stream_device)(CUstream stream, CUdevice *device); /* since driver 570 */
    CUresult (*stream_capturing)(CUstream stream, CUstreamCaptureStatus *out);
    CUresult (*device_get)(CUdevice *device, int ordinal);
    CUresult (*primary_retain)(CUcontext *context, CUdevice device);
    CUresult (*current_device)(CUdevice *device);
    CUresult (*address_range)(CUdeviceptr *base, size_t *size, CUdeviceptr pointer);
    CUresult (*error_string)(CUresult result, const char **out);
    /* optional */
    CUresult (*retain_allocation)(CUmemGenericAllocationHandle *handle, void *address);
    CUresult (*stream_context)(CUstream stream, CUcontext *context);
    CUresult (*stream_id)(CUstream stream, unsigned long long *out);
    /* optional, for peer_memory.c */
    CUresult (*mem_granularity)(size_t *out, const CUmemAllocationProp *wanted,
                                CUmemAllocationGranularity_flags flags);
    CUresult (*mem_create)(CUmemGenericAllocationHandle *out, size_t bytes,
                           const CUmemAllocationProp *wanted, unsigned long long flags);
    CUresult (*mem_release)(CUmemGenericAllocationHandle handle);
    CUresult (*mem_reserve)(CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr wanted,
                            unsigned long long flags);
    CUresult (*mem_unreserve)(CUdeviceptr address, size_t bytes);
    CUresult (*mem_map)(CUdeviceptr address, size_t bytes, size_t offset,
                        CUmemGenericAllocationHandle handle, unsigned long long flags);
    CUresult (*mem_unmap)(CUdeviceptr address, size_t bytes);
    CUresult (*mem_set_access)(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                               size_t n);
    CUresult (*mem_access)(unsigned long long *out, const CUmemLocation *location,
                           CUdeviceptr address);
    CUresult (*mem_export)(void *out, CUmemGenericAllocationHandle handle,
                           CUmemAllocationHandleType type, unsigned long long flags);
    CUresult (*mem_import)(CUmemGenericAllocationHandle *out, void *handle,
                           CUmemAllocationHandleType type);
    CUresult (*pool_access)(CUmemAccess_flags *out, CUmemoryPool pool, CUmemLocation *location);
};
extern struct tri_nccl_driver tri_nccl_driver;

/* tri_device_ops.count */
int32_t tri_nccl_device_count(void);

/* The driver's handle of a device. */
CUdevice tri_nccl_cu_device(int32_t device);

/* The context that was current on this thread before push, and the one that is current now. */
struct tri_nccl_device_guard {
    CUcontext saved;
    CUcontext current;
};

/* Make `device` current on this thread until pop. This exchanges contexts, not devices, so a thread
 * that had no context, or one of its own, gets exactly that back. (Restoring with cudaSetDevice
 * would create a context, some 500 MB, on device 0 for every thread that never chose a device.)
 * About 10 ns if the device is current already. Do not pop after a failure. */
trib_status tri_nccl_push_device(struct tri_nccl_device_guard *guard, int32_t device);
/* Push before a wait or a query. Its failure says nothing about the queued work. */
trib_status tri_nccl_push_device_to_wait(struct tri_nccl_device_guard *guard, int32_t device);
/* Make another device current within the same guard. A failure leaves the guard as it was. */
trib_status tri_nccl_switch_device(struct tri_nccl_device_guard *guard, int32_t device);
/* Load the kernels on `device`, which is current, the first time that it is asked for in this
 * process: no launch waits for that later. May wait for the device. */
void tri_nccl_load_kernels(int32_t device);
/* Push for calls that need any context: the thread's own, else that of a device in use, else that
 * of device 0. */
trib_status tri_nccl_push_any_device(struct tri_nccl_device_guard *guard);
void tri_nccl_pop_device(const struct tri_nccl_device_guard *guard);

/* Is it memory of cudaMallocManaged? */
bool tri_nccl_is_managed(const void *address);

/* Between the two, CUDA calls of this thread invalidate no stream capture, neither its own nor, in
 * global mode, another thread's. For every call that may run while someone captures: queries,
 * allocating, freeing. */
enum cudaStreamCaptureMode tri_nccl_relax_capture(void);
void tri_nccl_restore_capture(enum cudaStreamCaptureMode before);

/* Both: a device is current, and no capture is disturbed. After a failure there is nothing to end. */
struct tri_nccl_visit {
    struct tri_nccl_device_guard guard;
    enum cudaStreamCaptureMode before;
};
trib_status tri_nccl_visit_begin(struct tri_nccl_visit *visit, int32_t device);
void tri_nccl_visit_end(const struct tri_nccl_visit *visit);

/* Is the stream in capture, as far as the driver tells? Needs no current device, and invalidates
 * nothing. */
bool tri_nccl_in_capture(CUstream stream);

/* cudaStreamQuery and cudaEventQuery with the capture mode relaxed. */
cudaError_t tri_nccl_relaxed_stream_query(cudaStream_t stream);
cudaError_t tri_nccl_relaxed_event_query(cudaEvent_t event);

/* Take the launch lock of every device of the set `devices` (bit i: device i). Returns false, with
 * no lock held, if `ended(context)` ends the wait: an abort of a communicator whose call waits. */
bool tri_nccl_lock_devices(uint64_t devices, bool (*ended)(const void *context),
                           const void *context);
void tri_nccl_unlock_devices(uint64_t devices);

#endif
