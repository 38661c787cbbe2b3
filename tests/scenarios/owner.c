/* What a rank's own thread may be blocked in when an abort comes. */
#include <stdatomic.h>
#include <string.h>

#include "tests/scenarios/scenario.h"

/* More calls than CUDA queues on a stream before a launch waits. */
enum { FULL = 4000, ROUNDS = 20, ROUNDS_SLOW = 3, SETTLE_MS = 50, DRAINED_MS = 8000 };

/* The last rank never makes the call. */
struct blocked {
    struct team team;
    const struct faults *faults;
    trib_abort *handle;
    struct fault_data data[TEAM_MAX];
    _Atomic int begun, back;
    _Atomic bool called[TEAM_MAX]; /* the call has returned */
    bool inside[TEAM_MAX];         /* it had not at the abort */
    double raised_at;
    int round;
};

static trib_status sum(struct blocked *blocked, int rank)
{
    void *data = fault_data_at(&blocked->data[rank]);
    return trib_allreduce(blocked->team.comms[rank], data, data, FAULT_ELEMENTS, TRIB_F32, TRIB_SUM,
                          blocked->team.streams[rank]);
}

static bool open_team(struct blocked *blocked, bool warm)
{
    const struct faults *faults = blocked->faults;
    struct team *team = &blocked->team;
    bool good = (warm ? faults_team(team, faults, NULL)
                      : team_create(team, faults->backend, faults->size, NULL)) &&
                CHECK_OK(trib_comm_abort_handle(&blocked->handle, team->comms[0]));
    for (int rank = 0; rank < faults->size && good; rank++)
        good = fault_data_create(&blocked->data[rank], team, rank) &&
               fault_data_put(&blocked->data[rank], team, rank);
    return good;
}

static void close_team(struct blocked *blocked)
{
    for (int rank = 0; rank < blocked->team.size; rank++)
        fault_data_destroy(&blocked->data[rank]);
    trib_abort_release(blocked->handle);
    team_destroy(&blocked->team);
}

static void note_return(struct blocked *blocked)
{
    atomic_fetch_add(&blocked->back, 1);
    faults_returned(blocked->faults, check_now_ms() - blocked->raised_at);
}

static void abort_now(struct blocked *blocked, const char *reason)
{
    for (int rank = 0; rank < blocked->team.size; rank++)
        blocked->inside[rank] = !atomic_load(&blocked->called[rank]);
    blocked->raised_at = check_now_ms();
    CHECK_OK(trib_abort_raise(blocked->handle, reason));
}

/* ---------------------------------------------------------------------- a wait, a full queue */

static void wait_for_event(struct blocked *blocked, int rank)
{
    trib_device *device = blocked->team.devices[rank];
    trib_event event = NULL;
    CHECK_OK(sum(blocked, rank));
    if (!CHECK_OK(trib_event_create(&event, device)))
        return;
    CHECK_OK(trib_event_record(device, event, blocked->team.streams[rank]));
    CHECK_OK(trib_event_wait(device, event));
    CHECK_OK(trib_event_destroy(device, event));
}

/* Where a queue has an end, the call that waits for a place is back as soon as a kernel has ended. */
static void fill_queue(struct blocked *blocked, int rank)
{
    trib_status status = TRIB_OK;
    for (int i = 0; i < FULL && status == TRIB_OK; i++)
        status = sum(blocked, rank);
    CHECK_MSG(status == TRIB_OK || status == TRIB_ERR_ABORTED, "a call is %s: %s",
              trib_status_name(status), trib_last_detail());
    if (status == TRIB_OK)
        CHECK_OK(trib_stream_wait(blocked->team.devices[rank], blocked->team.streams[rank]));
}

/* The stream is free when all kernels have ended: NCCL's look for the abort only now and then, 4 ms
 * each. */
static void drain_queue(const struct blocked *blocked, int rank)
{
    CHECK_OK(trib_stream_wait(blocked->team.devices[rank], blocked->team.streams[rank]));
    const double free_ms = check_now_ms() - blocked->raised_at;
    scenario_says("the stream is free %.1f ms after the abort", free_ms);
    CHECK_MSG(free_ms <= DRAINED_MS, "rank %d: its stream is free after %.1f ms", rank, free_ms);
}

/* Back only after the abort. */
static void block(struct blocked *blocked, int rank)
{
    struct team *team = &blocked->team;
    const char *in = blocked->faults->call;
    if (strcmp(in, "full queue") == 0) {
        fill_queue(blocked, rank);
    } else if (strcmp(in, "event_wait") == 0) {
        wait_for_event(blocked, rank);
    } else if (strcmp(in, "comm_wait") == 0) {
        CHECK_OK(sum(blocked, rank));
        CHECK_STATUS(trib_comm_wait(team->comms[rank], team->streams[rank], TRIB_NO_TIMEOUT),
                     TRIB_ERR_ABORTED);
        CHECK_DETAIL("while its owner was blocked");
    } else {
        CHECK_OK(sum(blocked, rank));
        CHECK_OK(trib_stream_wait(team->devices[rank], team->streams[rank]));
    }
    note_return(blocked);
    if (strcmp(in, "full queue") == 0)
        drain_queue(blocked, rank);
    CHECK_STATUS(trib_comm_status(team->comms[rank]), TRIB_ERR_ABORTED);
}

