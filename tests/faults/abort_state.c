/* Aborts: the state that any thread reads, while ranks work, after the abort, and after the end. */
#include <stdatomic.h>
#include <string.h>

#include "tests/faults/abort.h"

enum { ABORTERS = 8, TEXT = 128, PARKED_MS = 1000 };

static trib_comm_state state_of(trib_abort *handle, char text[TEXT])
{
    trib_comm_state state = -1;
    CHECK_OK(trib_abort_state(&state, text, TEXT, handle));
    return state;
}

/* The order of the states that one thread reads. */
struct watch {
    trib_comm_state last;
    bool seen[TRIB_COMM_RECLAIMED + 1];
};

static trib_comm_state look(struct watch *watch, trib_abort *handle)
{
    char text[TEXT];
    const trib_comm_state found = state_of(handle, text);
    CHECK_MSG(found >= watch->last ||
                  (found == TRIB_COMM_ABORTED && watch->last == TRIB_COMM_PARKED),
              "the state goes from %d to %d", (int)watch->last, (int)found);
    CHECK_MSG(
        (found != TRIB_COMM_LIVE && found != TRIB_COMM_ABORTED && found != TRIB_COMM_RECLAIMED) ||
            text[0] == '\0',
        "state %d waits for \"%s\"", (int)found, text);
    CHECK(found != TRIB_COMM_PARKED || text[0] != '\0');
    watch->seen[found] = true;
    return watch->last = found;
}

static bool becomes(trib_abort *handle, trib_comm_state wanted, int ms)
{
    struct watch watch = {.last = TRIB_COMM_LIVE};
    const double end = check_now_ms() + ms;
    while (look(&watch, handle) != wanted && check_now_ms() < end)
        check_sleep_ms(1);
    return CHECK_MSG(watch.last == wanted, "after %d ms the state is %d, expected %d", ms,
                     (int)watch.last, (int)wanted);
}

/* ------------------------------------------------------------------- ranks work, eight abort */

struct crowd {
    struct team team;
    const struct faults *faults;
    trib_abort *handle;
    struct fault_data data[TEAM_MAX];
    _Atomic int arrived, calls, watching, aborting;
    double raised_at; /* by the first of the eight */
};

static void working_rank(struct crowd *crowd, int rank)
{
    struct team *team = &crowd->team;
    trib_comm_state state = TRIB_COMM_LIVE;
    void *data = fault_data_at(&crowd->data[rank]);
    trib_status status = TRIB_OK;
    while (status == TRIB_OK) {
        status = trib_allreduce(team->comms[rank], data, data, FAULT_ELEMENTS, TRIB_F32, TRIB_MAX,
                                team->streams[rank]);
        if (status == TRIB_OK && rank == 0)
            atomic_fetch_add(&crowd->calls, 1);
        if (atomic_load(&crowd->calls) % 16 == 0)
            CHECK_OK(trib_stream_wait(team->devices[rank], team->streams[rank]));
    }
    CHECK_MSG(status == TRIB_ERR_ABORTED, "a call is %s", trib_status_name(status));
    CHECK_OK(trib_abort_state(&state, NULL, 0, crowd->handle));
    CHECK(state != TRIB_COMM_LIVE); /* whoever got the error sees it here, too */
    CHECK_OK(trib_stream_wait(team->devices[rank], team->streams[rank]));
    CHECK_STATUS(trib_comm_status(team->comms[rank]), TRIB_ERR_ABORTED);
    faults_returned(crowd->faults, check_now_ms() - crowd->raised_at);
    CHECK_OK(trib_comm_destroy(team->comms[rank]));
    team->comms[rank] = NULL;
}

