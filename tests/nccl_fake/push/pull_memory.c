/* Whose memory pull reads and writes where it lies, and what goes through scratch. */
#include <cuda_runtime_api.h>
#include <string.h>

#include "tests/nccl_fake/push/cases.h"
#include "tests/nccl_fake/push/large.h"

enum { RANKS = 2 };

/* Of its own buffers, as the rank has counted them. */
static uint64_t staged_of(const struct push_ranks *ranks, int rank)
{
    trib_counters counters = TRIB_COUNTERS_INIT;
    CHECK_OK(trib_comm_counters(&counters, ranks->comms[rank]));
    return counters.staged_calls;
}

/* Not in place: `rank` sends from `made`, which peers can access or not, or receives there. */
static void check_memory(struct push_ranks *ranks, float *made, int rank, bool sends, bool mapped)
{
    float *spare = NULL;
    const struct push_ranks all = *ranks;
    const uint64_t before = staged_of(ranks, rank), other = staged_of(ranks, 1 - rank);
    CHECK_OK(trib_device_alloc((void **)&spare, ranks->devices[rank], LARGE_BYTES));
    push_fill(ranks, TRIB_F32, LARGE_N);
    memcpy(sends ? made : spare, ranks->data[rank], LARGE_N * sizeof(float));
    large_sum(ranks, 1 - rank);
    CHECK_OK(trib_allreduce(ranks->comms[rank], sends ? made : spare, sends ? spare : made, LARGE_N,
                            TRIB_F32, TRIB_SUM, ranks->streams[rank]));
    ranks->data[rank] = sends ? spare : made;
    CHECK(push_summed(ranks, TRIB_F32, LARGE_N));
    CHECK(staged_of(ranks, rank) == before + !mapped && staged_of(ranks, 1 - rank) == other);
    *ranks = all;
    CHECK(large_counts(ranks, 0, 0, 1, !mapped));
    CHECK_OK(trib_device_free(ranks->devices[rank], spare));
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
            check_memory(&ranks, made, rank, true, how == POOL);
            check_memory(&ranks, made, rank, false, how == POOL);
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

void pull_memory(void)
{
    staged("large calls of pinned memory", PINNED);
    staged("large calls of memory of the default pool", POOL);
    staged("large calls of memory of a pool of its own", OWN_POOL);
    without_pools();
}
