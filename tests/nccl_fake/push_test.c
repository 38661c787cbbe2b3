/* Small allreduces by push, through the whole library, over the fake. */
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/backend.h"
#include "csrc/core/communicator.h"
#include "csrc/nccl/local.h"
#include "csrc/nccl/push.h"
#include "kernels/cuda/kernels_cuda.h"
#include "kernels/push.h"
#include "tests/check.h"
#include "tests/nccl/captured.h"
#include "tests/nccl_fake/fake.h"
#include "tests/nccl_fake/fake_kernels.h"
#include "tests/team.h"

extern const struct tri_backend tri_backend_nccl;

static struct tri_backend backend;
/* In place of csrc/backends.c, which the linker then leaves out. */
const struct tri_backend *const tri_backends[] = {&backend, NULL};

const struct tri_backend *tri_backend_find(const char *name)
{
    return strcmp(name, backend.name) == 0 ? &backend : NULL;
}

enum { MOST = 8, PLENTY_MS = 20000, MIB = 1 << 20, CHUNK = TRI_PUSH_CHUNK };

/* Ranks that this thread drives, with a buffer and two streams each. */
struct cast {
    int size;
    trib_group *group;
    trib_device *devices[MOST];
    trib_stream streams[MOST], others[MOST];
    void *data[MOST];
    size_t bytes;
};

static bool open_cast(struct cast *cast, int size, size_t bytes, const trib_options *options)
{
    int32_t devices[MOST];
    *cast = (struct cast){.size = size, .bytes = bytes};
    for (int rank = 0; rank < size; rank++) {
        devices[rank] = rank;
        CHECK_OK(trib_device_get(&cast->devices[rank], "nccl", rank));
        CHECK_OK(trib_stream_create(&cast->streams[rank], cast->devices[rank]));
        CHECK_OK(trib_stream_create(&cast->others[rank], cast->devices[rank]));
        CHECK_OK(trib_device_alloc(&cast->data[rank], cast->devices[rank], bytes));
    }
    return CHECK_OK(trib_group_create(&cast->group, devices, size, options));
}

static void free_cast(struct cast *cast)
{
    CHECK_OK(trib_group_destroy(cast->group));
    for (int rank = 0; rank < cast->size; rank++) {
        CHECK_OK(trib_device_free(cast->devices[rank], cast->data[rank]));
        CHECK_OK(trib_stream_destroy(cast->devices[rank], cast->streams[rank]));
        CHECK_OK(trib_stream_destroy(cast->devices[rank], cast->others[rank]));
    }
}

/* Everything is freed: background jobs do it. */
static void close_cast(struct cast *cast)
{
    free_cast(cast);
    CHECK_OK(trib_quiesce(PLENTY_MS));
    CHECK_MSG(fake_peer_memory() == 0, "%d pieces of memory are left", fake_peer_memory());
    CHECK_MSG(fake_communicators() == 0, "%d communicators are not freed", fake_communicators());
    check_end();
}

static const struct tri_transport *transport_of(const struct cast *cast, int rank)
{
    return trib_group_comm(cast->group, rank)->transport;
}

static bool has_push(const struct cast *cast)
{
    bool all = true, any = false;
    for (int rank = 0; rank < cast->size; rank++) {
        all = all && transport_of(cast, rank)->push != NULL;
        any = any || transport_of(cast, rank)->push != NULL;
    }
    CHECK(all == any);
    return all;
}

static void put(const struct cast *cast, size_t floats)
{
    for (int rank = 0; rank < cast->size; rank++)
        for (size_t i = 0; i < floats; i++)
            ((float *)cast->data[rank])[i] = (float)((size_t)(rank + 1) * (i % 1000 + 1));
}

