/* Communicators over those of the caller, and NCCL's configuration, on real GPUs: a rank each, one
 * process. What becomes of them in every corner, tests/nccl_fake/adopt_test.c tests over a fake. */
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdlib.h>

#include "tests/check.h"

enum { N = 4099, PARTS = 400, EACH = N / PARTS, MOST = 8, PLENTY_MS = 20000 };

struct stage {
    ncclComm_t nccl[MOST]; /* the caller's */
    trib_id id;
};

/* One rank, and what it adds up. */
struct member {
    int rank, size;
    trib_comm *comm;
    trib_device *device;
    trib_stream stream;
    float *data, *host;
};

static void open_member(struct member *member, int rank, int size)
{
    void *data = NULL;
    *member = (struct member){.rank = rank, .size = size, .host = calloc(N, sizeof(float))};
    if (member->host == NULL)
        abort();
    CHECK(cudaSetDevice(rank) == cudaSuccess);
    CHECK_OK(trib_device_get(&member->device, "nccl", rank));
    CHECK_OK(trib_stream_create(&member->stream, member->device));
    CHECK_OK(trib_device_alloc(&data, member->device, N * sizeof(float)));
    member->data = data;
}

static void close_member(struct member *member)
{
    CHECK_OK(trib_stream_wait(member->device, member->stream));
    CHECK_OK(trib_device_free(member->device, member->data));
    CHECK_OK(trib_stream_destroy(member->device, member->stream));
    free(member->host);
}

/* Element i of the rank; sums over the ranks are exact. */
static float input(int rank, size_t i)
{
    return (float)(i % 251 + 1) * (float)(rank + 1);
}

static void put(const struct member *member)
{
    for (size_t i = 0; i < N; i++)
        member->host[i] = input(member->rank, i);
    CHECK_OK(trib_device_copy(member->device, member->data, member->host, N * sizeof(float),
                              member->stream));
}

static void is_sum(const struct member *member, const char *of)
{
    size_t wrong = 0;
    CHECK_OK(trib_device_copy(member->device, member->host, member->data, N * sizeof(float),
                              member->stream));
    CHECK_OK(trib_stream_wait(member->device, member->stream));
    for (size_t i = 0; i < N; i++) {
        float sum = 0;
        for (int rank = 0; rank < member->size; rank++)
            sum += input(rank, i);
        wrong += member->host[i] != sum;
    }
    CHECK_MSG(wrong == 0, "rank %d, %s: %zu wrong elements", member->rank, of, wrong);
}

static void sum_own(const struct member *member, ncclComm_t nccl)
{
    put(member);
    CHECK(ncclAllReduce(member->data, member->data, N, ncclFloat32, ncclSum, nccl,
                        member->stream) == ncclSuccess);
    is_sum(member, "a call of the caller's");
}

static void sum(const struct member *member, trib_comm *comm)
{
    trib_tensor parts[PARTS]; /* so many that a second call finds them on the device */
    for (size_t i = 0; i < PARTS; i++)
        parts[i] = (trib_tensor){member->data + i * EACH, i + 1 < PARTS ? EACH : N - i * EACH,
                                 TRIB_F32, 0};
    put(member);
    CHECK_OK(
        trib_allreduce(comm, member->data, member->data, N, TRIB_F32, TRIB_SUM, member->stream));
    is_sum(member, "allreduce");
    for (int call = 0; call < 3; call++) {
        put(member);
        CHECK_OK(trib_allreduce_list(comm, parts, PARTS, TRIB_SUM, member->stream));
        is_sum(member, "a list");
    }
}

static void adopt_rank(int rank, int size, void *argument)
{
    const struct stage *stage = argument;
    struct member member;
    trib_comm *child = NULL;
    open_member(&member, rank, size);
    sum_own(&member, stage->nccl[rank]);
    if (CHECK_OK(trib_comm_adopt(&member.comm, stage->nccl[rank], NULL))) {
        CHECK(trib_comm_rank(member.comm) == rank && trib_comm_size(member.comm) == size &&
              trib_comm_device(member.comm) == rank);
        sum(&member, member.comm);
        sum_own(&member, stage->nccl[rank]);
        if (CHECK_OK(trib_comm_split(&child, member.comm, 0, 0))) {
            sum(&member, child);
            CHECK_OK(trib_comm_destroy(child));
        }
        sum(&member, member.comm);
        CHECK_OK(trib_comm_destroy(member.comm));
    }
    sum_own(&member, stage->nccl[rank]);
    close_member(&member);
}

/* An abort ends the communicator, and not the caller's. */
static void abort_rank(int rank, int size, void *argument)
{
    const struct stage *stage = argument;
    struct member member;
    trib_abort *handle = NULL;
    open_member(&member, rank, size);
    if (CHECK_OK(trib_comm_adopt(&member.comm, stage->nccl[rank], NULL))) {
        sum(&member, member.comm);
        CHECK_OK(trib_comm_abort_handle(&handle, member.comm));
        CHECK_OK(trib_abort_raise(handle, "the test"));
        CHECK_STATUS(trib_allreduce(member.comm, member.data, member.data, N, TRIB_F32, TRIB_SUM,
                                    member.stream),
                     TRIB_ERR_ABORTED);
        trib_abort_release(handle);
        CHECK_OK(trib_comm_destroy(member.comm));
    }
    sum_own(&member, stage->nccl[rank]);
    close_member(&member);
}

static void configured_rank(int rank, int size, void *argument)
{
    const struct stage *stage = argument;
    trib_options options = TRIB_OPTIONS_INIT;
    struct member member;
    options.backend = "nccl";
    options.min_ctas = 1;
    options.max_ctas = 2;
    options.cta_policy = TRIB_CTA_EFFICIENCY;
    options.network = "Socket";
    options.name = "gradients";
    open_member(&member, rank, size);
    if (CHECK_OK(trib_comm_create(&member.comm, &stage->id, rank, size, rank, &options))) {
        sum(&member, member.comm);
        CHECK_OK(trib_comm_destroy(member.comm));
    }
    close_member(&member);
}

static void adoptions(int size, const char *name, void (*body)(int rank, int size, void *argument))
{
    struct stage stage = {.nccl = {NULL}};
    check_begin("%d rank%s: %s", size, size == 1 ? "" : "s", name);
    CHECK_OK(trib_id_create(&stage.id, "nccl"));
    CHECK(ncclCommInitAll(stage.nccl, size, NULL) == ncclSuccess);
    check_ranks(size, body, &stage);
    for (int rank = 0; rank < size; rank++)
        CHECK(ncclCommDestroy(stage.nccl[rank]) == ncclSuccess);
    CHECK_OK(trib_quiesce(PLENTY_MS));
    check_end();
}

int main(void)
{
    int32_t devices = 0;
    if (trib_backend_devices(&devices, "nccl") != TRIB_OK || devices == 0)
        check_skip("there is no GPU");
    const int most = devices < MOST ? devices : MOST;
    for (int size = 1; size <= most; size += size == 1 && most > 1 ? most - 1 : most) {
        adoptions(size, "a communicator over the caller's", adopt_rank);
        adoptions(size, "an abort leaves the caller's alone", abort_rank);
        adoptions(size, "NCCL's configuration", configured_rank);
    }
    return check_finish("adopt_cuda_test");
}
