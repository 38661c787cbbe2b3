/* Ranks whose large allreduces pull serves. */
#include "tests/nccl_fake/push/large.h"

static struct fake_pulls before; /* the last large_counts */

bool large_open(struct push_ranks *ranks, int size, uint64_t peer_bytes)
{
    trib_options options = TRIB_OPTIONS_INIT;
    options.peer_bytes = peer_bytes;
    const bool good = push_open(ranks, size, LARGE_BYTES, &options);
    (void)large_counts(ranks, -1, -1, -1, -1);
    return good;
}

bool large_counts(struct push_ranks *ranks, long nccl, long pushes, long pulls, long staged)
{
    const struct fake_pulls now = fake_pulls();
    const long done = now.done - before.done, scratch = now.staged - before.staged;
    before = now;
    const bool good = push_counts(ranks, nccl, pushes);
    return nccl < 0 || (CHECK_MSG(done == pulls && scratch == staged,
                                  "pull served %ld calls, expected %ld; %ld staged, expected %ld",
                                  done, pulls, scratch, staged) &&
                        good);
}

uint64_t large_staged(const struct push_ranks *ranks, int rank)
{
    trib_counters counters = TRIB_COUNTERS_INIT;
    CHECK_OK(trib_comm_counters(&counters, ranks->comms[rank]));
    return counters.staged_calls;
}

void large_sum(const struct push_ranks *ranks, int rank)
{
    CHECK_OK(push_sum(ranks, rank, LARGE_N, TRIB_F32));
}

void large_sum_on(struct push_ranks *ranks, int rank, trib_stream stream)
{
    const trib_stream own = ranks->streams[rank];
    ranks->streams[rank] = stream;
    large_sum(ranks, rank);
    ranks->streams[rank] = own;
}

bool large_works(const struct push_ranks *ranks)
{
    push_fill(ranks, TRIB_F32, LARGE_N);
    for (int rank = 0; rank < ranks->size; rank++)
        large_sum(ranks, rank);
    return push_summed(ranks, TRIB_F32, LARGE_N);
}

void large_rank(int rank, int size, void *argument)
{
    const struct push_ranks *ranks = argument;
    (void)size;
    large_sum(ranks, rank);
    CHECK_OK(trib_comm_wait(ranks->comms[rank], ranks->streams[rank], PUSH_PLENTY_MS));
}
