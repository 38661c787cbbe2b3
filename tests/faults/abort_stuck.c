/* Aborts: a rank that never joins. The others wait in a collective until a thread that is no rank
 * aborts; then their streams must become free, and quickly. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "tests/faults/abort.h"

enum where { ALLREDUCE, BROADCAST, RECV, BARRIER, BATCH, LIST, BROADCAST_LIST, WEIGHTED, WHERES };

static const char *const names[WHERES] = {"allreduce",      "broadcast",       "recv",
                                          "barrier",        "batch",           "allreduce_list",
                                          "broadcast_list", "weighted_average"};

/* The missing rank is the last one. */
struct stuck {
    struct team team;
    const struct faults *faults;
    enum where where;
    bool cold; /* nothing was done before */
    /* The call itself may be what waits: it was cold, or NCCL connects at its first use. */
    bool inside;
    _Atomic int waiting, raised;
    double raised_at;
    double free_after[TEAM_MAX];
    struct fault_data data[TEAM_MAX];
};

static bool is_list(enum where where)
{
    return where == LIST || where == BROADCAST_LIST || where == WEIGHTED;
}

static trib_status call(const struct stuck *stuck, int rank, void *data)
{
    trib_comm *comm = stuck->team.comms[rank];
    trib_stream stream = stuck->team.streams[rank];
    const int last = stuck->team.size - 1;
    float *tensor = data;
    const trib_tensor list[2] = {{tensor, 300, TRIB_F32, 0},
                                 {tensor + 300, FAULT_ELEMENTS - 300, TRIB_F32, 0}};
    switch (stuck->where) {
    case ALLREDUCE:
        return trib_allreduce(comm, data, data, FAULT_ELEMENTS, TRIB_F32, TRIB_SUM, stream);
    case BROADCAST:
        return trib_broadcast(comm, data, data, FAULT_ELEMENTS, TRIB_F32, last, stream);
    case RECV:
        return trib_recv(comm, data, FAULT_ELEMENTS, TRIB_F32, last, stream);
    case BARRIER:
        return trib_barrier(comm, stream);
    case BATCH: {
        trib_status status = trib_batch_begin(comm);
        if (status == TRIB_OK)
            status = trib_allreduce(comm, data, data, 300, TRIB_F32, TRIB_SUM, stream);
        if (status == TRIB_OK)
            status = trib_broadcast(comm, tensor + 300, tensor + 300, 300, TRIB_F32, 0, stream);
        return status == TRIB_OK ? trib_batch_end(comm) : status;
    }
    case LIST:
        return trib_allreduce_list(comm, list, 2, TRIB_SUM, stream);
    case BROADCAST_LIST:
        return trib_broadcast_list(comm, list, 2, last, stream);
    default:
        return trib_weighted_average(comm, list, 2, 1.0f, NULL, NULL, stream);
    }
}

static bool stream_done(const struct team *team, int rank)
{
    int32_t done = 0;
    CHECK_OK(trib_stream_query(&done, team->devices[rank], team->streams[rank]));
    return done != 0;
}

/* Wait, within the bound, and remember how long it was after the abort. */
static bool wait_until_free(struct stuck *stuck, int rank)
{
    const double end = check_now_ms() + stuck->faults->bound_ms;
    while (!stream_done(&stuck->team, rank)) {
        if (check_now_ms() > end)
            return CHECK_MSG(false, "%s: rank %d is not free after %d ms", names[stuck->where],
                             rank, stuck->faults->bound_ms);
        check_sleep_ms(1);
    }
    stuck->free_after[rank] = check_now_ms() - stuck->raised_at;
    return true;
}

