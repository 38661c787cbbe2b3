/* Ranks whose large allreduces pull serves: push.h's fixture with memory for both. */
#ifndef TRI_TESTS_NCCL_FAKE_PUSH_LARGE_H
#define TRI_TESTS_NCCL_FAKE_PUSH_LARGE_H

#include "tests/nccl_fake/fake_pull.h"
#include "tests/nccl_fake/push/fixture.h"

/* Of two ranks with LARGE_ROOM LARGE_N f32 are pull's, with LARGE_NO_ROOM NCCL's; a buffer holds them twice. */
enum {
    LARGE_N = (2 << 20) / 4 + 3,
    LARGE_BYTES = 2 * 4 * LARGE_N,
    LARGE_ROOM = 40 << 20,
    LARGE_NO_ROOM = 8 << 20
};

/* As push_open, but by the default both are there; `peer_bytes` as in the options. */
bool large_open(struct push_ranks *ranks, int size, uint64_t peer_bytes);

/* Since the last time NCCL has got `nccl` calls of ranks; push has served `pushes` calls, pull `pulls`, of
 * which `staged` went through scratch. NCCL -1: whatever it was. */
bool large_counts(struct push_ranks *ranks, long nccl, long pushes, long pulls, long staged);
/* Calls in which a buffer of this rank went through scratch, as it has counted them. */
uint64_t large_staged(const struct push_ranks *ranks, int rank);

/* A sum of LARGE_N f32 of `rank`, in place. */
void large_sum(const struct push_ranks *ranks, int rank);
void large_sum_on(struct push_ranks *ranks, int rank, trib_stream stream);
/* Of all ranks, filled, summed and checked by this thread. */
bool large_works(const struct push_ranks *ranks);
/* On every rank, by a thread each: NCCL may serve it. For push_each. */
void large_rank(int rank, int size, void *ranks);

#endif
