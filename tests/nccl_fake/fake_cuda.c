/* The fake's CUDA: contexts, memory, streams, events. */
#define _POSIX_C_SOURCE 200809L
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/nccl_fake/fake.h"

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t fake_changed = PTHREAD_COND_INITIALIZER;

void fake_wait(void)
{
    pthread_cond_wait(&fake_changed, &fake_lock);
}

void fake_die(const char *what)
{
    (void)fprintf(stderr, "fake CUDA and NCCL: %s\n", what);
    abort();
}

static bool held[FAKE_CALLS];
static int waiting[FAKE_CALLS];

void fake_hold(enum fake_call call, bool hold)
{
    pthread_mutex_lock(&fake_lock);
    held[call] = hold;
    pthread_cond_broadcast(&fake_changed);
    pthread_mutex_unlock(&fake_lock);
}

int fake_waiting(enum fake_call call)
{
    pthread_mutex_lock(&fake_lock);
    const int n = waiting[call];
    pthread_mutex_unlock(&fake_lock);
    return n;
}

void fake_pass(enum fake_call call)
{
    waiting[call]++;
    while (held[call])
        fake_wait();
    waiting[call]--;
}

/* ------------------------------------------------------------------------------------ captures */

static bool captures;
static int spoiled;
static _Thread_local enum cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;

void fake_capture(bool on)
{
    pthread_mutex_lock(&fake_lock);
    captures = on;
    pthread_mutex_unlock(&fake_lock);
}

int fake_spoiled(void)
{
    pthread_mutex_lock(&fake_lock);
    const int n = spoiled;
    pthread_mutex_unlock(&fake_lock);
    return n;
}

/* A call that invalidates a capture of another thread. */
static void need_relaxed(void)
{
    pthread_mutex_lock(&fake_lock);
    spoiled += captures && mode != cudaStreamCaptureModeRelaxed;
    pthread_mutex_unlock(&fake_lock);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *exchanged)
{
    const enum cudaStreamCaptureMode before = mode;
    mode = *exchanged;
    *exchanged = before;
    return cudaSuccess;
}

/* ----------------------------------------------------------------------------------- contexts */

static int broken = -1;

void fake_break(int device)
{
    pthread_mutex_lock(&fake_lock);
    broken = device;
    pthread_mutex_unlock(&fake_lock);
}

static char contexts[FAKE_DEVICES]; /* only their addresses count */
static _Thread_local CUcontext current;

int fake_current(void)
{
    return current == NULL ? -1 : (int)((char *)current - contexts);
}

void fake_make_current(int device)
{
    current = device < 0 ? NULL : (CUcontext)&contexts[device];
}

static _Thread_local bool in_destructor; /* of a user object: on a thread of CUDA's */

static void need_context(void)
{
    if (in_destructor)
        fake_die("a destructor of a user object makes a CUDA call");
    if (current == NULL)
        fake_die("a CUDA call would make a context on device 0, which nobody chose");
}

static CUresult device_get(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return CUDA_SUCCESS;
}

