/* Communicators over those of the caller, through the whole library, over the fake: NCCL's and CUDA's
 * calls are the fake's, device memory is ordinary memory, and the CPU's kernels run at once. */
#define _POSIX_C_SOURCE 200809L
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "csrc/backend.h"
#include "csrc/base/clock.h"
#include "csrc/core/communicator.h"
#include "kernels/cuda/kernels_cuda.h"
#include "tests/check.h"
#include "tests/nccl_fake/fake.h"

enum { PLENTY_MS = 20000, LATE_MS = 200, RANKS = 3, N = 5 };

extern const struct tri_backend tri_backend_host, tri_backend_nccl;
extern const struct tri_kernels tri_kernels_cpu;
const struct tri_kernels tri_kernels_cuda = {.name = "none"};

static struct tri_backend backend;
/* In place of csrc/backends.c, which the linker then leaves out. */
const struct tri_backend *const tri_backends[] = {&backend, &tri_backend_host, NULL};

const struct tri_backend *tri_backend_find(const char *name)
{
    return strcmp(name, backend.name) == 0            ? &backend
           : strcmp(name, tri_backend_host.name) == 0 ? &tri_backend_host
                                                      : NULL;
}

/* -------------------------------------------------------------------------------------- fixture */

struct stage {
    ncclUniqueId id;
    _Atomic int arrived;
    ncclComm_t nccl[RANKS]; /* the caller's */
};

static void begin(struct stage *stage, const char *name)
{
    check_begin("adoption over a fake: %s", name);
    fake_move_data(true);
    atomic_init(&stage->arrived, 0);
    CHECK(ncclGetUniqueId(&stage->id) == ncclSuccess);
}

static void end(void)
{
    CHECK_OK(trib_quiesce(PLENTY_MS));
    CHECK_MSG(fake_communicators() == 0, "%d communicators are not freed", fake_communicators());
    fake_move_data(false);
    check_end();
}

/* A case whose ranks share nothing but the stage. */
static void play(const char *name, int ranks, void (*rank_main)(int rank, int size, void *stage))
{
    struct stage stage;
    begin(&stage, name);
    check_ranks(ranks, rank_main, &stage);
    end();
}

static void meet(struct stage *stage, int size)
{
    const int round = atomic_fetch_add(&stage->arrived, 1) / size;
    while (atomic_load(&stage->arrived) < (round + 1) * size)
        check_sleep_ms(1);
}

static trib_options options_for(uint32_t timeout_ms)
{
    trib_options options = TRIB_OPTIONS_INIT;
    options.timeout_ms = timeout_ms;
    options.name = "mine";
    return options;
}

/* The caller's communicator. */
static ncclComm_t make(struct stage *stage, int rank, int size, int device)
{
    ncclComm_t nccl = NULL;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    config.splitShare = 0;
    fake_make_current(device);
    CHECK(ncclCommInitRankConfig(&nccl, size, stage->id, rank, &config) == ncclSuccess);
    fake_make_current(-1);
    return stage->nccl[rank] = nccl;
}

/* Nobody but its owner has ended it. */
static void give_up(ncclComm_t nccl, int device)
{
    CHECK_MSG(fake_ends(nccl) == 0, "ended %d times", fake_ends(nccl));
    fake_make_current(device);
    CHECK(ncclCommFinalize(nccl) == ncclSuccess && ncclCommDestroy(nccl) == ncclSuccess);
    fake_make_current(-1);
}

static trib_comm *adopt(ncclComm_t nccl, uint32_t timeout_ms)
{
    const trib_options options = options_for(timeout_ms);
    trib_comm *comm = NULL;
    CHECK_OK(trib_comm_adopt(&comm, nccl, &options));
    return comm;
}

/* The caller's way to end what waits for ever: the flags of all ranks first; they are freed when no
 * call is inside any more. */
static void abort_all(const struct stage *stage, int n)
{
    fake_make_current(0);
    CHECK(ncclGroupStart() == ncclSuccess);
    for (int rank = 0; rank < n; rank++) {
        CHECK_MSG(fake_ends(stage->nccl[rank]) == 0, "ended %d times",
                  fake_ends(stage->nccl[rank]));
        CHECK(ncclCommAbort(stage->nccl[rank]) == ncclSuccess);
    }
    CHECK_OK(trib_quiesce(PLENTY_MS));
    CHECK(ncclGroupEnd() == ncclSuccess);
    fake_make_current(-1);
}

