/* GPUs of this process: the driver's entry points, the current device, the launch locks. */
#define _GNU_SOURCE /* pthread_mutex_clocklock */
#include "csrc/nccl/device.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "csrc/base/clock.h"
#include "csrc/base/line.h"
#include "kernels/cuda/kernels_cuda.h"

static struct {
    /* A line of its own: ranks take the locks of their devices in every call. */
    _Alignas(TRI_LINE) CUdevice handle;
    /* The primary context, retained at first use and kept: everything here and in NCCL uses it. */
    _Atomic(CUcontext) primary;
    atomic_bool loaded; /* our kernels */
    /* Held while this thread launches NCCL operations on the device: NCCL forbids launching
     * operations of independent communicators on one device in parallel. Guards no data of ours.
     *
     * A call that spans several devices takes their locks in ascending order, so lock holders never
     * wait for each other in a cycle. A holder may stay inside NCCL for long (the first use of an
     * algorithm waits for the peers to connect). Other threads then wait here in short steps and
     * check their own abort state between them; an abort of the holder's communicator makes the
     * holder return. So no wait here is without end once the communicators concerned have been
     * aborted. */
    pthread_mutex_t launch;
} devices[TRI_NCCL_MAX_DEVICES];

static int32_t device_count;
static pthread_once_t once = PTHREAD_ONCE_INIT; /* guards the initialization of all above */
struct tri_nccl_driver tri_nccl_driver;

/* Store driver function `symbol`, as of CUDA `version`, at `*out`; NULL if the driver has none. */
static bool find(void *out, const char *symbol, unsigned int version)
{
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult answer = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    cudaError_t error = cudaGetDriverEntryPointByVersion(symbol, &function, version,
                                                         cudaEnableLegacyStream, &answer);
#else
    (void)version;
    cudaError_t error = cudaGetDriverEntryPoint(symbol, &function, cudaEnableLegacyStream, &answer);
#endif
    if (error != cudaSuccess || answer != cudaDriverEntryPointSuccess) {
        (void)cudaGetLastError();
        function = NULL;
    }
    memcpy(out, &function, sizeof function); /* ISO C has no cast from void * to a function */
    return function != NULL;
}

static void find_memory(void)
{
    struct tri_nccl_driver *driver = &tri_nccl_driver;
    (void)find(&driver->mem_granularity, "cuMemGetAllocationGranularity", 10020);
    (void)find(&driver->mem_create, "cuMemCreate", 10020);
    (void)find(&driver->mem_release, "cuMemRelease", 10020);
    (void)find(&driver->mem_reserve, "cuMemAddressReserve", 10020);
    (void)find(&driver->mem_unreserve, "cuMemAddressFree", 10020);
    (void)find(&driver->mem_map, "cuMemMap", 10020);
    (void)find(&driver->mem_unmap, "cuMemUnmap", 10020);
    (void)find(&driver->mem_set_access, "cuMemSetAccess", 10020);
    (void)find(&driver->mem_access, "cuMemGetAccess", 10020);
    (void)find(&driver->mem_export, "cuMemExportToShareableHandle", 10020);
    (void)find(&driver->mem_import, "cuMemImportFromShareableHandle", 10020);
    (void)find(&driver->pool_access, "cuMemPoolGetAccess", 11020);
}

static bool find_driver(void)
{
    struct tri_nccl_driver *driver = &tri_nccl_driver;
    find_memory();
    (void)find(&driver->retain_allocation, "cuMemRetainAllocationHandle", 11000);
    (void)find(&driver->stream_device, "cuStreamGetDevice", 12080);
    (void)find(&driver->stream_context, "cuStreamGetCtx", 9020);
    (void)find(&driver->stream_capturing, "cuStreamIsCapturing", 10000);
    (void)find(&driver->stream_id, "cuStreamGetId", 12000);
    return find(&driver->device_get, "cuDeviceGet", 2000) &&
           find(&driver->primary_retain, "cuDevicePrimaryCtxRetain", 7000) &&
           find(&driver->get_current, "cuCtxGetCurrent", 4000) &&
           find(&driver->set_current, "cuCtxSetCurrent", 4000) &&
           find(&driver->current_device, "cuCtxGetDevice", 2000) &&
           find(&driver->pointer_attributes, "cuPointerGetAttributes", 7000) &&
           find(&driver->address_range, "cuMemGetAddressRange", 3020) &&
           find(&driver->error_string, "cuGetErrorString", 6000);
}