static CUresult primary_retain(CUcontext *context, CUdevice device)
{
    *context = (CUcontext)&contexts[device];
    pthread_mutex_lock(&fake_lock);
    const bool good = device != broken;
    pthread_mutex_unlock(&fake_lock);
    return good ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

static CUresult get_current(CUcontext *context)
{
    *context = current;
    return CUDA_SUCCESS;
}

static _Atomic bool no_current;

void fake_fail_current(bool fails)
{
    no_current = fails;
}

static CUresult set_current(CUcontext context)
{
    if (no_current)
        return CUDA_ERROR_INVALID_CONTEXT;
    current = context;
    return CUDA_SUCCESS;
}

static CUresult current_device(CUdevice *device)
{
    *device = fake_current();
    return CUDA_SUCCESS;
}

static CUresult error_string(CUresult result, const char **out)
{
    (void)result;
    *out = "an error of the fake";
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------------------------- memory */

enum { BLOCKS = 1024 };
static struct block {
    char *start;
    size_t size;
    int device;
    bool host;
} blocks[BLOCKS];

static struct block *block_of(uintptr_t address)
{
    for (struct block *block = blocks; block < blocks + BLOCKS; block++)
        if (block->start != NULL && address - (uintptr_t)block->start < block->size)
            return block;
    return NULL;
}

int fake_blocks(void)
{
    int n = 0;
    pthread_mutex_lock(&fake_lock);
    for (int i = 0; i < BLOCKS; i++)
        n += blocks[i].start != NULL;
    pthread_mutex_unlock(&fake_lock);
    return n;
}

static cudaError_t allocate(void **out, size_t size, bool host)
{
    need_context();
    need_relaxed();
    cudaError_t error = cudaErrorMemoryAllocation;
    pthread_mutex_lock(&fake_lock);
    if (host)
        fake_pass(FAKE_HOST_ALLOC);
    for (struct block *block = blocks; error != cudaSuccess && block < blocks + BLOCKS; block++) {
        if (block->start != NULL)
            continue;
        *block = (struct block){aligned_alloc(256, (size + 255) / 256 * 256), size, fake_current(),
                                host};
        *out = block->start;
        error = cudaSuccess;
    }
    pthread_mutex_unlock(&fake_lock);
    return error;
}

cudaError_t cudaMalloc(void **out, size_t size)
{
    return allocate(out, size, false);
}

cudaError_t cudaHostAlloc(void **out, size_t size, unsigned int flags)
{
    (void)flags;
    return allocate(out, size, true);
}

cudaError_t cudaFree(void *data)
{
    need_context();
    need_relaxed();
    pthread_mutex_lock(&fake_lock);
    fake_pass(FAKE_FREE);
    struct block *block = block_of((uintptr_t)data);
    const bool known = block != NULL && block->start == data;
    if (known) {
        free(block->start);
        block->start = NULL;
    }
    pthread_mutex_unlock(&fake_lock);
    return known ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    (void)kind;
    (void)stream;
    need_context();
    memmove(dst, src, bytes);
    return cudaSuccess;
}

static int query_result; /* guarded by fake_lock */

void fake_query_result(int result)
{
    pthread_mutex_lock(&fake_lock);
    query_result = result;
    pthread_mutex_unlock(&fake_lock);
}

static CUresult pointer_attributes(unsigned int n, CUpointer_attribute *attributes, void **out,
                                   CUdeviceptr pointer)
{
    pthread_mutex_lock(&fake_lock);
    const struct block *block = block_of((uintptr_t)pointer);
    for (unsigned int i = 0; i < n; i++) {
        if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
            *(unsigned int *)out[i] = block == NULL ? 0
                                      : block->host ? CU_MEMORYTYPE_HOST
                                                    : CU_MEMORYTYPE_DEVICE;
        else if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            *(int *)out[i] = block == NULL ? -1 : block->device;
        else if (attributes[i] == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
            *(CUdeviceptr *)out[i] = block == NULL ? 0 : (CUdeviceptr)block->start;
        else if (attributes[i] == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
            *(size_t *)out[i] = block == NULL ? 0 : block->size;
        else if (attributes[i] == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE)
            *(unsigned int *)out[i] = block != NULL && !block->host;
        else
            *(unsigned int *)out[i] = 0; /* managed: never */
    }
    const CUresult result = (CUresult)query_result;
    pthread_mutex_unlock(&fake_lock);
    return result;
}

static CUresult address_range(CUdeviceptr *base, size_t *size, CUdeviceptr pointer)
{
    (void)base;
    (void)size;
    (void)pointer;
    return CUDA_ERROR_NOT_FOUND;
}

/* ------------------------------------------------------------------------------------ streams */

enum { DEPTH = 64 };
struct stream {
    int device;
    struct fake_graph *graph; /* which captures it, or NULL */
    cudaStream_t after;       /* as fake_after says */
    int n;
    struct pending {
        struct fake_world *world;
        int rank;
        long sequence;
    } pending[DEPTH];
};

/* Completes at once, unless FAKE_EVENT is held, or `order` is above what fake_pass_events allows. */
struct event {
    bool recorded;
    cudaStream_t stream;
    long order; /* 0: recorded while all passed */
};

/* Remove completed work from the queue. The lock is held. */
static bool idle(struct stream *stream)
{
    int left = 0;
    for (int i = 0; i < stream->n; i++) {
        const struct pending *work = &stream->pending[i];
        if (!fake_done(work->world, work->rank, work->sequence))
            stream->pending[left++] = *work;
    }
    stream->n = left;
    return left == 0;
}

void fake_queue(cudaStream_t handle, struct fake_world *world, int rank, long sequence)
{
    struct stream *stream = (struct stream *)handle;
    if (!idle(stream) && stream->n == DEPTH)
        fake_die("a stream of the fake is full");
    stream->pending[stream->n++] = (struct pending){world, rank, sequence};
}

int fake_stream_device(cudaStream_t stream)
{
    return ((struct stream *)stream)->device;
}

static CUresult stream_device(CUstream stream, CUdevice *device)
{
    *device = fake_stream_device(stream);
    pthread_mutex_lock(&fake_lock);
    const CUresult result = (CUresult)query_result;
    pthread_mutex_unlock(&fake_lock);
    return result;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned int flags)
{
    (void)flags;
    need_context();
    struct stream *stream = calloc(1, sizeof *stream);
    stream->device = fake_current();
    *out = (cudaStream_t)stream;
    return cudaSuccess;
}

static cudaError_t wait_error; /* guarded by fake_lock */

void fake_fail_wait(int error)
{
    pthread_mutex_lock(&fake_lock);
    wait_error = (cudaError_t)error;
    pthread_mutex_unlock(&fake_lock);
}

/* The true result, unless fake_fail_wait set another. */
static cudaError_t answered(cudaError_t truth)
{
    pthread_mutex_lock(&fake_lock);
    const cudaError_t error = wait_error;
    pthread_mutex_unlock(&fake_lock);
    return error != cudaSuccess ? error : truth;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    need_context();
    need_relaxed();
    pthread_mutex_lock(&fake_lock);
    fake_pass(FAKE_QUERY);
    const bool done = stream == NULL || idle((struct stream *)stream);
    pthread_mutex_unlock(&fake_lock);
    return answered(done ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    need_context();
    pthread_mutex_lock(&fake_lock);
    while (stream != NULL && !idle((struct stream *)stream))
        fake_wait();
    pthread_mutex_unlock(&fake_lock);
    return answered(cudaSuccess);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    free((struct stream *)stream);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    (void)flags;
    pthread_mutex_lock(&fake_lock);
    if (stream != NULL)
        ((struct stream *)stream)->after = ((const struct event *)event)->stream;
    pthread_mutex_unlock(&fake_lock);
    return cudaSuccess;
}

cudaStream_t fake_after(cudaStream_t stream)
{
    pthread_mutex_lock(&fake_lock);
    cudaStream_t after = ((struct stream *)stream)->after;
    pthread_mutex_unlock(&fake_lock);
    return after;
}

/* ------------------------------------------------------------------------------------- graphs */

enum { OBJECTS = 16 };
struct fake_graph {
    unsigned long long id;
    int n;
    struct CUuserObject_st {
        cudaHostFn_t gone;
        void *argument;
    } objects[OBJECTS];
};
static int objects; /* retained by graphs, or about to be */

struct fake_graph *fake_capturing(cudaStream_t stream)
{
    return stream == NULL ? NULL : ((struct stream *)stream)->graph;
}

void fake_capture_join(cudaStream_t stream, struct fake_graph *graph)
{
    pthread_mutex_lock(&fake_lock);
    ((struct stream *)stream)->graph = graph;
    pthread_mutex_unlock(&fake_lock);
}

struct fake_graph *fake_capture_begin(cudaStream_t stream)
{
    static _Atomic unsigned long long ids;
    struct fake_graph *graph = calloc(1, sizeof *graph);
    graph->id = ++ids;
    fake_capture_join(stream, graph);
    return graph;
}

void fake_capture_end(cudaStream_t stream)
{
    fake_capture_join(stream, NULL);
}

void fake_graph_retain(struct fake_graph *graph, cudaHostFn_t gone, void *argument)
{
    if (graph->n == OBJECTS)
        fake_die("a graph of the fake retains too much");
    graph->objects[graph->n++] = (struct CUuserObject_st){gone, argument};
    objects++;
}

int fake_user_objects(void)
{
    pthread_mutex_lock(&fake_lock);
    const int n = objects;
    pthread_mutex_unlock(&fake_lock);
    return n;
}

static void *destroy_objects(void *argument)
{
    const struct fake_graph *graph = argument;
    in_destructor = true;
    for (int i = 0; i < graph->n; i++)
        graph->objects[i].gone(graph->objects[i].argument);
    return NULL;
}

void fake_graph_destroy(struct fake_graph *graph)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, destroy_objects, graph) != 0 ||
        pthread_join(thread, NULL) != 0)
        fake_die("no thread for the destructors of a graph");
    pthread_mutex_lock(&fake_lock);
    objects -= graph->n;
    pthread_mutex_unlock(&fake_lock);
    free(graph);
}

static _Atomic bool no_user_objects;

void fake_fail_user_objects(bool fails)
{
    no_user_objects = fails;
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t *out, void *argument, cudaHostFn_t gone,
                                 unsigned int references, unsigned int flags)
{
    if (references != 1 || flags != cudaUserObjectNoDestructorSync)
        fake_die("a user object that CUDA would not make");
    if (no_user_objects)
        return cudaErrorMemoryAllocation;
    *out = calloc(1, sizeof **out);
    **out = (struct CUuserObject_st){gone, argument};
    return cudaSuccess;
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned int references)
{
    (void)references;
    object->gone(object->argument);
    free(object);
    return cudaSuccess;
}

/* Only with cudaGraphUserObjectMove: the graph takes the reference over. */
cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object,
                                      unsigned int references, unsigned int flags)
{
    need_context();
    if (references != 1 || flags != cudaGraphUserObjectMove)
        fake_die("a graph takes over nothing");
    pthread_mutex_lock(&fake_lock);
    fake_graph_retain((struct fake_graph *)graph, object->gone, object->argument);
    pthread_mutex_unlock(&fake_lock);
    free(object);
    return cudaSuccess;
}

static enum cudaStreamCaptureStatus capture_status(cudaStream_t stream)
{
    pthread_mutex_lock(&fake_lock);
    const bool captured = fake_capturing(stream) != NULL;
    pthread_mutex_unlock(&fake_lock);
    return captured ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *out)
{
    *out = capture_status(stream);
    return cudaSuccess;
}

static CUresult stream_capturing(CUstream stream, CUstreamCaptureStatus *out)
{
    *out = (CUstreamCaptureStatus)capture_status(stream);
    return CUDA_SUCCESS;
}

static cudaError_t capture_info(cudaStream_t stream, enum cudaStreamCaptureStatus *out,
                                unsigned long long *out_id, cudaGraph_t *out_graph)
{
    need_context();
    *out = capture_status(stream);
    struct fake_graph *graph = stream == NULL ? NULL : ((struct stream *)stream)->graph;
    *out_id = graph == NULL ? 0 : graph->id;
    *out_graph = (cudaGraph_t)graph;
    return cudaSuccess;
}

#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *out,
                                     unsigned long long *out_id, cudaGraph_t *out_graph,
                                     const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
                                     size_t *n)
{
    (void)nodes, (void)edges, (void)n;
    return capture_info(stream, out, out_id, out_graph);
}
#else
cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, enum cudaStreamCaptureStatus *out,
                                        unsigned long long *out_id, cudaGraph_t *out_graph,
                                        const cudaGraphNode_t **nodes, size_t *n)
{
    (void)nodes, (void)n;
    return capture_info(stream, out, out_id, out_graph);
}
#endif

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument)
{
    (void)stream;
    function(argument);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned int flags)
{
    (void)flags;
    need_context();
    *out = (cudaEvent_t)calloc(1, sizeof(struct event));
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    return cudaEventCreateWithFlags(out, 0);
}

