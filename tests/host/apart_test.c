/* Ranks of one process can pass the same memory to receive into, by mistake: the host backend, which
 * sees all buffers of a call, refuses it. */
#include <stdint.h>
#include <string.h>

#include "tests/team.h"

/* MANY elements are too many to be staged. */
enum { RANKS = 3, FEW = 4, MANY = 10000, BOUND_MS = 20000 };

static int32_t send[RANKS][RANKS * MANY], recv[2 * RANKS * RANKS * MANY];

struct trial {
    const char *name;
    trib_status (*call)(struct team *team, int rank, int32_t *out, size_t count);
    bool blocks; /* receives a block of every rank */
};

static trib_status allreduce(struct team *team, int rank, int32_t *out, size_t count)
{
    return trib_allreduce(team->comms[rank], send[rank], out, count, TRIB_I32, TRIB_SUM,
                          team->streams[rank]);
}

static trib_status broadcast(struct team *team, int rank, int32_t *out, size_t count)
{
    return trib_broadcast(team->comms[rank], send[rank], out, count, TRIB_I32, 1,
                          team->streams[rank]);
}

static trib_status reduce_scatter(struct team *team, int rank, int32_t *out, size_t count)
{
    return trib_reduce_scatter(team->comms[rank], send[rank], out, count, TRIB_I32, TRIB_SUM,
                               team->streams[rank]);
}

static trib_status allgather(struct team *team, int rank, int32_t *out, size_t count)
{
    return trib_allgather(team->comms[rank], send[rank], out, count, TRIB_I32, team->streams[rank]);
}

static const struct trial trials[] = {{"allreduce", allreduce, false},
                                      {"broadcast", broadcast, false},
                                      {"reduce_scatter", reduce_scatter, false},
                                      {"allgather", allgather, true}};

/* The buffers of ranks 0 and 2 begin `apart` elements apart, and that of rank 1 is behind both. Each
 * rank's status once all have run. */
static void queue(struct team *team, const struct trial *trial, size_t count, size_t apart,
                  trib_status expected)
{
    const size_t behind = 2 * RANKS * (size_t)MANY;
    for (int rank = 0; rank < RANKS; rank++) {
        int32_t *out = recv + (rank == 0 ? 0 : rank == 1 ? behind : apart);
        const trib_status status = trial->call(team, rank, out, count);
        CHECK(status == TRIB_OK || (expected != TRIB_OK && status == TRIB_ERR_ABORTED));
    }
    for (int rank = 0; rank < RANKS; rank++) {
        CHECK(team_wait(team, rank, BOUND_MS));
        CHECK_STATUS(trib_comm_status(team->comms[rank]), expected);
        if (expected != TRIB_OK) {
            CHECK_DETAIL("ranks 0 and 2 receive into the same memory");
            CHECK_DETAIL(trial->name);
        }
    }
}

static void trial(const struct trial *of, size_t count)
{
    const size_t received = of->blocks ? RANKS * count : count;
    const size_t overlaps[] = {0, received - 1};
    struct team team;
    for (int i = 0; i < 2; i++) {
        check_begin("trib_%s of %zu: overlap from element %zu on", of->name, count, overlaps[i]);
        if (team_create(&team, "host", RANKS, NULL)) {
            queue(&team, of, count, received, TRIB_OK); /* side by side */
            queue(&team, of, count, overlaps[i], TRIB_ERR_INVALID_BUFFER);
        }
        team_destroy(&team);
        check_end();
    }
}

/* Only the root receives, whatever the others pass. */
static void only_the_root(void)
{
    struct team team;
    check_begin("trib_reduce: the others do not receive");
    if (team_create(&team, "host", RANKS, NULL)) {
        for (int rank = 0; rank < RANKS; rank++)
            CHECK_OK(trib_reduce(team.comms[rank], send[rank], recv, MANY, TRIB_I32, TRIB_SUM, 0,
                                 team.streams[rank]));
        for (int rank = 0; rank < RANKS; rank++) {
            CHECK(team_wait(&team, rank, BOUND_MS));
            CHECK_OK(trib_comm_status(team.comms[rank]));
        }
    }
    team_destroy(&team);
    check_end();
}

int main(void)
{
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
        trial(&trials[i], FEW);
        trial(&trials[i], MANY);
    }
    only_the_root();
    return check_finish("apart_test");
}