static bool reaches(trib_abort *handle, trib_comm_state expected)
{
    trib_comm_state state = TRIB_COMM_LIVE;
    for (int i = 0; i < PLENTY_MS && state != expected; i++) {
        CHECK_OK(trib_abort_state(&state, NULL, 0, handle));
        check_sleep_ms(1);
    }
    return CHECK(state == expected);
}

static trib_stream stream_on(int device)
{
    trib_device *of = NULL;
    trib_stream stream = NULL;
    CHECK_OK(trib_device_get(&of, "nccl", device));
    CHECK_OK(trib_stream_create(&stream, of));
    return stream;
}

static void drop_stream(int device, trib_stream stream)
{
    trib_device *of = NULL;
    CHECK_OK(trib_device_get(&of, "nccl", device));
    CHECK_OK(trib_stream_destroy(of, stream));
}

static float *memory_on(int device, size_t floats)
{
    trib_device *of = NULL;
    void *data = NULL;
    CHECK_OK(trib_device_get(&of, "nccl", device));
    CHECK_OK(trib_device_alloc(&data, of, floats * sizeof(float)));
    return data;
}

static void drop_memory(int device, float *data)
{
    trib_device *of = NULL;
    CHECK_OK(trib_device_get(&of, "nccl", device));
    CHECK_OK(trib_device_free(of, data));
}

/* ------------------------------------------------------------------------------------- the calls */

static trib_status sum_up(trib_comm *comm, float *data, trib_stream stream)
{
    return trib_allreduce(comm, data, data, N, TRIB_F32, TRIB_SUM, stream);
}

static void dense(trib_comm *comm, int rank, float *data, trib_stream stream)
{
    const trib_tensor list[2] = {{data, 2, TRIB_F32, 0}, {data + 2, N - 2, TRIB_F32, 0}};
    for (int i = 0; i < N; i++)
        data[i] = (float)(rank + i);
    CHECK_OK(sum_up(comm, data, stream));
    for (int i = 0; i < N; i++)
        CHECK(data[i] == (float)(RANKS * i + 3)); /* 0 + 1 + 2 */
    CHECK_OK(trib_allreduce_list(comm, list, 2, TRIB_SUM, stream));
    for (int i = 0; i < N; i++)
        CHECK(data[i] == (float)(RANKS * (RANKS * i + 3)));
    CHECK_OK(trib_batch_begin(comm));
    CHECK_OK(sum_up(comm, data, stream));
    CHECK_OK(trib_send(comm, data, 1, TRIB_F32, (rank + 1) % RANKS, stream));
    CHECK_OK(trib_recv(comm, data + N, 1, TRIB_F32, (rank + RANKS - 1) % RANKS, stream));
    CHECK_OK(trib_batch_end(comm));
    CHECK(data[1] == (float)(RANKS * RANKS * (RANKS + 3)));
    CHECK_OK(trib_barrier(comm, stream));
    CHECK_OK(trib_comm_wait(comm, stream, PLENTY_MS));
}

/* Each rank's largest entry is at another place. */
static void sparse(trib_comm *comm, int rank, float *data, trib_stream stream)
{
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    trib_sparse *state = NULL;
    options.algorithm = "topka";
    options.k = 1;
    if (!CHECK_OK(trib_sparse_create(&state, comm, N, TRIB_F32, &options)))
        return;
    for (int i = 0; i < N; i++)
        data[i] = i == rank ? 4 : 1;
    CHECK_OK(trib_sparse_allreduce(state, data, data + N, stream));
    CHECK_OK(trib_comm_wait(comm, stream, PLENTY_MS));
    for (int i = 0; i < N; i++)
        CHECK(data[N + i] == (i < RANKS ? 4 : 0));
    CHECK_OK(trib_sparse_destroy(state));
}

/* Children are the library's own. */
static void children(trib_comm *comm, int rank, float *data, trib_stream stream)
{
    const int before = fake_communicators();
    trib_capabilities can = TRIB_CAPABILITIES_INIT;
    trib_comm *child = NULL;
    CHECK_OK(trib_comm_split(&child, comm, 0, -rank));
    if (child == NULL)
        return;
    CHECK(trib_comm_rank(child) == RANKS - 1 - rank && before >= RANKS);
    CHECK(strcmp(trib_comm_name(child), "mine") == 0);
    CHECK(strcmp(fake_last_config().name, "mine") == 0);
    CHECK_OK(trib_comm_capabilities(&can, child));
    CHECK((can.flags & TRIB_CAN_INTERRUPT) != 0);
    data[0] = 1;
    CHECK_OK(sum_up(child, data, stream));
    CHECK(data[0] == RANKS);
    CHECK_OK(trib_comm_destroy(child));
}

