/* The fake's CUDA: contexts, memory, streams, events. */
#define _POSIX_C_SOURCE 200809L
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/nccl_fake/fake.h"
#include "tests/nccl_fake/fake_mapping.h"
#include "tests/nccl_fake/fake_work.h"

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
static _Thread_local int
    own_captures; /* that this thread has begun, as cudaStreamBeginCapture does */

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

void fake_need_relaxed(void)
{
    pthread_mutex_lock(&fake_lock);
    spoiled += (captures || own_captures > 0) && mode != cudaStreamCaptureModeRelaxed;
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
    CUmemoryPool pool; /* NULL: of cudaMalloc */
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

static int blocks_failing = -1;

void fake_fail_blocks(int n)
{
    pthread_mutex_lock(&fake_lock);
    blocks_failing = n;
    pthread_mutex_unlock(&fake_lock);
}

void fake_pool(const void *data, bool is_default)
{
    pthread_mutex_lock(&fake_lock);
    struct block *block = block_of((uintptr_t)data);
    block->pool = fake_pool_of(block->device, is_default);
    pthread_mutex_unlock(&fake_lock);
}

bool fake_may_access(int device, const void *begin, size_t bytes)
{
    const struct block *block = block_of((uintptr_t)begin);
    const char *const at = begin;
    if (block == NULL)
        return fake_reaches(device, begin, bytes);
    if (block->host || at + bytes > block->start + block->size)
        return false;
    return block->pool == NULL ? fake_has_access(device, block->device)
                               : fake_pool_opens(block->pool, device);
}

static cudaError_t allocate(void **out, size_t size, bool host)
{
    need_context();
    fake_need_relaxed();
    cudaError_t error = cudaErrorMemoryAllocation;
    pthread_mutex_lock(&fake_lock);
    if (host)
        fake_pass(FAKE_HOST_ALLOC);
    const bool fails = blocks_failing == 0;
    blocks_failing -= blocks_failing >= 0;
    for (struct block *block = blocks; error != cudaSuccess && block < blocks + BLOCKS; block++) {
        if (block->start != NULL || fails)
            continue;
        *block = (struct block){aligned_alloc(256, (size + 255) / 256 * 256), size, fake_current(),
                                host, false};
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
    fake_need_relaxed();
    pthread_mutex_lock(&fake_lock);
    fake_pass(FAKE_FREE);
    struct block *block = block_of((uintptr_t)data);
    const bool known = block != NULL && block->start == data;
    if (known && fake_in_use(block->start, block->size))
        fake_die("memory is freed while a stream uses it");
    if (known) {
        free(block->start);
        block->start = NULL;
    }
    pthread_mutex_unlock(&fake_lock);
    return known ? cudaSuccess : cudaErrorInvalidValue;
}

struct copy {
    void *dst;
    const void *src;
    size_t bytes;
};

static void run_copy(void *argument)
{
    const struct copy *copy = argument;
    memmove(copy->dst, copy->src, copy->bytes);
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    const struct copy copy = {dst, src, bytes};
    (void)kind;
    need_context();
    fake_run(stream, run_copy, &copy, sizeof copy);
    return cudaSuccess;
}

struct filling {
    void *dst;
    int value;
    size_t bytes;
};

static void run_filling(void *argument)
{
    const struct filling *filling = argument;
    memset(filling->dst, filling->value, filling->bytes);
}

cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t stream)
{
    const struct filling filling = {dst, value, bytes};
    need_context();
    fake_run(stream, run_filling, &filling, sizeof filling);
    return cudaSuccess;
}

static int query_result; /* guarded by fake_lock */

void fake_query_result(int result)
{
    pthread_mutex_lock(&fake_lock);
    query_result = result;
    pthread_mutex_unlock(&fake_lock);
}

static long pointer_queries; /* guarded by fake_lock */

long fake_pointer_queries(void)
{
    pthread_mutex_lock(&fake_lock);
    const long n = pointer_queries;
    pthread_mutex_unlock(&fake_lock);
    return n;
}

/* What the driver knows of an address. */
struct known {
    unsigned int type; /* 0: nothing */
    int ordinal;
    CUdeviceptr start;
    size_t size;
    unsigned int exported;
    CUmemoryPool pool;
    CUcontext context;
};

static struct known know(const void *address)
{
    struct known known = {.ordinal = -1};
    const struct block *block = block_of((uintptr_t)address);
    if (block != NULL)
        return (struct known){.type = block->host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
                              .ordinal = block->device,
                              .start = (CUdeviceptr)block->start,
                              .size = block->size,
                              .exported = !block->host && block->pool == NULL,
                              .pool = block->pool,
                              .context = block->host ? NULL : (CUcontext)&contexts[block->device]};
    if (fake_mapped_at(address, &known.start, &known.size, &known.ordinal))
        known.type = CU_MEMORYTYPE_DEVICE;
    return known;
}

static void answer(void *out, CUpointer_attribute attribute, const struct known *known)
{
    if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
        *(unsigned int *)out = known->type;
    else if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
        *(int *)out = known->ordinal;
    else if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
        *(CUdeviceptr *)out = known->start;
    else if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
        *(size_t *)out = known->size;
    else if (attribute == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE)
        *(unsigned int *)out = known->exported;
    else if (attribute == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE)
        *(CUmemoryPool *)out = known->pool;
    else if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT)
        *(CUcontext *)out = known->context;
    else
        *(unsigned int *)out = 0; /* managed: never */
}

