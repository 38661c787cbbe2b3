/* Ranks are lost, and the others go on: again and again, against aborts, with a rank that does not
 * come, and without a shrink where a group needs none. */
#include <stdatomic.h>
#include <stdio.h>

#include "tests/faults/shrink.h"
#include "tests/process.h"

enum { ROUNDS = 100, ROUNDS_SLOW = 20, SHORT_MS = 200 };

/* ------------------------------------------------------------------------------------- rounds */

/* Abort, shrink, first correct allreduce, destroy. Returns the milliseconds from the abort on. */
static double one_round(const struct faults *faults, int number)
{
    struct team team;
    double ms = 0;
    if (faults_team(&team, faults, NULL)) {
        struct shrinking shrinking = shrinking_without(&team, number % team.size);
        const double begin = check_now_ms();
        faults_abort(&team, "a round");
        if (shrinking_run(&shrinking))
            faults_works(&shrinking.made, "a round");
        ms = check_now_ms() - begin;
        team_close(&shrinking.made);
    }
    team_destroy(&team);
    return ms;
}

void shrink_rounds(const struct faults *faults)
{
    const int n = faults->slow ? ROUNDS_SLOW : ROUNDS;
    double ms[ROUNDS];
    check_begin("%s, %d ranks: %d rounds of abort and shrink", faults->backend, faults->size, n);
    for (int i = 0; i < 3; i++)
        (void)one_round(faults, i);
    CHECK_OK(trib_quiesce(SHRINKING_MS));
    const long threads = process_threads(), descriptors = process_descriptors();
    for (int i = 0; i < n; i++)
        ms[i] = one_round(faults, i);
    CHECK_OK(trib_quiesce(SHRINKING_MS));
    CHECK_MSG(process_descriptors() <= descriptors, "%ld descriptors, %ld before",
              process_descriptors(), descriptors);
    CHECK_MSG(process_threads() <= threads + faults->size, "%ld threads, %ld before",
              process_threads(), threads);
    check_sort(ms, n);
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
        shrinking_rank(index, size - 1, &race->shrinking);
}

void shrink_races(const struct faults *faults)
{
    struct team team;
    const int n = faults->repetitions / 4 + 1;
    check_begin("%s, %d ranks: aborts against shrink, %d times", faults->backend, faults->size, n);
    bool good = team_prepare(&team, faults->backend, faults->size);
    for (int round = 0; round < n && good; round++) {
        good = team_open(&team, NULL);
        struct race race = {.shrinking = shrinking_without(&team, round % team.size),
                            .round = round};
        if (!good || !CHECK_OK(trib_comm_abort_handle(&race.handle, team.comms[0])))
            break;
        check_ranks(race.shrinking.made.size + 1, race_member, &race);
        if (shrinking_complete(&race.shrinking.made))
            faults_works(&race.shrinking.made, "after a race");
        trib_abort_release(race.handle);
        team_close(&race.shrinking.made);
        team_close(&team);
    }
    team_destroy(&team);
    check_end();
}

/* ---------------------------------------------------------------------------------- single ones */

struct missed {
    const struct faults *faults;
    const struct team *team;
};

/* The ranks that come are back at the deadline; an abort of the old communicator ends no shrink. */
static void without_the_last(int rank, int size, void *argument)
{
    const struct missed *missed = argument;
    trib_comm *out = missed->team->comms[rank];
    char who[64];
    const double start = check_now_ms();
    (void)snprintf(who, sizeof who, "these ranks have not called it: %d;", size);
    CHECK_STATUS(trib_comm_shrink(&out, missed->team->comms[rank], NULL, 0, SHORT_MS),
                 TRIB_ERR_TIMEOUT);
    CHECK_DETAIL(who);
    CHECK(out == NULL);
    faults_returned(missed->faults, check_now_ms() - start - SHORT_MS);
}

/* The last rank learns how that attempt ended. */
static void late(const struct team *team)
{
    trib_comm *out = team->comms[team->size - 1];
    CHECK_STATUS(trib_comm_shrink(&out, team->comms[team->size - 1], NULL, 0, SHRINKING_MS),
                 TRIB_ERR_TIMEOUT);
    CHECK(out == NULL);
}

void faults_shrink_missing(const struct faults *faults)
{
    struct team team;
    struct missed missed = {faults, &team};
    check_begin("%s, %d ranks: a rank never joins a shrink", faults->backend, faults->size);
    if (faults_team(&team, faults, NULL)) {
        struct shrinking shrinking = shrinking_without(&team, -1);
        check_ranks(team.size - 1, without_the_last, &missed);
        late(&team);
        if (shrinking_run(&shrinking))
            faults_works(&shrinking.made, "when it has come after all");
        team_close(&shrinking.made);
    }
    team_destroy(&team);
    check_end();
}

/* Abort, all ranks go on, abort, all but the last go on. */
void faults_shrink_twice(const struct faults *faults)
{
    struct team team;
    check_begin("%s, %d ranks: abort, shrink, go on, and the same again", faults->backend,
                faults->size);
    if (faults_team(&team, faults, NULL)) {
        struct shrinking first = shrinking_without(&team, -1);
        double start = check_now_ms();
        faults_abort(&team, "the first end");
        if (shrinking_run(&first)) {
            faults_returned(faults, check_now_ms() - start);
            faults_works(&first.made, "after the first end");
            struct shrinking second = shrinking_without(&first.made, team.size - 1);
            start = check_now_ms();
            faults_abort(&first.made, "the second end");
            faults_abort(&team, "the first end, once more");
            if (shrinking_run(&second)) {
                faults_returned(faults, check_now_ms() - start);
                faults_works(&second.made, "after the second end");
            }
            faults_all_aborted(&first.made, "the second end");
            faults_all_aborted(&team, "the first end");
            team_close(&second.made);
        }
        team_close(&first.made);
    }
    team_destroy(&team);
    check_end();
}

/* A group needs no shrink: another one, with the remaining devices. */
void shrink_group(const struct faults *faults)
{
    struct team team, rest = {.backend = faults->backend, .size = faults->size - 1};
    trib_group *group = NULL;
    trib_options options = TRIB_OPTIONS_INIT;
    int32_t devices[TEAM_MAX];
    check_begin("%s, %d ranks: a group without its first device", faults->backend, faults->size);
    options.backend = faults->backend;
    if (team_prepare(&team, faults->backend, faults->size) && team_split_group(&team, &options))
        faults_abort(&team, "the first device has failed");
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