static void check_place(const trib_comm *comm, int rank)
{
    trib_capabilities can = TRIB_CAPABILITIES_INIT;
    CHECK(trib_comm_rank(comm) == rank && trib_comm_size(comm) == RANKS);
    CHECK(trib_comm_device(comm) == RANKS - rank && strcmp(trib_comm_name(comm), "mine") == 0);
    CHECK(strcmp(trib_comm_backend(comm), "nccl") == 0);
    CHECK_OK(trib_comm_capabilities(&can, comm));
    CHECK((can.flags & TRIB_CAN_INTERRUPT) == 0 && (can.flags & TRIB_CAN_HEAR) != 0);
    CHECK((can.flags & (TRIB_CAN_PEERS | TRIB_CAN_PEERS_LARGE)) == 0);
}

static void working_rank(int rank, int size, void *argument)
{
    struct stage *stage = argument;
    const int device = size - rank;
    ncclComm_t nccl = make(stage, rank, size, device);
    trib_comm *comm = adopt(nccl, PLENTY_MS);
    if (comm == NULL)
        return;
    float *data = memory_on(device, 2 * N);
    const trib_stream stream = stream_on(device);
    check_place(comm, rank);
    dense(comm, rank, data, stream);
    sparse(comm, rank, data, stream);
    children(comm, rank, data, stream);
    CHECK(fake_current() == -1);
    CHECK_OK(trib_comm_destroy(comm));
    meet(stage, size);
    comm = adopt(nccl, PLENTY_MS); /* again, the same one */
    if (comm != NULL) {
        CHECK_OK(sum_up(comm, data, stream));
        CHECK_OK(trib_comm_close(comm, 0)); /* waits for nothing */
        CHECK_STATUS(sum_up(comm, data, stream), TRIB_ERR_CLOSED);
        CHECK_OK(trib_comm_destroy(comm));
    }
    drop_stream(device, stream);
    drop_memory(device, data);
    meet(stage, size);
    CHECK_OK(
        trib_quiesce(PLENTY_MS)); /* what was destroyed is freed, and left alone what is ours */
    give_up(nccl, device);
}

/* A driver call for each allocation that a list's tensors lie in, not for each tensor; and none that is
 * gone is overlooked. */
static void asks(void)
{
    enum { TENSORS = 300, EACH = 8 };
    trib_tensor list[TENSORS];
    trib_options options = TRIB_OPTIONS_INIT;
    trib_group *group = NULL;
    trib_comm *comm = NULL;
    check_begin("a list of the nccl backend, over a fake: questions about memory");
    options.backend = "nccl";
    const int32_t device = 2;
    if (CHECK_OK(trib_group_create(&group, &device, 1, &options)) &&
        CHECK_OK(trib_group_split(&comm, group))) {
        float *blocks[] = {memory_on(2, TENSORS / 2 * EACH), memory_on(2, TENSORS / 2 * EACH)};
        for (int i = 0; i < TENSORS; i++) /* in turn, and not in order */
            list[i] = (trib_tensor){blocks[i % 2] + (size_t)(7 * (i / 2) % (TENSORS / 2)) * EACH,
                                    EACH, TRIB_F32, 0};
        for (int i = 0; i < 2; i++) {
            const long before = fake_pointer_queries();
            CHECK_OK(trib_allreduce_list(comm, list, TENSORS, TRIB_SUM, NULL));
            CHECK_MSG(fake_pointer_queries() == before + 2, "%d questions",
                      (int)(fake_pointer_queries() - before));
        }
        drop_memory(2, blocks[1]); /* the same list, whose memory is gone */
        CHECK_STATUS(trib_allreduce_list(comm, list, TENSORS, TRIB_SUM, NULL),
                     TRIB_ERR_INVALID_BUFFER);
        drop_memory(2, blocks[0]);
        CHECK_OK(trib_comm_destroy(comm));
    }
    end();
}

