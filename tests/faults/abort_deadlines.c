/* A rank is missing and no thread aborts: deadlines do. */
#include <stdatomic.h>
#include <stdio.h>

#include "tests/faults/abort.h"

enum { DEADLINE_MS = 800 }; /* NCCL takes 0.3 s or so to connect four GPUs */

static trib_options short_options(void)
{
    trib_options options = TRIB_OPTIONS_INIT;
    options.timeout_ms = DEADLINE_MS;
    options.close_timeout_ms = DEADLINE_MS;
    return options;
}

static void check_elapsed(const struct faults *faults, double start, const char *what)
{
    const double elapsed = check_now_ms() - start;
    CHECK_MSG(elapsed >= DEADLINE_MS * 0.9 && elapsed < DEADLINE_MS + faults->bound_ms,
              "%s with a deadline of %d ms took %.0f ms", what, DEADLINE_MS, elapsed);
    faults_returned(faults, elapsed - DEADLINE_MS);
}

/* -------------------------------------------------------------------------------- at creation */

struct rendezvous {
    const struct faults *faults;
    trib_id id;
};

static void join_rank(int rank, int size, void *argument)
{
    const struct rendezvous *rendezvous = argument;
    const trib_options options = short_options();
    trib_comm *comm = NULL;
    const double start = check_now_ms();
    if (rank == size - 1)
        return;
    CHECK_STATUS(trib_comm_create(&comm, &rendezvous->id, rank, size, rank, &options),
                 TRIB_ERR_TIMEOUT);
    CHECK(trib_last_detail()[0] != '\0');
    CHECK(comm == NULL);
    check_elapsed(rendezvous->faults, start, "trib_comm_create");
}

void faults_create_timeout(const struct faults *faults)
{
    struct rendezvous rendezvous = {.faults = faults};
    check_begin("%s, %d ranks: one never joins", faults->backend, faults->size);
    if (CHECK_OK(trib_id_create(&rendezvous.id, faults->backend)))
        check_ranks(faults->size, join_rank, &rendezvous);
    faults_fresh(faults);
    check_end();
}

/* ------------------------------------------------------------------------------------ closing */

struct held {
    struct team team;
    _Atomic bool released;
};

/* All ranks queue a barrier; the stream of the last rank does not reach it. */
static void queue_rank(int rank, int size, void *argument)
{
    struct held *held = argument;
    struct team *team = &held->team;
    if (rank == size - 1)
        CHECK_OK(trib_stream_submit(team->devices[rank], team_hold, &held->released,
                                    team->streams[rank]));
    CHECK_OK(trib_barrier(team->comms[rank], team->streams[rank]));
}

static void release_all(struct held *held, const struct faults *faults)
{
    struct team *team = &held->team;
    atomic_store(&held->released, true);
    for (int rank = 0; rank < team->size; rank++)
        team_wait(team, rank, faults->bound_ms);
}

/* The last rank to close waits for the work of the others until its deadline. */
static void at_close(const struct faults *faults)
{
    struct held held = {.released = false};
    struct team *team = &held.team;
    trib_abort *handle = NULL;
    check_begin("%s, %d ranks: close, one never reaches the call", faults->backend, faults->size);
    if (faults_team(team, faults, NULL)) {
        CHECK_OK(trib_comm_abort_handle(&handle, team->comms[0]));
        check_ranks(faults->size, queue_rank, &held);
        for (int rank = 0; rank < faults->size - 1; rank++)
            CHECK_OK(trib_comm_close(team->comms[rank], DEADLINE_MS));
        CHECK(trib_abort_raised(handle) == 0);
        const double start = check_now_ms();
        CHECK_STATUS(trib_comm_close(team->comms[faults->size - 1], DEADLINE_MS), TRIB_ERR_TIMEOUT);
        CHECK(trib_last_detail()[0] != '\0');
        check_elapsed(faults, start, "trib_comm_close");
        CHECK(trib_abort_raised(handle) == 1);
        release_all(&held, faults);
        for (int rank = 0; rank < faults->size; rank++)
            CHECK(trib_barrier(team->comms[rank], team->streams[rank]) != TRIB_OK);
        trib_abort_release(handle);
    }
    team_destroy(team);
    faults_fresh(faults);
    check_end();
}

static void destroy_rank(int rank, int size, void *argument)
{
    struct team *team = &((struct held *)argument)->team;
    (void)size;
    const trib_status status = trib_comm_destroy(team->comms[rank]);
    CHECK_MSG(status == TRIB_OK || status == TRIB_ERR_TIMEOUT, "destroy is %s: %s",
              trib_status_name(status), trib_last_detail());
    team->comms[rank] = NULL;
}

