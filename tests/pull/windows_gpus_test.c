/* Symmetric memory that the true NCCL knows as windows, in one process and with one process for each GPU: f32
 * sums by that variant, apart and in place, eager and replayed, from anywhere in the memory; reduce_scatters and
 * allgathers. */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/children.h"
#include "tests/conformance/cuda_must.h"
#include "tests/push/processes.h"
#include "tests/team.h"

enum { FLOATS = LARGE + MOST, POISON = 0xa5, LEFT = 1 << 30, BLOCKS = 3 /* sizes of blocks */ };

/* One rank, in whichever process. */
struct member {
    int rank, size;
    trib_comm *comm;
    cudaStream_t stream;
    float *plain, *send, *recv; /* FLOATS each; the last two symmetric */
    float *host;                /* as many */
};

/* On its device, which is current, before any rank has queued a call: memory that is allocated later waits for the
 * kernels of peers. */
static void prepare(struct member *m)
{
    MUST(cudaMalloc((void **)&m->plain, FLOATS * sizeof(float)));
    m->host = malloc(FLOATS * sizeof(float));
}

/* Once no rank has a call. */
static void finish(const struct member *m)
{
    MUST(cudaFree(m->plain));
    free(m->host);
}

static float part_of(int rank, size_t i)
{
    return (float)((i % 1000) * (size_t)(rank + 1));
}

static float sum_of_parts(int size, size_t i)
{
    return (float)((i % 1000) * (size_t)(size * (size + 1) / 2));
}

static bool allocate(struct member *m)
{
    const size_t bytes = FLOATS * sizeof(float);
    void *send = NULL, *recv = NULL;
    for (size_t i = 0; i < FLOATS; i++)
        m->host[i] = part_of(m->rank, i);
    MUST(cudaMemcpyAsync(m->plain, m->host, bytes, cudaMemcpyHostToDevice, m->stream));
    const bool good = CHECK_OK(trib_symmetric_import(&send, m->comm, m->plain, bytes, m->stream)) &&
                      CHECK_OK(trib_symmetric_alloc(&recv, m->comm, bytes));
    MUST(cudaStreamSynchronize(m->stream));
    m->send = send;
    m->recv = recv;
    return good;
}

static void queue(const struct member *m, size_t at, size_t count, trib_variant variant)
{
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    options.variant = variant;
    CHECK_OK(trib_allreduce_with(m->comm, m->send + at, m->recv + at, count, TRIB_F32, TRIB_SUM,
                                 &options, m->stream));
    CHECK_OK(trib_allreduce_with(m->comm, m->recv + at, m->recv + at, count / 2, TRIB_F32, TRIB_SUM,
                                 &options, m->stream));
}

/* What the driver calls a node's kernel; "": it has none, or no name. */
static const char *kernel_of(cudaGraphNode_t node)
{
    CUresult (*params_of)(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *out);
    CUresult (*name_of)(const char **out, CUfunction function);
    CUresult (*kernel_name_of)(const char **out, CUkernel kernel);
    CUDA_KERNEL_NODE_PARAMS params;
    const char *name = "";
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    *(void **)&params_of = dlsym(driver, "cuGraphKernelNodeGetParams_v2");
    *(void **)&name_of = dlsym(driver, "cuFuncGetName");
    *(void **)&kernel_name_of = dlsym(driver, "cuKernelGetName");
    memset(&params, 0, sizeof params);
    if (CHECK(params_of != NULL && name_of != NULL && kernel_name_of != NULL) &&
        params_of(node, &params) == CUDA_SUCCESS)
        (void)(params.func != NULL ? name_of(&name, params.func)
                                   : kernel_name_of(&name, params.kern));
    return name;
}

/* How many of its kernels are symmetric ones of NCCL's, by their names? */
static size_t symmetric_kernels(cudaGraph_t graph)
{
    enum { NODES = 64 };
    cudaGraphNode_t nodes[NODES];
    size_t n = NODES, found = 0;
    MUST(cudaGraphGetNodes(graph, nodes, &n));
    for (size_t i = 0; i < n; i++) {
        enum cudaGraphNodeType type;
        MUST(cudaGraphNodeGetType(nodes[i], &type));
        found += type == cudaGraphNodeTypeKernel && strstr(kernel_of(nodes[i]), "ncclSymk") != NULL;
    }
    return found;
}

