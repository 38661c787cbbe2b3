/* Whose memory pull reads and writes where it lies, and what goes through scratch. */
#include <cuda_runtime_api.h>
#include <string.h>

#include "csrc/nccl/device.h"
#include "tests/nccl_fake/fake_mapping.h"
#include "tests/nccl_fake/push/cases.h"
#include "tests/nccl_fake/push/large.h"

enum { RANKS = 2 };

/* Not in place: `rank` sends from `made`, which peers can access or not, or receives there. In one shot they access
 * what is sent, in two what is received. */
struct made_call {
    float *made;
    int rank;
    bool sends, one_shot, mapped;
};

static bool is_staged(const struct made_call *c)
{
    return c->one_shot == c->sends && !c->mapped;
}

static trib_status sum(struct push_ranks *ranks, int rank, const float *send, float *recv,
                       bool one_shot, uint32_t flags)
{
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    options.variant = one_shot ? TRIB_VARIANT_ONE_SHOT : TRIB_VARIANT_AUTO;
    options.flags = flags;
    return trib_allreduce_with(ranks->comms[rank], send, recv, LARGE_N, TRIB_F32, TRIB_SUM,
                               &options, ranks->streams[rank]);
}

static void check_memory(struct push_ranks *ranks, const struct made_call *c)
{
    const int rank = c->rank, other = 1 - rank;
    float *spare[RANKS] = {NULL, NULL}, *const made = c->made;
    const struct push_ranks all = *ranks;
    const uint64_t before = large_staged(ranks, rank), others = large_staged(ranks, other);
    for (int r = 0; r < RANKS; r++)
        CHECK_OK(trib_device_alloc((void **)&spare[r], ranks->devices[r], LARGE_BYTES));
    push_fill(ranks, TRIB_F32, LARGE_N);
    memcpy(c->sends ? made : spare[rank], ranks->data[rank], LARGE_N * sizeof(float));
    CHECK_OK(sum(ranks, other, ranks->data[other], spare[other], c->one_shot, 0));
    CHECK_OK(sum(ranks, rank, c->sends ? made : spare[rank], c->sends ? spare[rank] : made,
                 c->one_shot, 0));
    ranks->data[rank] = c->sends ? spare[rank] : made;
    ranks->data[other] = spare[other];
    CHECK(push_summed(ranks, TRIB_F32, LARGE_N));
    CHECK(large_staged(ranks, rank) == before + is_staged(c) &&
          large_staged(ranks, other) == others);
    *ranks = all;
    CHECK(large_counts(ranks, 0, 0, 1, is_staged(c)));
    for (int r = 0; r < RANKS; r++)
        CHECK_OK(trib_device_free(ranks->devices[r], spare[r]));
}

/* The same where staging is forbidden: of a buffer that peers cannot access nothing is queued. */
static void check_unstaged(struct push_ranks *ranks, const struct made_call *c)
{
    const int rank = c->rank, other = 1 - rank;
    float *const own = ranks->data[rank], *spare = NULL;
    const uint64_t before = large_staged(ranks, rank);
    const bool refused = is_staged(c);
    CHECK_OK(trib_device_alloc((void **)&spare, ranks->devices[other], LARGE_BYTES));
    const trib_status status = sum(ranks, rank, c->sends ? c->made : own, c->sends ? own : c->made,
                                   c->one_shot, TRIB_CALL_UNSTAGED);
    CHECK_STATUS(status, refused ? TRIB_ERR_INVALID_BUFFER : TRIB_OK);
    if (refused)
        CHECK_DETAIL(c->sends ? "`send`" : "`recv`");
    if (!refused) {
        CHECK_OK(sum(ranks, other, ranks->data[other], spare, c->one_shot, 0));
        for (int r = 0; r < RANKS; r++)
            CHECK_OK(trib_comm_wait(ranks->comms[r], ranks->streams[r], PUSH_PLENTY_MS));
    }
    CHECK(large_staged(ranks, rank) == before && large_counts(ranks, 0, 0, !refused, 0));
    CHECK_OK(trib_device_free(ranks->devices[other], spare));
}

/* Each rank's sum, which a graph captures and repeats; the capture asks for `made`, too. */
static void check_captured(struct push_ranks *ranks, float *made, int rank, bool mapped)
{
    float *const own = ranks->data[rank];
    cudaGraph_t graphs[RANKS] = {NULL, NULL};
    ranks->data[rank] = made;
    for (int r = 0; r < RANKS; r++) {
        CHECK(cudaStreamBeginCapture(ranks->streams[r], cudaStreamCaptureModeThreadLocal) ==
              cudaSuccess);
        large_sum(ranks, r);
        CHECK(cudaStreamEndCapture(ranks->streams[r], &graphs[r]) == cudaSuccess);
    }
    for (int round = 0; round < 2; round++) {
        push_fill(ranks, TRIB_F32, LARGE_N);
        for (int r = 0; r < RANKS; r++)
            fake_replay(graphs[r], r, ranks->streams[r]);
        CHECK(push_summed(ranks, TRIB_F32, LARGE_N) && large_counts(ranks, 0, 0, 1, !mapped));
    }
    for (int r = 0; r < RANKS; r++)
        (void)cudaGraphDestroy(graphs[r]);
    ranks->data[rank] = own;
}

static void check_all(struct push_ranks *ranks, float *made, int rank, bool mapped)
{
    for (int i = 0; i < 4; i++) {
        const struct made_call call = {made, rank, i % 2 != 0, i / 2 != 0, mapped};
        check_memory(ranks, &call);
        check_unstaged(ranks, &call);
    }
    check_captured(ranks, made, rank, mapped);
}