static void waiting_rank(struct stuck *stuck, int rank)
{
    const struct team *team = &stuck->team;
    trib_counters before = TRIB_COUNTERS_INIT, after = TRIB_COUNTERS_INIT;
    CHECK_OK(trib_comm_counters(&before, team->comms[rank]));
    if (stuck->inside)
        atomic_fetch_add(&stuck->waiting, 1);
    const trib_status status = call(stuck, rank, fault_data_at(&stuck->data[rank]));
    CHECK_MSG(status == TRIB_OK || (stuck->inside && status == TRIB_ERR_ABORTED), "%s is %s: %s",
              names[stuck->where], trib_status_name(status), trib_last_detail());
    if (!stuck->inside)
        atomic_fetch_add(&stuck->waiting, 1);
    while (!atomic_load(&stuck->raised))
        check_sleep_ms(1);
    if (!wait_until_free(stuck, rank))
        return;
    CHECK_STATUS(trib_comm_status(team->comms[rank]), TRIB_ERR_ABORTED);
    CHECK_DETAIL("a rank never joined");
    if (!is_list(stuck->where))
        return;
    CHECK_OK(trib_comm_counters(&after, team->comms[rank]));
    CHECK(after.lists_committed == before.lists_committed);
    CHECK(stuck->inside || after.lists_queued == before.lists_queued + 1);
    fault_data_is(&stuck->data[rank], team, rank, false, "a tensor of an aborted list");
}

/* The thread that notices, and is no rank. */
static void aborter(struct stuck *stuck)
{
    const int ranks = stuck->team.size;
    trib_abort *handle = NULL;
    CHECK_OK(trib_comm_abort_handle(&handle, stuck->team.comms[0]));
    while (atomic_load(&stuck->waiting) < ranks - 1)
        check_sleep_ms(1);
    check_sleep_ms(30);
    for (int rank = 0; rank < ranks - 1 && !stuck->inside; rank++)
        CHECK_MSG(!stream_done(&stuck->team, rank), "%s did not wait", names[stuck->where]);
    stuck->raised_at = check_now_ms();
    CHECK_OK(trib_abort_raise(handle, "a rank never joined"));
    CHECK_MSG(check_now_ms() - stuck->raised_at < stuck->faults->bound_ms / 4.0,
              "raise took %.1f ms", check_now_ms() - stuck->raised_at);
    atomic_store(&stuck->raised, 1);
    trib_abort_release(handle);
}

static void member(int index, int size, void *argument)
{
    struct stuck *stuck = argument;
    (void)size;
    if (index == stuck->team.size)
        aborter(stuck);
    else if (index < stuck->team.size - 1) /* the last rank never joins */
        waiting_rank(stuck, index);
}

/* What every user would do: the same list again, on fresh communicators, without a snapshot. */
static void retry_rank(int rank, int size, void *argument)
{
    struct stuck *stuck = argument;
    (void)size;
    CHECK_OK(call(stuck, rank, fault_data_at(&stuck->data[rank])));
    fault_data_is(&stuck->data[rank], &stuck->team, rank, true, "a list tried again");
    CHECK_OK(trib_comm_status(stuck->team.comms[rank]));
}

static bool stuck_create(struct stuck *stuck, const struct faults *faults)
{
    stuck->faults = faults;
    bool good = stuck->cold ? team_create(&stuck->team, faults->backend, faults->size, NULL)
                            : faults_team(&stuck->team, faults, NULL);
    for (int rank = 0; rank < faults->size && good; rank++)
        good = fault_data_create(&stuck->data[rank], &stuck->team, rank) &&
               fault_data_put(&stuck->data[rank], &stuck->team, rank);
    return good;
}

static void missing_rank(const struct faults *faults, enum where where, bool cold)
{
    struct stuck stuck = {
        .where = where, .cold = cold, .inside = cold || strcmp(faults->backend, "nccl") == 0};
    check_begin("%s, %d ranks: a rank never joins %s%s", faults->backend, faults->size,
                names[where], cold ? ", the first call" : "");
    if (stuck_create(&stuck, faults)) {
        check_ranks(faults->size + 1, member, &stuck);
        faults_all_aborted(&stuck.team, "a rank never joined");
        double worst = 0;
        for (int rank = 0; rank < faults->size - 1; rank++)
            worst = stuck.free_after[rank] > worst ? stuck.free_after[rank] : worst;
        printf("  %s, %d ranks, %s%s: free %.1f ms after the abort\n", faults->backend,
               faults->size, names[where], cold ? " (first call)" : "", worst);
        faults_returned(faults, worst);
        const double start = check_now_ms();
        team_close(&stuck.team);
        CHECK_MSG(check_now_ms() - start < faults->bound_ms, "destroy took %.0f ms",
                  check_now_ms() - start);
        if (where == LIST && CHECK(team_open(&stuck.team, NULL)))
            check_ranks(faults->size, retry_rank, &stuck);
        for (int rank = 0; rank < faults->size; rank++)
            fault_data_destroy(&stuck.data[rank]);
    }
    team_destroy(&stuck.team);
    faults_fresh(faults);
    check_end();
}

