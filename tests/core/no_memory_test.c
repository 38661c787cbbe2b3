/* Memory runs out on one rank in a call of all ranks: each of its allocations fails in turn. Every
 * rank gets the error, none waits for ever, and no queued work reads freed memory (the address
 * sanitizer would see it). tests/injection fails the allocations of more calls; here queued work is
 * still there when the call gives up. */
#include <stdlib.h>
#include <string.h>

#include "tests/api/sparse.h"
#include "tests/injection/injection.h"

enum { RANKS = 3, MOST = 200 };

/* Of this thread's allocations from now on, number `at` fails. */
static void fail_at(int rank, int at)
{
    const struct injection_fault fault = {INJECT_NO_MEMORY, rank, at + 1};
    injection_arm(&fault);
    injection_enter(rank, NULL);
}

/* No more. Has it failed? */
static bool ended(void)
{
    injection_leave();
    return injection_fired() != NULL;
}

/* --------------------------------------------------------------------------- collective calls */

struct trial {
    struct team team;
    trib_status (*call)(struct fixture *fixture);
    bool fresh; /* it is made without a state */
    int at;     /* the allocation that fails */
    bool failed;
    _Atomic int arrived;
    trib_status found[RANKS];
};

static trib_status make(struct fixture *fixture)
{
    const trib_sparse_options options = fixture_options("oktopk", 4, 0);
    return trib_sparse_create(&fixture->sparse, fixture->comm, FIXTURE_COUNT, TRIB_F32, &options);
}

static trib_status larger_k(struct fixture *fixture)
{
    return trib_sparse_set_k(fixture->sparse, 700);
}

static trib_status density(struct fixture *fixture)
{
    return trib_sparse_set_density(fixture->sparse, 0.5);
}

static trib_status matched(struct fixture *fixture)
{
    return trib_barrier(fixture->comm, fixture->stream);
}

/* What the call queues waits for a list that has the workspace, and so is still there when the call
 * gives up. */
static void occupy(struct fixture *fixture)
{
    static int pause_ms = 10;
    const trib_tensor list = {fixture->result, 8, TRIB_F32, 0};
    CHECK_OK(trib_stream_submit(fixture->device, team_rest, &pause_ms, fixture->stream));
    CHECK_OK(trib_allreduce_list(fixture->comm, &list, 1, TRIB_SUM, fixture->stream));
}

static void body(int rank, int size, void *argument)
{
    struct trial *trial = argument;
    const trib_sparse_options options = fixture_options("topka", 4, 0);
    struct fixture fixture;
    if (!fixture_open(&fixture, &trial->team, rank, trial->fresh ? NULL : &options))
        return;
    occupy(&fixture);
    team_barrier(&trial->arrived, size); /* nobody is in a call before this one any more */
    if (rank == size - 1)
        fail_at(rank, trial->at);
    trial->found[rank] = trial->call(&fixture);
    if (rank == size - 1)
        trial->failed = ended();
    fixture_close(&fixture);
}

static void judge(const struct trial *trial)
{
    const trib_status odd = trial->found[RANKS - 1];
    CHECK_MSG(odd == TRIB_OK || odd == TRIB_ERR_OUT_OF_MEMORY, "allocation %d: %s", trial->at,
              trib_status_name(odd));
    for (int rank = 0; rank < RANKS - 1; rank++)
        CHECK_MSG(trial->found[rank] == odd, "allocation %d: %s on rank %d, %s where it failed",
                  trial->at, trib_status_name(trial->found[rank]), rank, trib_status_name(odd));
}

static void fail_in_turn(const char *name, trib_status (*call)(struct fixture *fixture), bool fresh,
                         uint32_t flags)
{
    trib_options options = TRIB_OPTIONS_INIT;
    bool more = true;
    int at = 0;
    options.flags = flags;
    options.timeout_ms = 20000; /* a rank that is left waiting finds another status */
    check_begin("%s: each allocation of one rank fails in turn", name);
    for (; more && at < MOST; at++) {
        struct trial trial = {.call = call, .fresh = fresh, .at = at};
        if (team_create(&trial.team, "host", RANKS, &options)) {
            check_ranks(RANKS, body, &trial);
            judge(&trial);
        }
        team_destroy(&trial.team);
        more = trial.failed;
    }
    /* On a stream that has been used there may be nothing to allocate. */
    CHECK_MSG((at > 2 || flags != 0) && !more, "%d allocations have failed", at - 1);
    check_end();
}

/* -------------------------------------------------------------------------------------- exports */

/* An export in which allocation `at` fails reports the same size, and writes a whole export or
 * none; never beyond. */
static bool export_fails_at(struct fixture *fixture, int at, uint64_t expected)
{
    enum { BEYOND = 4096 };
    bool any = false;
    fail_at(0, at);
    const uint64_t bytes = trib_sparse_export_bytes(fixture->sparse);
    any = ended();
    CHECK_MSG(bytes == expected, "%llu bytes, %llu before", (unsigned long long)bytes,
              (unsigned long long)expected);
    char *data = malloc((size_t)bytes + BEYOND);
    if (data == NULL)
        abort();
    memset(data, 0x5a, (size_t)bytes + BEYOND);
    fail_at(0, at);
    const trib_status status =
        trib_sparse_export(fixture->sparse, data, (size_t)bytes, fixture->stream);
    const bool failed = ended();
    injection_disarm();
    if (status == TRIB_OK)
        CHECK_OK(trib_sparse_import(fixture->sparse, data, (size_t)bytes, 0, fixture->stream));
    else
        CHECK_STATUS(status, failed ? TRIB_ERR_OUT_OF_MEMORY : TRIB_OK);
    for (size_t i = 0; i < BEYOND; i++)
        CHECK(data[bytes + i] == 0x5a);
    free(data);
    return any || failed;
}

static void exports(int rank, int size, void *team)
{
    static const char *const names[] = {"topka", "topkaopt", "oktopk"};
    struct fixture fixture;
    (void)size;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        trib_sparse_options options = fixture_options(names[i], 4, 0);
        options.constants = "vgg";
        if (!fixture_open(&fixture, team, rank, &options))
            return;
        fixture_fill(&fixture, 0, 100, 1);
        CHECK_OK(fixture_call(&fixture));
        const uint64_t bytes = trib_sparse_export_bytes(fixture.sparse);
        for (int at = 0; export_fails_at(&fixture, at, bytes) && at < MOST;)
            at++;
        fixture_close(&fixture);
    }
}

int main(void)
{
    fail_in_turn("sparse_create", make, true, 0);
    fail_in_turn("sparse_set_k", larger_k, false, 0);
    fail_in_turn("sparse_set_density", density, false, 0);
    fail_in_turn("a matched barrier", matched, true, TRIB_MATCH);
    fixture_ranks("host", 1, NULL, exports, "each allocation of an export fails in turn");
    return check_finish("no_memory_test");
}