static void find_devices(void)
{
    int found = 0;
    if (cudaGetDeviceCount(&found) != cudaSuccess) {
        (void)cudaGetLastError(); /* no driver, no device: an answer, not a failure */
        return;
    }
    if (found > TRI_NCCL_MAX_DEVICES)
        found = TRI_NCCL_MAX_DEVICES;
    if (found == 0 || !find_driver())
        return;
    for (int i = 0; i < found; i++) {
        if (tri_nccl_driver.device_get(&devices[i].handle, i) != CUDA_SUCCESS ||
            pthread_mutex_init(&devices[i].launch, NULL) != 0)
            return;
        device_count = i + 1;
    }
}

int32_t tri_nccl_device_count(void)
{
    (void)pthread_once(&once, find_devices);
    return device_count;
}

CUdevice tri_nccl_cu_device(int32_t device)
{
    return devices[device].handle;
}

static trib_status driver_fail(CUresult result, const char *operation, int32_t device)
{
    const char *text = NULL;
    if (tri_nccl_driver.error_string(result, &text) != CUDA_SUCCESS || text == NULL)
        text = "unknown error";
    return tri_fail(result == CUDA_ERROR_OUT_OF_MEMORY ? TRIB_ERR_OUT_OF_MEMORY : TRIB_ERR_CUDA,
                    "%s on device %d: the CUDA driver returned %d: \"%s\"", operation, (int)device,
                    (int)result, text);
}

static trib_status retain_primary(CUcontext *out, int32_t device)
{
    *out = atomic_load_explicit(&devices[device].primary, memory_order_acquire);
    if (*out != NULL)
        return TRIB_OK;
    CUresult result = tri_nccl_driver.primary_retain(out, devices[device].handle);
    if (result != CUDA_SUCCESS)
        return driver_fail(result, "creating the device's context", device);
    /* Two threads may both get here: they store the same context, retained once more. */
    atomic_store_explicit(&devices[device].primary, *out, memory_order_release);
    return TRIB_OK;
}

trib_status tri_nccl_push_device(struct tri_nccl_device_guard *guard, int32_t device)
{
    CUresult result = tri_nccl_driver.get_current(&guard->saved);
    if (result != CUDA_SUCCESS)
        return driver_fail(result, "querying the current context", device);
    guard->current = guard->saved;
    return tri_nccl_switch_device(guard, device);
}

trib_status tri_nccl_switch_device(struct tri_nccl_device_guard *guard, int32_t device)
{
    CUcontext wanted;
    trib_status status = retain_primary(&wanted, device);
    if (status != TRIB_OK || wanted == guard->current)
        return status;
    CUresult result = tri_nccl_driver.set_current(wanted);
    if (result != CUDA_SUCCESS)
        return driver_fail(result, "making the device current", device);
    guard->current = wanted;
    return TRIB_OK;
}

void tri_nccl_load_kernels(int32_t device)
{
    if (tri_kernels_cuda.preload == NULL ||
        atomic_load_explicit(&devices[device].loaded, memory_order_acquire))
        return;
    tri_kernels_cuda.preload();
    /* Two threads may both get here: what is loaded is not loaded again. */
    atomic_store_explicit(&devices[device].loaded, true, memory_order_release);
}

trib_status tri_nccl_push_device_to_wait(struct tri_nccl_device_guard *guard, int32_t device)
{
    return tri_nccl_push_device(guard, device) == TRIB_OK
               ? TRIB_OK
               : tri_fail(TRIB_ERR_INVALID_USAGE,
                          "waiting on device %d: CUDA did not make the device current, so the call "
                          "waited for nothing, and queued work may still run (%s)",
                          (int)device, tri_detail());
}

