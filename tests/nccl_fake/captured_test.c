/* Calls that CUDA graphs capture, through the whole library, over the fake: NCCL's and CUDA's calls are
 * the fake's, device memory is ordinary memory, and the CPU's kernels run at once, or in each launch of
 * the graph that captures their stream. */
#include "tests/nccl/captured.h"

#include <stdlib.h>
#include <string.h>

#include "csrc/backend.h"
#include "csrc/reducer/reducer.h"
#include "csrc/sparse/state.h"
#include "kernels/cuda/kernels_cuda.h"
#include "tests/check.h"
#include "tests/nccl_fake/fake.h"

extern const struct tri_backend tri_backend_nccl;
extern const struct tri_kernels tri_kernels_cpu;

static struct tri_backend backend;
/* In place of csrc/backends.c, which the linker then leaves out. */
const struct tri_backend *const tri_backends[] = {&backend, NULL};

const struct tri_backend *tri_backend_find(const char *name)
{
    return strcmp(name, backend.name) == 0 ? &backend : NULL;
}

/* ----------------------------------------------------------- kernels, which graphs capture, too */

/* pack and unpack: with the slices, as CUDA has the arguments of a kernel. */
struct slices {
    size_t n;
    struct tri_bucket bucket;
    struct tri_weight weight;
    bool weighted;
    const uint32_t *decision;
    struct tri_slice slices[];
};

/* Now, or in each launch. */
static trib_status run(void (*function)(void *argument), void *argument, size_t bytes,
                       trib_stream stream)
{
    if (!fake_record(stream, function, argument, bytes))
        function(argument);
    return TRIB_OK;
}

static void run_pack(void *argument)
{
    const struct slices *of = argument;
    CHECK_OK(tri_kernels_cpu.pack(of->slices, of->n, &of->bucket, of->weighted ? &of->weight : NULL,
                                  NULL));
}

static void run_unpack(void *argument)
{
    const struct slices *of = argument;
    CHECK_OK(
        tri_kernels_cpu.unpack(of->slices, of->n, &of->bucket, of->weighted, of->decision, NULL));
}

static trib_status run_slices(void (*function)(void *argument), const struct slices *of,
                              const struct tri_slice *slices, trib_stream stream)
{
    const size_t bytes = sizeof *of + of->n * sizeof *slices;
    struct slices *own = malloc(bytes);
    if (own == NULL)
        abort();
    *own = *of;
    memcpy(own->slices, slices, of->n * sizeof *slices);
    const trib_status status = run(function, own, bytes, stream);
    free(own);
    return status;
}

static trib_status pack(const struct tri_slice *slices, size_t n, const struct tri_bucket *bucket,
                        const struct tri_weight *weight, trib_stream stream)
{
    struct slices of = {.n = n, .bucket = *bucket, .weighted = weight != NULL};
    if (weight != NULL)
        of.weight = *weight;
    return run_slices(run_pack, &of, slices, stream);
}

static trib_status unpack(const struct tri_slice *slices, size_t n, const struct tri_bucket *bucket,
                          int weighted, const uint32_t *decision, trib_stream stream)
{
    const struct slices of = {
        .n = n, .bucket = *bucket, .weighted = weighted != 0, .decision = decision};
    return run_slices(run_unpack, &of, slices, stream);
}

static void run_commit(void *argument)
{
    CHECK_OK(tri_kernels_cpu.commit(argument, NULL));
}

static trib_status commit(const struct tri_commit *job, trib_stream stream)
{
    struct tri_commit own = *job;
    return run(run_commit, &own, sizeof own, stream);
}

struct scaling {
    void *dst;
    const void *src;
    size_t count;
    trib_dtype dtype;
    struct tri_factor factor;
};

static void run_scale(void *argument)
{
    const struct scaling *of = argument;
    CHECK_OK(tri_kernels_cpu.scale(of->dst, of->src, of->count, of->dtype, &of->factor, NULL));
}

static trib_status scale(void *dst, const void *src, size_t count, trib_dtype dtype,
                         const struct tri_factor *factor, trib_stream stream)
{
    struct scaling of = {dst, src, count, dtype, *factor};
    return run(run_scale, &of, sizeof of, stream);
}