static void crowd_member(int index, int size, void *argument)
{
    struct crowd *crowd = argument;
    const int ranks = crowd->team.size;
    struct watch watch = {.last = TRIB_COMM_LIVE};
    team_barrier(&crowd->arrived, size);
    if (index < ranks) {
        working_rank(crowd, index);
    } else if (index < ranks + ABORTERS) {
        while (atomic_load(&crowd->calls) < 20 || atomic_load(&crowd->watching) == 0)
            check_sleep_ms(0);
        if (index == ranks)
            crowd->raised_at = check_now_ms();
        if (index == ranks)
            atomic_store(&crowd->aborting, 1);
        while (atomic_load(&crowd->aborting) == 0)
            check_sleep_ms(0);
        CHECK_OK(trib_abort_raise(crowd->handle, "one of eight"));
        CHECK(look(&watch, crowd->handle) != TRIB_COMM_LIVE);
    } else {
        const double end = check_now_ms() + crowd->faults->bound_ms;
        while (look(&watch, crowd->handle) != TRIB_COMM_RECLAIMED && check_now_ms() < end)
            atomic_store(&crowd->watching, 1);
        CHECK(watch.seen[TRIB_COMM_LIVE] && watch.seen[TRIB_COMM_RECLAIMED]);
    }
}

void faults_eight_abort(const struct faults *faults)
{
    const int rounds = faults->slow ? 2 : 20;
    struct crowd crowd = {.faults = faults};
    struct team *team = &crowd.team;
    check_begin("%s, %d ranks: the state while ranks work and eight threads abort, %d times",
                faults->backend, faults->size, rounds);
    for (int round = 0; round < rounds && faults_team(team, faults, NULL); round++) {
        atomic_store(&crowd.arrived, 0);
        atomic_store(&crowd.calls, 0);
        atomic_store(&crowd.watching, 0);
        atomic_store(&crowd.aborting, 0);
        CHECK_OK(trib_comm_abort_handle(&crowd.handle, team->comms[0]));
        for (int rank = 0; rank < team->size; rank++)
            CHECK(fault_data_create(&crowd.data[rank], team, rank));
        check_ranks(team->size + ABORTERS + 1, crowd_member, &crowd);
        becomes(crowd.handle, TRIB_COMM_RECLAIMED, faults->bound_ms);
        for (int rank = 0; rank < team->size; rank++)
            fault_data_destroy(&crowd.data[rank]);
        trib_abort_release(crowd.handle);
        team_destroy(team);
    }
    faults_fresh(faults);
    check_end();
}

/* -------------------------------------------------------------------------- a rank never joins */

struct stuck {
    struct team team;
    _Atomic bool released;
};

/* All but the last rank wait in a barrier; `held`: behind something that does not end. */
static void queue_barrier(int rank, int size, void *argument)
{
    struct stuck *stuck = argument;
    struct team *team = &stuck->team;
    if (rank == size - 1)
        return;
    if (!atomic_load(&stuck->released))
        CHECK_OK(trib_stream_submit(team->devices[rank], team_hold, &stuck->released,
                                    team->streams[rank]));
    CHECK_OK(trib_barrier(team->comms[rank], team->streams[rank]));
}

/* ABORTED says that the streams are free: they end at once. */
static void stuck_ranks(const struct faults *faults)
{
    struct stuck stuck = {.released = true};
    struct team *team = &stuck.team;
    trib_abort *handle = NULL;
    check_begin("%s, %d ranks: the state after ranks were stuck", faults->backend, faults->size);
    if (faults_team(team, faults, NULL) &&
        CHECK_OK(trib_comm_abort_handle(&handle, team->comms[0]))) {
        check_ranks(team->size, queue_barrier, &stuck);
        check_sleep_ms(10);
        becomes(handle, TRIB_COMM_LIVE, 0);
        CHECK_OK(trib_abort_raise(handle, "a rank never joined"));
        struct watch watch = {.last = TRIB_COMM_ABORTING};
        while (look(&watch, handle) == TRIB_COMM_ABORTING)
            check_sleep_ms(0);
        const double start = check_now_ms();
        for (int rank = 0; rank < team->size - 1; rank++)
            team_wait(team, rank, faults->bound_ms);
        CHECK_MSG(check_now_ms() - start < faults->bound_ms / 4.0, "streams ended after %.1f ms",
                  check_now_ms() - start);
        team_close(team);
        becomes(handle, TRIB_COMM_RECLAIMED, faults->bound_ms);
        CHECK_STATUS(trib_abort_status(handle), TRIB_ERR_ABORTED);
        trib_abort_release(handle);
    }
    team_destroy(team);
    faults_fresh(faults);
    check_end();
}

