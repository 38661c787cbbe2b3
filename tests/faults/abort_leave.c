/* A rank leaves: it closes or destroys its communicator. Peers that queued as much are not
 * disturbed, those that queued more get TRIB_ERR_CLOSED and the reason instead of a wait for
 * ever. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "tests/faults/abort.h"

enum where { ALLREDUCE, RECV, SEND, BARRIER, BATCH, LIST, WEIGHTED, SPARSE, WHERES };

static const char *const names[WHERES] = {
    "allreduce",       "recv", "send", "barrier", "batch", "allreduce_list", "weighted_average",
    "sparse_allreduce"};

enum when { LEFT_BEFORE, LEAVES_LATER, LEAVES_WITH_WORK, WHENS };
static const char *const moments[WHENS] = {"it has left", "it leaves later",
                                           "it leaves with work queued"};

/* The rank that leaves is the last one. */
struct leaving {
    struct team team;
    const struct faults *faults;
    enum where where;
    enum when when;
    trib_sparse *states[TEAM_MAX];
    _Atomic int ready, queued, gone;
    _Atomic bool released; /* what the last rank has queued may go on */
    char reason[64];
    trib_abort *handle;
    struct fault_data data[TEAM_MAX], other[TEAM_MAX];
};

static bool keeps_tensors(enum where where)
{
    return where == LIST || where == WEIGHTED || where == SPARSE;
}

static trib_status call(const struct leaving *leaving, int rank)
{
    trib_comm *comm = leaving->team.comms[rank];
    trib_stream stream = leaving->team.streams[rank];
    const int last = leaving->team.size - 1;
    float *data = fault_data_at(&leaving->data[rank]);
    const trib_tensor list[2] = {{data, 300, TRIB_F32, 0},
                                 {data + 300, FAULT_ELEMENTS - 300, TRIB_F32, 0}};
    switch (leaving->where) {
    case ALLREDUCE:
        return trib_allreduce(comm, data, data, FAULT_ELEMENTS, TRIB_F32, TRIB_SUM, stream);
    case RECV:
        return trib_recv(comm, data, FAULT_ELEMENTS, TRIB_F32, last, stream);
    case SEND:
        return trib_send(comm, data, FAULT_ELEMENTS, TRIB_F32, last, stream);
    case BARRIER:
        return trib_barrier(comm, stream);
    case BATCH: {
        trib_status status = trib_batch_begin(comm);
        if (status == TRIB_OK)
            status = trib_send(comm, data, 300, TRIB_F32, last, stream);
        if (status == TRIB_OK)
            status = trib_recv(comm, data + 300, 300, TRIB_F32, last, stream);
        return status == TRIB_OK ? trib_batch_end(comm) : status;
    }
    case LIST:
        return trib_allreduce_list(comm, list, 2, TRIB_SUM, stream);
    case WEIGHTED:
        return trib_weighted_average(comm, list, 2, 1.0f, NULL, NULL, stream);
    default:
        return trib_sparse_allreduce(leaving->states[rank], data,
                                     fault_data_at(&leaving->other[rank]), stream);
    }
}

static bool open_rank(struct leaving *leaving, int rank)
{
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    options.algorithm = "topka";
    options.flags = TRIB_SPARSE_IN_PLACE;
    return fault_data_create(&leaving->data[rank], &leaving->team, rank) &&
           fault_data_create(&leaving->other[rank], &leaving->team, rank) &&
           fault_data_put(&leaving->data[rank], &leaving->team, rank) &&
           fault_data_put(&leaving->other[rank], &leaving->team, rank) &&
           (leaving->where != SPARSE ||
            CHECK_OK(trib_sparse_create(&leaving->states[rank], leaving->team.comms[rank],
                                        FAULT_ELEMENTS, TRIB_F32, &options)));
}

