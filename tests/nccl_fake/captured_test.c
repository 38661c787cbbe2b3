/* Calls that CUDA graphs capture, through the whole library, over the fake: NCCL's and CUDA's calls are
 * the fake's, device memory is ordinary memory, and the CPU's kernels run at once, or in each launch of
 * the graph that captures their stream. */
#include "tests/nccl/captured.h"

#include <stdlib.h>
#include <string.h>

#include "csrc/core/communicator.h"
#include "csrc/reducer/reducer.h"
#include "csrc/sparse/state.h"
#include "kernels/cuda/kernels_cuda.h"
#include "tests/check.h"
#include "tests/nccl/captured_fixture.h"
#include "tests/nccl_fake/fake.h"
#include "tests/nccl_fake/fake_kernels.h"
#include "tests/own_backend.h"

extern const struct tri_backend tri_backend_nccl;

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

/* ------------------------------------------------------------------------------- kept lists */

/* What a call should have: `writes` tables of the list, and whether it reads them. */
static void list_call(struct captured *self, size_t round, int writes, bool reads)
{
    const struct fake_tables before = fake_tables();
    CHECK(captured_call(self, round));
    const struct fake_tables after = fake_tables();
    CHECK_MSG(after.written - before.written == writes && (after.read != before.read) == reads,
              "call %zu: %d tables written, %d read", round, after.written - before.written,
              after.read - before.read);
}

enum { MANY = TRI_TABLE_FROM, FLOATS = N / MANY };

/* As many tensors as are worth a table, of all the data. */
static void cut_data(trib_tensor *many, float *data)
{
    for (size_t i = 0; i < MANY; i++)
        many[i] =
            (trib_tensor){data + i * FLOATS, i + 1 < MANY ? FLOATS : N - i * FLOATS, TRIB_F32, 0};
}

static trib_status queue_many(struct captured *self, const trib_tensor *tensors, trib_stream stream)
{
    trib_tensor many[MANY];
    cut_data(many, tensors[0].data);
    return trib_allreduce_list(self->comm, many, MANY, TRIB_SUM, stream);
}

static trib_status queue_many_others(struct captured *self)
{
    trib_tensor many[MANY];
    for (size_t i = 0; i < MANY; i++)
        many[i] = (trib_tensor){(float *)self->others[0].data + i, 1, TRIB_F32, 0};
    return trib_weighted_average(self->comm, many, MANY, 1, NULL, NULL, self->stream);
}

/* One rank sends, and the others write what they receive by tables that they have just written. */
static void kept_broadcast_rank(int rank, int size, void *argument)
{
    struct cast *cast = argument;
    struct captured self;
    trib_tensor many[MANY];
    (void)size;
    captured_open(&self, cast, rank);
    cut_data(many, self.data);
    CHECK(captured_call(&self, 0));
    captured_put(&self, self.tensors, 1);
    CHECK_OK(trib_broadcast_list(self.comm, many, MANY, self.size - 1, self.stream));
    CHECK(captured_holds(&self, self.tensors, 1, "broadcast", captured_last));
    for (size_t round = 2; round < 5; round++)
        CHECK(captured_call(&self, round));
    captured_close(&self);
}

/* The same call three times with the same data, of floats and of their bits: passed with the launches,
 * by new tables, and by old ones. */
static void kept_types_rank(int rank, int size, void *argument)
{
    struct cast *cast = argument;
    struct captured self;
    trib_tensor many[2 * MANY];
    float first[N];
    (void)size;
    captured_open(&self, cast, rank);
    for (size_t i = 0; i < 2 * MANY; i++)
        many[i] = (trib_tensor){self.data + i, 1, i % 2 == 0 ? TRIB_F32 : TRIB_U32, 0};
    for (int call = 0; call < 3; call++) {
        captured_put(&self, self.tensors, 0);
        CHECK_OK(trib_allreduce_list(self.comm, many, 2 * MANY, TRIB_SUM, self.stream));
        captured_move(&self, call == 0 ? first : self.host, self.data, N);
        captured_settle(&self);
        CHECK(call == 0 || memcmp(first, self.host, sizeof first) == 0);
    }
    captured_close(&self);
}

