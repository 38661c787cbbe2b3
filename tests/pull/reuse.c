#include "tests/pull/reuse.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "csrc/nccl/device.h"
#include "tests/check.h"
#include "tests/conformance/cuda_must.h"
#include "tests/pull/numbers.h"

enum { RANKS_MAX = 4, COUNT = NUMBERS_PULLED, BYTES = 6 << 20, ROUNDS = 32, PLENTY_MS = 20000 };

/* Of cudaMalloc, of the default pool, pinned, and mapped by the driver's functions for this device alone. Peers
 * reach the first two where they lie. */
enum kind { PLAIN, POOL, PINNED, MAPPED, KINDS };

struct buffer {
    enum kind kind;
    float *data;
    CUmemGenericAllocationHandle handle; /* MAPPED */
};

/* A rank's buffer, at the address of the one before if CUDA gives it. */
struct reuse {
    const struct team *team;
    struct buffer buffers[RANKS_MAX];
    float *results[RANKS_MAX]; /* of one shot, which is not in place */
    float *image;
    int again; /* how often CUDA did, for another kind */
};

static void driver_must(CUresult result, const char *what)
{
    cuda_must(result == CUDA_SUCCESS ? cudaSuccess : cudaErrorUnknown, what);
}

/* ----------------------------------------------------------------------------------------- memory */

static void map(struct buffer *b, int rank, const void *wanted)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr address = 0;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = tri_nccl_cu_device(rank);
    access.location = properties.location;
    driver_must(tri_nccl_driver.mem_create(&b->handle, BYTES, &properties, 0), "mem_create");
    driver_must(tri_nccl_driver.mem_reserve(&address, BYTES, 0, (CUdeviceptr)(uintptr_t)wanted, 0),
                "mem_reserve");
    driver_must(tri_nccl_driver.mem_map(address, BYTES, 0, b->handle, 0), "mem_map");
    driver_must(tri_nccl_driver.mem_set_access(address, BYTES, &access, 1), "mem_set_access");
    b->data = (float *)(uintptr_t)address; /* NOLINT: as the driver has it */
}

static void unmap(const struct buffer *b)
{
    const CUdeviceptr address = (CUdeviceptr)(uintptr_t)b->data;
    driver_must(tri_nccl_driver.mem_unmap(address, BYTES), "mem_unmap");
    driver_must(tri_nccl_driver.mem_unreserve(address, BYTES), "mem_unreserve");
    driver_must(tri_nccl_driver.mem_release(b->handle), "mem_release");
}

static void allocate(struct reuse *u, int rank, enum kind kind)
{
    struct buffer *b = &u->buffers[rank];
    const struct buffer before = *b;
    const cudaStream_t stream = u->team->streams[rank];
    MUST(cudaSetDevice(rank));
    b->kind = kind;
    if (kind == PLAIN)
        MUST(cudaMalloc((void **)&b->data, BYTES));
    else if (kind == POOL)
        MUST(cudaMallocAsync((void **)&b->data, BYTES, stream));
    else if (kind == PINNED)
        MUST(cudaHostAlloc((void **)&b->data, BYTES, cudaHostAllocPortable));
    else
        map(b, rank, before.data);
    MUST(cudaStreamSynchronize(stream));
    u->again += b->data == before.data && b->kind != before.kind;
}

/* Of a pool, too, its addresses go back. */
static void release(const struct reuse *u, int rank)
{
    const struct buffer *b = &u->buffers[rank];
    cudaMemPool_t pool;
    MUST(cudaSetDevice(rank));
    if (b->kind == PINNED)
        MUST(cudaFreeHost(b->data));
    else if (b->kind == MAPPED)
        unmap(b);
    else if (b->kind == PLAIN)
        MUST(cudaFree(b->data));
    else {
        MUST(cudaFreeAsync(b->data, u->team->streams[rank]));
        MUST(cudaStreamSynchronize(u->team->streams[rank]));
        MUST(cudaDeviceGetDefaultMemPool(&pool, rank));
        MUST(cudaMemPoolTrimTo(pool, 0));
    }
}

/* ------------------------------------------------------------------------------------------ calls */

/* Peers read the buffer, or write to it. */
static bool is_one_shot(int round)
{
    return round / KINDS % 2 != 0;
}