static CUresult pointer_attributes(unsigned int n, CUpointer_attribute *attributes, void **out,
                                   CUdeviceptr pointer)
{
    pthread_mutex_lock(&fake_lock);
    pointer_queries++;
    const struct known known = know((const void *)(uintptr_t)pointer); /* NOLINT */
    for (unsigned int i = 0; i < n; i++)
        answer(out[i], attributes[i], &known);
    const CUresult result = (CUresult)query_result;
    pthread_mutex_unlock(&fake_lock);
    return result;
}

/* Of a mapping. */
static CUresult address_range(CUdeviceptr *base, size_t *size, CUdeviceptr pointer)
{
    int device;
    fake_need_relaxed();
    pthread_mutex_lock(&fake_lock);
    const bool found =
        fake_mapped_at((const void *)(uintptr_t)pointer, base, size, &device); /* NOLINT */
    pthread_mutex_unlock(&fake_lock);
    return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* ------------------------------------------------------------------------------------ streams */

enum { DEPTH = 64 };
struct stream {
    int device;
    bool gone;                 /* destroyed: it waits for the next that is made */
    unsigned long long number; /* no other one ever has it */
    struct fake_line line;
    struct stream *older;     /* all that were ever made */
    struct fake_graph *graph; /* which captures it, or NULL */
    struct stream *next;      /* of that graph */
    long steps;               /* that it has captured; */
    bool joined;              /* another stream waits for them all */
    cudaStream_t after;       /* as fake_after says */
    int n;
    struct pending {
        struct fake_world *world;
        int rank;
        long sequence;
    } pending[DEPTH];
};

static struct stream *streams;
static struct stream defaults[FAKE_DEVICES];

static struct stream *stream_at(cudaStream_t handle)
{
    const int device = fake_current() < 0 ? 0 : fake_current();
    return handle == NULL ? &defaults[device] : (struct stream *)handle;
}

/* The default stream is that of the current device. */
static struct fake_line *line_of(cudaStream_t handle)
{
    struct stream *stream = stream_at(handle);
    if (stream->gone)
        fake_die("a stream is used that was destroyed");
    return &stream->line;
}

/* Completes with what its stream's line had by then, unless FAKE_EVENT is held, or `order` is above
 * what fake_pass_events allows. What NCCL has queued does not count. */
struct event {
    bool recorded;
    const struct fake_line *line; /* of its stream, NULL: none, */
    long until;                   /* and how many works that had been given */
    unsigned long long capture;   /* in which it was; 0: none */
    long steps;                   /* of its stream by then */
    cudaStream_t stream;
    long order; /* 0: recorded while all passed */
};

/* ------------------------------------------------------------------------------------- graphs */

/* Its executable graphs are the graph itself, once more. */
enum { OBJECTS = 64 };
struct fake_graph {
    unsigned long long id;
    int references;
    struct fake_graph *next; /* in capture */
    struct stream *streams;  /* which it captures, the first one last */
    struct step {
        void (*run)(void *argument);       /* at the launch; or, if not NULL, */
        const struct fake_work_kind *kind; /* what the launch queues; or */
        bool queued;                       /* `run` is queued, too */
        void *argument;                    /* its own */
        size_t bytes;
    } *steps;
    size_t nsteps;
    int n;
    struct CUuserObject_st {
        cudaHostFn_t gone;
        void *argument;
    } objects[OBJECTS];
};
static int objects;                   /* retained by graphs, or about to be */
static struct fake_graph *in_capture; /* guarded by fake_lock, as all of a graph but its steps */

struct fake_graph *fake_capturing(cudaStream_t stream)
{
    return stream == NULL ? NULL : ((struct stream *)stream)->graph;
}

static struct fake_graph *find_capture(unsigned long long id)
{
    struct fake_graph *graph = in_capture;
    while (graph != NULL && graph->id != id)
        graph = graph->next;
    return graph;
}

static void join_capture(struct stream *stream, struct fake_graph *graph)
{
    stream->graph = graph;
    stream->next = graph->streams;
    stream->joined = false;
    stream->steps = 0;
    graph->streams = stream;
}

void fake_capture_join(cudaStream_t stream, struct fake_graph *graph)
{
    pthread_mutex_lock(&fake_lock);
    join_capture((struct stream *)stream, graph);
    pthread_mutex_unlock(&fake_lock);
}

struct fake_graph *fake_capture_begin(cudaStream_t stream)
{
    static unsigned long long ids;
    struct fake_graph *graph = calloc(1, sizeof *graph);
    pthread_mutex_lock(&fake_lock);
    graph->id = ++ids;
    graph->references = 1;
    graph->next = in_capture;
    in_capture = graph;
    join_capture((struct stream *)stream, graph);
    pthread_mutex_unlock(&fake_lock);
    return graph;
}

/* False if another stream than the first one has work for which none waits. The lock is held. */
static bool end_capture(struct fake_graph *graph)
{
    bool good = true;
    struct fake_graph **link = &in_capture;
    while (*link != NULL && *link != graph)
        link = &(*link)->next;
    if (*link != NULL)
        *link = graph->next;
    for (struct stream *stream = graph->streams; stream != NULL; stream = stream->next) {
        good = good && (stream->joined || stream->next == NULL);
        stream->graph = NULL;
    }
    graph->streams = NULL;
    return good;
}

void fake_capture_end(cudaStream_t stream)
{
    pthread_mutex_lock(&fake_lock);
    if (fake_capturing(stream) != NULL)
        (void)end_capture(fake_capturing(stream));
    pthread_mutex_unlock(&fake_lock);
}

/* The lock is held. */
static bool record_step(cudaStream_t handle, struct step step, const void *argument, size_t bytes)
{
    struct stream *stream = (struct stream *)handle;
    struct fake_graph *graph = fake_capturing(handle);
    if (graph != NULL) {
        step.argument = malloc(bytes);
        step.bytes = bytes;
        memcpy(step.argument, argument, bytes);
        graph->steps = realloc(graph->steps, (graph->nsteps + 1) * sizeof step);
        graph->steps[graph->nsteps++] = step;
        stream->steps++;
        stream->joined = false;
    }
    return graph != NULL;
}

bool fake_record(cudaStream_t stream, void (*run)(void *argument), const void *argument,
                 size_t bytes)
{
    pthread_mutex_lock(&fake_lock);
    const bool captured = record_step(stream, (struct step){.run = run}, argument, bytes);
    pthread_mutex_unlock(&fake_lock);
    return captured;
}

void fake_submit(cudaStream_t stream, const struct fake_work_kind *kind, const void *argument,
                 size_t bytes)
{
    pthread_mutex_lock(&fake_lock);
    if (!record_step(stream, (struct step){.kind = kind}, argument, bytes))
        fake_line_add(line_of(stream), kind, argument, bytes);
    pthread_mutex_unlock(&fake_lock);
}

void fake_run(cudaStream_t stream, void (*run)(void *argument), const void *argument, size_t bytes)
{
    pthread_mutex_lock(&fake_lock);
    if (!record_step(stream, (struct step){.run = run, .queued = true}, argument, bytes))
        fake_line_run(line_of(stream), run, argument, bytes);
    pthread_mutex_unlock(&fake_lock);
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
    pthread_mutex_lock(&fake_lock);
    const bool last = --graph->references == 0;
    pthread_mutex_unlock(&fake_lock);
    if (!last)
        return;
    if (pthread_create(&thread, NULL, destroy_objects, graph) != 0 ||
        pthread_join(thread, NULL) != 0)
        fake_die("no thread for the destructors of a graph");
    pthread_mutex_lock(&fake_lock);
    objects -= graph->n;
    pthread_mutex_unlock(&fake_lock);
    for (size_t i = 0; i < graph->nsteps; i++)
        free(graph->steps[i].argument);
    free(graph->steps);
    free(graph);
}

/* ------------------------------------------------------------------------------ work of streams */

/* Remove completed work of NCCL from the queue; true if there is no other work either. The lock is
 * held. */
static bool idle(struct stream *stream)
{
    int left = 0;
    fake_progress();
    for (int i = 0; i < stream->n; i++) {
        const struct pending *work = &stream->pending[i];
        if (!fake_done(work->world, work->rank, work->sequence))
            stream->pending[left++] = *work;
    }
    stream->n = left;
    return left == 0 && stream->line.first == NULL;
}

void fake_queue(cudaStream_t handle, struct fake_world *world, int rank, long sequence)
{
    struct stream *stream = (struct stream *)handle;
    (void)idle(stream);
    if (stream->n == DEPTH)
        fake_die("a stream of the fake is full");
    stream->pending[stream->n++] = (struct pending){world, rank, sequence};
}

int fake_stream_device(cudaStream_t stream)
{
    return ((struct stream *)stream)->device;
}

static _Atomic long stream_queries;

long fake_stream_queries(void)
{
    return stream_queries;
}

static CUresult stream_device(CUstream stream, CUdevice *device)
{
    stream_queries++;
    *device = fake_stream_device(stream);
    pthread_mutex_lock(&fake_lock);
    const CUresult result = (CUresult)query_result;
    pthread_mutex_unlock(&fake_lock);
    return result;
}

static _Atomic int streamless = -1;

void fake_fail_streams(int device)
{
    streamless = device;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned int flags)
{
    static unsigned long long numbers;
    (void)flags;
    need_context();
    if (fake_current() == streamless)
        return cudaErrorMemoryAllocation;
    pthread_mutex_lock(&fake_lock);
    struct stream *stream = streams;
    while (stream != NULL && (!stream->gone || stream->line.first != NULL))
        stream = stream->older;
    if (stream == NULL) {
        stream = calloc(1, sizeof *stream);
        stream->older = streams;
        streams = stream;
    }
    stream->gone = false;
    stream->number = ++numbers;
    stream->device = fake_current();
    stream->after = NULL;
    stream->graph = NULL;
    stream->n = 0;
    pthread_mutex_unlock(&fake_lock);
    *out = (cudaStream_t)stream;
    return cudaSuccess;
}

static CUresult stream_id(CUstream stream, unsigned long long *out)
{
    pthread_mutex_lock(&fake_lock);
    if (fake_capturing(stream) != NULL)
        spoiled++;
    (void)line_of(stream);
    *out = ((const struct stream *)stream)->number;
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
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

static bool is_captured(cudaStream_t stream)
{
    pthread_mutex_lock(&fake_lock);
    const bool captured = fake_capturing(stream) != NULL;
    pthread_mutex_unlock(&fake_lock);
    return captured;
}

/* Nobody tells that an abort flag was raised. */
static void wait_for(const struct fake_line *line)
{
    struct timespec until;
    if (line->first == NULL) {
        fake_wait();
        return;
    }
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(&fake_changed, &fake_lock, &until);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    need_context();
    fake_need_relaxed();
    if (is_captured(stream))
        return cudaErrorStreamCaptureUnsupported;
    pthread_mutex_lock(&fake_lock);
    fake_pass(FAKE_QUERY);
    (void)line_of(stream);
    const bool done = idle(stream_at(stream));
    pthread_mutex_unlock(&fake_lock);
    return answered(done ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    need_context();
    if (is_captured(stream))
        return cudaErrorStreamCaptureUnsupported;
    pthread_mutex_lock(&fake_lock);
    const struct fake_line *line = line_of(stream);
    while (!idle(stream_at(stream)))
        wait_for(line);
    pthread_mutex_unlock(&fake_lock);
    return answered(cudaSuccess);
}

/* What it has to do goes on. */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    pthread_mutex_lock(&fake_lock);
    (void)line_of(stream);
    ((struct stream *)stream)->gone = true;
    pthread_mutex_unlock(&fake_lock);
    return cudaSuccess;
}

/* A capture and what is outside know nothing of each other. The lock is held. */
static cudaError_t wait_across(struct stream *stream, const struct event *event)
{
    struct stream *from = (struct stream *)event->stream;
    struct fake_graph *graph = event->capture == 0 ? NULL : find_capture(event->capture);
    if (event->capture == 0)
        return event->recorded && stream != NULL && stream->graph != NULL
                   ? cudaErrorStreamCaptureIsolation
                   : cudaSuccess;
    if (graph == NULL)
        return cudaErrorCapturedEvent;
    if (stream == NULL || (stream->graph != NULL && stream->graph != graph))
        return cudaErrorStreamCaptureMerge;
    if (stream->graph == NULL)
        join_capture(stream, graph);
    if (from != stream) {
        stream->steps++;
        stream->joined = false;
        from->joined = from->joined || from->steps == event->steps;
    }
    return cudaSuccess;
}

static long event_waits;

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    (void)flags;
    pthread_mutex_lock(&fake_lock);
    const struct event *after = (const struct event *)event;
    const cudaError_t error = wait_across((struct stream *)stream, after);
    event_waits++;
    if (error == cudaSuccess && after->recorded && after->capture == 0 && after->line != NULL)
        fake_line_await(line_of(stream), after->line, after->until);
    if (stream != NULL)
        ((struct stream *)stream)->after = after->stream;
    pthread_mutex_unlock(&fake_lock);
    return error;
}

long fake_event_waits(void)
{
    pthread_mutex_lock(&fake_lock);
    const long n = event_waits;
    pthread_mutex_unlock(&fake_lock);
    return n;
}

cudaStream_t fake_after(cudaStream_t stream)
{
    pthread_mutex_lock(&fake_lock);
    cudaStream_t after = ((struct stream *)stream)->after;
    pthread_mutex_unlock(&fake_lock);
    return after;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode how)
{
    if (how == cudaStreamCaptureModeRelaxed)
        fake_die("a capture of the fake is not relaxed");
    if (is_captured(stream))
        return cudaErrorIllegalState;
    own_captures++;
    (void)fake_capture_begin(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    pthread_mutex_lock(&fake_lock);
    struct fake_graph *graph = fake_capturing(stream);
    const bool good = graph != NULL && end_capture(graph);
    pthread_mutex_unlock(&fake_lock);
    own_captures--;
    *out = good ? (cudaGraph_t)graph : NULL;
    if (graph != NULL && !good)
        fake_graph_destroy(graph);
    return good ? cudaSuccess : cudaErrorStreamCaptureUnjoined;
}

/* It takes memory, which a thread that captures may do only relaxed. */
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    (void)flags;
    if (own_captures > 0 && mode != cudaStreamCaptureModeRelaxed)
        return cudaErrorStreamCaptureUnsupported;
    pthread_mutex_lock(&fake_lock);
    ((struct fake_graph *)graph)->references++;
    pthread_mutex_unlock(&fake_lock);
    *out = (cudaGraphExec_t)graph;
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
    (void)exec, (void)stream;
    need_context();
    return cudaSuccess;
}

/* What it does is done, or queued, in the order of the captured calls. */
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    const struct fake_graph *graph = (const struct fake_graph *)exec;
    need_context();
    if (is_captured(stream))
        fake_die("a graph of the fake has no child graphs");
    for (size_t i = 0; i < graph->nsteps; i++) {
        const struct step *step = &graph->steps[i];
        if (step->kind != NULL)
            fake_submit(stream, step->kind, step->argument, step->bytes);
        else if (step->queued)
            fake_run(stream, step->run, step->argument, step->bytes);
        else
            step->run(step->argument);
    }
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    fake_graph_destroy((struct fake_graph *)exec);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    fake_graph_destroy((struct fake_graph *)graph);
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    fake_make_current(device);
    return cudaSuccess;
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
    stream_queries++;
    pthread_mutex_lock(&fake_lock);
    const CUresult result = (CUresult)query_result;
    pthread_mutex_unlock(&fake_lock);
    if (result == CUDA_SUCCESS)
        *out = (CUstreamCaptureStatus)capture_status(stream);
    return result;
}

