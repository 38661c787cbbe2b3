/* Ranks are lost, and the others go on with a communicator of their own. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/faults/shrink.h"

enum { DEADLINE_MS = 300, SHORT_MS = 200, LONG_MS = SHRINKING_MS };

/* ------------------------------------------------------------------------------- the fixture */

static bool is_excluded(const struct shrinking *shrinking, int rank)
{
    for (int32_t i = 0; i < shrinking->n; i++)
        if (shrinking->excluded[i] == rank)
            return true;
    return false;
}

/* The old number of rank `index` of `made`. */
static int old_rank(const struct shrinking *shrinking, int index)
{
    int rank = 0;
    for (;; rank++)
        if (!is_excluded(shrinking, rank) && index-- == 0)
            return rank;
}

void shrinking_rank(int index, int size, void *argument)
{
    struct shrinking *shrinking = argument;
    const struct team *old = shrinking->old;
    struct team *made = &shrinking->made;
    const int rank = old_rank(shrinking, index);
    trib_comm *comm = old->comms[rank];
    made->devices[index] = old->devices[rank];
    made->streams[index] = old->streams[rank];
    CHECK_STATUS(
        trib_comm_shrink(&comm, comm, shrinking->excluded, shrinking->n, shrinking->timeout_ms),
        shrinking->expected);
    made->comms[index] = comm;
    if (shrinking->expected == TRIB_OK && comm != NULL)
        CHECK(trib_comm_rank(comm) == index && trib_comm_size(comm) == size &&
              trib_comm_device(comm) == trib_comm_device(old->comms[rank]));
    if (shrinking->expected != TRIB_OK)
        CHECK(comm == NULL);
    if (shrinking->detail != NULL)
        CHECK_DETAIL(shrinking->detail);
}

struct shrinking shrinking_without(const struct team *old, int32_t rank)
{
    struct shrinking shrinking = {.old = old, .timeout_ms = LONG_MS, .n = rank >= 0};
    shrinking.excluded[0] = rank;
    shrinking.made.backend = old->backend;
    shrinking.made.size = old->size - shrinking.n;
    return shrinking;
}

bool shrinking_complete(const struct team *team)
{
    for (int rank = 0; rank < team->size; rank++)
        if (team->comms[rank] == NULL)
            return CHECK(false);
    return true;
}

bool shrinking_run(struct shrinking *shrinking)
{
    check_ranks(shrinking->made.size, shrinking_rank, shrinking);
    return shrinking->expected != TRIB_OK || shrinking_complete(&shrinking->made);
}

/* `n` ranks are lost, `rank` among them if there are any. */
static void check_lost(const struct team *team, int32_t n, int32_t rank)
{
    for (int at = 0; at < team->size; at++) {
        int32_t found = -1, ranks[2] = {-1, -1};
        CHECK_OK(trib_comm_lost(&found, team->comms[at], ranks, 2));
        CHECK_MSG(found == n && (n == 0 || ranks[0] == rank),
                  "rank %d: %d ranks lost, the first is %d; expected %d, %d", at, (int)found,
                  (int)ranks[0], (int)n, (int)rank);
    }
}

/* -------------------------------------------------------------------- noticed by the watchdog */

/* Every rank but `vanished` calls, and waits in vain. */
struct vanishing {
    const struct team *team;
    int vanished;
};

static void call_in_vain(int rank, int size, void *argument)
{
    const struct vanishing *vanishing = argument;
    const struct team *team = vanishing->team;
    struct fault_data data;
    (void)size;
    if (rank == vanishing->vanished || !fault_data_create(&data, team, rank))
        return;
    CHECK_OK(trib_allreduce(team->comms[rank], fault_data_at(&data), fault_data_at(&data),
                            FAULT_ELEMENTS, TRIB_F32, TRIB_SUM, team->streams[rank]));
    CHECK_STATUS(trib_comm_wait(team->comms[rank], team->streams[rank], LONG_MS), TRIB_ERR_TIMEOUT);
    CHECK_STATUS(trib_comm_status(team->comms[rank]), TRIB_ERR_TIMEOUT);
    CHECK_OK(trib_stream_wait(team->devices[rank], team->streams[rank]));
    fault_data_destroy(&data);
}

static void split_rank(int rank, int size, void *argument)
{
    const struct team *team = argument;
    trib_comm *child = NULL;
    if (!CHECK_OK(trib_comm_split(&child, team->comms[rank], 0, size - rank)))
        return;
    CHECK(trib_comm_rank(child) == size - 1 - rank);
    CHECK_OK(trib_barrier(child, team->streams[rank]));
    CHECK_OK(trib_comm_wait(child, team->streams[rank], LONG_MS));
    CHECK_OK(trib_comm_destroy(child));
}

