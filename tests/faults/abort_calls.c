/* Aborts: every function that waits for other ranks, while it waits. A call that began before an
 * abort and ends after it reports the abort, never success. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/faults/abort.h"

enum where {
    SPLIT,
    SPARSE_CREATE,
    SPARSE_SET_K,
    SPARSE_SET_DENSITY,
    SPARSE_IMPORT,
    MATCHED, /* from here on with TRIB_MATCH: every call waits */
    MATCHED_ALLREDUCE = MATCHED,
    MATCHED_BROADCAST,
    MATCHED_ALLGATHERV,
    MATCHED_LIST,
    MATCHED_WEIGHTED,
    MATCHED_SPARSE,
    MATCHED_BATCH,
    WHERES
};

static const char *const names[WHERES] = {"comm_split",
                                          "sparse_create",
                                          "sparse_set_k",
                                          "sparse_set_density",
                                          "sparse_import",
                                          "a compared allreduce",
                                          "a compared broadcast",
                                          "a compared allgatherv",
                                          "a compared list",
                                          "a compared weighted average",
                                          "a compared sparse allreduce",
                                          "a compared batch"};

static bool has_state(enum where where)
{
    return (where > SPARSE_CREATE && where < MATCHED) || where == MATCHED_SPARSE;
}

/* The last rank never makes the call. */
struct waiting {
    struct team team;
    const struct faults *faults;
    enum where where;
    trib_abort *handle;
    double raised_at;
    trib_sparse *states[TEAM_MAX];
    struct fault_data data[TEAM_MAX];
    _Atomic int begun, back;
};

static trib_status import(trib_sparse *sparse, trib_stream stream)
{
    const size_t bytes = (size_t)trib_sparse_export_bytes(sparse);
    void *export = malloc(bytes);
    if (export == NULL)
        abort();
    CHECK_OK(trib_sparse_export(sparse, export, bytes, stream));
    const trib_status status = trib_sparse_import(sparse, export, bytes, 0, stream);
    free(export);
    return status;
}

static trib_status batch(trib_comm *comm, float *data, trib_stream stream)
{
    CHECK_OK(trib_batch_begin(comm));
    CHECK_OK(trib_allreduce(comm, data, data, 8, TRIB_F32, TRIB_SUM, stream));
    CHECK_OK(trib_broadcast(comm, data + 8, data + 8, 8, TRIB_F32, 0, stream));
    return trib_batch_end(comm);
}

/* A call that needs every rank's part. */
static trib_status matched(const struct waiting *waiting, int rank, float *data)
{
    static const size_t counts[TEAM_MAX] = {4}, offsets[TEAM_MAX] = {0};
    trib_comm *comm = waiting->team.comms[rank];
    trib_stream stream = waiting->team.streams[rank];
    const trib_tensor list[] = {{data, 8, TRIB_F32, 0}, {data + 8, 3, TRIB_F32, 0}};
    switch (waiting->where) {
    case MATCHED_ALLREDUCE:
        return trib_allreduce(comm, data, data, 8, TRIB_F32, TRIB_SUM, stream);
    case MATCHED_BROADCAST:
        return trib_broadcast(comm, data, data, 8, TRIB_F32, 0, stream);
    case MATCHED_ALLGATHERV:
        return trib_allgatherv(comm, data + 16, data, counts, offsets, TRIB_F32, stream);
    case MATCHED_LIST:
        return trib_allreduce_list(comm, list, 2, TRIB_SUM, stream);
    case MATCHED_WEIGHTED:
        return trib_weighted_average(comm, list, 2, 1, NULL, NULL, stream);
    case MATCHED_SPARSE:
        return trib_sparse_allreduce(waiting->states[rank], data, data, stream);
    default:
        return batch(comm, data, stream);
    }
}

static trib_status call(const struct waiting *waiting, int rank)
{
    trib_comm *comm = waiting->team.comms[rank], *child = NULL;
    trib_sparse *sparse = NULL;
    trib_status status = TRIB_OK;
    switch (waiting->where) {
    case SPLIT:
        status = trib_comm_split(&child, comm, 0, 0);
        CHECK(child == NULL);
        return status;
    case SPARSE_CREATE:
        status = trib_sparse_create(&sparse, comm, FAULT_ELEMENTS, TRIB_F32, NULL);
        CHECK(sparse == NULL);
        return status;
    case SPARSE_SET_K:
        return trib_sparse_set_k(waiting->states[rank], 9);
    case SPARSE_SET_DENSITY:
        return trib_sparse_set_density(waiting->states[rank], 0.5);
    case SPARSE_IMPORT:
        return import(waiting->states[rank], waiting->team.streams[rank]);
    default:
        return matched(waiting, rank, fault_data_at(&waiting->data[rank]));
    }
}

static void waiting_rank(struct waiting *waiting, int rank)
{
    atomic_fetch_add(&waiting->begun, 1);
    CHECK_STATUS(call(waiting, rank), TRIB_ERR_ABORTED);
    CHECK_DETAIL("while they waited");
    faults_returned(waiting->faults, check_now_ms() - waiting->raised_at);
    atomic_fetch_add(&waiting->back, 1);
    if (has_state(waiting->where))
        CHECK_STATUS(trib_sparse_status(waiting->states[rank]), TRIB_ERR_ABORTED);
}

static void member(int index, int size, void *argument)
{
    struct waiting *waiting = argument;
    const int ranks = size - 1;
    if (index < ranks - 1)
        waiting_rank(waiting, index);
    if (index < ranks)
        return;
    while (atomic_load(&waiting->begun) < ranks - 1)
        check_sleep_ms(1);
    check_sleep_ms(30);
    CHECK(atomic_load(&waiting->back) == 0);
    waiting->raised_at = check_now_ms();
    CHECK_OK(trib_abort_raise(waiting->handle, "while they waited"));
}