/* Half of the cases close and destroy later, the others destroy. */
static void leave(struct leaving *leaving)
{
    struct team *team = &leaving->team;
    const int last = team->size - 1;
    const bool closes = leaving->where % 2 == 0;
    CHECK_OK(trib_sparse_destroy(leaving->states[last]));
    leaving->states[last] = NULL;
    if (closes)
        CHECK_OK(trib_comm_close(team->comms[last], 5000));
    else
        CHECK_OK(trib_comm_destroy(team->comms[last]));
    if (!closes)
        team->comms[last] = NULL;
    atomic_store(&leaving->gone, 1);
}

static void leaving_rank(struct leaving *leaving, int rank)
{
    const struct team *team = &leaving->team;
    if (leaving->when == LEAVES_WITH_WORK) {
        CHECK_OK(trib_stream_submit(team->devices[rank], team_hold, &leaving->released,
                                    team->streams[rank]));
        CHECK_OK(trib_barrier(team->comms[rank], team->streams[rank]));
    }
    while (leaving->when == LEAVES_LATER && atomic_load(&leaving->queued) < team->size - 1)
        check_sleep_ms(1);
    if (leaving->when == LEAVES_LATER)
        check_sleep_ms(5);
    leave(leaving);
    if (leaving->when != LEAVES_WITH_WORK)
        return;
    while (atomic_load(&leaving->queued) < team->size - 1)
        check_sleep_ms(1);
    check_sleep_ms(5);
    /* What it has queued is still owed: nobody is disturbed. */
    CHECK(trib_abort_raised(leaving->handle) == 0);
    atomic_store(&leaving->released, true);
}

static void staying_rank(struct leaving *leaving, int rank)
{
    const struct team *team = &leaving->team;
    trib_comm *comm = team->comms[rank];
    trib_counters before = TRIB_COUNTERS_INIT, after = TRIB_COUNTERS_INIT;
    while (leaving->when == LEFT_BEFORE && !atomic_load(&leaving->gone))
        check_sleep_ms(1);
    if (leaving->when == LEAVES_WITH_WORK)
        CHECK_OK(trib_barrier(comm, team->streams[rank]));
    CHECK_OK(trib_comm_counters(&before, comm));
    const trib_status status = call(leaving, rank);
    /* Another rank may have found out already. */
    CHECK_MSG(status == TRIB_OK || status == TRIB_ERR_CLOSED, "%s is %s: %s", names[leaving->where],
              trib_status_name(status), trib_last_detail());
    atomic_fetch_add(&leaving->queued, 1);
    if (leaving->when == LEAVES_WITH_WORK)
        team_hold(&leaving->released);
    if (!team_wait(team, rank, leaving->faults->bound_ms))
        return;
    CHECK_STATUS(trib_comm_status(comm), TRIB_ERR_CLOSED);
    CHECK_DETAIL(leaving->reason);
    CHECK_STATUS(call(leaving, rank), TRIB_ERR_CLOSED);
    CHECK_DETAIL(leaving->reason);
    CHECK_STATUS(trib_barrier(comm, team->streams[rank]), TRIB_ERR_CLOSED);
    CHECK_OK(trib_comm_counters(&after, comm));
    CHECK(after.lists_committed == before.lists_committed);
    if (leaving->where == SPARSE)
        CHECK_STATUS(trib_sparse_status(leaving->states[rank]), TRIB_ERR_CLOSED);
    if (keeps_tensors(leaving->where))
        fault_data_is(&leaving->data[rank], team, rank, false, "a tensor of a call that was over");
}

static void member(int rank, int size, void *argument)
{
    struct leaving *leaving = argument;
    const bool open = open_rank(leaving, rank);
    /* Whoever goes on while another rank's trib_sparse_create is still ending could end it. */
    team_barrier(&leaving->ready, size);
    if (!open)
        return;
    if (rank == size - 1)
        leaving_rank(leaving, rank);
    else
        staying_rank(leaving, rank);
}

static void free_rank(struct leaving *leaving, int rank)
{
    CHECK_OK(trib_sparse_destroy(leaving->states[rank]));
    fault_data_destroy(&leaving->data[rank]);
    fault_data_destroy(&leaving->other[rank]);
}