static void missing_in(const struct faults *faults, bool cold)
{
    int where = 0;
    while (where < WHERES && strcmp(faults->call, names[where]) != 0)
        where++;
    if (CHECK(where < WHERES))
        missing_rank(faults, (enum where)where, cold);
}

void faults_missing_rank(const struct faults *faults)
{
    missing_in(faults, false);
}

void faults_missing_rank_cold(const struct faults *faults)
{
    missing_in(faults, true);
}

/* ------------------------------------------------------------------- two that are both stuck */

static void queue_barrier(int rank, int size, void *argument)
{
    struct team *team = argument;
    if (rank < size - 1)
        CHECK_OK(trib_barrier(team->comms[rank], team->streams[rank]));
}

static void end_stuck(const struct faults *faults, struct team *team, const char *reason)
{
    const double start = check_now_ms();
    faults_abort(team, reason);
    for (int rank = 0; rank < faults->size - 1; rank++)
        team_wait(team, rank, faults->bound_ms);
    faults_returned(faults, check_now_ms() - start);
    faults_all_aborted(team, reason);
}

static void both_stuck(const struct faults *faults, bool first_first)
{
    struct team teams[2];
    check_begin("%s, %d ranks: two stuck communicators on the same devices", faults->backend,
                faults->size);
    if (faults_team(&teams[0], faults, NULL) && faults_team(&teams[1], faults, NULL)) {
        check_ranks(faults->size, queue_barrier, &teams[0]);
        check_ranks(faults->size, queue_barrier, &teams[1]);
        struct team *one = &teams[first_first ? 0 : 1], *other = &teams[first_first ? 1 : 0];
        end_stuck(faults, one, "the one");
        CHECK_OK(trib_comm_status(other->comms[0]));
        end_stuck(faults, other, "the other");
    }
    team_destroy(&teams[1]);
    team_destroy(&teams[0]);
    faults_fresh(faults);
    check_end();
}

void faults_both_stuck(const struct faults *faults)
{
    both_stuck(faults, strcmp(faults->call, "A") == 0);
}

/* --------------------------------------------------- something else is in front on the stream */

/* The collectives cannot become free before what is in front of them ends, but abort does not
 * wait. */
void faults_behind_a_long_job(const struct faults *faults)
{
    struct team team;
    _Atomic bool go_on = false;
    check_begin("%s, %d ranks: abort behind a long job", faults->backend, faults->size);
    if (faults_team(&team, faults, NULL)) {
        for (int rank = 0; rank < faults->size - 1; rank++)
            CHECK_OK(trib_stream_submit(team.devices[rank], team_hold, &go_on, team.streams[rank]));
        check_ranks(faults->size, queue_barrier, &team);
        const double start = check_now_ms();
        faults_abort(&team, "behind a long job");
        CHECK_MSG(check_now_ms() - start < faults->bound_ms / 4.0, "raise took %.1f ms",
                  check_now_ms() - start);
        faults_all_aborted(&team, "behind a long job");
        faults_returned(faults, check_now_ms() - start);
        check_sleep_ms(20);
        for (int rank = 0; rank < faults->size - 1; rank++)
            CHECK(!stream_done(&team, rank));
        atomic_store(&go_on, true);
        for (int rank = 0; rank < faults->size - 1; rank++)
            team_wait(&team, rank, faults->bound_ms);
    }
    team_destroy(&team);
    faults_fresh(faults);
    check_end();
}

void faults_stuck(const struct faults *faults)
{
    for (int where = 0; where < WHERES; where++)
        missing_rank(faults, (enum where)where, false);
    missing_rank(faults, ALLREDUCE, true);
    missing_rank(faults, LIST, true);
    both_stuck(faults, true);
    both_stuck(faults, false);
    faults_behind_a_long_job(faults);
}