const struct tri_kernels tri_kernels_cuda = {
    .name = "fake", .pack = pack, .unpack = unpack, .commit = commit, .scale = scale};

/* A graph that can hold nothing gets nothing: the calls fail, nothing is queued, and the capture goes
 * on. */
static void refused_by_cuda(void)
{
    trib_id id;
    trib_comm *comm = NULL;
    trib_device *device = NULL;
    trib_stream stream = NULL;
    trib_memory memory = TRIB_MEMORY_INIT;
    void *data = NULL;
    check_begin("captures over a fake: a graph that retains nothing");
    CHECK_OK(trib_device_get(&device, "nccl", 3));
    CHECK_OK(trib_stream_create(&stream, device));
    CHECK_OK(trib_device_alloc(&data, device, sizeof(float)));
    CHECK_OK(trib_id_create(&id, "nccl"));
    if (CHECK_OK(trib_comm_create(&comm, &id, 0, 1, 3, NULL))) {
        const trib_tensor tensor = {data, 1, TRIB_F32, 0};
        struct fake_graph *graph = fake_capture_begin(stream);
        fake_fail_user_objects(true);
        CHECK_STATUS(trib_allreduce_list(comm, &tensor, 1, TRIB_SUM, stream),
                     TRIB_ERR_OUT_OF_MEMORY);
        CHECK_STATUS(trib_barrier(comm, stream), TRIB_ERR_OUT_OF_MEMORY);
        fake_fail_user_objects(false);
        fake_fail_capture_info(true);
        CHECK_STATUS(trib_barrier(comm, stream), TRIB_ERR_CUDA);
        fake_fail_capture_info(false);
        CHECK_OK(trib_comm_memory(&memory, comm));
        CHECK(memory.workspace_bytes == 0 && fake_user_objects() == 0);
        CHECK_OK(trib_barrier(comm, stream));
        fake_capture_end(stream);
        CHECK_OK(trib_comm_memory(&memory, comm));
        CHECK(memory.workspace_bytes > 0 && fake_user_objects() == 1);
        CHECK_OK(trib_comm_destroy(comm)); /* what the graph has stays */
        fake_graph_destroy(graph);
    }
    CHECK_OK(trib_device_free(device, data));
    CHECK_OK(trib_stream_destroy(device, stream));
    CHECK_OK(trib_quiesce(20000));
    check_end();
}

/* Each gradient of a step that no graph captures costs one question, and the step a few more: of its
 * stream, of the reducer's, and of the stream of each bucket. */
static void questions(void)
{
    enum { GRADIENTS = 40, FEW = 6 };
    trib_id id;
    trib_comm *comm = NULL;
    trib_device *device = NULL;
    trib_stream stream = NULL;
    trib_reducer *reducer = NULL;
    trib_tensor tensors[GRADIENTS];
    void *data = NULL;
    check_begin("a reducer over a fake: questions to the driver");
    CHECK_OK(trib_device_get(&device, "nccl", 3));
    CHECK_OK(trib_stream_create(&stream, device));
    CHECK_OK(trib_device_alloc(&data, device, sizeof(float[GRADIENTS])));
    CHECK_OK(trib_id_create(&id, "nccl"));
    for (size_t i = 0; i < GRADIENTS; i++)
        tensors[i] = (trib_tensor){(float *)data + i, 1, TRIB_F32, 0};
    if (CHECK_OK(trib_comm_create(&comm, &id, 0, 1, 3, NULL)) &&
        CHECK_OK(trib_reducer_create(&reducer, comm, tensors, GRADIENTS, NULL))) {
        const long before = fake_stream_queries();
        for (size_t i = 0; i < GRADIENTS; i++)
            CHECK_OK(trib_reducer_ready(reducer, i, stream));
        const long asked = fake_stream_queries() - before;
        CHECK_MSG(asked >= GRADIENTS && asked <= GRADIENTS + FEW, "%ld questions", asked);
        CHECK_OK(trib_reducer_finish(reducer, stream));
    }
    CHECK_OK(trib_reducer_destroy(reducer));
    CHECK_OK(trib_comm_destroy(comm));
    CHECK_OK(trib_device_free(device, data));
    CHECK_OK(trib_stream_destroy(device, stream));
    CHECK_OK(trib_quiesce(20000));
    check_end();
}