static void check_sums(const struct cast *cast, size_t floats)
{
    const size_t factor = (size_t)(cast->size * (cast->size + 1) / 2);
    size_t wrong = 0;
    for (int rank = 0; rank < cast->size; rank++) {
        CHECK_OK(trib_stream_wait(cast->devices[rank], cast->streams[rank]));
        for (size_t i = 0; i < floats; i++)
            wrong += ((const float *)cast->data[rank])[i] != (float)(factor * (i % 1000 + 1));
    }
    CHECK_MSG(wrong == 0, "%zu of %zu sums are wrong", wrong, (size_t)cast->size * floats);
}

static trib_status allreduce(const struct cast *cast, size_t count, trib_dtype dtype)
{
    const void *send[MOST];
    for (int rank = 0; rank < cast->size; rank++)
        send[rank] = cast->data[rank];
    return trib_group_allreduce(cast->group, send, cast->data, count, dtype, TRIB_SUM,
                                cast->streams);
}

/* ------------------------------------------------------------------------------- what is served */

static void sums(void)
{
    for (int size = 2; size <= MOST; size++) {
        struct cast cast;
        check_begin("push over a fake, %d ranks: sums", size);
        if (open_cast(&cast, size, 4096, NULL) && CHECK(has_push(&cast))) {
            const long before = fake_operations();
            const size_t counts[] = {1, 3, 4, 5, 1000, 1024};
            for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
                put(&cast, counts[i]);
                CHECK_OK(allreduce(&cast, counts[i], TRIB_F32));
                check_sums(&cast, counts[i]);
            }
            CHECK(fake_operations() == before);
        }
        close_cast(&cast);
    }
}

/* The last count of a type that push serves. Its scratch lies in `budget` bytes a rank, four buffers
 * with a slot for each rank. */
static void boundary(int size, uint64_t budget, size_t most_bytes)
{
    static const trib_dtype dtypes[] = {TRIB_F16, TRIB_BF16, TRIB_F32, TRIB_F64, TRIB_I8, TRIB_I64};
    struct cast cast;
    trib_options options = TRIB_OPTIONS_INIT;
    options.peer_bytes = budget;
    check_begin("push over a fake, %d ranks: up to %zu bytes", size, most_bytes);
    if (open_cast(&cast, size, 64, &options) && CHECK(has_push(&cast)))
        for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
            const size_t of = dtypes[i] > TRIB_F32 ? most_bytes / 2 : most_bytes;
            struct tri_call call = {.kind = TRI_ALLREDUCE,
                                    .transport = trib_group_comm(cast.group, size - 1)->transport,
                                    .count = of / trib_dtype_size(dtypes[i]),
                                    .dtype = dtypes[i],
                                    .op = TRIB_MAX};
            CHECK(tri_nccl_push_serves(&call));
            call.count++;
            CHECK(!tri_nccl_push_serves(&call));
            call.count = SIZE_MAX;
            CHECK(!tri_nccl_push_serves(&call));
            call.count = 0;
            CHECK(!tri_nccl_push_serves(&call));
        }
    close_cast(&cast);
}

static void boundaries(void)
{
    boundary(2, 0, (size_t)2 * MIB);
    boundary(3, 0, (size_t)MIB / 2);
    boundary(4, 0, (size_t)MIB / 2);
    boundary(5, 0, (size_t)MIB / 4);
    boundary(8, 0, (size_t)MIB / 4);
    boundary(2, 1 << 30, (size_t)2 * MIB);
    boundary(2, 2 * MIB, (size_t)2 * MIB / (2 * 2 * 2) / CHUNK * CHUNK);
    boundary(8, 5 * MIB, (size_t)4 * MIB / (2 * 2 * 8) / CHUNK * CHUNK);
}

/* On both sides of the boundary, with data. */
static void served(void)
{
    struct cast cast;
    const size_t most = (size_t)2 * MIB / sizeof(float);
    check_begin("push over a fake: the largest call, and one more element");
    if (open_cast(&cast, 2, (most + 1) * sizeof(float), NULL)) {
        const long before = fake_operations();
        put(&cast, most);
        CHECK_OK(allreduce(&cast, most, TRIB_F32));
        check_sums(&cast, most);
        CHECK(fake_operations() == before);
        fake_move_data(false);
        CHECK_OK(allreduce(&cast, most + 1, TRIB_F32));
        fake_move_data(true);
        CHECK(fake_operations() == before + 2);
    }
    close_cast(&cast);
}