/* Graphs cannot capture calls that the ranks compare first. */
static void compared(void)
{
    trib_options options = TRIB_OPTIONS_INIT;
    trib_capabilities can = TRIB_CAPABILITIES_INIT;
    trib_group *group = NULL;
    trib_comm *comms[2] = {NULL};
    check_begin("adoption over a fake: what communicators of the library can do");
    options.backend = "nccl";
    for (int match = 0; match < 2; match++) {
        options.flags = match == 0 ? 0 : TRIB_COMPARED;
        if (!CHECK_OK(trib_group_create(&group, NULL, 2, &options)))
            break;
        CHECK_OK(trib_group_split(comms, group));
        CHECK_OK(trib_comm_capabilities(&can, comms[1]));
        CHECK(((can.flags & TRIB_CAN_CAPTURE) != 0) == (match == 0));
        CHECK(((can.flags & TRIB_CAN_COMPARE) != 0) == (match == 1));
        CHECK((can.flags & TRIB_CAN_INTERRUPT) != 0 && (can.flags & TRIB_CAN_ADOPT) != 0);
        CHECK(can.max_ranks == INT32_MAX);
        for (int i = 0; i < 2; i++)
            CHECK_OK(trib_comm_destroy(comms[i]));
    }
    end();
}

static void alone(void)
{
    struct stage stage;
    begin(&stage, "one rank");
    ncclComm_t nccl = make(&stage, 0, 1, 2);
    trib_comm *comm = adopt(nccl, PLENTY_MS);
    if (comm != NULL) {
        float *data = memory_on(2, N);
        data[0] = 7;
        CHECK_OK(trib_allreduce(comm, data, data, N, TRIB_F32, TRIB_SUM, NULL));
        CHECK(data[0] == 7 && trib_comm_size(comm) == 1 && trib_comm_device(comm) == 2);
        CHECK_OK(trib_comm_destroy(comm));
        drop_memory(2, data);
    }
    CHECK_OK(trib_quiesce(PLENTY_MS));
    give_up(nccl, 2);
    end();
}

/* --------------------------------------------------------------------------------------- the end */

/* A call is queued, and its peers never make theirs. */
static void aborted_rank(int rank, int size, void *argument)
{
    struct stage *stage = argument;
    trib_abort *handle = NULL;
    trib_device *device = NULL;
    int32_t done = 1;
    ncclComm_t nccl = make(stage, rank, size, rank);
    trib_comm *comm = adopt(nccl, PLENTY_MS);
    if (comm == NULL)
        return;
    float *data = memory_on(rank, N);
    const trib_stream stream = stream_on(rank);
    CHECK_OK(trib_device_get(&device, "nccl", rank));
    CHECK_OK(trib_comm_abort_handle(&handle, comm));
    meet(stage, size);
    fake_move_data(false);
    meet(stage, size);
    if (rank == 0) {
        CHECK_OK(sum_up(comm, data, stream));
        CHECK_OK(trib_abort_raise(handle, "enough"));
    }
    meet(stage, size);
    CHECK_STATUS(sum_up(comm, data, stream), TRIB_ERR_ABORTED);
    CHECK_DETAIL("enough");
    CHECK_STATUS(trib_comm_status(comm), TRIB_ERR_ABORTED);
    CHECK(reaches(handle, TRIB_COMM_RECLAIMED));
    CHECK_OK(trib_stream_query(&done, device, stream));
    CHECK(done == (rank != 0)); /* nothing interrupts what is queued, */
    CHECK_OK(trib_comm_destroy(comm));
    meet(stage, size);
    if (rank == 0)
        abort_all(stage, size); /* but the caller */
    CHECK_OK(trib_stream_wait(device, stream));
    trib_abort_release(handle);
    drop_stream(rank, stream);
    drop_memory(rank, data);
}

/* Another communicator, the library's own, is aborted and freed meanwhile. */
static void bystander(void)
{
    trib_group *group = NULL;
    trib_abort *handle = NULL;
    const int32_t devices[2] = {5, 6};
    trib_options options = TRIB_OPTIONS_INIT;
    options.backend = "nccl";
    if (!CHECK_OK(trib_group_create(&group, devices, 2, &options)))
        return;
    CHECK_OK(trib_group_abort_handle(&handle, group));
    CHECK_OK(trib_abort_raise(handle, "meanwhile"));
    CHECK_OK(trib_group_destroy(group));
    CHECK(reaches(handle, TRIB_COMM_RECLAIMED));
    trib_abort_release(handle);
}

