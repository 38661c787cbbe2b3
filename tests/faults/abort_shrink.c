/* Ranks are lost, and the others go on with a communicator of their own. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/faults/abort.h"
#include "tests/process.h"

enum { DEADLINE_MS = 300, SHORT_MS = 200, LONG_MS = 20000, ROUNDS = 100, ROUNDS_SLOW = 20 };

/* ------------------------------------------------------------------------------- the fixture */

/* The ranks of `old` that are not excluded become `made`, one thread each. */
struct shrinking {
    const struct team *old;
    struct team made;
    int32_t excluded[TEAM_MAX], n;
    uint32_t timeout_ms;
    trib_status expected;
    const char *detail; /* NULL: any */
};

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

static void shrink_rank(int index, int size, void *argument)
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

static struct shrinking without(const struct team *old, int32_t rank)
{
    struct shrinking shrinking = {.old = old, .timeout_ms = LONG_MS, .n = rank >= 0};
    shrinking.excluded[0] = rank;
    shrinking.made.backend = old->backend;
    shrinking.made.size = old->size - shrinking.n;
    return shrinking;
}

static bool complete(const struct team *team)
{
    for (int rank = 0; rank < team->size; rank++)
        if (team->comms[rank] == NULL)
            return CHECK(false);
    return true;
}

static bool shrink(struct shrinking *shrinking)
{
    check_ranks(shrinking->made.size, shrink_rank, shrinking);
    return shrinking->expected != TRIB_OK || complete(&shrinking->made);
}

static void abort_team(const struct team *team, const char *reason)
{
    trib_abort *handle = NULL;
    CHECK_OK(trib_comm_abort_handle(&handle, team->comms[0]));
    CHECK_OK(trib_abort_raise(handle, reason));
    trib_abort_release(handle);
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
    struct shrinking shrinking = without(team, vanishing.vanished);
    if (shrink(&shrinking)) {
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
        struct shrinking shrinking = without(&team, 0);
        check_lost(&team, 0, 0);
        if (shrink(&shrinking)) {
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
        struct shrinking shrinking = without(&team, -1);
        abort_team(&team, "for no reason");
        check_lost(&team, 0, 0);
        if (shrink(&shrinking))
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
        struct shrinking shrinking = without(&team, team.size - 1);
        abort_team(&team, "to disagree");
        check_ranks(team.size - 1, differing_rank, &team);
        CHECK(check_now_ms() - begin < LONG_MS / 2.0);
        if (shrink(&shrinking))
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
        struct shrinking shrinking = without(&team, team.size - 1);
        abort_team(&team, "to be late");
        expect_shrink(&team, 0, 1, TRIB_ERR_TIMEOUT, who);
        const double begin = check_now_ms();
        for (int rank = 1; rank < team.size - 1; rank++)
            expect_shrink(&team, rank, 1, TRIB_ERR_TIMEOUT, who);
        CHECK_MSG(check_now_ms() - begin < SHORT_MS / 2.0, "late ranks waited for %.0f ms",
                  check_now_ms() - begin);
        if (shrink(&shrinking))
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
        struct shrinking shrinking = without(&team, team.size - 1);
        if (shrink(&shrinking)) {
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

/* ------------------------------------------------------------------------------------- rounds */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Abort, shrink, first correct allreduce, destroy. Returns the milliseconds from the abort on. */
static double one_round(const struct faults *faults, int number)
{
    struct team team;
    double ms = 0;
    if (faults_team(&team, faults, NULL)) {
        struct shrinking shrinking = without(&team, number % team.size);
        const double begin = check_now_ms();
        abort_team(&team, "a round");
        if (shrink(&shrinking))
            faults_works(&shrinking.made, "a round");
        ms = check_now_ms() - begin;
        team_close(&shrinking.made);
    }
    team_destroy(&team);
    return ms;
}

static void rounds(const struct faults *faults)
{
    const int n = faults->slow ? ROUNDS_SLOW : ROUNDS;
    double ms[ROUNDS];
    check_begin("%s, %d ranks: %d rounds of abort and shrink", faults->backend, faults->size, n);
    for (int i = 0; i < 3; i++)
        (void)one_round(faults, i);
    CHECK_OK(trib_quiesce(LONG_MS));
    const long threads = process_threads(), descriptors = process_descriptors();
    for (int i = 0; i < n; i++)
        ms[i] = one_round(faults, i);
    CHECK_OK(trib_quiesce(LONG_MS));
    CHECK_MSG(process_descriptors() <= descriptors, "%ld descriptors, %ld before",
              process_descriptors(), descriptors);
    CHECK_MSG(process_threads() <= threads + faults->size, "%ld threads, %ld before",
              process_threads(), threads);
    qsort(ms, (size_t)n, sizeof ms[0], by_value);
    printf("%s, %d ranks: from abort to the first correct allreduce %.1f ms (p50), %.1f ms (p99)\n",
           faults->backend, faults->size, ms[n / 2], ms[n * 99 / 100]);
    CHECK_MSG(ms[n / 2] < faults->bound_ms, "half of the rounds took %.0f ms or more", ms[n / 2]);
    check_end();
}

/* -------------------------------------------------------------------------------------- races */

struct race {
    struct shrinking shrinking;
    trib_abort *handle;
    _Atomic int arrived;
    int round;
};

/* The last thread aborts the old communicator while the others shrink it, live or not. */
static void race_member(int index, int size, void *argument)
{
    struct race *race = argument;
    team_barrier(&race->arrived, size);
    team_stagger(index, race->round);
    if (index == size - 1)
        CHECK_OK(trib_abort_raise(race->handle, "in a race"));
    else
        shrink_rank(index, size - 1, &race->shrinking);
}

static void races(const struct faults *faults)
{
    struct team team;
    const int n = faults->repetitions / 4 + 1;
    check_begin("%s, %d ranks: aborts against shrink, %d times", faults->backend, faults->size, n);
    bool good = team_prepare(&team, faults->backend, faults->size);
    for (int round = 0; round < n && good; round++) {
        good = team_open(&team, NULL);
        struct race race = {.shrinking = without(&team, round % team.size), .round = round};
        if (!good || !CHECK_OK(trib_comm_abort_handle(&race.handle, team.comms[0])))
            break;
        check_ranks(race.shrinking.made.size + 1, race_member, &race);
        if (complete(&race.shrinking.made))
            faults_works(&race.shrinking.made, "after a race");
        trib_abort_release(race.handle);
        team_close(&race.shrinking.made);
        team_close(&team);
    }
    team_destroy(&team);
    check_end();
}

/* A group needs no shrink: another one, with the remaining devices. */
static void group(const struct faults *faults)
{
    struct team team, rest = {.backend = faults->backend, .size = faults->size - 1};
    trib_group *group = NULL;
    trib_options options = TRIB_OPTIONS_INIT;
    int32_t devices[TEAM_MAX];
    check_begin("%s, %d ranks: a group without its first device", faults->backend, faults->size);
    options.backend = faults->backend;
    if (team_prepare(&team, faults->backend, faults->size) && team_split_group(&team, &options))
        abort_team(&team, "the first device has failed");
    team_close(&team);
    for (int i = 0; i < rest.size; i++) {
        devices[i] = i + 1;
        rest.devices[i] = team.devices[i + 1];
        rest.streams[i] = team.streams[i + 1];
    }
    if (CHECK_OK(trib_group_create(&group, devices, rest.size, &options)) &&
        CHECK_OK(trib_group_split(rest.comms, group)))
        faults_works(&rest, "the remaining devices");
    team_close(&rest);
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
    rounds(faults);
    races(faults);
    group(faults);
}
