/* Processes with a rank and a GPU each. */
#define _DEFAULT_SOURCE
#include "tests/push/processes.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/check.h"
#include "tests/children.h"
#include "tests/conformance/cuda_graph.h"
#include "tests/conformance/cuda_must.h"
#include "tests/conformance/cuda_peers.h"
#include "tests/push/one_gpu.h"

uint32_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

uint32_t input(int rank, size_t i)
{
    return (uint32_t)(i * 2654435761u) ^ ((uint32_t)rank + 1) * 40503u;
}

uint32_t sum_of(int size, size_t i)
{
    uint32_t sum = 0;
    for (int r = 0; r < size; r++)
        sum += input(r, i);
    return sum;
}

size_t slot(const struct rank *r)
{
    return (size_t)r->size * MOST;
}

/* Before the process uses CUDA. What is its GPU `index` for it from then on? */
static int32_t set_sight(const struct shared *shared, int index)
{
    char seen[64] = "";
    size_t length = 0;
    if (shared->sight == SEES_ALL || (shared->sight == SEES_TURNED && index % 2 == 0))
        return index;
    const int last = shared->sight == SEES_OWN ? index : 0;
    const int first = shared->sight == SEES_OWN ? index : shared->gpus - 1;
    for (int gpu = first; gpu >= last && length < sizeof seen; gpu--)
        length += (size_t)snprintf(seen + length, sizeof seen - length, "%s%d",
                                   gpu == first ? "" : ",", gpu);
    (void)setenv("CUDA_VISIBLE_DEVICES", seen, 1);
    return first - index;
}

bool open_rank(struct rank *r, struct shared *shared, int index, int n)
{
    const int32_t device = one_gpu_ranks() > 0 ? one_gpu_enter(index, n) : set_sight(shared, index);
    *r = (struct rank){.shared = shared, .rank = index, .size = n};
    if (index == 0)
        CHECK_OK(trib_id_create(&shared->id, "nccl"));
    children_meet(&shared->made, n);
    MUST(cudaSetDevice(device));
    MUST(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
    MUST(cudaMalloc((void **)&r->send, slot(r) * sizeof *r->send));
    MUST(cudaMalloc((void **)&r->recv, CALLS * slot(r) * sizeof *r->recv));
    r->image = malloc(CALLS * slot(r) * sizeof *r->image);
    for (size_t i = 0; i < slot(r); i++)
        r->image[i] = input(index, i);
    MUST(cudaMemcpyAsync(r->send, r->image, slot(r) * sizeof *r->send, cudaMemcpyHostToDevice,
                         r->stream));
    MUST(cudaStreamSynchronize(r->stream));
    trib_options options = TRIB_OPTIONS_INIT;
    options.flags = shared->flags;
    options.peer_bytes = n <= MEASURED ? 0 : 64 << 20; /* as much as pull takes of more */
    return CHECK_OK(trib_comm_create(&r->comm, &shared->id, index, n, device, &options));
}

void close_rank(struct rank *r)
{
    CHECK_OK(trib_comm_destroy(r->comm));
    MUST(cudaFree(r->send));
    MUST(cudaFree(r->recv));
    MUST(cudaStreamDestroy(r->stream));
    free(r->image);
}

uint64_t peer_bytes(const struct rank *r)
{
    trib_memory memory = TRIB_MEMORY_INIT;
    CHECK_OK(trib_comm_memory(&memory, r->comm));
    return memory.peer_bytes;
}

uint64_t staged_calls(const struct rank *r)
{
    trib_counters counters = TRIB_COUNTERS_INIT;
    CHECK_OK(trib_comm_counters(&counters, r->comm));
    return counters.staged_calls;
}

bool pulls_by_name(const struct rank *r)
{
    return r->shared->nvlink && r->shared->sight != SEES_OWN;
}

bool has_pull(const struct rank *r)
{
    return r->size <= MEASURED && pulls_by_name(r);
}

static void replay(const struct rank *r, int times,
                   void (*queue)(const struct rank *r, const void *calls), const void *calls)
{
    MUST(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal));
    queue(r, calls);
    const cudaGraphExec_t ready = cuda_end_capture(r->stream);
    for (int i = 0; i < times; i++)
        MUST(cudaGraphLaunch(ready, r->stream));
    CHECK_OK(trib_comm_wait(r->comm, r->stream, PLENTY_MS));
    MUST(cudaGraphExecDestroy(ready));
}