/* Rank 0 waits inside NCCL; the abort cannot end that, the caller can. */
static void inside_rank(int rank, int size, void *argument)
{
    struct stage *stage = argument;
    trib_abort *handle = NULL;
    trib_comm_state state = TRIB_COMM_LIVE;
    char text[64] = "";
    ncclComm_t nccl = make(stage, rank, size, rank);
    trib_comm *comm = adopt(nccl, PLENTY_MS);
    if (comm == NULL)
        return;
    float *data = memory_on(rank, N);
    CHECK_OK(trib_comm_abort_handle(&handle, comm));
    meet(stage, size);
    if (rank == 0) {
        CHECK_STATUS(sum_up(comm, data, NULL), TRIB_ERR_ABORTED);
        CHECK_DETAIL("rank 1 says so");
    } else {
        check_sleep_ms(LATE_MS / 4); /* it may be inside */
        CHECK_OK(trib_abort_raise(handle, "rank 1 says so"));
        check_sleep_ms(LATE_MS);
        bystander();
        CHECK_OK(trib_abort_state(&state, text, sizeof text, handle));
        CHECK_MSG(state == TRIB_COMM_ABORTING && strcmp(text, "1 call that is in flight") == 0,
                  "state %d: %s", (int)state, text);
        CHECK_STATUS(trib_quiesce(0), TRIB_ERR_TIMEOUT);
        abort_all(stage, size);
    }
    CHECK(reaches(handle, TRIB_COMM_RECLAIMED));
    CHECK_OK(trib_comm_destroy(comm));
    trib_abort_release(handle);
    drop_memory(rank, data);
}

/* NCCL's error ends the communicator, and only that. */
static void failing_rank(int rank, int size, void *argument)
{
    struct stage *stage = argument;
    ncclComm_t nccl = make(stage, rank, size, rank);
    trib_comm *comm = adopt(nccl, PLENTY_MS);
    meet(stage, size);
    if (rank == 0)
        fake_async_error(1, ncclInternalError);
    meet(stage, size);
    if (comm != NULL) {
        CHECK_STATUS(trib_comm_status(comm), TRIB_ERR_NCCL);
        meet(stage, size);
        fake_async_error(1, ncclSuccess);
        CHECK_OK(trib_comm_destroy(comm));
    }
    meet(stage, size);
    CHECK_OK(trib_quiesce(PLENTY_MS));
    give_up(nccl, rank);
}

/* Two of three go on in a communicator of the library's. */
static void shrinking_rank(int rank, int size, void *argument)
{
    struct stage *stage = argument;
    const int32_t lost = size - 1;
    trib_comm *next = NULL;
    ncclComm_t nccl = make(stage, rank, size, rank);
    trib_comm *comm = adopt(nccl, PLENTY_MS);
    float *data = memory_on(rank, N);
    if (comm != NULL && rank != lost) {
        CHECK_OK(trib_comm_shrink(&next, comm, &lost, 1, PLENTY_MS));
        if (next != NULL) {
            data[0] = 1;
            CHECK_OK(sum_up(next, data, NULL));
            CHECK(data[0] == 2 && strcmp(trib_comm_name(next), "mine") == 0);
            CHECK_OK(trib_comm_destroy(next));
        }
    }
    meet(stage, size);
    if (comm != NULL)
        CHECK_OK(trib_comm_destroy(comm));
    drop_memory(rank, data);
    meet(stage, size);
    CHECK_OK(trib_quiesce(PLENTY_MS));
    give_up(nccl, rank);
}

/* -------------------------------------------------------------------------------- what goes wrong */

/* The last rank does not adopt its own. */
static void missing_rank(int rank, int size, void *argument)
{
    struct stage *stage = argument;
    const trib_options options = options_for(LATE_MS);
    trib_comm *comm = (trib_comm *)stage;
    ncclComm_t nccl = make(stage, rank, size, rank);
    if (rank != size - 1) {
        CHECK_STATUS(trib_comm_adopt(&comm, nccl, &options), TRIB_ERR_TIMEOUT);
        CHECK_DETAIL("every rank adopts its communicator");
        CHECK(comm == NULL);
    }
    meet(stage, size);
    if (rank == 0)
        abort_all(stage, size);
}