static void prepare_rank(int rank, int size, void *argument)
{
    struct waiting *waiting = argument;
    const struct team *team = &waiting->team;
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    (void)size;
    options.algorithm = "topka";
    if (fault_data_create(&waiting->data[rank], team, rank))
        fault_data_put(&waiting->data[rank], team, rank);
    if (has_state(waiting->where))
        CHECK_OK(trib_sparse_create(&waiting->states[rank], team->comms[rank], FAULT_ELEMENTS,
                                    TRIB_F32, &options));
}

static void while_waiting(const struct faults *faults, enum where where)
{
    struct waiting waiting = {.faults = faults, .where = where};
    struct team *team = &waiting.team;
    trib_options options = TRIB_OPTIONS_INIT;
    options.flags = where >= MATCHED ? TRIB_MATCH : 0;
    check_begin("%s, %d ranks: abort while ranks wait in %s", faults->backend, faults->size,
                names[where]);
    if (faults_team(team, faults, &options) &&
        CHECK_OK(trib_comm_abort_handle(&waiting.handle, team->comms[0]))) {
        check_ranks(team->size, prepare_rank, &waiting);
        check_ranks(team->size + 1, member, &waiting);
        faults_all_aborted(team, "while they waited");
        for (int rank = 0; rank < team->size; rank++) {
            CHECK_OK(trib_sparse_destroy(waiting.states[rank]));
            fault_data_destroy(&waiting.data[rank]);
        }
        trib_abort_release(waiting.handle);
    }
    team_destroy(team);
    faults_fresh(faults);
    check_end();
}

void faults_while_waiting(const struct faults *faults)
{
    enum where where = 0;
    while (where < WHERES && strcmp(faults->call, names[where]) != 0)
        where++;
    if (CHECK(where < WHERES))
        while_waiting(faults, where);
}

/* --------------------------------------------------------------------------------------- close */

struct closing {
    struct team team;
    _Atomic bool released;
    _Atomic int begun;
    trib_abort *handle;
    int bound_ms;
};

/* All ranks queue a barrier; the stream of the last rank does not reach it. */
static void queue_rank(int rank, int size, void *argument)
{
    struct closing *closing = argument;
    struct team *team = &closing->team;
    if (rank == size - 1)
        CHECK_OK(trib_stream_submit(team->devices[rank], team_hold, &closing->released,
                                    team->streams[rank]));
    CHECK_OK(trib_barrier(team->comms[rank], team->streams[rank]));
}

/* Thread 0 closes the last rank, which waits; thread 1 aborts. */
static void closing_member(int index, int size, void *argument)
{
    struct closing *closing = argument;
    const struct team *team = &closing->team;
    (void)size;
    if (index == 0) {
        atomic_store(&closing->begun, 1);
        const double start = check_now_ms();
        CHECK_STATUS(trib_comm_close(team->comms[team->size - 1], 60000), TRIB_ERR_ABORTED);
        CHECK(check_now_ms() - start < 30 + closing->bound_ms); /* the stream is still held */
        CHECK_DETAIL("while one closed");
        atomic_store(&closing->begun, 2);
        return;
    }
    while (atomic_load(&closing->begun) == 0)
        check_sleep_ms(1);
    check_sleep_ms(30);
    CHECK(atomic_load(&closing->begun) == 1);
    CHECK_OK(trib_abort_raise(closing->handle, "while one closed"));
}

static void while_closing(const struct faults *faults)
{
    struct closing closing = {.released = false, .bound_ms = faults->bound_ms};
    struct team *team = &closing.team;
    check_begin("%s, %d ranks: abort while the last rank closes", faults->backend, faults->size);
    if (faults_team(team, faults, NULL) &&
        CHECK_OK(trib_comm_abort_handle(&closing.handle, team->comms[0]))) {
        check_ranks(team->size, queue_rank, &closing);
        for (int rank = 0; rank < team->size - 1; rank++)
            CHECK_OK(trib_comm_close(team->comms[rank], 60000));
        check_ranks(2, closing_member, &closing);
        for (int rank = 0; rank < team->size; rank++) {
            CHECK_OK(trib_comm_destroy(team->comms[rank])); /* that is what the caller wants */
            team->comms[rank] = NULL;
        }
        atomic_store(&closing.released, true);
        for (int rank = 0; rank < team->size; rank++)
            team_wait(team, rank, faults->bound_ms);
        trib_abort_release(closing.handle);
    }
    atomic_store(&closing.released, true);
    team_destroy(team);
    faults_fresh(faults);
    check_end();
}

/* To close what was aborted before is no failure. */
static void closed_afterwards(const struct faults *faults)
{
    struct team team;
    trib_abort *handle = NULL;
    check_begin("%s, %d ranks: close after an abort", faults->backend, faults->size);
    if (faults_team(&team, faults, NULL) &&
        CHECK_OK(trib_comm_abort_handle(&handle, team.comms[0]))) {
        CHECK_OK(trib_abort_raise(handle, "before the close"));
        for (int rank = 0; rank < team.size; rank++)
            CHECK_OK(trib_comm_close(team.comms[rank], 60000));
        trib_abort_release(handle);
    }
    team_destroy(&team);
    faults_fresh(faults);
    check_end();
}

void faults_calls(const struct faults *faults)
{
    for (enum where where = 0; where < WHERES; where++)
        while_waiting(faults, where);
    while_closing(faults);
    closed_afterwards(faults);
}