trib_status tri_nccl_push_any_device(struct tri_nccl_device_guard *guard)
{
    CUcontext mine = NULL;
    if (tri_nccl_driver.get_current(&mine) == CUDA_SUCCESS && mine != NULL) {
        guard->saved = guard->current = mine;
        return TRIB_OK;
    }
    int32_t device = 0;
    for (int32_t i = device_count - 1; i > 0; i--)
        if (atomic_load_explicit(&devices[i].primary, memory_order_acquire) != NULL)
            device = i;
    return tri_nccl_push_device(guard, device);
}

void tri_nccl_pop_device(const struct tri_nccl_device_guard *guard)
{
    if (guard->current != guard->saved)
        (void)tri_nccl_driver.set_current(guard->saved);
}

bool tri_nccl_in_capture(CUstream stream)
{
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    return tri_nccl_driver.stream_capturing != NULL &&
           tri_nccl_driver.stream_capturing(stream, &capture) == CUDA_SUCCESS &&
           capture != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool tri_nccl_is_managed(const void *address)
{
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_IS_MANAGED};
    unsigned int managed = 0;
    void *places[] = {&managed};
    return tri_nccl_driver.pointer_attributes(1, attributes, places, (CUdeviceptr)address) ==
               CUDA_SUCCESS &&
           managed != 0;
}

enum cudaStreamCaptureMode tri_nccl_relax_capture(void)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    if (cudaThreadExchangeStreamCaptureMode(&mode) != cudaSuccess)
        return cudaStreamCaptureModeRelaxed; /* every call fails */
    return mode;
}

void tri_nccl_restore_capture(enum cudaStreamCaptureMode before)
{
    (void)cudaThreadExchangeStreamCaptureMode(&before);
}

trib_status tri_nccl_visit_begin(struct tri_nccl_visit *visit, int32_t device)
{
    TRI_TRY(tri_nccl_push_device(&visit->guard, device));
    visit->before = tri_nccl_relax_capture();
    return TRIB_OK;
}

void tri_nccl_visit_end(const struct tri_nccl_visit *visit)
{
    tri_nccl_restore_capture(visit->before);
    tri_nccl_pop_device(&visit->guard);
}

cudaError_t tri_nccl_relaxed_stream_query(cudaStream_t stream)
{
    const enum cudaStreamCaptureMode before = tri_nccl_relax_capture();
    const cudaError_t error = cudaStreamQuery(stream);
    tri_nccl_restore_capture(before);
    return error;
}

cudaError_t tri_nccl_relaxed_event_query(cudaEvent_t event)
{
    const enum cudaStreamCaptureMode before = tri_nccl_relax_capture();
    const cudaError_t error = cudaEventQuery(event);
    tri_nccl_restore_capture(before);
    return error;
}

/* pthread_mutex_lock for a few milliseconds, whatever happens to the wall clock meanwhile. */
static bool lock_briefly(pthread_mutex_t *lock)
{
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 30)
    const uint64_t at = tri_now_ns() + 5000000;
    const struct timespec until = {(time_t)(at / 1000000000u), (long)(at % 1000000000u)};
    return pthread_mutex_clocklock(lock, CLOCK_MONOTONIC, &until) == 0;
#else
    tri_nap_ns(100000);
    return pthread_mutex_trylock(lock) == 0;
#endif
}

/* Take one lock, in steps, so that an abort ends the wait. */
static bool lock_one(pthread_mutex_t *lock, bool (*ended)(const void *context), const void *context)
{
    if (pthread_mutex_trylock(lock) == 0)
        return true;
    while (!ended(context))
        if (lock_briefly(lock))
            return true;
    return false;
}

bool tri_nccl_lock_devices(uint64_t set, bool (*ended)(const void *context), const void *context)
{
    for (uint64_t rest = set; rest != 0; rest &= rest - 1) {
        if (lock_one(&devices[__builtin_ctzll(rest)].launch, ended, context))
            continue;
        tri_nccl_unlock_devices(set ^ rest); /* the locks below, which are held */
        return false;
    }
    return true;
}

void tri_nccl_unlock_devices(uint64_t set)
{
    for (; set != 0; set &= set - 1)
        pthread_mutex_unlock(&devices[__builtin_ctzll(set)].launch);
}