/* The last rank does not split. */
static void alone_in_split(int rank, int size, void *argument)
{
    struct stage *stage = argument;
    trib_comm *child = (trib_comm *)stage;
    ncclComm_t nccl = make(stage, rank, size, rank);
    trib_comm *comm = adopt(nccl, LATE_MS);
    if (comm == NULL)
        return;
    if (rank != size - 1) {
        CHECK_STATUS(trib_comm_split(&child, comm, 0, 0), TRIB_ERR_TIMEOUT);
        CHECK(child == NULL);
        CHECK(trib_comm_status(comm) != TRIB_OK);
    }
    meet(stage, size);
    CHECK_OK(trib_comm_destroy(comm));
    meet(stage, size);
    if (rank == 0)
        abort_all(stage, size);
}

/* The last rank does not split, and the split that waits holds up nobody: each communicator that is
 * made, aborted and freed meanwhile would otherwise wait 2 s. */
static void hung_split_rank(int rank, int size, void *argument)
{
    struct stage *stage = argument;
    trib_comm *child = NULL;
    ncclComm_t nccl = make(stage, rank, size, rank);
    trib_comm *comm = adopt(nccl, LATE_MS);
    if (comm != NULL && rank == 0) {
        CHECK_STATUS(trib_comm_split(&child, comm, 0, 0), TRIB_ERR_TIMEOUT);
        check_sleep_ms(LATE_MS);
        const uint64_t begun_ns = tri_now_ns();
        for (int i = 0; i < 3; i++)
            bystander();
        const uint64_t ms = (tri_now_ns() - begun_ns) / 1000000u;
        CHECK_MSG(ms < 4000, "%d ms", (int)ms);
        CHECK_STATUS(trib_quiesce(0), TRIB_ERR_TIMEOUT);
    }
    meet(stage, size);
    if (comm != NULL)
        CHECK_OK(trib_comm_destroy(comm));
    meet(stage, size);
    if (rank == 0)
        abort_all(stage, size);
}

/* Rank 1 has left, and its communicator is gone. */
static void leaving_rank(int rank, int size, void *argument)
{
    struct stage *stage = argument;
    ncclComm_t nccl = make(stage, rank, size, rank);
    trib_comm *comm = adopt(nccl, PLENTY_MS);
    meet(stage, size);
    if (comm != NULL && rank == 1) {
        CHECK_OK(trib_comm_destroy(comm));
        give_up(nccl, rank);
    }
    meet(stage, size);
    if (comm != NULL && rank == 0) {
        CHECK_OK(trib_comm_status(comm));
        CHECK_OK(trib_comm_destroy(comm));
    }
    CHECK_OK(trib_quiesce(PLENTY_MS));
    if (rank == 0)
        give_up(nccl, rank);
}

/* The last rank's part in one of the two allreduces of an adoption. */
static void reduce_by_hand(ncclComm_t nccl, int device)
{
    unsigned char cell[sizeof(trib_id)] = {0};
    cell[sizeof cell - 1] = 0xff; /* some rank other than 0 is there */
    fake_make_current(device);
    CHECK(ncclAllReduce(cell, cell, sizeof cell, ncclUint8, ncclMax, nccl, NULL) == ncclSuccess);
    fake_make_current(-1);
}

struct abandoned {
    struct stage stage;
    int by_hand; /* so many of the allreduces rank 1 makes; rank 0 waits in the next one */
};

/* As over NCCL: the kernel of rank 0 waits, and ends when the owner aborts. */
static void abandoned_rank(int rank, int size, void *argument)
{
    struct abandoned *abandoned = argument;
    struct stage *stage = &abandoned->stage;
    const trib_options options = options_for(PLENTY_MS);
    trib_comm *comm = (trib_comm *)stage;
    ncclComm_t nccl = make(stage, rank, size, rank);
    reduce_by_hand(nccl, rank); /* connects */
    if (rank == 1 && abandoned->by_hand == 0)
        fake_move_data(false); /* calls do not wait, their streams do */
    fake_hold(FAKE_QUERY, true);
    meet(stage, size);
    if (rank == 0) {
        CHECK_STATUS(trib_comm_adopt(&comm, nccl, &options), TRIB_ERR_ABORTED);
        CHECK_DETAIL("was aborted before every rank");
        CHECK(comm == NULL);
        meet(stage, size);
        return;
    }
    if (abandoned->by_hand != 0)
        reduce_by_hand(nccl, rank);
    while (fake_waiting(FAKE_QUERY) == 0)
        check_sleep_ms(1);
    fake_move_data(false);
    fake_hold(FAKE_QUERY, false);
    check_sleep_ms(LATE_MS / 4);
    fake_make_current(rank);
    CHECK(ncclGroupStart() == ncclSuccess);
    for (int i = 0; i < size; i++)
        CHECK(ncclCommAbort(stage->nccl[i]) == ncclSuccess);
    meet(stage, size);
    CHECK_OK(trib_quiesce(PLENTY_MS));
    CHECK(ncclGroupEnd() == ncclSuccess);
    fake_make_current(-1);
}