/* What the other rank cannot access goes through scratch, whichever buffer of whichever rank it is. The
 * default pool is open to all. */
enum made { PINNED, POOL, OWN_POOL };
static void staged(const char *name, enum made how)
{
    struct push_ranks ranks;
    push_begin(name);
    if (large_open(&ranks, RANKS, LARGE_ROOM)) {
        for (int rank = 0; rank < RANKS; rank++) {
            void *made = NULL;
            fake_make_current(rank);
            CHECK((how == PINNED ? cudaHostAlloc(&made, LARGE_BYTES, cudaHostAllocPortable)
                                 : cudaMalloc(&made, LARGE_BYTES)) == cudaSuccess);
            if (how != PINNED)
                fake_pool(made, how == POOL);
            fake_make_current(-1);
            check_all(&ranks, made, rank, how == POOL);
            CHECK(large_works(&ranks) && large_counts(&ranks, 0, 0, 1, 0));
            fake_make_current(rank);
            CHECK(cudaFree(made) == cudaSuccess);
            fake_make_current(-1);
        }
        push_close(&ranks);
    }
    push_end();
}

/* Devices without pools have pull, too. */
static void without_pools(void)
{
    struct push_ranks ranks;
    push_begin("large calls of devices without pools");
    fake_have_pools(false);
    if (large_open(&ranks, RANKS, LARGE_ROOM)) {
        CHECK(large_works(&ranks) && large_counts(&ranks, 0, 0, 1, 0));
        push_close(&ranks);
    }
    fake_have_pools(true);
    push_end();
}

/* ---------------------------------------------------------------------------------------- mappings */

/* A call lies on the first two. */
enum { PARTS = 3, PART_BYTES = 17 * FAKE_GRANULARITY };
_Static_assert(LARGE_N * sizeof(float) > PART_BYTES && LARGE_N * sizeof(float) <= 2 * PART_BYTES,
               "a call lies on two mappings");

/* One reservation, and what cuMemMap has mapped there. */
struct range {
    CUdeviceptr start;
    CUmemGenericAllocationHandle parts[PARTS];
};

/* The other device may write, read or do nothing there. */
static CUmemAccess_flags flags_of(char access)
{
    return access == 'w'   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
           : access == 'r' ? CU_MEM_ACCESS_FLAGS_PROT_READ
                           : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

/* Memory of `rank`'s device, to which the other one has such access, a letter for each part. */
static void make_range(struct range *range, int rank, const char *access)
{
    CUmemAllocationProp wanted = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    wanted.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = rank};
    CHECK(fake_mem_reserve(&range->start, PARTS * PART_BYTES, 0, 0, 0) == CUDA_SUCCESS);
    for (int i = 0; i < PARTS; i++) {
        CUmemAccessDesc all[RANKS] = {{wanted.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                      {wanted.location, flags_of(access[i])}};
        const CUdeviceptr at = range->start + (CUdeviceptr)i * PART_BYTES;
        all[1].location.id = 1 - rank;
        CHECK(fake_mem_create(&range->parts[i], PART_BYTES, &wanted, 0) == CUDA_SUCCESS);
        CHECK(fake_mem_map(at, PART_BYTES, 0, range->parts[i], 0) == CUDA_SUCCESS);
        CHECK(fake_mem_set_access(at, PART_BYTES, all, RANKS) == CUDA_SUCCESS);
    }
}

static void free_range(struct range *range)
{
    for (int i = 0; i < PARTS; i++) {
        CHECK(fake_mem_unmap(range->start + (CUdeviceptr)i * PART_BYTES, PART_BYTES) ==
              CUDA_SUCCESS);
        CHECK(fake_mem_release(range->parts[i]) == CUDA_SUCCESS);
    }
    CHECK(fake_mem_unreserve(range->start, PARTS * PART_BYTES) == CUDA_SUCCESS);
}

/* Of each rank in turn, as what it sends and as where it receives. */
static void check_ranges(struct push_ranks *ranks, const char *access, bool mapped)
{
    for (int rank = 0; rank < RANKS; rank++) {
        struct range range;
        make_range(&range, rank, access);
        float *const made = (float *)(uintptr_t)range.start; /* NOLINT: as the driver has it */
        check_all(ranks, made, rank, mapped);
        free_range(&range);
    }
}

/* Both devices read and write all mappings that a call lies on, or it goes through scratch. */
static void mappings(void)
{
    static const char *const through[] = {"w-w", "wrw", "-ww", "rww", "---", "rrr"};
    struct push_ranks ranks;
    push_begin("large calls of memory that cuMemMap has mapped");
    if (large_open(&ranks, RANKS, LARGE_ROOM)) {
        check_ranges(&ranks, "www", true);
        check_ranges(&ranks, "ww-", true);
        for (size_t i = 0; i < sizeof through / sizeof *through; i++)
            check_ranges(&ranks, through[i], false);
        const struct tri_nccl_driver driver = tri_nccl_driver;
        tri_nccl_driver.mem_access = NULL; /* nobody tells */
        check_ranges(&ranks, "www", false);
        tri_nccl_driver.mem_access = driver.mem_access;
        push_close(&ranks);
    }
    push_end();
}

void pull_memory(void)
{
    staged("large calls of pinned memory", PINNED);
    staged("large calls of memory of the default pool", POOL);
    staged("large calls of memory of a pool of its own", OWN_POOL);
    without_pools();
    mappings();
}