/* A graph of the calls, twice: its first call writes anew what its second one reads. */
static void replay_twice(const struct member *m, size_t at, size_t count)
{
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    MUST(cudaStreamBeginCapture(m->stream, cudaStreamCaptureModeThreadLocal));
    queue(m, at, count, TRIB_VARIANT_WINDOW);
    MUST(cudaStreamEndCapture(m->stream, &graph));
    const size_t found = symmetric_kernels(graph), calls = count / 2 > 0 ? 2 : 1;
    CHECK_MSG(found == calls, "%zu of %zu calls of %zu elements have symmetric kernels", found,
              calls, count);
    MUST(cudaGraphInstantiate(&ready, graph, 0));
    for (int i = 0; i < 2; i++)
        MUST(cudaGraphLaunch(ready, m->stream));
    CHECK_OK(trib_comm_wait(m->comm, m->stream, PLENTY_MS));
    MUST(cudaGraphExecDestroy(ready));
    MUST(cudaGraphDestroy(graph));
}

/* All of recv is looked at. */
static bool sums(const struct member *m, size_t at, size_t count, bool replayed)
{
    const size_t bytes = FLOATS * sizeof(float);
    float untouched;
    MUST(cudaMemsetAsync(m->recv, POISON, bytes, m->stream));
    if (replayed)
        replay_twice(m, at, count);
    else
        queue(m, at, count, TRIB_VARIANT_WINDOW);
    MUST(cudaMemcpyAsync(m->host, m->recv, bytes, cudaMemcpyDeviceToHost, m->stream));
    bool good = CHECK_OK(trib_comm_wait(m->comm, m->stream, PLENTY_MS));
    memset(&untouched, POISON, sizeof untouched);
    for (size_t i = 0; i < FLOATS && good; i++) {
        const bool inside = i >= at && i < at + count;
        const float times = i < at + count / 2 ? (float)m->size : 1;
        const float right = inside ? times * sum_of_parts(m->size, i) : untouched;
        good = CHECK_MSG(m->host[i] == right, "rank %d: %zu from %zu: element %zu is %g, not %g",
                         m->rank, count, at, i, (double)m->host[i], (double)right);
    }
    return good;
}

/* A reduce_scatter, and an allgather that brings its blocks together behind them. All of recv is looked at. */
static bool blocks(const struct member *m, size_t count)
{
    const size_t bytes = FLOATS * sizeof(float), all = count * (size_t)m->size;
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    float untouched;
    options.variant = TRIB_VARIANT_WINDOW;
    MUST(cudaMemsetAsync(m->recv, POISON, bytes, m->stream));
    CHECK_OK(trib_reduce_scatter_with(m->comm, m->send, m->recv, count, TRIB_F32, TRIB_SUM,
                                      &options, m->stream));
    CHECK_OK(
        trib_allgather_with(m->comm, m->recv, m->recv + all, count, TRIB_F32, &options, m->stream));
    MUST(cudaMemcpyAsync(m->host, m->recv, bytes, cudaMemcpyDeviceToHost, m->stream));
    bool good = CHECK_OK(trib_comm_wait(m->comm, m->stream, PLENTY_MS));
    memset(&untouched, POISON, sizeof untouched);
    for (size_t i = 0; i < FLOATS && good; i++) {
        const size_t own = (size_t)m->rank * count + i;
        const float right = i < count                 ? sum_of_parts(m->size, own)
                            : i < all || i >= 2 * all ? untouched
                                                      : sum_of_parts(m->size, i - all);
        good = CHECK_MSG(m->host[i] == right, "rank %d: blocks of %zu: element %zu is %g, not %g",
                         m->rank, count, i, (double)m->host[i], (double)right);
    }
    return good;
}