static _Atomic bool no_capture_info;

void fake_fail_capture_info(bool fails)
{
    no_capture_info = fails;
}

static cudaError_t capture_info(cudaStream_t stream, enum cudaStreamCaptureStatus *out,
                                unsigned long long *out_id, cudaGraph_t *out_graph)
{
    need_context();
    stream_queries++;
    if (no_capture_info)
        return cudaErrorLossyQuery;
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

static int events, events_left = -1;

int fake_events(void)
{
    pthread_mutex_lock(&fake_lock);
    const int n = events;
    pthread_mutex_unlock(&fake_lock);
    return n;
}

void fake_allow_events(int n)
{
    pthread_mutex_lock(&fake_lock);
    events_left = n;
    pthread_mutex_unlock(&fake_lock);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned int flags)
{
    (void)flags;
    need_context();
    *out = (cudaEvent_t)calloc(1, sizeof(struct event));
    pthread_mutex_lock(&fake_lock);
    const bool good = events_left != 0;
    events_left -= events_left > 0;
    events += good;
    pthread_mutex_unlock(&fake_lock);
    if (good)
        return cudaSuccess;
    free((struct event *)*out);
    *out = NULL;
    return cudaErrorMemoryAllocation;
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    return cudaEventCreateWithFlags(out, 0);
}

static bool has_passed(const struct event *event)
{
    fake_progress();
    return event->line == NULL || event->line->ended >= event->until;
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
        *(struct event *)event = (struct event){
            .recorded = true,
            .line = line_of(stream),
            .until = line_of(stream)->queued,
            .capture = fake_capturing(stream) == NULL ? 0 : fake_capturing(stream)->id,
            .steps = stream == NULL ? 0 : ((const struct stream *)stream)->steps,
            .stream = stream,
            .order = events_passed < 0 ? 0 : ++events_recorded};
    pthread_mutex_unlock(&fake_lock);
    return fails ? cudaErrorUnknown : cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    pthread_mutex_lock(&fake_lock);
    fake_pass(FAKE_EVENT);
    while (!has_passed((const struct event *)event))
        wait_for(((const struct event *)event)->line);
    pthread_mutex_unlock(&fake_lock);
    return answered(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    fake_need_relaxed();
    pthread_mutex_lock(&fake_lock);
    fake_pass(FAKE_PROBE);
    const long order = ((const struct event *)event)->order;
    const bool captured = ((const struct event *)event)->capture != 0;
    const bool passed = !held[FAKE_EVENT] && (events_passed < 0 || order <= events_passed) &&
                        has_passed((const struct event *)event);
    pthread_mutex_unlock(&fake_lock);
    return captured ? cudaErrorCapturedEvent : answered(passed ? cudaSuccess : cudaErrorNotReady);
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
    pthread_mutex_lock(&fake_lock);
    events -= event != NULL;
    pthread_mutex_unlock(&fake_lock);
    return cudaSuccess;
}

/* -------------------------------------------------------------------------------- the runtime */

cudaError_t cudaGetDeviceCount(int *out)
{
    *out = FAKE_DEVICES;
    return cudaSuccess;
}

static _Atomic int multiprocessors[FAKE_DEVICES];

void fake_set_multiprocessors(int device, int n)
{
    multiprocessors[device] = n;
}

cudaError_t cudaDeviceGetAttribute(int *out, enum cudaDeviceAttr attribute, int device)
{
    const int n = multiprocessors[device];
    if (attribute != cudaDevAttrMultiProcessorCount)
        fake_die("an attribute of a device that the fake does not have");
    *out = n == 0 ? FAKE_MULTIPROCESSORS : n;
    return n < 0 ? cudaErrorInvalidDevice : cudaSuccess;
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
        {"cuStreamGetId", (void (*)(void))stream_id},
        {"cuMemGetAllocationGranularity", (void (*)(void))fake_mem_granularity},
        {"cuMemCreate", (void (*)(void))fake_mem_create},
        {"cuMemRelease", (void (*)(void))fake_mem_release},
        {"cuMemAddressReserve", (void (*)(void))fake_mem_reserve},
        {"cuMemAddressFree", (void (*)(void))fake_mem_unreserve},
        {"cuMemMap", (void (*)(void))fake_mem_map},
        {"cuMemUnmap", (void (*)(void))fake_mem_unmap},
        {"cuMemSetAccess", (void (*)(void))fake_mem_set_access},
        {"cuMemGetAccess", (void (*)(void))fake_mem_get_access},
        {"cuMemRetainAllocationHandle", (void (*)(void))fake_mem_retain},
        {"cuMemExportToShareableHandle", (void (*)(void))fake_mem_export},
        {"cuMemImportFromShareableHandle", (void (*)(void))fake_mem_import},
        {"cuMemPoolGetAccess", (void (*)(void))fake_pool_access},
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