/* A batch of one call of each rank is push's, one of two calls NCCL's. */
static void batches(void)
{
    struct cast cast;
    check_begin("push over a fake: batches");
    if (open_cast(&cast, 3, 4096, NULL)) {
        const long before = fake_operations();
        put(&cast, 10);
        CHECK_OK(trib_group_batch_begin(cast.group));
        CHECK_OK(allreduce(&cast, 10, TRIB_F32));
        CHECK_OK(trib_group_batch_end(cast.group));
        check_sums(&cast, 10);
        CHECK(fake_operations() == before);
        fake_move_data(false);
        CHECK_OK(trib_group_batch_begin(cast.group));
        CHECK_OK(allreduce(&cast, 10, TRIB_F32));
        CHECK_OK(allreduce(&cast, 10, TRIB_F32));
        CHECK_OK(trib_group_batch_end(cast.group));
        CHECK_OK(trib_group_broadcast(cast.group, (const void *const *)cast.data, cast.data, 10,
                                      TRIB_F32, 1, cast.streams));
        fake_move_data(true);
        CHECK(fake_operations() == before + 9);
    }
    close_cast(&cast);
}

/* One end of two batches, of which push serves one. */
static void mixed(void)
{
    struct cast small, large;
    trib_comm *comms[4];
    const size_t many = (size_t)MIB;
    check_begin("push over a fake: batches of two communicators, one of them NCCL's");
    if (open_cast(&small, 2, 4096, NULL) && open_cast(&large, 2, many * sizeof(float), NULL)) {
        const long before = fake_operations();
        put(&small, 10);
        for (int rank = 0; rank < 2; rank++) {
            comms[rank] = trib_group_comm(large.group, rank);
            comms[2 + rank] = trib_group_comm(small.group, rank);
        }
        for (int i = 0; i < 4; i++)
            CHECK_OK(trib_batch_begin(comms[i]));
        fake_move_data(false);
        for (int rank = 0; rank < 2; rank++) {
            CHECK_OK(trib_allreduce(comms[rank], large.data[rank], large.data[rank], many, TRIB_F32,
                                    TRIB_SUM, large.streams[rank]));
            CHECK_OK(trib_allreduce(comms[2 + rank], small.data[rank], small.data[rank], 10,
                                    TRIB_F32, TRIB_SUM, small.streams[rank]));
        }
        CHECK_OK(trib_batch_end_all(comms, 4));
        fake_move_data(true);
        check_sums(&small, 10);
        CHECK(fake_operations() == before + 2);
    }
    free_cast(&large);
    close_cast(&small);
}

/* --------------------------------------------------------------------------- where there is none */

static char line[512];

static void keep_line(void *context, int32_t level, const char *text)
{
    (void)context;
    if (level == TRIB_LOG_INFO && strstr(text, "NCCL serves all") != NULL)
        (void)strncpy(line, text, sizeof line - 1);
}

/* NCCL serves all calls, and the log says why; `why` "": it was not wanted. */
static void without(const char *what, const trib_options *options, const char *why)
{
    struct cast cast;
    check_begin("push over a fake: none, %s", what);
    memset(line, 0, sizeof line);
    CHECK_OK(trib_log_set(keep_line, NULL, TRIB_LOG_INFO));
    if (open_cast(&cast, 2, 4096, options)) {
        const long before = fake_operations();
        CHECK(!has_push(&cast));
        CHECK_MSG(why[0] == '\0' ? line[0] == '\0' : strstr(line, why) != NULL,
                  "the log says \"%s\"", line);
        fake_move_data(false);
        CHECK_OK(allreduce(&cast, 10, TRIB_F32));
        fake_move_data(true);
        CHECK(fake_operations() == before + 2);
        CHECK_MSG(fake_peer_memory() == 0, "%d pieces of memory", fake_peer_memory());
    }
    CHECK_OK(trib_log_set(NULL, NULL, TRIB_LOG_INFO));
    close_cast(&cast);
}