static void more_calls(const struct faults *faults, enum where where, enum when when)
{
    struct leaving leaving = {.faults = faults, .where = where, .when = when};
    /* An allreduce and a barrier of faults_team; what the ranks agreed on to make a state. */
    const char *call = where == SPARSE            ? ""
                       : when == LEAVES_WITH_WORK ? "3 (barrier)"
                                                  : "2 (barrier)";
    check_begin("%s, %d ranks: %s, and a rank that is needed leaves, %s", faults->backend,
                faults->size, names[where], moments[when]);
    (void)snprintf(leaving.reason, sizeof leaving.reason, "rank %d left after call %s",
                   faults->size - 1, call);
    if (faults_team(&leaving.team, faults, NULL)) {
        CHECK_OK(trib_comm_abort_handle(&leaving.handle, leaving.team.comms[0]));
        check_ranks(faults->size, member, &leaving);
        CHECK(trib_abort_raised(leaving.handle) == 1);
        for (int rank = 0; rank < faults->size; rank++)
            free_rank(&leaving, rank);
        trib_abort_release(leaving.handle);
    }
    const double start = check_now_ms();
    team_destroy(&leaving.team);
    CHECK_MSG(check_now_ms() - start < faults->bound_ms, "destroy took %.0f ms",
              check_now_ms() - start);
    check_end();
}

/* The last one to close learns that the others' calls never ran; they have closed before. */
static void last_to_close(const struct faults *faults)
{
    struct team team;
    const int last = faults->size - 1;
    char reason[64];
    check_begin("%s, %d ranks: the last to close has made fewer calls", faults->backend,
                faults->size);
    (void)snprintf(reason, sizeof reason, "rank %d left after call 2 (barrier)", last);
    if (faults_team(&team, faults, NULL)) {
        for (int rank = 0; rank < last; rank++) {
            CHECK_OK(trib_barrier(team.comms[rank], team.streams[rank]));
            CHECK_OK(trib_comm_close(team.comms[rank], 20000));
        }
        const double start = check_now_ms();
        CHECK_STATUS(trib_comm_close(team.comms[last], 20000), TRIB_ERR_CLOSED);
        CHECK_DETAIL(reason);
        CHECK_MSG(check_now_ms() - start < faults->bound_ms, "trib_comm_close took %.0f ms",
                  check_now_ms() - start);
        for (int rank = 0; rank < faults->size; rank++)
            team_wait(&team, rank, faults->bound_ms);
    }
    team_destroy(&team);
    check_end();
}

/* ------------------------------------------------------------------- calls that themselves wait */

enum blocking { SPLIT, MATCHED, CREATED, BLOCKINGS };
static const char *const blocking_names[BLOCKINGS] = {"split", "a compared call", "sparse_create"};

struct blocked {
    struct team team;
    const struct faults *faults;
    enum blocking blocking;
    bool later; /* the last rank leaves while the others wait */
};

static trib_status block(const struct blocked *blocked, int rank)
{
    trib_comm *comm = blocked->team.comms[rank], *child = NULL;
    trib_sparse *state = NULL;
    switch (blocked->blocking) {
    case SPLIT:
        return trib_comm_split(&child, comm, 0, 0);
    case MATCHED:
        return trib_barrier(comm, blocked->team.streams[rank]);
    default:
        return trib_sparse_create(&state, comm, FAULT_ELEMENTS, TRIB_F32, NULL);
    }
}