static void owner_member(int index, int size, void *argument)
{
    struct blocked *blocked = argument;
    const int ranks = size - 1;
    if (index < ranks - 1) {
        atomic_fetch_add(&blocked->begun, 1);
        block(blocked, index);
    } else if (index == ranks) {
        while (atomic_load(&blocked->begun) < ranks - 1)
            check_sleep_ms(1);
        check_sleep_ms(SETTLE_MS);
        CHECK(atomic_load(&blocked->back) == 0);
        abort_now(blocked, "while its owner was blocked");
    }
}

void scenario_owner(const struct faults *faults)
{
    struct blocked blocked = {.faults = faults};
    check_begin("%s, %d ranks: owners blocked in %s", faults->backend, faults->size, faults->call);
    if (open_team(&blocked, true)) {
        check_ranks(faults->size + 1, owner_member, &blocked);
        for (int rank = 0; rank < faults->size; rank++)
            team_wait(&blocked.team, rank, faults->bound_ms);
        faults_all_aborted(&blocked.team, "while its owner was blocked");
        close_team(&blocked);
    }
    check_end();
}

/* ---------------------------------------------------------- another communicator's first call */

/* Two communicators on the same devices, and the first call of both: on nccl one waits for the
 * other, because calls on one device are issued one at a time. */
struct behind {
    struct blocked first, second;
};

static void call_and_wait(struct blocked *blocked, int rank)
{
    atomic_fetch_add(&blocked->begun, 1);
    const trib_status status = sum(blocked, rank);
    atomic_store(&blocked->called[rank], true);
    CHECK_MSG(status == TRIB_OK || status == TRIB_ERR_ABORTED, "a first call is %s: %s",
              trib_status_name(status), trib_last_detail());
    CHECK_OK(trib_stream_wait(blocked->team.devices[rank], blocked->team.streams[rank]));
    note_return(blocked);
    CHECK_MSG(status == TRIB_ERR_ABORTED || !blocked->inside[rank],
              "rank %d: the abort came during a call, which reports success", rank);
    CHECK_STATUS(trib_comm_status(blocked->team.comms[rank]), TRIB_ERR_ABORTED);
}

static void await(_Atomic int *count, int n)
{
    while (atomic_load(count) < n)
        check_sleep_ms(1);
}

static void behind_member(int index, int size, void *argument)
{
    struct behind *behind = argument;
    const int waiting = behind->first.team.size - 1;
    if (index < waiting) {
        call_and_wait(&behind->first, index);
    } else if (index < size - 1) {
        await(&behind->first.begun, waiting);
        check_sleep_ms(SETTLE_MS);
        call_and_wait(&behind->second, index - waiting);
    } else {
        await(&behind->second.begun, waiting);
        check_sleep_ms(SETTLE_MS);
        CHECK(atomic_load(&behind->first.back) == 0 && atomic_load(&behind->second.back) == 0);
        abort_now(&behind->second, "the one behind");
        await(&behind->second.back, waiting);
        CHECK(atomic_load(&behind->first.back) == 0);
        CHECK_OK(trib_comm_status(behind->first.team.comms[waiting]));
        abort_now(&behind->first, "the one in front");
    }
}

void scenario_gate(const struct faults *faults)
{
    struct behind behind = {.first.faults = faults, .second.faults = faults};
    check_begin("%s, %d ranks: blocked behind another communicator's first call", faults->backend,
                faults->size);
    if (open_team(&behind.first, false) && open_team(&behind.second, false)) {
        check_ranks(2 * (faults->size - 1) + 1, behind_member, &behind);
        faults_all_aborted(&behind.second.team, "the one behind");
        faults_all_aborted(&behind.first.team, "the one in front");
        close_team(&behind.second);
        close_team(&behind.first);
    }
    check_end();
}

/* ------------------------------------------------------------------------------ the first call */

/* All ranks make it; the abort comes at any moment of it. */
static void first_member(int index, int size, void *argument)
{
    struct blocked *blocked = argument;
    team_barrier(&blocked->begun, size);
    team_stagger(index, blocked->round);
    if (index == size - 1) {
        abort_now(blocked, "against the first call");
        atomic_store(&blocked->back, 1);
        return;
    }
    const trib_status status = sum(blocked, index);
    CHECK_MSG(status == TRIB_OK || status == TRIB_ERR_ABORTED, "a first call is %s: %s",
              trib_status_name(status), trib_last_detail());
    team_wait(&blocked->team, index, blocked->faults->bound_ms);
    await(&blocked->back, 1); /* the call may have been quicker */
    faults_returned(blocked->faults, check_now_ms() - blocked->raised_at);
}

void scenario_first_call(const struct faults *faults)
{
    const int rounds = faults->slow ? ROUNDS_SLOW : ROUNDS;
    check_begin("%s, %d ranks: abort against the first call, %d times", faults->backend,
                faults->size, rounds);
    for (int round = 0; round < rounds && !check_failed(); round++) {
        struct blocked blocked = {.faults = faults, .round = round};
        if (!open_team(&blocked, false))
            break;
        check_ranks(faults->size + 1, first_member, &blocked);
        faults_all_aborted(&blocked.team, "against the first call");
        close_team(&blocked);
    }
    check_end();
}