static void none(void)
{
    trib_options options = TRIB_OPTIONS_INIT;
    options.peer_bytes = TRIB_NO_PEERS;
    without("for nobody wants it", &options, "");
    options.peer_bytes = 2 * MIB - 1;
    without("for the budget is too small", &options, "peer_bytes");
    fake_reach(false);
    without("for the devices do not reach each other", NULL, "cannot access");
    fake_reach(true);
    fake_lose_writes(true);
    without("for what is written does not arrive", NULL, "does not arrive");
    fake_lose_writes(false);
    for (int left = 0; left < 2; left++) {
        fake_peer_memory_left(left);
        without("for there is no memory", NULL, "no memory");
    }
    fake_peer_memory_left(-1);
}

static void unlike_rank(int rank, int size, void *argument)
{
    trib_options options = TRIB_OPTIONS_INIT;
    trib_comm *comm = NULL;
    options.peer_bytes = rank == 1 ? TRIB_NO_PEERS : 0;
    if (CHECK_OK(trib_comm_create(&comm, argument, rank, size, rank, &options)))
        CHECK(comm->transport->push == NULL);
    CHECK_OK(trib_comm_destroy(comm));
}

/* What one rank does not want, none has. */
static void unlike(void)
{
    trib_id id;
    check_begin("push over a fake: none, for one rank does not want it");
    CHECK_OK(trib_id_create(&id, "nccl"));
    check_ranks(3, unlike_rank, &id);
    CHECK_OK(trib_quiesce(PLENTY_MS));
    check_end();
}

/* -------------------------------------------------------------------------------------- streams */

static trib_status sum_on(const struct cast *cast, const trib_stream *streams, size_t count)
{
    return trib_group_allreduce(cast->group, (const void *const *)cast->data, cast->data, count,
                                TRIB_F32, TRIB_SUM, streams);
}

/* Only a call on another stream than the last one's waits for that. */
static void streams(bool numbers)
{
    struct cast cast;
    fake_number_streams(numbers);
    check_begin("push over a fake: calls on two streams%s", numbers ? "" : " without numbers");
    if (open_cast(&cast, 2, 4096, NULL)) {
        const cudaStream_t first = (cudaStream_t)cast.streams[1],
                           other = (cudaStream_t)cast.others[1];
        CHECK_OK(sum_on(&cast, cast.streams, 8));
        CHECK(fake_after(first) == NULL);
        CHECK_OK(sum_on(&cast, cast.streams, 8));
        CHECK((fake_after(first) == first) == !numbers);
        CHECK_OK(sum_on(&cast, cast.others, 8));
        CHECK(fake_after(other) == first);
        CHECK_OK(sum_on(&cast, cast.streams, 8));
        CHECK(fake_after(first) == other);
        fake_move_data(false); /* NCCL's calls are in the order, too */
        CHECK_OK(trib_group_broadcast(cast.group, (const void *const *)cast.data, cast.data, 8,
                                      TRIB_F32, 0, cast.others));
        fake_move_data(true);
        CHECK(fake_after(other) == first);
        CHECK_OK(sum_on(&cast, cast.streams, 8));
        CHECK(fake_after(first) == other);
    }
    close_cast(&cast);
    fake_number_streams(true);
}

/* A stream that has the address of one that is gone is another one. */
static void reborn(void)
{
    struct cast cast;
    check_begin("push over a fake: a stream with the address of another");
    if (open_cast(&cast, 2, 4096, NULL)) {
        const trib_stream old = cast.streams[0];
        CHECK_OK(sum_on(&cast, cast.streams, 8));
        fake_reuse_stream((cudaStream_t)old);
        CHECK_OK(trib_stream_destroy(cast.devices[0], old));
        CHECK_OK(trib_stream_create(&cast.streams[0], cast.devices[0]));
        CHECK(cast.streams[0] == old && fake_after((cudaStream_t)old) == NULL);
        CHECK_OK(sum_on(&cast, cast.streams, 8));
        CHECK(fake_after((cudaStream_t)old) == (cudaStream_t)old);
    }
    close_cast(&cast);
}