static bool record_fails;

void fake_fail_record(bool fails)
{
    pthread_mutex_lock(&fake_lock);
    record_fails = fails;
    pthread_mutex_unlock(&fake_lock);
}

static long events_recorded, events_passed = -1;

void fake_pass_events(long n)
{
    pthread_mutex_lock(&fake_lock);
    if (events_passed < 0)
        events_recorded = 0;
    events_passed = n;
    pthread_mutex_unlock(&fake_lock);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    pthread_mutex_lock(&fake_lock);
    const bool fails = record_fails;
    if (!fails)
        *(struct event *)event =
            (struct event){true, stream, events_passed < 0 ? 0 : ++events_recorded};
    pthread_mutex_unlock(&fake_lock);
    return fails ? cudaErrorUnknown : cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    (void)event;
    pthread_mutex_lock(&fake_lock);
    fake_pass(FAKE_EVENT);
    pthread_mutex_unlock(&fake_lock);
    return answered(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    need_relaxed();
    pthread_mutex_lock(&fake_lock);
    fake_pass(FAKE_PROBE);
    const long order = ((const struct event *)event)->order;
    const bool passed = !held[FAKE_EVENT] && (events_passed < 0 || order <= events_passed);
    pthread_mutex_unlock(&fake_lock);
    return answered(passed ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventElapsedTime(float *out, cudaEvent_t start, cudaEvent_t end)
{
    pthread_mutex_lock(&fake_lock);
    const bool recorded =
        ((const struct event *)start)->recorded && ((const struct event *)end)->recorded;
    const bool passed = !held[FAKE_EVENT];
    pthread_mutex_unlock(&fake_lock);
    *out = 0;
    return !recorded ? cudaErrorInvalidResourceHandle : passed ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free((struct event *)event);
    return cudaSuccess;
}

/* -------------------------------------------------------------------------------- the runtime */

cudaError_t cudaGetDeviceCount(int *out)
{
    *out = FAKE_DEVICES;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

const char *cudaGetErrorName(cudaError_t error)
{
    (void)error;
    return "cudaErrorOfTheFake";
}

const char *cudaGetErrorString(cudaError_t error)
{
    (void)error;
    return "an error of the fake";
}

static cudaError_t entry_point(const char *symbol, void **out,
                               enum cudaDriverEntryPointQueryResult *answer)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } known[] = {
        {"cuDeviceGet", (void (*)(void))device_get},
        {"cuDevicePrimaryCtxRetain", (void (*)(void))primary_retain},
        {"cuCtxGetCurrent", (void (*)(void))get_current},
        {"cuCtxSetCurrent", (void (*)(void))set_current},
        {"cuCtxGetDevice", (void (*)(void))current_device},
        {"cuPointerGetAttributes", (void (*)(void))pointer_attributes},
        {"cuMemGetAddressRange", (void (*)(void))address_range},
        {"cuGetErrorString", (void (*)(void))error_string},
        {"cuStreamGetDevice", (void (*)(void))stream_device},
        {"cuStreamIsCapturing", (void (*)(void))stream_capturing},
    };
    *out = NULL;
    *answer = cudaDriverEntryPointSymbolNotFound;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(known[i].name, symbol) != 0)
            continue;
        memcpy(out, &known[i].function, sizeof *out);
        *answer = cudaDriverEntryPointSuccess;
    }
    return cudaSuccess;
}

#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **out, unsigned int version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *answer)
{
    (void)version;
    (void)flags;
    return entry_point(symbol, out, answer);
}
#else
cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **out, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *answer)
{
    (void)flags;
    return entry_point(symbol, out, answer);
}
#endif