static void blocked_rank(int rank, int size, void *argument)
{
    struct blocked *blocked = argument;
    if (rank == size - 1) {
        if (blocked->later)
            check_sleep_ms(10);
        CHECK_OK(trib_comm_destroy(blocked->team.comms[rank]));
        blocked->team.comms[rank] = NULL;
        return;
    }
    const double start = check_now_ms();
    char reason[64];
    (void)snprintf(reason, sizeof reason, "rank %d left after call ", size - 1);
    CHECK_STATUS(block(blocked, rank), TRIB_ERR_CLOSED);
    CHECK_DETAIL(reason);
    CHECK_MSG(check_now_ms() - start < blocked->faults->bound_ms, "%s took %.0f ms",
              blocking_names[blocked->blocking], check_now_ms() - start);
    CHECK_STATUS(trib_comm_status(blocked->team.comms[rank]), TRIB_ERR_CLOSED);
    CHECK_DETAIL(reason);
}

static void while_blocked(const struct faults *faults, enum blocking blocking, bool later)
{
    struct blocked blocked = {.faults = faults, .blocking = blocking, .later = later};
    trib_options options = TRIB_OPTIONS_INIT;
    options.flags = blocking == MATCHED ? TRIB_MATCH : 0;
    options.timeout_ms = 2 * (uint32_t)faults->bound_ms;
    check_begin("%s, %d ranks: %s, and a rank %s", faults->backend, faults->size,
                blocking_names[blocking], later ? "leaves" : "has left");
    if (faults_team(&blocked.team, faults, &options))
        check_ranks(faults->size, blocked_rank, &blocked);
    team_destroy(&blocked.team);
    check_end();
}

/* ------------------------------------------------------------------------------- equal counts */

struct equal {
    struct team team;
    _Atomic bool released;
    struct fault_data data[TEAM_MAX];
};

/* Two sums, of which the second is over what the first has made the same everywhere. */
static void queue_equal(int rank, int size, void *argument)
{
    struct equal *equal = argument;
    struct team *team = &equal->team;
    void *data = fault_data_at(&equal->data[rank]);
    (void)size;
    CHECK_OK(
        trib_stream_submit(team->devices[rank], team_hold, &equal->released, team->streams[rank]));
    CHECK_OK(trib_allreduce(team->comms[rank], data, data, FAULT_ELEMENTS, TRIB_F32, TRIB_SUM,
                            team->streams[rank]));
    CHECK_OK(trib_allreduce(team->comms[rank], data, data, FAULT_ELEMENTS, TRIB_F32, TRIB_MAX,
                            team->streams[rank]));
}

/* Ranks close one after the other, from `first` on, while all of their work is still queued. */
static void equal_counts(const struct faults *faults, int first)
{
    struct equal equal = {.released = false};
    struct team *team = &equal.team;
    check_begin("%s, %d ranks: all queue the same and leave, rank %d first", faults->backend,
                faults->size, first);
    if (faults_team(team, faults, NULL)) {
        for (int rank = 0; rank < team->size; rank++) {
            fault_data_create(&equal.data[rank], team, rank);
            fault_data_put(&equal.data[rank], team, rank);
        }
        check_ranks(team->size, queue_equal, &equal);
        for (int i = 0; i < team->size; i++) {
            const int rank = (first + i) % team->size;
            if (i == team->size - 1)
                atomic_store(&equal.released, true);
            CHECK_OK(trib_comm_destroy(team->comms[rank]));
            team->comms[rank] = NULL;
        }
        for (int rank = 0; rank < team->size; rank++) {
            team_wait(team, rank, faults->bound_ms);
            fault_data_is(&equal.data[rank], team, rank, true, "what was queued before the end");
            fault_data_destroy(&equal.data[rank]);
        }
    }
    atomic_store(&equal.released, true);
    team_destroy(team);
    check_end();
}

void faults_leave(const struct faults *faults)
{
    for (enum where where = 0; where < WHERES; where++)
        for (enum when when = 0; when < WHENS; when++)
            more_calls(faults, where, when);
    last_to_close(faults);
    for (enum blocking blocking = 0; blocking < BLOCKINGS; blocking++) {
        while_blocked(faults, blocking, false);
        while_blocked(faults, blocking, true);
    }
    for (int first = 0; first < faults->size; first++)
        equal_counts(faults, first);
    faults_fresh(faults);
}