/* A call that a graph captures shares no scratch with others: one rank's replay, which waits for the
 * other's, does not take what belongs to a call beside it. */
static void lanes(void)
{
    struct cast cast;
    cudaGraph_t graphs[2];
    cudaGraphExec_t replays[2];
    check_begin("push over a fake: a replay beside a call");
    if (open_cast(&cast, 2, 4096, NULL)) {
        float *captured[2];
        for (int rank = 0; rank < 2; rank++) {
            captured[rank] = (float *)cast.data[rank] + 512;
            CHECK(cudaSetDevice(rank) == cudaSuccess);
            CHECK(cudaStreamBeginCapture((cudaStream_t)cast.streams[rank],
                                         cudaStreamCaptureModeThreadLocal) == cudaSuccess);
            CHECK_OK(trib_allreduce(trib_group_comm(cast.group, rank), captured[rank],
                                    captured[rank], 8, TRIB_F32, TRIB_SUM, cast.streams[rank]));
            CHECK(cudaStreamEndCapture((cudaStream_t)cast.streams[rank], &graphs[rank]) ==
                  cudaSuccess);
            CHECK(cudaGraphInstantiate(&replays[rank], graphs[rank], 0) == cudaSuccess);
            CHECK(cudaGraphDestroy(graphs[rank]) == cudaSuccess);
        }
        put(&cast, 8);
        for (int rank = 0; rank < 2; rank++)
            for (int i = 0; i < 8; i++)
                captured[rank][i] = 100.0f;
        CHECK(cudaGraphLaunch(replays[0], (cudaStream_t)cast.streams[0]) == cudaSuccess);
        CHECK_OK(sum_on(&cast, cast.others, 8));
        CHECK(cudaSetDevice(1) == cudaSuccess);
        CHECK(cudaGraphLaunch(replays[1], (cudaStream_t)cast.streams[1]) == cudaSuccess);
        check_sums(&cast, 8);
        CHECK(captured[0][7] == 200.0f && captured[1][0] == 200.0f);
        for (int rank = 0; rank < 2; rank++)
            CHECK(cudaGraphExecDestroy(replays[rank]) == cudaSuccess);
    }
    CHECK_MSG(fake_spoiled() == 0, "%d calls spoil a capture", fake_spoiled());
    close_cast(&cast);
}

/* ------------------------------------------------------------------------------------- the end */

/* Rank 1 never makes the call: an abort frees the stream of rank 0. */
static void aborted(void)
{
    struct cast cast;
    check_begin("push over a fake: an abort while a rank waits");
    if (open_cast(&cast, 2, 4096, NULL)) {
        trib_abort *handle = NULL;
        int32_t done = 1;
        CHECK_OK(trib_group_abort_handle(&handle, cast.group));
        CHECK_OK(trib_allreduce(trib_group_comm(cast.group, 0), cast.data[0], cast.data[0], 8,
                                TRIB_F32, TRIB_SUM, cast.streams[0]));
        CHECK_OK(trib_stream_query(&done, cast.devices[0], cast.streams[0]));
        CHECK(done == 0);
        CHECK_OK(trib_abort_raise(handle, "a test"));
        CHECK_OK(trib_stream_wait(cast.devices[0], cast.streams[0]));
        CHECK_STATUS(allreduce(&cast, 8, TRIB_F32), TRIB_ERR_ABORTED);
        trib_abort_release(handle);
    }
    close_cast(&cast);
}

