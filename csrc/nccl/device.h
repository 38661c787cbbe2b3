/* GPUs of this process: the driver's entry points, whose context is current, who may issue. */
#ifndef TRI_NCCL_DEVICE_H
#define TRI_NCCL_DEVICE_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "csrc/base/abort.h"
#include "csrc/base/status.h"

/* A set of devices fits into the bits of a uint64_t. */
enum { TRI_NCCL_MAX_DEVICES = 64 };

/* Driver functions, found at run time: the library loads on a machine without a driver. All but the
 * optional ones are there once tri_nccl_count has returned more than 0. */
struct tri_nccl_driver {
    CUresult (*device_get)(CUdevice *device, int ordinal);
    CUresult (*primary_retain)(CUcontext *context, CUdevice device);
    CUresult (*get_current)(CUcontext *context);
    CUresult (*set_current)(CUcontext context);
    CUresult (*current_device)(CUdevice *device);
    CUresult (*pointer_attributes)(unsigned int n, CUpointer_attribute *attributes, void **data,
                                   CUdeviceptr pointer);
    CUresult (*address_range)(CUdeviceptr *base, size_t *size, CUdeviceptr pointer);
    CUresult (*error_string)(CUresult result, const char **out);
    /* optional */
    CUresult (*retain_allocation)(CUmemGenericAllocationHandle *handle, void *address);
    CUresult (*release_allocation)(CUmemGenericAllocationHandle handle);
    CUresult (*stream_device)(CUstream stream, CUdevice *device); /* since driver 570 */
    CUresult (*stream_capturing)(CUstream stream, CUstreamCaptureStatus *out);
    CUresult (*stream_context)(CUstream stream, CUcontext *context);
};
extern struct tri_nccl_driver tri_nccl_driver;

/* tri_device_ops.count */
int32_t tri_nccl_count(void);

/* The driver's handle of a device. */
CUdevice tri_nccl_handle(int32_t device);

/* What was current on this thread before. */
struct tri_nccl_scope {
    CUcontext saved;
    CUcontext current;
};

/* Make `device` current on this thread until leave. Contexts are exchanged, not devices: a thread
 * that had none, or one of its own making, gets exactly that back. (Restoring with cudaSetDevice
 * would make a context, some 500 MB, on device 0 for every thread that never chose a device.) About
 * 10 ns if the device is current already. On failure leave must not follow. */
trib_status tri_nccl_enter(struct tri_nccl_scope *scope, int32_t device);
/* Another device, within the same scope. On failure the scope stays as it was. */
trib_status tri_nccl_move(struct tri_nccl_scope *scope, int32_t device);
/* enter for calls that need some context, no matter which: the thread's own, else that of a device
 * in use, else that of device 0. */
trib_status tri_nccl_enter_any(struct tri_nccl_scope *scope);
void tri_nccl_leave(const struct tri_nccl_scope *scope);

/* Between the two, what this thread asks CUDA spoils no capture that it, or in global mode another
 * thread, is making. For all that may come while somebody captures: questions, allocating, freeing.
 */
enum cudaStreamCaptureMode tri_nccl_relax(void);
void tri_nccl_unrelax(enum cudaStreamCaptureMode before);

/* cudaStreamQuery and cudaEventQuery, relaxed. */
cudaError_t tri_nccl_ask_stream(cudaStream_t stream);
cudaError_t tri_nccl_ask_event(cudaEvent_t event);

/* The right to issue NCCL operations on every device of the set `devices` (bit i: device i). False,
 * with nothing locked, if `state` is stopped while waiting. */
bool tri_nccl_issue_lock(uint64_t devices, const struct trib_abort *state);
void tri_nccl_issue_unlock(uint64_t devices);

#endif
