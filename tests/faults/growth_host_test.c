/* Nothing grows when communicators of the host backend are made, used, and closed or aborted, again
 * and again: no threads, descriptors, mappings or bytes. On GPUs: tests/nccl/growth_nccl.c.
 *
 *   growth_host_test [ROUNDS]      of each kind; 1,000, or 200 with TRIB_TEST_QUICK=1
 *
 * One small object that stays of each round is 32 bytes; the limit is 1 byte per round. */
#define _POSIX_C_SOURCE 200809L
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/faults/figures.h"
#include "tests/team.h"

enum { ELEMENTS = 1000, SPARSE = 512, LONG_MS = 30000, WINDOW_US = 3000 };

/* -------------------------------------------------------------------------------------- a round */

struct round {
    struct team team;
    trib_abort *handle; /* NULL: closed, not aborted */
    long after_us;      /* the abort */
};

static _Atomic int calls_aborted;

/* Calls may say that they were aborted, where that is what happens. */
static bool went(const struct round *round, trib_status status)
{
    if (round->handle == NULL || status != TRIB_ERR_ABORTED)
        return CHECK_OK(status);
    atomic_fetch_add(&calls_aborted, 1);
    return false;
}

static void exchange(const struct round *round, int rank, float *data)
{
    trib_comm *comm = round->team.comms[rank];
    const trib_stream stream = round->team.streams[rank];
    const int size = round->team.size;
    const trib_tensor list[] = {{data, 10, TRIB_F32, 0}, {data + 10, 300, TRIB_F32, 0}};
    went(round, trib_allreduce(comm, data, data, ELEMENTS, TRIB_F32, TRIB_SUM, stream));
    went(round, trib_allreduce_list(comm, list, 2, TRIB_AVG, stream));
    if (!went(round, trib_batch_begin(comm)))
        return;
    went(round, trib_send(comm, data, 100, TRIB_F32, (rank + 1) % size, stream));
    went(round, trib_recv(comm, data + 500, 100, TRIB_F32, (rank + size - 1) % size, stream));
    went(round, trib_batch_end(comm));
}

static void sparse(const struct round *round, int rank, float *data)
{
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    trib_sparse *state = NULL;
    const trib_stream stream = round->team.streams[rank];
    options.algorithm = "oktopk";
    went(round, trib_sparse_create(&state, round->team.comms[rank], SPARSE, TRIB_F32, &options));
    for (int step = 0; step < 2 && state != NULL; step++)
        went(round, trib_sparse_allreduce(state, data, data + SPARSE, stream));
    went(round, trib_sparse_destroy(state));
}

static void split(const struct round *round, int rank)
{
    trib_comm *child = NULL;
    went(round, trib_comm_split(&child, round->team.comms[rank], rank == 0, rank));
    if (child != NULL)
        went(round, trib_barrier(child, round->team.streams[rank]));
    went(round, trib_comm_destroy(child));
}

/* After the abort, or instead of it: all but the last rank go on. */
static void shrink(const struct round *round, int rank)
{
    const int32_t last = round->team.size - 1;
    trib_comm *rest = NULL;
    if (rank == last ||
        !CHECK_OK(trib_comm_shrink(&rest, round->team.comms[rank], &last, 1, LONG_MS)))
        return;
    CHECK_OK(trib_barrier(rest, round->team.streams[rank]));
    CHECK_OK(trib_comm_destroy(rest));
}

/* Rank `size` is the one that aborts. */
static void use(int rank, int n, void *argument)
{
    struct round *round = argument;
    struct team *team = &round->team;
    float *data = NULL;
    (void)n;
    if (rank == team->size) {
        const struct timespec pause = {0, round->after_us * 1000};
        nanosleep(&pause, NULL);
        CHECK_OK(trib_abort_raise(round->handle, "growth"));
        return;
    }
    if (!CHECK_OK(
            trib_device_alloc((void **)&data, team->devices[rank], 2 * ELEMENTS * sizeof *data)))
        return;
    memset(data, 0, 2 * ELEMENTS * sizeof *data);
    exchange(round, rank, data);
    sparse(round, rank, data);
    split(round, rank);
    if (round->handle != NULL)
        shrink(round, rank);
    CHECK_OK(trib_stream_wait(team->devices[rank], team->streams[rank]));
    CHECK_OK(trib_device_free(team->devices[rank], data));
}

/* Two ranks or three, through an id or a group. */
static void one(int number, bool aborts)
{
    struct round round = {.after_us = rand() % WINDOW_US};
    struct team *team = &round.team;
    const int size = 2 + number % 2;
    if (!team_prepare(team, "host", size) ||
        !(number % 4 < 2 ? team_open(team, NULL) : team_split_group(team, NULL)))
        return;
    if (aborts)
        CHECK_OK(trib_comm_abort_handle(&round.handle, team->comms[number % size]));
    check_ranks(aborts ? size + 1 : size, use, &round);
    team_destroy(team);
    trib_abort_release(round.handle);
}

static void many(int rounds, bool aborts)
{
    const int warm = rounds < 300 ? rounds : 300;
    check_begin("host: %d rounds of create, use, %s", rounds, aborts ? "abort" : "close");
    for (int i = 0; i < warm; i++)
        one(i, aborts);
    CHECK_OK(trib_quiesce(LONG_MS));
    printf(" "); /* so that stdout has its buffer */
    const struct figures before = figures_measure();
    for (int i = 0; i < rounds; i++)
        one(i, aborts);
    CHECK_OK(trib_quiesce(LONG_MS));
    figures_compare(before, rounds, (struct figures){0});
    CHECK((atomic_load(&calls_aborted) > 0) == aborts);
    check_end();
}

int main(int n, char **arguments)
{
    const int rounds = n > 1 ? atoi(arguments[1]) : getenv("TRIB_TEST_QUICK") == NULL ? 1000 : 200;
    figures_exact(arguments);
    many(rounds, false);
    many(rounds, true);
    return check_finish("growth_host_test");
}