/* For people. */
static void print_times(const struct member *m, const char *where)
{
    MUST(cudaMemsetAsync(m->plain, 0, LARGE * sizeof *m->plain, m->stream));
    MUST(cudaMemsetAsync(m->recv, 0, LARGE * sizeof *m->recv, m->stream));
    const double window = time_sum(m->comm, m->stream, m->recv, TRIB_VARIANT_WINDOW);
    const double symmetric = time_sum(m->comm, m->stream, m->recv, TRIB_VARIANT_SYMMETRIC);
    const double nccl = time_sum(m->comm, m->stream, m->plain, TRIB_VARIANT_NCCL);
    if (m->rank != 0)
        return;
    printf("  %d GPUs, %s, %zu bytes in place: window %.1f us, symmetric %.1f us, NCCL %.1f us\n",
           m->size, where, (size_t)LARGE * sizeof *m->recv, window, symmetric, nccl);
    fflush(stdout);
}

static void run(struct member *m, const char *where)
{
    static const size_t counts[] = {1, 1000, 1 << 14, (1 << 20) + 3, LARGE};
    bool good = allocate(m);
    for (size_t i = 0; i < sizeof counts / sizeof *counts && good; i++)
        good = sums(m, i == 0 ? 0 : 16 * i, counts[i], false) && sums(m, i, counts[i], true);
    for (size_t i = 0; i < BLOCKS && good; i++)
        good = blocks(m, counts[i]);
    if (good)
        print_times(m, where);
    if (good) /* recv is left to the communicator */
        CHECK_OK(trib_symmetric_free(m->comm, m->send));
}

/* -------------------------------------------------------------------------------- where ranks are */

enum { FLAGS = TRIB_WINDOWS | TRIB_WINDOWS_UNABORTABLE };

static void run_rank(int rank, int size, void *members)
{
    (void)size;
    MUST(cudaSetDevice(rank));
    run((struct member *)members + rank, "one process");
}

static void run_process(int index, int n, void *argument)
{
    struct shared *shared = argument;
    struct rank r;
    shared->flags = FLAGS;
    if (!open_rank(&r, shared, index, n))
        return;
    struct member m = {.rank = index, .size = n, .comm = r.comm, .stream = r.stream};
    prepare(&m);
    run(&m, "a process each");
    finish(&m);
    close_rank(&r);
}

/* Of device 0, once what is freed in the background is. */
static size_t free_bytes(void)
{
    size_t available = 0, all = 0;
    CHECK_OK(trib_quiesce(PLENTY_MS));
    MUST(cudaSetDevice(0));
    MUST(cudaMemGetInfo(&available, &all));
    return available;
}

static void leave_rank(int rank, int size, void *members)
{
    void *left = NULL;
    (void)size;
    CHECK_OK(trib_symmetric_alloc(&left, ((struct member *)members)[rank].comm, LEFT));
}

/* By a child, as a process that has used CUDA may not fork. */
static void run_team(int index, int n, void *argument)
{
    struct team team;
    struct member members[PROCESSES_MAX];
    trib_options options = TRIB_OPTIONS_INIT;
    (void)index, (void)n;
    options.flags = FLAGS;
    if (!team_create(&team, "nccl", *(const int *)argument, &options))
        return;
    for (int rank = 0; rank < team.size; rank++) {
        members[rank] = (struct member){.rank = rank,
                                        .size = team.size,
                                        .comm = team.comms[rank],
                                        .stream = team.streams[rank]};
        MUST(cudaSetDevice(rank));
        prepare(&members[rank]);
    }
    check_ranks(team.size, run_rank, members);
    const size_t before = free_bytes();
    check_ranks(team.size, leave_rank, members);
    for (int rank = 0; rank < team.size; rank++) {
        MUST(cudaSetDevice(rank));
        finish(&members[rank]);
    }
    team_destroy(&team);
    CHECK(free_bytes() > before - LEFT / 2);
}

static void in_one_process(int size)
{
    check_begin("%d GPUs of one process: sums on windows", size);
    children_run_all(1, DEADLINE_MS, run_team, &size);
    check_end();
}

int main(void)
{
    const struct machine machine = look_at_machine();
    if (machine.gpus < 2 || !machine.reach)
        check_skip("windows: there are no 2 GPUs that reach each other");
    for (int size = 2; size <= machine.gpus && size <= PROCESSES_MAX; size++) {
        in_one_process(size);
        run_case(&machine, "sums on windows", run_process, size, 1, SEES_ALL, false);
    }
    return check_finish("windows_gpus_test");
}
