/* The conformance suite on the cuda table. With --slice I/N, only every N-th case, from the I-th
 * on. With TRIB_TEST_LARGE in the environment, also a tensor of more than 2^31 elements.
 * TRIB_TEST_PART=NAME: lists, push, pull or sparse alone; -NAME: all others. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#include "csrc/base/clock.h"
#include "kernels/cpu/kernels_cpu.h"
#include "kernels/cuda/kernels_cuda.h"
#include "tests/conformance/cuda_graph.h"
#include "tests/conformance/cuda_must.h"
#include "tests/conformance/kernels/kernels.h"
#include "tests/conformance/kernels/late_copy.h"
#include "tests/conformance/sparse_kernels/sparse_kernels.h"

static cudaStream_t stream, other;

static void *allocate(size_t bytes)
{
    void *data = NULL;
    if (cudaMalloc(&data, bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    return data;
}

static void *allocate_pinned(size_t bytes)
{
    void *data = NULL;
    MUST(cudaHostAlloc(&data, bytes, cudaHostAllocPortable | cudaHostAllocMapped));
    return data;
}

static void release(void *data)
{
    MUST(cudaFree(data));
}

static void release_pinned(void *data)
{
    MUST(cudaFreeHost(data));
}

static void copy(void *dst, const void *src, size_t bytes)
{
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaStreamSynchronize(other));
    MUST(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream));
    MUST(cudaStreamSynchronize(stream));
}

/* Through memory that grows with what is copied. */
static void copy_late(void *dst, const void *src, size_t bytes)
{
    static void *staged;
    static size_t room;
    if (bytes > room) {
        MUST(cudaFree(staged));
        room = 2 * bytes;
        MUST(cudaMalloc(&staged, room));
    }
    copy(staged, src, bytes);
    MUST(late_copy(dst, staged, bytes, stream));
}

/* Whatever `queue` queues on the stream, as a graph that can be launched. */
static void *capture(void (*queue)(void *argument), void *argument)
{
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    queue(argument);
    return cuda_end_capture(stream);
}

static void replay(void *executable)
{
    MUST(cudaGraphLaunch((cudaGraphExec_t)executable, stream));
}

static void discard(void *executable)
{
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaGraphExecDestroy((cudaGraphExec_t)executable));
}