/* A list is kept from its second call on, and again after another one, or in a larger workspace. */
static void kept_rank(int rank, int size, void *argument)
{
    struct cast *cast = argument;
    struct captured self;
    (void)size;
    captured_open(&self, cast, rank);
    list_call(&self, 0, 0, false);
    list_call(&self, 1, 1, true);
    list_call(&self, 2, 0, true);
    CHECK_OK(trib_barrier(self.comm, self.stream));
    list_call(&self, 3, 0, true);
    CHECK_OK(trib_allreduce_list(self.comm, self.others, 2, TRIB_SUM, self.stream));
    list_call(&self, 4, 0, false);
    list_call(&self, 5, 1, true);
    CHECK_OK(queue_many_others(&self));
    CHECK_OK(queue_many_others(&self));
    list_call(&self, 6, 0, false);
    list_call(&self, 7, 1, true);
    CHECK_OK(tri_comm_reserve(self.comm, 1 << 20));
    list_call(&self, 8, 1, true);
    list_call(&self, 9, 0, true);
    captured_begin(self.stream);
    CHECK_OK(queue_many(&self, self.tensors, self.stream));
    self.replay = captured_end(self.stream);
    CHECK(captured_replay(&self, 10));
    list_call(&self, 11, 0, true);
    CHECK_OK(captured_queue_list(&self, self.tensors, self.stream));
    const int few = fake_tables().written;
    CHECK_OK(captured_queue_list(&self, self.tensors, self.stream));
    CHECK_MSG(fake_tables().written == few, "two tensors have a table");
    captured_drop(&self);
    captured_close(&self);
}

static const struct kind kept_kind = {.name = "", .queue = queue_many, .expected = captured_sum};

/* --------------------------------------------------------------------------------- lost memory */

static bool all_lost(const trib_reducer *reducer, bool lost)
{
    bool all = reducer->memory.lost == lost;
    for (size_t b = 0; b < reducer->layout.nbuckets; b++)
        all = all && reducer->states[b]->memory.lost == lost;
    return all;
}

/* CUDA records no event where a step ends, nor tells that its stream has run: the memory of the reducer
 * and of all its states is lost, until a wait finds that the step has run. The finish waits once for all
 * of them, 0.1 s, where 0.1 s for each would be above 2 s. */
static void lost_states(void)
{
    enum { GRADIENTS = 20, EACH = 64, ONCE_MS = 1000 };
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
        fake_fail_wait(cudaErrorNotReady);
        const double start = check_now_ms();
        CHECK_STATUS(trib_reducer_finish(reducer, stream), TRIB_ERR_CUDA);
        const double took = check_now_ms() - start;
        CHECK_MSG(took < ONCE_MS, "the finish took %.0f ms", took);
        CHECK(all_lost(reducer, true));
        CHECK_STATUS(trib_reducer_wait(reducer, 0), TRIB_ERR_TIMEOUT);
        CHECK(all_lost(reducer, true));
        fake_fail_wait(cudaErrorUnknown);
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
    captured_run(1, &kept_kind, "a list that is kept, and not", 0, kept_rank);
    captured_run(2, &kept_kind, "a list that is kept by who receives it", 0, kept_broadcast_rank);
    captured_run(2, &kept_kind, "a list of two types that is kept", 0, kept_types_rank);
    check_begin("captures over a fake: what is left");
    CHECK_MSG(fake_communicators() == 0, "%d communicators are not freed", fake_communicators());
    CHECK_MSG(fake_user_objects() == 0, "%d objects of graphs", fake_user_objects());
    CHECK_OK(trib_device_memory(&memory, device));
    CHECK(memory.workspace_bytes == 0 && memory.pinned_bytes == 0);
    CHECK_MSG(fake_spoiled() == 0, "%d calls spoil a capture", fake_spoiled());
    check_end();
    return check_finish("nccl_captured_test");
}