/* Nobody waits in a collective, but something of the caller's is in front of one. */
void faults_parked(const struct faults *faults)
{
    struct stuck stuck = {.released = false};
    struct team *team = &stuck.team;
    trib_abort *handle = NULL;
    char text[TEXT] = "";
    check_begin("%s, %d ranks: the state while earlier work holds everything up", faults->backend,
                faults->size);
    if (faults_team(team, faults, NULL) &&
        CHECK_OK(trib_comm_abort_handle(&handle, team->comms[0]))) {
        check_ranks(team->size, queue_barrier, &stuck);
        const double raised_at = check_now_ms();
        CHECK_OK(trib_abort_raise(handle, "behind a long job"));
        becomes(handle, TRIB_COMM_ABORTED, faults->bound_ms);
        faults_returned(faults, check_now_ms() - raised_at);
        team_close(team);
        const double start = check_now_ms();
        becomes(handle, TRIB_COMM_PARKED, PARKED_MS + faults->bound_ms);
        CHECK(check_now_ms() - start < PARKED_MS + faults->bound_ms / 4.0);
        CHECK(state_of(handle, text) == TRIB_COMM_PARKED);
        CHECK_MSG(strncmp(text, "earlier work on a ", 18) == 0 && strstr(text, ", for 1.") != NULL,
                  "it waits for \"%s\"", text);
        CHECK(state_of(handle, text) == TRIB_COMM_PARKED);
        atomic_store(&stuck.released, true);
        becomes(handle, TRIB_COMM_RECLAIMED, faults->bound_ms);
        trib_abort_release(handle);
    }
    atomic_store(&stuck.released, true);
    team_destroy(team);
    faults_fresh(faults);
    check_end();
}

/* ------------------------------------------------------------------------------- in good order */

static void orderly(const struct faults *faults)
{
    struct team team;
    trib_abort *handle = NULL;
    trib_comm_state state = -1;
    char one[1] = {'x'};
    check_begin("%s, %d ranks: the state of a communicator that is never aborted", faults->backend,
                faults->size);
    if (faults_team(&team, faults, NULL) &&
        CHECK_OK(trib_comm_abort_handle(&handle, team.comms[0]))) {
        CHECK_STATUS(trib_abort_state(NULL, NULL, 0, handle), TRIB_ERR_INVALID_ARGUMENT);
        CHECK_STATUS(trib_abort_state(&state, NULL, 0, NULL), TRIB_ERR_INVALID_ARGUMENT);
        CHECK_STATUS(trib_abort_state(&state, NULL, 1, handle), TRIB_ERR_INVALID_ARGUMENT);
        CHECK_DETAIL("waits_for");
        CHECK_OK(trib_abort_state(&state, one, 1, handle));
        CHECK(state == TRIB_COMM_LIVE && one[0] == '\0');
        team_close(&team);
        becomes(handle, TRIB_COMM_RECLAIMED, faults->bound_ms);
        CHECK_OK(trib_abort_status(handle));
        CHECK_OK(trib_abort_raise(handle, "much too late"));
        becomes(handle, TRIB_COMM_RECLAIMED, 0);
        trib_abort_release(handle);
    }
    team_destroy(&team);
    faults_fresh(faults);
    check_end();
}

void faults_states(const struct faults *faults)
{
    faults_eight_abort(faults);
    stuck_ranks(faults);
    faults_parked(faults);
    orderly(faults);
}