static void abandons(int by_hand)
{
    struct abandoned abandoned = {.by_hand = by_hand};
    begin(&abandoned.stage, by_hand == 0 ? "its owner aborts in the first exchange"
                                         : "its owner aborts in the second exchange");
    check_ranks(2, abandoned_rank, &abandoned);
    end();
}

/* One rank cannot join; the others hear of it. */
static void same_device_rank(int rank, int size, void *argument)
{
    struct stage *stage = argument;
    const trib_options options = options_for(PLENTY_MS);
    trib_comm *comm = (trib_comm *)stage;
    ncclComm_t nccl = make(stage, rank, size, 1);
    CHECK_STATUS(trib_comm_adopt(&comm, nccl, &options), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_MSG(strstr(trib_last_detail(), "cannot use device 1") != NULL ||
                  strstr(trib_last_detail(), "another rank failed") != NULL,
              "%s", trib_last_detail());
    CHECK(comm == NULL);
    meet(stage, size);
    CHECK_OK(trib_quiesce(PLENTY_MS));
    give_up(nccl, 1);
}

static void refused(ncclComm_t nccl, const trib_options *options, trib_status expected,
                    const char *detail)
{
    trib_comm *comm = (trib_comm *)&backend;
    CHECK_STATUS(trib_comm_adopt(&comm, nccl, options), expected);
    CHECK_DETAIL(detail);
    CHECK(comm == NULL);
}

static void mistakes(void)
{
    struct stage stage;
    trib_options options = options_for(LATE_MS);
    begin(&stage, "mistakes");
    ncclComm_t nccl = make(&stage, 0, 1, 3);
    CHECK_STATUS(trib_comm_adopt(NULL, nccl, NULL), TRIB_ERR_INVALID_ARGUMENT);
    refused(NULL, NULL, TRIB_ERR_INVALID_ARGUMENT, "`nccl_comm` is NULL");
    options.max_ctas = TRIB_CTAS_MAX + 1;
    refused(nccl, &options, TRIB_ERR_INVALID_ARGUMENT, "trib_comm_adopt: options.max_ctas");
    options = options_for(LATE_MS);
    options.backend = "host";
    refused(nccl, &options, TRIB_ERR_UNSUPPORTED, "options.backend is \"host\"");
    options.backend = "nccl";
    options.cta_policy = TRIB_CTA_ZERO;
    fake_version(22700);
    refused(nccl, &options, TRIB_ERR_UNSUPPORTED, "options.cta_policy is \"zero\"");
    fake_version(0);
    fake_async_error(0, ncclInProgress);
    refused(nccl, NULL, TRIB_ERR_UNSUPPORTED, "non-blocking");
    fake_async_error(0, ncclSystemError);
    refused(nccl, NULL, TRIB_ERR_NCCL, "trib_comm_adopt");
    fake_async_error(0, ncclSuccess);
    give_up(nccl, 3);
    end();
}

int main(void)
{
    backend = tri_backend_nccl;
    backend.kernels = &tri_kernels_cpu;
    compared();
    play("all calls work, and the caller's communicator stays", RANKS, working_rank);
    alone();
    play("an abort leaves what is queued to the caller", RANKS, aborted_rank);
    play("an abort while a call waits inside NCCL", 2, inside_rank);
    play("an asynchronous error", 2, failing_rank);
    play("shrink", RANKS, shrinking_rank);
    play("a rank does not adopt", RANKS, missing_rank);
    play("a rank does not split", 2, alone_in_split);
    play("a split that hangs holds up no other communicator", 2, hung_split_rank);
    play("a rank that has left is not asked for errors", 2, leaving_rank);
    abandons(0);
    abandons(1);
    play("two ranks on one device", 2, same_device_rank);
    mistakes();
    asks();
    return check_finish("nccl_adopt_test");
}