static const struct kernels_place *open_place(void)
{
    static struct kernels_place place = {
        .kernels = &tri_kernels_cuda,
        .alloc = allocate,
        .alloc_pinned = allocate_pinned,
        .free = release,
        .free_pinned = release_pinned,
        .upload = copy,
        .download = copy,
        .upload_late = copy_late,
        .capture = capture,
        .replay = replay,
        .discard = discard,
    };
    MUST(cudaSetDevice(0));
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    MUST(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    place.stream = (trib_stream)stream;
    place.other = (trib_stream)other;
    place.twin = tri_kernels_cpu.sparse;
    return &place;
}

/* A launch that fails returns an error to its caller, and to nobody else. */
static void refused_launch(void)
{
    float *bucket = allocate(64);
    const struct tri_bucket whole = {bucket, 4, TRIB_F32};
    cudaStream_t capturing;
    cudaGraph_t graph = NULL;
    check_begin("cuda launch that is refused");
    /* A kernel on the legacy stream while a blocking stream is captured globally is refused. */
    MUST(cudaStreamCreate(&capturing));
    MUST(cudaStreamBeginCapture(capturing, cudaStreamCaptureModeGlobal));
    CHECK_STATUS(tri_cuda_pack(NULL, 0, &whole, NULL, NULL), TRIB_ERR_CUDA);
    CHECK(cudaGetLastError() == cudaSuccess);
    (void)cudaStreamEndCapture(capturing, &graph);
    if (graph != NULL)
        MUST(cudaGraphDestroy(graph));
    (void)cudaGetLastError();
    MUST(cudaStreamDestroy(capturing));
    CHECK_OK(tri_cuda_pack(NULL, 0, &whole, NULL, (trib_stream)stream));
    MUST(cudaStreamSynchronize(stream));
    check_end();
    release(bucket);
}

/* ---- a merge that an abort interrupts */

enum { DENSE, UNION, MERGES, SAME = 64, EACH = 1 << 26, SPAN = 4 * EACH, QUEUED = 8 };

/* One list, 64 times: a merge of 10 ms or more that needs no more memory than one list and its
 * result. `out`: SPAN elements of f32, which are the result, or the indices and values of EACH
 * entries. */
struct long_merge {
    struct tri_entries lists[SAME], out;
    struct tri_result dense;
    void *scratch;
    uint32_t *flag;
};

static void make_long_merge(struct long_merge *m)
{
    uint32_t *index = malloc(EACH * sizeof *index), *out = allocate(SPAN * sizeof(float));
    struct tri_entries list = {.index = allocate(EACH * sizeof *index),
                               .value = allocate(EACH * sizeof(float)),
                               .capacity = EACH,
                               .dtype = TRIB_F32};
    CHECK(index != NULL && out != NULL && list.index != NULL && list.value != NULL);
    for (uint32_t i = 0; i < EACH; i++)
        index[i] = 4 * i;
    copy(list.index, index, EACH * sizeof *index);
    MUST(cudaMemset(list.value, 0, EACH * sizeof(float)));
    for (int l = 0; l < SAME; l++)
        m->lists[l] = list;
    m->out = (struct tri_entries){.count = allocate(sizeof(uint32_t)),
                                  .index = out,
                                  .value = out + EACH,
                                  .capacity = EACH,
                                  .dtype = TRIB_F32};
    m->dense = (struct tri_result){.data = out, .dtype = TRIB_F32, .divisor = 1};
    m->scratch = allocate(tri_kernels_cuda.sparse->scratch_bytes(SPAN, EACH, EACH, TRIB_F32));
    m->flag = allocate_pinned(sizeof *m->flag);
    free(index);
}

static void free_long_merge(struct long_merge *m)
{
    release(m->lists[0].index);
    release(m->lists[0].value);
    release(m->out.count);
    release(m->out.index);
    release(m->scratch);
    release_pinned(m->flag);
}

static void queue_long_merge(const struct long_merge *m, int which)
{
    const struct tri_merge merge = {
        .lists = m->lists, .n = SAME, .count = SPAN, .abort_flag = m->flag};
    CHECK_OK(which == DENSE ? tri_kernels_cuda.sparse->merge_dense(&merge, &m->dense, m->scratch,
                                                                   (trib_stream)stream)
                            : tri_kernels_cuda.sparse->merge(&merge, &m->out, m->scratch,
                                                             (trib_stream)stream));
}

/* ms of `n` such merges; of them `*after` after the flag, which is set once the first has begun. */
static double run_long_merges(const struct long_merge *m, int which, int n, bool sets,
                              double *after)
{
    cudaEvent_t begun;
    MUST(cudaEventCreateWithFlags(&begun, cudaEventDisableTiming));
    MUST(cudaStreamSynchronize(stream));
    __atomic_store_n(m->flag, 0, __ATOMIC_RELEASE);
    MUST(cudaEventRecord(begun, stream));
    for (int i = 0; i < n; i++)
        queue_long_merge(m, which);
    MUST(cudaEventSynchronize(begun));
    const uint64_t start = tri_now_ns();
    while (sets && tri_now_ns() - start < 1000000)
        continue; /* the first merge runs */
    const uint64_t set = tri_now_ns();
    if (sets)
        __atomic_store_n(m->flag, 1, __ATOMIC_RELEASE);
    MUST(cudaStreamSynchronize(stream));
    *after = (double)(tri_now_ns() - set) / 1e6;
    MUST(cudaEventDestroy(begun));
    return (double)(tri_now_ns() - start) / 1e6;
}

/* The flag, set in mid-run, ends the merge that runs within 1 ms and the time of the tiles at which
 * its blocks are, for which a quarter of a whole merge is far more than enough, and those behind it
 * within 0.1 ms each. On a machine with other work the host may notice late: the best of three. */
static void leaves_in_mid_run(void)
{
    static const char *const names[MERGES] = {"merge_dense", "merge"};
    struct long_merge m;
    make_long_merge(&m);
    for (int which = 0; which < MERGES; which++) {
        double best = 1e9, after = 0;
        check_begin("cuda %s leaves in mid-run", names[which]);
        (void)run_long_merges(&m, which, 1, false, &after); /* loads the kernel */
        const double one = run_long_merges(&m, which, QUEUED, false, &after) / QUEUED;
        const double allowed = 1 + one / 4 + 0.1 * (QUEUED - 1);
        for (int run = 0; run < 3 && best > allowed; run++) {
            (void)run_long_merges(&m, which, QUEUED, true, &after);
            best = after < best ? after : best;
        }
        printf("cuda: %s of %d lists of %d takes %.1f ms; %d of them end %.2f ms after an abort\n",
               names[which], (int)SAME, (int)EACH, one, (int)QUEUED, best);
        CHECK_MSG(one > 4, "%g ms are too short to be interrupted", one);
        CHECK_MSG(best < allowed, "%g ms after the abort, of %g", best, allowed);
        check_end();
    }
    free_long_merge(&m);
}

/* preload finds every kernel loadable, and leaves no error behind. */
static void preload(void)
{
    check_begin("cuda preload");
    tri_kernels_cuda.preload();
    CHECK(cudaGetLastError() == cudaSuccess);
    tri_kernels_cuda.preload();
    CHECK(cudaGetLastError() == cudaSuccess);
    check_end();
}

int main(int n, char **arguments)
{
    int devices = 0;
    struct cudaDeviceProp properties;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        check_skip("there is no GPU");
        return check_finish("kernels_cuda_test");
    }
    if (!kernels_slice(n, arguments))
        return EXIT_FAILURE;
    const struct kernels_place *place = open_place();
    MUST(cudaGetDeviceProperties(&properties, 0));
    printf("cuda: %s\n", properties.name);
    preload();
    kernels_suite(place);
    sparse_kernels_suite(place);
    refused_launch();
    if (getenv("TRIB_TEST_RACECHECK") == NULL && !check_left_out() &&
        check_part("sparse") != CHECK_PART_LEFT_OUT)
        leaves_in_mid_run();
    if (getenv("TRIB_TEST_LARGE") != NULL)
        kernels_large(place);
    if (getenv("TRIB_TEST_LARGE") != NULL && place->kernels->sparse != NULL)
        sparse_kernels_large(place);
    MUST(cudaStreamDestroy(stream));
    MUST(cudaStreamDestroy(other));
    return check_finish("kernels_cuda_test");
}
