/* What every backend must do: the walk over the parts of the suite. */
#include "tests/conformance/backend/backend.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Atomic uint64_t compared;

uint64_t backend_compared(void)
{
    return atomic_load(&compared);
}

enum backend_depth backend_depth(void)
{
    return getenv("TRIB_TEST_QUICK") == NULL ? BACKEND_WHOLE : BACKEND_QUICK;
}

struct counts backend_counts(const struct suite *suite, trib_dtype dtype)
{
    if (suite->depth == BACKEND_LIGHT)
        return (struct counts){4, {0, 1, 17, 131}};
    if (suite->depth == BACKEND_QUICK)
        return (struct counts){3, {0, 17, dtype == TRIB_F32 ? 20011 : 1023}};
    struct counts counts = {5, {0, 1, 17, 1023, (1 << 15) + 7}};
    if (dtype == TRIB_F32)
        counts.at[4] = (suite->reach == BACKEND_REACHES_ALL ? 1 << 20 : 1 << 18) + 3; /* pull's */
    if (dtype == TRIB_BF16)
        counts.at[4] = 1 << 19; /* an allgather that push has just room for, of 2 ranks */
    return counts;
}

bool backend_root(const struct suite *suite, int root, int turn)
{
    const int size = suite->team.size;
    return suite->depth == BACKEND_WHOLE || root == turn % size || root == size - 1 - turn % size;
}

bool backend_dtype(const struct suite *suite, trib_dtype dtype)
{
    return suite->depth != BACKEND_LIGHT || dtype == TRIB_F32 || dtype == TRIB_BF16 ||
           dtype == TRIB_I8;
}

/* By the memory that the library has for it: pull's is 32 MiB of 48, and the rest is push's. */
static void look_at_reach(struct suite *suite)
{
    trib_memory memory = TRIB_MEMORY_INIT;
    CHECK_OK(trib_comm_memory(&memory, suite->team.comms[0]));
    suite->reach = memory.peer_bytes == 0                   ? BACKEND_REACHES_NONE
                   : memory.peer_bytes < (uint64_t)32 << 20 ? BACKEND_REACHES_SMALL
                                                            : BACKEND_REACHES_ALL;
}

bool backend_compare(struct suite *suite, int rank, struct guarded *send, struct guarded *recv,
                     const char *what)
{
    atomic_fetch_add(&compared, 1);
    if (send != NULL)
        guarded_same(send, __FILE__, __LINE__, what);
    if (recv != NULL)
        guarded_same(recv, __FILE__, __LINE__, what);
    const trib_status status = trib_comm_status(suite->team.comms[rank]);
    return check_that(status == TRIB_OK, __FILE__, __LINE__, "%s: afterwards %s: %s", what,
                      trib_status_name(status), trib_last_detail());
}

bool backend_go_on(struct suite *suite, int rank, bool good)
{
    return team_go_on(&suite->team, rank, good);
}

static void whole_suite(struct suite *suite)
{
    backend_collectives(suite);
    backend_variants(suite);
    backend_rounding(suite);
    backend_points(suite);
    backend_batches(suite);
    backend_lists(suite);
    backend_factors(suite);
    backend_reducers(suite);
    backend_reducer_buckets(suite);
    backend_reducers_in_place(suite);
    backend_weighted_reducers(suite);
    backend_sparse_reducers(suite);
    backend_symmetric(suite);
    backend_streams(suite);
    backend_splits(suite);
    team_close(&suite->team);
}

/* Communicators made in other ways must do the same: fewer types are enough to see it. */
static void light_suite(struct suite *suite, const char *how)
{
    suite->depth = BACKEND_LIGHT;
    suite->how = how;
    backend_collectives(suite);
    backend_points(suite);
    backend_batches(suite);
    backend_lists(suite);
    backend_factors(suite);
    backend_reducers(suite);
    backend_reducer_buckets(suite);
    backend_reducers_in_place(suite);
    backend_weighted_reducers(suite);
    backend_sparse_reducers(suite);
    backend_symmetric(suite);
    team_close(&suite->team);
}

void backend_suite(const char *backend, int size, enum backend_depth depth)
{
    const uint64_t before = backend_compared();
    const double start = check_now_ms();
    struct suite suite = {.depth = depth, .how = "id", .seed = (uint64_t)size << 32};
    trib_options matched = TRIB_OPTIONS_INIT, unchecked = TRIB_OPTIONS_INIT;
    trib_options apart = TRIB_OPTIONS_INIT; /* small calls, too, are the engine's */
    const bool has_peers = size > 1 && size <= 4 && strcmp(backend, "nccl") == 0;
    matched.flags = TRIB_MATCH;
    unchecked.flags = TRIB_UNCHECKED;
    apart.peer_bytes = TRIB_NO_PEERS;
    check_begin("%s, %d ranks: creation", backend, size);
    const bool ready = team_create(&suite.team, backend, size, NULL);
    if (ready)
        look_at_reach(&suite);
    check_end();
    if (!ready)
        return;
    whole_suite(&suite);
    if (size <= 16 && CHECK(team_split_group(&suite.team, NULL)))
        light_suite(&suite, "group");
    if (size <= 4 && CHECK(team_open(&suite.team, &matched)))
        light_suite(&suite, "id, matched");
    if (size <= 4 && CHECK(team_open(&suite.team, &unchecked)))
        light_suite(&suite, "id, unchecked");
    if (has_peers && CHECK(team_open(&suite.team, &apart))) {
        suite.how = "id, no peers";
        suite.depth = depth;
        look_at_reach(&suite);
        backend_variants(&suite);
        backend_rounding(&suite);
        light_suite(&suite, suite.how);
    }
    team_destroy(&suite.team);
    backend_groups(backend, size, depth);
    backend_group_averages(backend, size);
    backend_closing(backend, size);
    printf("  %s, %d ranks: %llu collectives compared, %.1f s\n", backend, size,
           (unsigned long long)(backend_compared() - before), (check_now_ms() - start) / 1000);
}