/* The last rank vanishes until one is left; each time the watchdog tells who. */
static void vanish(const struct team *team)
{
    struct vanishing vanishing = {team, team->size - 1};
    if (team->size == 1)
        return;
    check_ranks(team->size, call_in_vain, &vanishing);
    check_lost(team, 1, vanishing.vanished);
    struct shrinking shrinking = shrinking_without(team, vanishing.vanished);
    if (shrinking_run(&shrinking)) {
        check_lost(&shrinking.made, 0, 0);
        faults_works(&shrinking.made, "after a rank has vanished");
        check_ranks(shrinking.made.size, split_rank, &shrinking.made);
        vanish(&shrinking.made); /* options have come along: this one has the deadline, too */
    }
    team_close(&shrinking.made);
}

static void noticed(const struct faults *faults)
{
    struct team team;
    trib_options options = TRIB_OPTIONS_INIT;
    check_begin("%s, %d ranks: ranks vanish until one is left", faults->backend, faults->size);
    options.call_timeout_ms = faults->slow ? 5 * DEADLINE_MS : DEADLINE_MS;
    if (faults_team(&team, faults, &options))
        vanish(&team);
    team_destroy(&team);
    check_end();
}

/* ------------------------------------------------------------------------------- who, and when */

static void live(const struct faults *faults)
{
    struct team team;
    check_begin("%s, %d ranks: a live communicator shrinks", faults->backend, faults->size);
    if (faults_team(&team, faults, NULL)) {
        struct shrinking shrinking = shrinking_without(&team, 0);
        check_lost(&team, 0, 0);
        if (shrinking_run(&shrinking)) {
            faults_all_aborted(&team, "excludes rank 0");
            check_lost(&team, 1, 0);
            team_close(&team); /* the old one first */
            faults_works(&shrinking.made, "without rank 0");
        }
        team_close(&shrinking.made);
    }
    team_destroy(&team);
    check_end();
}

static void nobody_lost(const struct faults *faults)
{
    struct team team;
    check_begin("%s, %d ranks: the same ranks again", faults->backend, faults->size);
    if (faults_team(&team, faults, NULL)) {
        struct shrinking shrinking = shrinking_without(&team, -1);
        faults_abort(&team, "for no reason");
        check_lost(&team, 0, 0);
        if (shrinking_run(&shrinking))
            faults_works(&shrinking.made, "the same ranks");
        team_close(&shrinking.made);
    }
    team_destroy(&team);
    check_end();
}

/* Each rank has a set of its own: all but the last exclude the last one, but rank 0 nobody. */
static void differing_rank(int rank, int size, void *argument)
{
    const struct team *team = argument;
    const int32_t last = size;
    trib_comm *out = team->comms[rank];
    CHECK_STATUS(trib_comm_shrink(&out, team->comms[rank], &last, rank > 0, LONG_MS),
                 TRIB_ERR_MISMATCH);
    CHECK_DETAIL("do not exclude the same");
    CHECK(out == NULL);
}

static void disagreement(const struct faults *faults)
{
    struct team team;
    if (faults->size < 3)
        return;
    check_begin("%s, %d ranks: different sets", faults->backend, faults->size);
    if (faults_team(&team, faults, NULL)) {
        const double begin = check_now_ms();
        struct shrinking shrinking = shrinking_without(&team, team.size - 1);
        faults_abort(&team, "to disagree");
        check_ranks(team.size - 1, differing_rank, &team);
        CHECK(check_now_ms() - begin < LONG_MS / 2.0);
        if (shrinking_run(&shrinking))
            faults_works(&shrinking.made, "after a disagreement");
        team_close(&shrinking.made);
    }
    team_destroy(&team);
    check_end();
}

static void expect_shrink(const struct team *team, int rank, int32_t n, trib_status expected,
                          const char *detail)
{
    const int32_t last = team->size - 1;
    trib_comm *out = team->comms[rank];
    const double begin = check_now_ms();
    CHECK_STATUS(trib_comm_shrink(&out, team->comms[rank], &last, n, SHORT_MS), expected);
    CHECK_DETAIL(detail);
    CHECK(out == NULL && check_now_ms() - begin < SHORT_MS + 1000);
}