static bool all_lost(const trib_reducer *reducer, bool lost)
{
    bool all = reducer->memory.lost == lost;
    for (size_t b = 0; b < reducer->layout.nbuckets; b++)
        all = all && reducer->states[b]->memory.lost == lost;
    return all;
}

/* CUDA records no event where a step ends, nor tells of the stream: the memory of the reducer and of all
 * its states is lost, until a wait finds that the step has run. */
static void lost_states(void)
{
    enum { GRADIENTS = 3, EACH = 64 };
    trib_id id;
    trib_comm *comm = NULL;
    trib_device *device = NULL;
    trib_stream stream = NULL;
    trib_reducer *reducer = NULL;
    trib_reducer_options options = TRIB_REDUCER_OPTIONS_INIT;
    trib_sparse_options sparse = TRIB_SPARSE_OPTIONS_INIT;
    trib_tensor tensors[GRADIENTS];
    void *data = NULL;
    check_begin("a reducer over a fake: memory that is lost, and found by a wait");
    sparse.algorithm = "topka";
    sparse.density = 0.05;
    options.sparse = &sparse;
    options.bucket_bytes = options.first_bytes = 1;
    CHECK_OK(trib_device_get(&device, "nccl", 3));
    CHECK_OK(trib_stream_create(&stream, device));
    CHECK_OK(trib_device_alloc(&data, device, sizeof(float[GRADIENTS][EACH])));
    memset(data, 0, sizeof(float[GRADIENTS][EACH]));
    CHECK_OK(trib_id_create(&id, "nccl"));
    for (size_t i = 0; i < GRADIENTS; i++)
        tensors[i] = (trib_tensor){(float *)data + i * EACH, EACH, TRIB_F32, 0};
    if (CHECK_OK(trib_comm_create(&comm, &id, 0, 1, 3, NULL)) &&
        CHECK_OK(trib_reducer_create(&reducer, comm, tensors, GRADIENTS, &options))) {
        CHECK(reducer->layout.nbuckets == GRADIENTS && all_lost(reducer, false));
        for (size_t i = 0; i < GRADIENTS; i++)
            CHECK_OK(trib_reducer_ready(reducer, i, stream));
        fake_fail_record(true);
        fake_fail_wait(cudaErrorUnknown);
        CHECK_STATUS(trib_reducer_finish(reducer, stream), TRIB_ERR_CUDA);
        CHECK(all_lost(reducer, true));
        CHECK_STATUS(trib_reducer_wait(reducer, 0), TRIB_ERR_INVALID_USAGE);
        CHECK(all_lost(reducer, true));
        fake_fail_wait(cudaSuccess);
        fake_fail_record(false);
        CHECK_OK(trib_reducer_wait(reducer, 0));
        CHECK(all_lost(reducer, false));
    }
    CHECK_OK(trib_reducer_destroy(reducer));
    CHECK_OK(trib_comm_destroy(comm));
    CHECK_OK(trib_device_free(device, data));
    CHECK_OK(trib_stream_destroy(device, stream));
    CHECK_OK(trib_quiesce(20000));
    check_end();
}

int main(void)
{
    struct tri_kernels kernels = tri_kernels_cuda;
    trib_memory memory = TRIB_MEMORY_INIT;
    trib_device *device = NULL;
    kernels.forget = tri_kernels_cpu.forget;
    kernels.sparse = tri_kernels_cpu.sparse;
    backend = tri_backend_nccl;
    backend.kernels = &kernels;
    fake_move_data(true);
    CHECK_OK(trib_device_get(&device, "nccl", 0));
    captured_cases(2, true);
    refused_by_cuda();
    questions();
    lost_states();
    check_begin("captures over a fake: what is left");
    CHECK_MSG(fake_communicators() == 0, "%d communicators are not freed", fake_communicators());
    CHECK_MSG(fake_user_objects() == 0, "%d objects of graphs", fake_user_objects());
    CHECK_OK(trib_device_memory(&memory, device));
    CHECK(memory.workspace_bytes == 0 && memory.pinned_bytes == 0);
    CHECK_MSG(fake_spoiled() == 0, "%d calls spoil a capture", fake_spoiled());
    check_end();
    return check_finish("nccl_captured_test");
}
