/* The conformance suite on the host backend.
 *
 * TRIB_TEST_QUICK=1 in the environment: fewer counts, roots and ranks, for sanitizers.
 * TRIB_TEST_LARGE=1: also one allreduce of more than 2^31 elements (5 GB of memory). */
#include <stdio.h>
#include <stdlib.h>

#include "tests/conformance/backend/backend.h"

enum { LARGE_RANKS = 2 };
static const size_t large_count = ((size_t)1 << 31) + 3;

static void large_rank(int rank, int size, void *argument)
{
    const struct team *team = argument;
    void *memory = NULL;
    (void)size;
    if (!CHECK_OK(trib_device_alloc(&memory, team->devices[rank], large_count)))
        return;
    signed char *bytes = memory;
    for (size_t i = 0; i < large_count; i++)
        bytes[i] = (signed char)((i % 251 + (size_t)rank) % 60);
    CHECK_OK(trib_allreduce(team->comms[rank], memory, memory, large_count, TRIB_I8, TRIB_SUM,
                            team->streams[rank]));
    CHECK_OK(trib_stream_wait(team->devices[rank], team->streams[rank]));
    CHECK_OK(trib_comm_status(team->comms[rank]));
    size_t wrong = 0;
    for (size_t i = 0; i < large_count; i++)
        wrong += bytes[i] != (signed char)(i % 251 % 60 + (i % 251 + 1) % 60);
    CHECK_MSG(wrong == 0, "%zu elements are wrong", wrong);
    CHECK_OK(trib_device_free(team->devices[rank], memory));
}

static void large(void)
{
    struct team team;
    if (getenv("TRIB_TEST_LARGE") == NULL) {
        check_skip("an allreduce of 2^31 + 3 elements: TRIB_TEST_LARGE is not set");
        return;
    }
    check_begin("host, %d ranks: allreduce of %zu elements", LARGE_RANKS, large_count);
    if (team_create(&team, "host", LARGE_RANKS, NULL))
        check_ranks(LARGE_RANKS, large_rank, &team);
    team_destroy(&team);
    check_end();
}

int main(void)
{
    /* Under the thread sanitizer, where ranks that spin for each other take long, fewer. */
#ifdef __SANITIZE_THREAD__
    static const int sizes[] = {1, 2, 3, 4};
    const int many = 16;
#else
    static const int sizes[] = {1, 2, 3, 4, 7, 8};
    const int many = backend_depth() == BACKEND_WHOLE ? 64 : 33;
#endif
    const enum backend_depth depth = backend_depth();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        backend_suite("host", sizes[i],
                      sizes[i] > 4 && depth == BACKEND_QUICK ? BACKEND_LIGHT : depth);
    /* What is kept for a rank in a bit or a byte shows with 33 as well as with 64. The work grows with the square. */
    backend_suite("host", many, BACKEND_LIGHT);
    large();
    printf("host: %llu collectives compared\n", (unsigned long long)backend_compared());
    return check_finish("backend_host_test");
}