/* Rank 1 comes late, and leaves last. */
static void late_rank(int rank, int size, void *argument)
{
    trib_comm *comm = NULL;
    trib_device *device = NULL;
    trib_stream stream = NULL;
    void *data = NULL;
    CHECK_OK(trib_device_get(&device, "nccl", rank));
    CHECK_OK(trib_stream_create(&stream, device));
    CHECK_OK(trib_device_alloc(&data, device, sizeof(float)));
    *(float *)data = (float)(rank + 1);
    if (CHECK_OK(trib_comm_create(&comm, argument, rank, size, rank, NULL))) {
        if (rank == 1)
            check_sleep_ms(50);
        CHECK_OK(trib_allreduce(comm, data, data, 1, TRIB_F32, TRIB_SUM, stream));
        CHECK_OK(trib_comm_destroy(comm));
        CHECK_OK(trib_stream_wait(device, stream));
        CHECK(*(const float *)data == 6.0f);
    }
    CHECK_OK(trib_device_free(device, data));
    CHECK_OK(trib_stream_destroy(device, stream));
}

/* Ranks may leave before the others have made the last call. */
static void closed(void)
{
    trib_id id;
    check_begin("push over a fake: ranks leave before one that is late");
    CHECK_OK(trib_id_create(&id, "nccl"));
    check_ranks(3, late_rank, &id);
    CHECK_OK(trib_quiesce(PLENTY_MS));
    CHECK_MSG(fake_peer_memory() == 0, "%d pieces of memory are left", fake_peer_memory());
    check_end();
}

static trib_status split_rank(trib_comm *comm, int32_t rank, void *argument)
{
    trib_comm **children = argument;
    return trib_comm_split(&children[rank], comm, rank % 2, 0);
}

/* Children have push of their own; those of one rank need none. */
static void splits(void)
{
    struct cast cast;
    trib_comm *children[5] = {NULL};
    check_begin("push over a fake: a split");
    if (open_cast(&cast, 5, 4096, NULL)) {
        CHECK_OK(trib_group_run(cast.group, split_rank, children));
        for (int rank = 0; rank < 5; rank++)
            CHECK(children[rank]->transport->push != NULL &&
                  children[rank]->transport->push == children[rank % 2]->transport->push &&
                  children[rank]->transport->push != transport_of(&cast, 0)->push);
        put(&cast, 8);
        for (int rank = 0; rank < 5; rank += 2)
            CHECK_OK(trib_allreduce(children[rank], cast.data[rank], cast.data[rank], 8, TRIB_F32,
                                    TRIB_SUM, cast.streams[rank]));
        CHECK_OK(trib_stream_wait(cast.devices[4], cast.streams[4]));
        CHECK(((const float *)cast.data[4])[1] == 2.0f * (1 + 3 + 5));
        for (int rank = 0; rank < 5; rank++)
            CHECK_OK(trib_comm_destroy(children[rank]));
    }
    close_cast(&cast);
}

int main(void)
{
    struct tri_kernels kernels = tri_kernels_cuda;
    kernels.forget = tri_kernels_cpu.forget;
    kernels.sparse = tri_kernels_cpu.sparse;
    backend = tri_backend_nccl;
    backend.kernels = &kernels;
    fake_move_data(true);
    fake_reach(true);
    sums();
    boundaries();
    served();
    batches();
    mixed();
    none();
    unlike();
    streams(true);
    streams(false);
    reborn();
    lanes();
    aborted();
    closed();
    splits();
    fake_push_waits(true);
    captured_cases(2, true);
    fake_push_waits(false);
    check_begin("push over a fake: what is left");
    CHECK_OK(trib_quiesce(PLENTY_MS));
    CHECK_MSG(fake_peer_memory() == 0, "%d pieces of memory are left", fake_peer_memory());
    CHECK_MSG(fake_user_objects() == 0, "%d objects of graphs", fake_user_objects());
    CHECK_MSG(fake_spoiled() == 0, "%d calls spoil a capture", fake_spoiled());
    check_end();
    return check_finish("nccl_push_test");
}
