/* A rank never makes a call of all ranks, or makes it too late: the others get TRIB_ERR_TIMEOUT at
 * the communicator's deadline, whatever work is queued before. */
#include <stdio.h>
#include <stdlib.h>

#include "csrc/core/communicator.h"
#include "tests/api/sparse.h"

enum { DEADLINE_MS = 150, LIMIT_MS = 10000 };

enum where {
    CREATE,
    SET_K,
    SET_DENSITY,
    IMPORT,
    SPARSE_ALLREDUCE,
    ALLREDUCE,
    BARRIER,
    LIST,
    BATCH,
    WHERES
};

/* The function, and whether only TRIB_MATCH makes it wait for the other ranks. */
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
    QUEUED, /* a sparse call that the last rank does not make either */
    HELD,   /* on rank 0 work of the caller's, then a sparse call: nobody is away */
    BEFORES
};

static const char *const befores[BEFORES] = {"one rank does not make",
                                             "with a call queued, one rank does not make",
                                             "a stream is busy before"};

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

static trib_status call(struct fixture *fixture, enum where where, const struct export *export)
{
    const trib_sparse_options options = fixture_options("topka", 4, 0);
    const trib_tensor list = {fixture->result, 8, TRIB_F32, 0};
    trib_sparse *sparse = NULL;
    switch (where) {
    case CREATE:
        return trib_sparse_create(&sparse, fixture->comm, FIXTURE_COUNT, TRIB_F32, &options);
    case SET_K:
        return trib_sparse_set_k(fixture->sparse, 9);
    case SET_DENSITY:
        return trib_sparse_set_density(fixture->sparse, 0.5);
    case IMPORT:
        return trib_sparse_import(fixture->sparse, export->data, export->bytes, 0, fixture->stream);
    case SPARSE_ALLREDUCE:
        return trib_sparse_allreduce(fixture->sparse, fixture->gradient, fixture->result,
                                     fixture->stream);
    case ALLREDUCE:
        return trib_allreduce(fixture->comm, fixture->result, fixture->result, 8, TRIB_F32,
                              TRIB_SUM, fixture->stream);
    case BARRIER:
        return trib_barrier(fixture->comm, fixture->stream);
    case LIST:
        return trib_allreduce_list(fixture->comm, &list, 1, TRIB_SUM, fixture->stream);
    default:
        CHECK_OK(trib_batch_begin(fixture->comm));
        CHECK_OK(trib_allreduce(fixture->comm, fixture->result, fixture->result, 8, TRIB_F32,
                                TRIB_SUM, fixture->stream));
        return trib_batch_end(fixture->comm);
    }
}

/* Until all others are back; if they never are, an abort lets them go, and they find another
 * status. */
static void stay_away(struct late *late, struct fixture *fixture)
{
    const double end = check_now_ms() + LIMIT_MS;
    trib_abort *handle = NULL;
    while (atomic_load(&late->back) < fixture->size - 1 && check_now_ms() < end)
        check_sleep_ms(1);
    if (atomic_load(&late->back) == fixture->size - 1)
        return;
    CHECK_OK(trib_comm_abort_handle(&handle, fixture->comm));
    CHECK_OK(trib_abort_raise(handle, "the others have waited for too long"));
    trib_abort_release(handle);
}

/* On the stream; if nothing lets it go, it ends, and the call that waits for it is found not to be
 * late. */
static void hold(void *argument)
{
    struct late *late = argument;
    const double end = check_now_ms() + LIMIT_MS;
    while (atomic_load(&late->released) == 0 && check_now_ms() < end)
        check_sleep_ms(1);
}

static void queue_before(struct late *late, struct fixture *fixture)
{
    if (late->before == HELD && fixture->rank == 0)
        CHECK_OK(trib_stream_submit(fixture->device, hold, late, fixture->stream));
    /* With TRIB_MATCH the call itself is what waits. */
    if (late->before != NOTHING && !calls[late->where].matches)
        CHECK_OK(trib_sparse_allreduce(fixture->sparse, fixture->gradient, fixture->result,
                                       fixture->stream));
}

/* Detail and trib_comm_lost name the last rank, which is away; others may be slow, too. */
static void check_missing(const struct fixture *fixture)
{
    const int32_t last = fixture->size - 1;
    int32_t lost[TEAM_MAX] = {-1}, n = 0;
    char missing[64];
    (void)snprintf(missing, sizeof missing, "rank %d has not made it: its newest is call ", last);
    CHECK_DETAIL(missing);
    CHECK_OK(trib_comm_lost(&n, fixture->comm, lost, TEAM_MAX));
    CHECK_MSG(n >= 1 && n <= last && lost[n - 1] == last, "%d lost, the first is %d", n, lost[0]);
}

static void be_late(struct late *late, struct fixture *fixture, const struct export *export)
{
    const double begin = check_now_ms();
    queue_before(late, fixture);
    CHECK_STATUS(call(fixture, late->where, export), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL(calls[late->where].name);
    CHECK_DETAIL("on rank");
    CHECK_DETAIL("150 ms, the timeout_ms of the communicator's options");
    CHECK_DETAIL("has waited for 0.");
    if (late->before != HELD)
        check_missing(fixture);
    const double took = check_now_ms() - begin;
    CHECK_MSG(took > DEADLINE_MS / 2 && took < LIMIT_MS / 2, "reported after %.0f ms", took);
    atomic_fetch_add(&late->back, 1);
    if (fixture->rank == 0)
        atomic_store(&late->released, 1);
}

static void body(int rank, int size, void *argument)
{
    struct late *late = argument;
    const trib_sparse_options options = fixture_options("topka", 4, 0);
    struct export export;
    struct fixture fixture;
    if (!fixture_open(&fixture, &late->team, rank, &options))
        return;
    CHECK_OK(fixture_call(&fixture));
    export.data = fixture_export(&fixture, &export.bytes);
    team_barrier(&late->arrived, size); /* what comes before has all the time in the world */
    fixture.comm->timeout_ms = DEADLINE_MS;
    if (rank == size - 1 && late->before != HELD)
        stay_away(late, &fixture);
    else
        be_late(late, &fixture, &export);
    CHECK_STATUS(trib_comm_status(fixture.comm), TRIB_ERR_TIMEOUT);
    CHECK(fixture_statistics(&fixture).k == 4);
    free(export.data);
    fixture_close(&fixture);
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

/* Does the call time out? With TRIB_MATCH no call is queued that a rank has not made; and a
 * creation does not wait for the calls of other states, nor for work of the caller in front of
 * them. */
static bool times_out(enum where where, enum before before)
{
    return before == NOTHING || (before == QUEUED && !calls[where].matches) ||
           (before == HELD && where != CREATE);
}

void sparse_late(const char *backend, int size, bool queues)
{
    const int kinds = queues ? BEFORES : QUEUED;
    for (int where = 0; where < WHERES && size > 1; where++)
        for (int before = 0; before < kinds; before++)
            if (times_out((enum where)where, (enum before)before))
                one(backend, size, (enum where)where, (enum before)before);
}