static float *result_of(const struct reuse *u, int round, int rank)
{
    return is_one_shot(round) ? u->results[rank] : u->buffers[rank].data;
}

/* Other numbers in each round; sums are exact. */
static float input(int round, int rank, size_t e)
{
    return (float)((e * 7 + (size_t)rank * 3 + (size_t)round * 5) % 13);
}

static void fill(const struct reuse *u, int round, int rank)
{
    for (size_t e = 0; e < COUNT; e++)
        u->image[e] = input(round, rank, e);
    MUST(cudaSetDevice(rank));
    MUST(cudaMemcpy(u->buffers[rank].data, u->image, COUNT * sizeof *u->image, cudaMemcpyDefault));
    MUST(cudaDeviceSynchronize());
}

static void check_rank(const struct reuse *u, int round, int rank)
{
    size_t wrong = 0;
    if (!team_finish(u->team, rank, PLENTY_MS))
        return;
    MUST(cudaSetDevice(rank));
    MUST(cudaMemcpy(u->image, result_of(u, round, rank), COUNT * sizeof *u->image,
                    cudaMemcpyDefault));
    for (size_t e = 0; e < COUNT; e++) {
        float sum = 0;
        for (int r = 0; r < u->team->size; r++)
            sum += input(round, r, e);
        wrong += u->image[e] != sum;
    }
    CHECK_MSG(wrong == 0, "round %d, rank %d, memory of kind %d: %zu elements are wrong", round,
              rank, (int)u->buffers[rank].kind, wrong);
}

static uint64_t staged_of(const struct reuse *u, int rank)
{
    trib_counters counters = TRIB_COUNTERS_INIT;
    CHECK_OK(trib_comm_counters(&counters, u->team->comms[rank]));
    return counters.staged_calls;
}

/* Pull takes this buffer, and what it is now decides how. */
static void call(const struct reuse *u, int round, int rank)
{
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    const struct buffer *b = &u->buffers[rank];
    const uint64_t before = staged_of(u, rank);
    options.variant = is_one_shot(round) ? TRIB_VARIANT_ONE_SHOT : TRIB_VARIANT_TWO_SHOT;
    team_go_on(
        u->team, rank,
        CHECK_OK(trib_allreduce_with(u->team->comms[rank], b->data, result_of(u, round, rank),
                                     COUNT, TRIB_F32, TRIB_SUM, &options, u->team->streams[rank])));
    CHECK_MSG(staged_of(u, rank) - before == (b->kind == PINNED || b->kind == MAPPED),
              "rank %d, memory of kind %d", rank, (int)b->kind);
}

/* Another one in each round, on each rank: one after the other, and then in the reverse order. */
static enum kind kind_of(int round, int rank)
{
    return (enum kind)((round * (round < ROUNDS / 2 ? 1 : KINDS - 1) + rank) % KINDS);
}

/* Nothing runs while CUDA allocates and frees, for which it may wait. */
static void run_round(struct reuse *u, int round)
{
    const int size = u->team->size;
    for (int r = 0; r < size; r++)
        allocate(u, r, kind_of(round, r));
    for (int r = 0; r < size; r++)
        fill(u, round, r);
    for (int r = 0; r < size; r++)
        call(u, round, r);
    for (int r = 0; r < size; r++)
        check_rank(u, round, r);
    for (int r = 0; r < size; r++)
        release(u, r);
}

void reuse(const struct team *team)
{
    struct reuse u = {.team = team, .image = malloc(COUNT * sizeof(float))};
    check_begin("%d ranks: buffers are freed, and come again as memory of another kind",
                team->size);
    for (int r = 0; r < team->size; r++) {
        MUST(cudaSetDevice(r));
        MUST(cudaMalloc((void **)&u.results[r], BYTES));
    }
    for (int round = 0; round < ROUNDS && !check_failed(); round++)
        run_round(&u, round);
    for (int r = 0; r < team->size; r++)
        MUST(cudaFree(u.results[r]));
    printf("  %d ranks: %d of %d buffers had the address of one of another kind\n", team->size,
           u.again, team->size * ROUNDS);
    if (u.again == 0 && !check_failed())
        check_skip("%d ranks: CUDA has given no address as memory of another kind", team->size);
    free(u.image);
    check_end();
}
