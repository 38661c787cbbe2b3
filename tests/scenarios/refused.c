/* After an abort every function that works with the communicator says so: its name, the rank, that
 * it was aborted, and why. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/scenarios/scenario.h"

enum { BLOCK = 4 };

static const char reason[] = "the second loader is out of data";

struct refused {
    struct team team;
    struct fault_data data[TEAM_MAX];
    trib_sparse *states[TEAM_MAX];
};

static void refuses(trib_status status, const char *name, int rank)
{
    char where[32];
    (void)snprintf(where, sizeof where, "rank %d", rank);
    CHECK_MSG(status == TRIB_ERR_ABORTED, "%s is %s: %s", name, trib_status_name(status),
              trib_last_detail());
    CHECK_DETAIL(name);
    CHECK_DETAIL(where);
    CHECK_DETAIL("aborted");
    CHECK_DETAIL(reason);
}

#define REFUSES(name, ...) refuses(name(__VA_ARGS__), #name, rank)

static void collectives(struct refused *refused, int rank)
{
    trib_comm *comm = refused->team.comms[rank];
    trib_stream stream = refused->team.streams[rank];
    const int peer = (rank + 1) % refused->team.size;
    float *a = fault_data_at(&refused->data[rank]), *b = a + FAULT_ELEMENTS / 2;
    const trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    REFUSES(trib_allreduce, comm, a, a, BLOCK, TRIB_F32, TRIB_SUM, stream);
    REFUSES(trib_allreduce_with, comm, a, a, BLOCK, TRIB_F32, TRIB_SUM, &options, stream);
    REFUSES(trib_broadcast, comm, a, a, BLOCK, TRIB_F32, 0, stream);
    REFUSES(trib_reduce, comm, a, b, BLOCK, TRIB_F32, TRIB_SUM, 0, stream);
    REFUSES(trib_allgather, comm, a, b, BLOCK, TRIB_F32, stream);
    REFUSES(trib_reduce_scatter, comm, a, b, BLOCK, TRIB_F32, TRIB_SUM, stream);
    REFUSES(trib_alltoall, comm, a, b, BLOCK, TRIB_F32, stream);
    REFUSES(trib_gather, comm, a, b, BLOCK, TRIB_F32, 0, stream);
    REFUSES(trib_scatter, comm, a, b, BLOCK, TRIB_F32, 0, stream);
    REFUSES(trib_send, comm, a, BLOCK, TRIB_F32, peer, stream);
    REFUSES(trib_recv, comm, a, BLOCK, TRIB_F32, peer, stream);
    REFUSES(trib_barrier, comm, stream);
}

static void vectors_and_lists(struct refused *refused, int rank)
{
    trib_comm *comm = refused->team.comms[rank];
    trib_stream stream = refused->team.streams[rank];
    float *a = fault_data_at(&refused->data[rank]), *b = a + FAULT_ELEMENTS / 2;
    const size_t counts[TEAM_MAX] = {0}, offsets[TEAM_MAX] = {0};
    const trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    const trib_tensor list[] = {{a, BLOCK, TRIB_F32, 0}, {b, BLOCK, TRIB_F32, 0}};
    REFUSES(trib_allgatherv, comm, a, b, counts, offsets, TRIB_F32, stream);
    REFUSES(trib_alltoallv, comm, a, counts, offsets, b, counts, offsets, TRIB_F32, stream);
    REFUSES(trib_allreduce_list, comm, list, 2, TRIB_SUM, stream);
    REFUSES(trib_allreduce_list_with, comm, list, 2, TRIB_SUM, &options, stream);
    REFUSES(trib_broadcast_list, comm, list, 2, 0, stream);
    REFUSES(trib_weighted_average, comm, list, 2, 1, NULL, NULL, stream);
}

static void sparse_calls(struct refused *refused, int rank)
{
    trib_comm *comm = refused->team.comms[rank];
    trib_stream stream = refused->team.streams[rank];
    trib_sparse *state = refused->states[rank], *made = state;
    float *a = fault_data_at(&refused->data[rank]), *b = a + FAULT_ELEMENTS / 2;
    REFUSES(trib_sparse_create, &made, comm, BLOCK, TRIB_F32, NULL);
    CHECK(made == NULL);
    REFUSES(trib_sparse_allreduce, state, a, b, stream);
    REFUSES(trib_sparse_set_k, state, 2);
    REFUSES(trib_sparse_set_density, state, 0.5);
    REFUSES(trib_sparse_reset, state, stream);
    CHECK_STATUS(trib_sparse_status(state), TRIB_ERR_ABORTED);
    CHECK_DETAIL(reason);
}

static void life(struct refused *refused, int rank)
{
    trib_comm *comm = refused->team.comms[rank], *child = comm;
    REFUSES(trib_batch_begin, comm);
    REFUSES(trib_comm_split, &child, comm, 0, 0);
    CHECK(child == NULL);
    REFUSES(trib_comm_wait, comm, refused->team.streams[rank], TRIB_NO_TIMEOUT);
    CHECK_STATUS(trib_comm_status(comm), TRIB_ERR_ABORTED);
    CHECK_DETAIL(reason);
}

static void prepare_rank(int rank, int size, void *argument)
{
    struct refused *refused = argument;
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    (void)size;
    options.algorithm = "topka";
    if (fault_data_create(&refused->data[rank], &refused->team, rank))
        fault_data_put(&refused->data[rank], &refused->team, rank);
    CHECK_OK(trib_sparse_create(&refused->states[rank], refused->team.comms[rank], BLOCK, TRIB_F32,
                                &options));
}

static void refused_rank(int rank, int size, void *argument)
{
    struct refused *refused = argument;
    (void)size;
    collectives(refused, rank);
    vectors_and_lists(refused, rank);
    sparse_calls(refused, rank);
    life(refused, rank);
    fault_data_is(&refused->data[rank], &refused->team, rank, false, "what nobody may touch");
}

void scenario_refused(const struct faults *faults)
{
    struct refused *refused = calloc(1, sizeof *refused);
    if (refused == NULL)
        abort();
    check_begin("%s, %d ranks: every call after an abort", faults->backend, faults->size);
    if (faults_team(&refused->team, faults, NULL)) {
        check_ranks(faults->size, prepare_rank, refused);
        const double raised_at = check_now_ms();
        faults_abort(&refused->team, reason);
        check_ranks(faults->size, refused_rank, refused);
        faults_returned(faults, check_now_ms() - raised_at);
        for (int rank = 0; rank < faults->size; rank++) {
            CHECK_OK(trib_sparse_destroy(refused->states[rank]));
            fault_data_destroy(&refused->data[rank]);
        }
    }
    team_destroy(&refused->team);
    check_end();
    free(refused);
}