/* Rank 0 calls in vain; the others come late and learn it at once; then all go on. */
static void missing(const struct faults *faults)
{
    struct team team;
    if (faults->size < 3)
        return;
    check_begin("%s, %d ranks: a survivor does not call", faults->backend, faults->size);
    if (faults_team(&team, faults, NULL)) {
        const char *who = faults->size == 3 ? "these ranks have not called it: 1;"
                                            : "these ranks have not called it: 1, 2";
        struct shrinking shrinking = shrinking_without(&team, team.size - 1);
        faults_abort(&team, "to be late");
        expect_shrink(&team, 0, 1, TRIB_ERR_TIMEOUT, who);
        const double begin = check_now_ms();
        for (int rank = 1; rank < team.size - 1; rank++)
            expect_shrink(&team, rank, 1, TRIB_ERR_TIMEOUT, who);
        CHECK_MSG(check_now_ms() - begin < SHORT_MS / 2.0, "late ranks waited for %.0f ms",
                  check_now_ms() - begin);
        if (shrinking_run(&shrinking))
            faults_works(&shrinking.made, "after a late rank");
        team_close(&shrinking.made);
    }
    team_destroy(&team);
    check_end();
}

static void excluded_comes(const struct faults *faults)
{
    struct team team;
    check_begin("%s, %d ranks: an excluded rank comes", faults->backend, faults->size);
    if (faults_team(&team, faults, NULL)) {
        struct shrinking shrinking = shrinking_without(&team, team.size - 1);
        if (shrinking_run(&shrinking)) {
            expect_shrink(&team, team.size - 1, 0, TRIB_ERR_MISMATCH, "comes too late");
            faults_works(&shrinking.made, "the others");
        }
        team_close(&shrinking.made);
    }
    team_destroy(&team);
    check_end();
}

static void refuse(trib_comm *comm, const int32_t *excluded, int32_t n, trib_status expected)
{
    trib_comm *out = comm;
    CHECK_STATUS(trib_comm_shrink(&out, comm, excluded, n, LONG_MS), expected);
    CHECK(out == NULL);
}

static void mistakes(const struct faults *faults)
{
    struct team team;
    check_begin("%s, %d ranks: mistakes change nothing", faults->backend, faults->size);
    if (faults_team(&team, faults, NULL)) {
        trib_comm *comm = team.comms[0];
        const int32_t own = 0, low = -1, high = team.size, twice[] = {1, 1};
        int32_t n = 0;
        refuse(comm, NULL, 1, TRIB_ERR_INVALID_ARGUMENT);
        refuse(comm, twice, -1, TRIB_ERR_INVALID_ARGUMENT);
        refuse(comm, twice, team.size, TRIB_ERR_INVALID_ARGUMENT); /* all */
        refuse(comm, &own, 1, TRIB_ERR_INVALID_ARGUMENT);
        refuse(comm, &low, 1, TRIB_ERR_INVALID_ARGUMENT);
        refuse(comm, &high, 1, TRIB_ERR_INVALID_ARGUMENT);
        if (team.size > 2)
            refuse(comm, twice, 2, TRIB_ERR_INVALID_ARGUMENT);
        CHECK_STATUS(trib_comm_shrink(NULL, comm, NULL, 0, 0), TRIB_ERR_INVALID_ARGUMENT);
        refuse(NULL, NULL, 0, TRIB_ERR_INVALID_ARGUMENT);
        CHECK_STATUS(trib_comm_lost(NULL, comm, NULL, 0), TRIB_ERR_INVALID_ARGUMENT);
        CHECK_STATUS(trib_comm_lost(&n, comm, NULL, 1), TRIB_ERR_INVALID_ARGUMENT);
        CHECK_STATUS(trib_comm_lost(&n, comm, &n, -1), TRIB_ERR_INVALID_ARGUMENT);
        CHECK_OK(trib_batch_begin(comm));
        refuse(comm, NULL, 0, TRIB_ERR_INVALID_USAGE);
        CHECK_OK(trib_batch_end(comm));
        faults_works(&team, "after the mistakes");
    }
    team_destroy(&team);
    check_end();
}

void faults_shrink(const struct faults *faults)
{
    noticed(faults);
    live(faults);
    nobody_lost(faults);
    disagreement(faults);
    missing(faults);
    excluded_comes(faults);
    mistakes(faults);
    shrink_rounds(faults);
    shrink_races(faults);
    faults_shrink_twice(faults);
    faults_shrink_missing(faults);
    shrink_group(faults);
}
