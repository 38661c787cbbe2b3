/* Batches of several communicators: one group of NCCL's, which fails as one. One thread makes the
 * first calls of all ranks, which only a group survives. */
#include "tests/nccl_fake/batches.h"

#include <nccl.h>
#include <stdatomic.h>

#include "csrc/base/clock.h"
#include "csrc/nccl/local.h"
#include "csrc/nccl/quiesce.h"
#include "tests/check.h"
#include "tests/nccl_fake/fake.h"
#include "tests/nccl_fake/fixture.h"

enum { PLENTY_MS = 20000, RANKS = 2, CALLS = 2 * RANKS };

/* Two communicators on the same devices. */
struct pair {
    struct tri_transport *ranks[CALLS]; /* both of the first, both of the second */
    struct tri_call calls[CALLS];
    size_t n;   /* of the calls, to make */
    int closed; /* which of the ranks is, already; -1: none */
    struct trib_abort *states[2];
    _Atomic int status; /* of the call that `run` makes; -1: not yet */
};

static bool open_pair(struct pair *pair)
{
    static const int32_t ordinals[RANKS] = {0, 1};
    static float memory[CALLS][4];
    const struct tri_transport_ops *ops = transports();
    if (!CHECK_OK(ops->open_group(pair->ranks, ordinals, RANKS, NULL, PLENTY_MS)) ||
        !CHECK_OK(ops->open_group(pair->ranks + RANKS, ordinals, RANKS, NULL, PLENTY_MS)))
        return false;
    for (int i = 0; i < CALLS; i++)
        pair->calls[i] = one_call(pair->ranks[i], TRI_ALLREDUCE, memory[i], memory[i], NULL);
    pair->n = CALLS;
    pair->closed = -1;
    pair->states[0] = ops->abort_state(pair->ranks[0]);
    pair->states[1] = ops->abort_state(pair->ranks[RANKS]);
    return true;
}

static void close_pair(struct pair *pair)
{
    uint32_t graphs = 0;
    for (int i = 0; i < CALLS; i++)
        if (i != pair->closed)
            (void)transports()->close(pair->ranks[i], PLENTY_MS);
    for (int i = 0; i < CALLS; i++)
        transports()->destroy(pair->ranks[i]);
    CHECK(tri_nccl_quiesce(tri_deadline_ns(PLENTY_MS), &graphs) == 0);
    CHECK(fake_communicators() == 0);
}

static trib_status make(const struct pair *pair)
{
    for (int i = 0; i < 2; i++)
        CHECK(tri_abort_register(pair->states[i]));
    const trib_status status = transports()->collective(pair->calls, pair->n);
    for (int i = 0; i < 2; i++)
        tri_abort_unregister(pair->states[i]);
    return status;
}

static bool each_made(const struct pair *pair, uint64_t calls)
{
    bool all = true;
    for (int i = 0; i < CALLS; i++)
        all = all && atomic_load(&pair->ranks[i]->calls) == calls;
    return all;
}

static void together(const char *name, int error, trib_status expected, bool live)
{
    struct pair pair;
    check_begin("nccl over a fake: batches of two communicators: %s", name);
    if (open_pair(&pair)) {
        CHECK_OK(make(&pair));
        CHECK(each_made(&pair, 1));
        fake_async_error(1, error);
        CHECK_STATUS(make(&pair), expected);
        fake_async_error(1, ncclSuccess);
        CHECK(tri_abort_live(pair.states[0]) == live && tri_abort_live(pair.states[1]) == live);
        CHECK(!live || each_made(&pair, expected == TRIB_OK ? 2 : 1));
        close_pair(&pair);
    }
    check_end();
}

static void run(int rank, int size, void *argument)
{
    struct pair *pair = argument;
    (void)size;
    if (rank == 0) {
        atomic_store(&pair->status, (int)make(pair));
        return;
    }
    check_sleep_ms(50); /* it waits inside for the last rank of the second communicator */
    CHECK(atomic_load(&pair->status) == -1);
    CHECK(tri_abort_raise(pair->states[0], TRIB_ERR_ABORTED, "the first one"));
    check_sleep_ms(50); /* nothing is freed while the group is open: the fake would end us */
    CHECK(atomic_load(&pair->status) == -1);
    CHECK(tri_abort_raise(pair->states[1], TRIB_ERR_ABORTED, "the second one"));
}

static void aborted(void)
{
    struct pair pair;
    check_begin("nccl over a fake: batches of two communicators, aborted one after the other");
    if (open_pair(&pair)) {
        pair.n = CALLS - 1;
        atomic_init(&pair.status, -1);
        check_ranks(2, run, &pair);
        CHECK_STATUS((trib_status)atomic_load(&pair.status), TRIB_ERR_ABORTED);
        close_pair(&pair);
    }
    check_end();
}

/* A rank of the first has left: NCCL gets nothing, and the second goes on. */
static void one_has_left(void)
{
    struct pair pair;
    check_begin("nccl over a fake: batches of two communicators, one of which a rank has left");
    if (open_pair(&pair)) {
        CHECK_OK(make(&pair));
        pair.closed = 1;
        CHECK_OK(transports()->close(pair.ranks[1], PLENTY_MS));
        pair.calls[1] = pair.calls[RANKS];
        pair.calls[2] = pair.calls[RANKS + 1];
        pair.n = 3;
        CHECK_STATUS(make(&pair), TRIB_ERR_CLOSED);
        CHECK(!tri_abort_live(pair.states[0]) && tri_abort_live(pair.states[1]));
        CHECK(atomic_load(&pair.ranks[RANKS]->calls) == 1);
        CHECK_OK(transports()->collective(&pair.calls[1], RANKS));
        CHECK(atomic_load(&pair.ranks[RANKS]->calls) == 2);
        close_pair(&pair);
    }
    check_end();
}

void batches(void)
{
    together("both run", ncclSuccess, TRIB_OK, true);
    together("NCCL refuses them", ncclInvalidArgument, TRIB_ERR_INVALID_ARGUMENT, true);
    together("NCCL fails", ncclSystemError, TRIB_ERR_NCCL, false);
    aborted();
    one_has_left();
}
