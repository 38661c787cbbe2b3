/* A rank that never comes to a call in which all ranks meet: the others are told when the deadline of the
 * communicator has passed. */
#include <stdlib.h>

#include "csrc/core/communicator.h"
#include "tests/api/sparse.h"

enum { DEADLINE_MS = 150, PATIENCE_MS = 10000 };

enum where { CREATE, SET_K, SET_DENSITY, IMPORT, SPARSE_ALLREDUCE, ALLREDUCE, BARRIER, LIST, BATCH, WHERES };

/* The name of the function, and whether it is TRIB_MATCH that makes it a meeting. */
static const struct {
    const char *name;
    bool matches;
} calls[WHERES] = {
    {"sparse_create", false}, {"sparse_set_k", false},    {"sparse_set_density", false},
    {"sparse_import", false}, {"sparse_allreduce", true}, {"allreduce", true},
    {"barrier", true},        {"allreduce_list", true},   {"batch_end", true},
};

struct late {
    struct team team;
    enum where where;
    _Atomic int arrived, back;
};

static trib_status import(struct desk *desk)
{
    size_t bytes;
    char *data = desk_export(desk, &bytes);
    const trib_status status = trib_sparse_import(desk->sparse, data, bytes, 0, desk->stream);
    free(data);
    return status;
}

static trib_status call(struct desk *desk, enum where where)
{
    const trib_sparse_options options = desk_options("topka", 4, 0);
    const trib_tensor list = {desk->result, 8, TRIB_F32, 0};
    trib_sparse *sparse = NULL;
    switch (where) {
    case CREATE:
        return trib_sparse_create(&sparse, desk->comm, DESK_COUNT, TRIB_F32, &options);
    case SET_K:
        return trib_sparse_set_k(desk->sparse, 9);
    case SET_DENSITY:
        return trib_sparse_set_density(desk->sparse, 0.5);
    case IMPORT:
        return import(desk);
    case SPARSE_ALLREDUCE:
        return trib_sparse_allreduce(desk->sparse, desk->gradient, desk->result, desk->stream);
    case ALLREDUCE:
        return trib_allreduce(desk->comm, desk->result, desk->result, 8, TRIB_F32, TRIB_SUM,
                              desk->stream);
    case BARRIER:
        return trib_barrier(desk->comm, desk->stream);
    case LIST:
        return trib_allreduce_list(desk->comm, &list, 1, TRIB_SUM, desk->stream);
    default:
        CHECK_OK(trib_batch_begin(desk->comm));
        CHECK_OK(trib_allreduce(desk->comm, desk->result, desk->result, 8, TRIB_F32, TRIB_SUM,
                                desk->stream));
        return trib_batch_end(desk->comm);
    }
}

/* Until all others are back; if they never are, an abort lets them go, and they find another status. */
static void stay_away(struct late *late, struct desk *desk)
{
    const double end = check_now_ms() + PATIENCE_MS;
    trib_abort *handle = NULL;
    while (atomic_load(&late->back) < desk->size - 1 && check_now_ms() < end)
        check_sleep_ms(1);
    if (atomic_load(&late->back) == desk->size - 1)
        return;
    CHECK_OK(trib_comm_abort_handle(&handle, desk->comm));
    CHECK_OK(trib_abort_raise(handle, "the others have waited for too long"));
    trib_abort_release(handle);
}

static void body(int rank, int size, void *argument)
{
    struct late *late = argument;
    const trib_sparse_options options = desk_options("topka", 4, 0);
    struct desk desk;
    if (!desk_open(&desk, &late->team, rank, &options))
        return;
    team_meet(&late->arrived, size); /* what comes before has all the time in the world */
    desk.comm->timeout_ms = DEADLINE_MS;
    if (rank == size - 1) {
        stay_away(late, &desk);
    } else {
        const double begin = check_now_ms();
        CHECK_STATUS(call(&desk, late->where), TRIB_ERR_TIMEOUT);
        CHECK_DETAIL(calls[late->where].name);
        CHECK_DETAIL("on rank");
        CHECK_DETAIL("has not come");
        CHECK_MSG(check_now_ms() - begin > DEADLINE_MS / 2, "told after %.0f ms",
                  check_now_ms() - begin);
        atomic_fetch_add(&late->back, 1);
    }
    CHECK_STATUS(trib_comm_status(desk.comm), TRIB_ERR_TIMEOUT);
    CHECK(desk_statistics(&desk).k == 4);
    desk_close(&desk);
}

void sparse_late(const char *backend, int size)
{
    for (int where = 0; where < WHERES && size > 1; where++) {
        struct late late = {.where = (enum where)where};
        trib_options options = TRIB_OPTIONS_INIT;
        options.flags = calls[where].matches ? TRIB_MATCH : 0;
        check_begin("%s, %d ranks: one does not come to trib_%s", backend, size,
                    calls[where].name);
        if (team_create(&late.team, backend, size, &options))
            check_ranks(size, body, &late);
        team_destroy(&late.team);
        check_end();
    }
}