void make_calls(const struct rank *r, int times,
                void (*queue)(const struct rank *r, const void *calls), const void *calls)
{
    if (r->shared->captured)
        replay(r, times, queue, calls);
    else
        queue(r, calls);
}

double time_calls(trib_comm *comm, cudaStream_t stream, void (*queue)(const void *call),
                  const void *call)
{
    enum { BURST = 20 };
    cudaEvent_t begin, end;
    float ms = 0;
    MUST(cudaEventCreate(&begin));
    MUST(cudaEventCreate(&end));
    for (int i = -BURST; i < BURST; i++) { /* and as many before */
        if (i == 0)
            MUST(cudaEventRecord(begin, stream));
        queue(call);
    }
    MUST(cudaEventRecord(end, stream));
    CHECK_OK(trib_comm_wait(comm, stream, PLENTY_MS));
    MUST(cudaEventElapsedTime(&ms, begin, end));
    MUST(cudaEventDestroy(begin));
    MUST(cudaEventDestroy(end));
    return (double)ms * 1000 / BURST;
}

struct sum {
    trib_comm *comm;
    cudaStream_t stream;
    void *data;
    trib_call_options options;
};

static void queue_sum(const void *call)
{
    const struct sum *sum = call;
    CHECK_OK(trib_allreduce_with(sum->comm, sum->data, sum->data, LARGE, TRIB_F32, TRIB_SUM,
                                 &sum->options, sum->stream));
}

double time_sum(trib_comm *comm, cudaStream_t stream, void *data, trib_variant variant)
{
    struct sum sum = {comm, stream, data, TRIB_CALL_OPTIONS_INIT};
    sum.options.variant = variant;
    return time_calls(comm, stream, queue_sum, &sum);
}

/* Which alone has atomics. */
static bool are_linked(int gpus)
{
    for (int from = 0; from < gpus; from++)
        for (int to = 0; to < gpus; to++) {
            int atomics = 1;
            if (from != to)
                MUST(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, from,
                                               to));
            if (atomics == 0)
                return false;
        }
    return true;
}

static void look(int index, int n, void *argument)
{
    struct machine *machine = argument;
    (void)index, (void)n;
    if (cudaGetDeviceCount(&machine->gpus) != cudaSuccess)
        machine->gpus = 0;
    machine->reach = cuda_map_peers(machine->gpus);
    machine->nvlink = machine->reach && are_linked(machine->gpus);
}

struct machine look_at_machine(void)
{
    struct child_end end;
    struct machine *shared = children_share(sizeof *shared);
    children_run(&end, 1, PLENTY_MS, look, shared);
    const int sharing = one_gpu_ranks();
    struct machine found = *shared;
    found.fewest = 2;
    if (found.gpus > 0 && sharing > 0)
        found = (struct machine){sharing, sharing, true, true};
    children_unshare(shared, sizeof *shared);
    return found;
}

void run_case(const struct machine *machine, const char *what,
              void (*body)(int index, int n, void *argument), int size, int rounds,
              enum sight sight, bool captured)
{
    static const char *const seen[] = {"", ", each sees its own GPU only",
                                       ", every other one sees the GPUs in reverse order"};
    if (one_gpu_ranks() > 0 && sight != SEES_ALL)
        return;
    struct shared *shared = children_share(sizeof *shared);
    shared->rounds = rounds;
    shared->gpus = machine->gpus;
    shared->sight = sight;
    shared->captured = captured;
    shared->reach = machine->reach;
    shared->nvlink = machine->nvlink;
    check_begin("%d processes, %d rounds of %s%s%s", size, rounds, what,
                captured ? ", replayed" : "", seen[sight]);
    children_run_all(size, DEADLINE_MS, body, shared);
    check_end();
    children_unshare(shared, sizeof *shared);
}
