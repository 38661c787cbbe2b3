/* What waits for other ranks, on every rank of a group at once. */
#include "csrc/core/group_run.h"

#include <stdlib.h>

/* What became of a rank's part. */
struct result {
    trib_status status;
    struct tri_detail_copy detail;
};

struct round {
    struct trib_group *group;
    trib_status (*function)(struct trib_comm *comm, int32_t rank, void *argument);
    void *argument;
    struct result *results;
};

static void run_rank(int32_t rank, void *argument)
{
    const struct round *round = argument;
    struct result *result = &round->results[rank];
    result->status = round->function(round->group->comms[rank], rank, round->argument);
    if (result->status != TRIB_OK)
        result->detail = tri_detail_copy();
}

/* The failure of the first rank that has one. */
static trib_status first_failure(const struct round *round)
{
    for (int32_t rank = 0; rank < round->group->size; rank++)
        if (round->results[rank].status != TRIB_OK)
            return tri_fail(round->results[rank].status, "%s", round->results[rank].detail.text);
    return TRIB_OK;
}

trib_status tri_group_run(struct trib_group *group, int operation,
                          trib_status (*function)(struct trib_comm *comm, int32_t rank,
                                                  void *argument),
                          void *argument)
{
    struct round round = {group, function, argument, NULL};
    if (group->running)
        return tri_fail_call(group->comms[0], operation, TRIB_ERR_INVALID_USAGE,
                             "a function that trib_group_run has called makes this call: there, "
                             "use the rank's communicator alone");
    if (group->team == NULL)
        TRI_TRY(tri_team_create(&group->team, group->size));
    round.results = calloc((size_t)group->size, sizeof *round.results);
    if (round.results == NULL)
        return tri_fail_call(group->comms[0], operation, TRIB_ERR_OUT_OF_MEMORY,
                             "no memory for the results of %d ranks", group->size);
    group->running = true;
    tri_team_run(group->team, run_rank, &round);
    group->running = false;
    const trib_status status = first_failure(&round);
    free(round.results);
    return status;
}