static void at_destroy(const struct faults *faults, bool in_turn)
{
    struct held held = {.released = false};
    const trib_options options = short_options();
    check_begin("%s, %d ranks: destroy%s while a rank never joined", faults->backend, faults->size,
                in_turn ? " in turn" : "");
    if (faults_team(&held.team, faults, &options)) {
        check_ranks(faults->size, queue_rank, &held);
        const double start = check_now_ms();
        for (int rank = 0; rank < faults->size && in_turn; rank++)
            destroy_rank(rank, faults->size, &held);
        if (!in_turn)
            check_ranks(faults->size, destroy_rank, &held);
        CHECK_MSG(check_now_ms() - start < DEADLINE_MS + faults->bound_ms, "destroy took %.0f ms",
                  check_now_ms() - start);
        release_all(&held, faults);
    }
    team_destroy(&held.team);
    faults_fresh(faults);
    check_end();
}

/* ------------------------------------------------- calls that themselves wait: split, match */

struct waiting {
    struct team team;
    const struct faults *faults;
    bool aborted; /* by a thread, before the deadline */
    double raised_at;
    _Atomic int arrived;
};

static void abort_soon(struct waiting *waiting)
{
    trib_abort *handle = NULL;
    CHECK_OK(trib_comm_abort_handle(&handle, waiting->team.comms[0]));
    team_barrier(&waiting->arrived, waiting->team.size);
    check_sleep_ms(20);
    waiting->raised_at = check_now_ms();
    CHECK_OK(trib_abort_raise(handle, "while they waited"));
    trib_abort_release(handle);
}

static void split_rank(int index, int size, void *argument)
{
    struct waiting *waiting = argument;
    const struct team *team = &waiting->team;
    trib_comm *child = NULL;
    if (index == team->size && waiting->aborted)
        abort_soon(waiting);
    if (index >= team->size - 1)
        return;
    if (waiting->aborted)
        team_barrier(&waiting->arrived, team->size);
    const double start = check_now_ms();
    CHECK_STATUS(trib_comm_split(&child, team->comms[index], 0, 0),
                 waiting->aborted ? TRIB_ERR_ABORTED : TRIB_ERR_TIMEOUT);
    CHECK(child == NULL);
    CHECK_MSG(check_now_ms() - start < DEADLINE_MS + waiting->faults->bound_ms,
              "split took %.0f ms", check_now_ms() - start);
    if (waiting->aborted)
        faults_returned(waiting->faults, check_now_ms() - waiting->raised_at);
    (void)size;
}

static void at_split(const struct faults *faults, bool aborted)
{
    struct waiting waiting = {.faults = faults, .aborted = aborted};
    trib_options options = short_options();
    if (aborted)
        options.timeout_ms = 0;
    check_begin("%s, %d ranks: one never joins a split, %s", faults->backend, faults->size,
                aborted ? "abort" : "deadline");
    if (faults_team(&waiting.team, faults, &options))
        check_ranks(faults->size + 1, split_rank, &waiting);
    team_destroy(&waiting.team);
    faults_fresh(faults);
    check_end();
}

void faults_split_aborted(const struct faults *faults)
{
    at_split(faults, true);
}

static void match_rank(int index, int size, void *argument)
{
    struct waiting *waiting = argument;
    const struct team *team = &waiting->team;
    (void)size;
    if (index == team->size)
        abort_soon(waiting);
    if (index >= team->size - 1)
        return;
    team_barrier(&waiting->arrived, team->size);
    const trib_status status = trib_barrier(team->comms[index], team->streams[index]);
    CHECK_MSG(status == TRIB_ERR_ABORTED, "a matched call is %s", trib_status_name(status));
    team_wait(team, index, waiting->faults->bound_ms);
}

static void at_match(const struct faults *faults)
{
    struct waiting waiting = {.faults = faults, .aborted = true};
    trib_options options = TRIB_OPTIONS_INIT;
    options.flags = TRIB_MATCH;
    check_begin("%s, %d ranks: one never makes the compared call", faults->backend, faults->size);
    if (faults_team(&waiting.team, faults, &options)) {
        check_ranks(faults->size + 1, match_rank, &waiting);
        faults_all_aborted(&waiting.team, "while they waited");
    }
    team_destroy(&waiting.team);
    faults_fresh(faults);
    check_end();
}

void faults_deadlines(const struct faults *faults)
{
    faults_create_timeout(faults);
    at_close(faults);
    at_destroy(faults, true);
    at_destroy(faults, false);
    at_match(faults);
    at_split(faults, true);
    at_split(faults, false);
}
