/* A rank that never comes to a call in which all ranks meet, or comes too late: the others are told when
 * the deadline of the communicator has passed, whatever is queued before. */
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

/* What is on the streams before. */
enum before {
    NOTHING,
    QUEUED, /* a sparse call to which the last rank does not come either */
    HELD,   /* on rank 0 work of the caller's, then a sparse call: nobody is away */
    BEFORES
};

static const char *const befores[BEFORES] = {
    "one does not come to", "with a call queued, one does not come to", "a stream is busy before"};

struct late {
    struct team team;
    enum where where;
    enum before before;
    _Atomic int arrived, back, released;
};

/* What one rank imports: its own. */
struct export {
    char *data;
    size_t bytes;
};

static trib_status call(struct desk *desk, enum where where, const struct export *export)
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
        return trib_sparse_import(desk->sparse, export->data, export->bytes, 0, desk->stream);
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

/* On the stream; if nothing lets it go, it ends, and the call that waits for it is found not to be late. */
static void hold(void *argument)
{
    struct late *late = argument;
    const double end = check_now_ms() + PATIENCE_MS;
    while (atomic_load(&late->released) == 0 && check_now_ms() < end)
        check_sleep_ms(1);
}

static void queue_before(struct late *late, struct desk *desk)
{
    if (late->before == HELD && desk->rank == 0)
        CHECK_OK(trib_stream_submit(desk->device, hold, late, desk->stream));
    /* With TRIB_MATCH the call itself is what waits. */
    if (late->before != NOTHING && !calls[late->where].matches)
        CHECK_OK(trib_sparse_allreduce(desk->sparse, desk->gradient, desk->result, desk->stream));
}

static void be_late(struct late *late, struct desk *desk, const struct export *export)
{
    const double begin = check_now_ms();
    queue_before(late, desk);
    CHECK_STATUS(call(desk, late->where, export), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL(calls[late->where].name);
    CHECK_DETAIL("on rank");
    CHECK_DETAIL("has not come");
    CHECK_DETAIL("or a stream was busy with earlier work");
    const double took = check_now_ms() - begin;
    CHECK_MSG(took > DEADLINE_MS / 2 && took < PATIENCE_MS / 2, "told after %.0f ms", took);
    atomic_fetch_add(&late->back, 1);
    if (desk->rank == 0)
        atomic_store(&late->released, 1);
}

static void body(int rank, int size, void *argument)
{
    struct late *late = argument;
    const trib_sparse_options options = desk_options("topka", 4, 0);
    struct export export;
    struct desk desk;
    if (!desk_open(&desk, &late->team, rank, &options))
        return;
    CHECK_OK(desk_call(&desk));
    export.data = desk_export(&desk, &export.bytes);
    team_meet(&late->arrived, size); /* what comes before has all the time in the world */
    desk.comm->timeout_ms = DEADLINE_MS;
    if (rank == size - 1 && late->before != HELD)
        stay_away(late, &desk);
    else
        be_late(late, &desk, &export);
    CHECK_STATUS(trib_comm_status(desk.comm), TRIB_ERR_TIMEOUT);
    CHECK(desk_statistics(&desk).k == 4);
    free(export.data);
    desk_close(&desk);
}

static void one(const char *backend, int size, enum where where, enum before before)
{
    struct late late = {.where = where, .before = before};
    trib_options options = TRIB_OPTIONS_INIT;
    options.flags = calls[where].matches ? TRIB_MATCH : 0;
    check_begin("%s, %d ranks: %s trib_%s", backend, size, befores[before], calls[where].name);
    if (team_create(&late.team, backend, size, &options))
        check_ranks(size, body, &late);
    team_destroy(&late.team);
    check_end();
}

/* With TRIB_MATCH nothing is queued to which a rank has not come; and creating looks at no other state's
 * calls, so that it is not said when it comes back from behind work of the caller's. */
static bool tells(enum where where, enum before before)
{
    return before == NOTHING || (before == QUEUED && !calls[where].matches) ||
           (before == HELD && where != CREATE);
}

void sparse_late(const char *backend, int size, bool queues)
{
    const int kinds = queues ? BEFORES : QUEUED;
    for (int where = 0; where < WHERES && size > 1; where++)
        for (int before = 0; before < kinds; before++)
            if (tells((enum where)where, (enum before)before))
                one(backend, size, (enum where)where, (enum before)before);
}
