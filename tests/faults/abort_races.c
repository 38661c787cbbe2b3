/* Aborts: many at once, and against destroy, creation and other communicators. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/faults/abort.h"
#include "tests/process.h"

enum { ABORTERS = 8 };

/* ----------------------------------------------------------------------- eight threads at once */

struct crowd {
    struct team team;
    trib_abort *handle;
    _Atomic int arrived;
};

static void aborter(int index, int size, void *argument)
{
    struct crowd *crowd = argument;
    char reason[32];
    trib_abort *own = NULL;
    (void)snprintf(reason, sizeof reason, "aborter %d of eight", index);
    CHECK_OK(trib_abort_clone(&own, crowd->handle));
    team_barrier(&crowd->arrived, size);
    CHECK_OK(trib_abort_raise(own, reason));
    CHECK(trib_abort_raised(own) == 1);
    trib_abort_release(own);
}

void faults_eight_at_once(const struct faults *faults)
{
    struct crowd crowd = {.arrived = 0};
    check_begin("%s, %d ranks: abort from eight threads at once", faults->backend, faults->size);
    if (faults_team(&crowd.team, faults, NULL)) {
        CHECK_OK(trib_comm_abort_handle(&crowd.handle, crowd.team.comms[0]));
        const double start = check_now_ms();
        check_ranks(ABORTERS, aborter, &crowd);
        /* One of them was the first, and every rank names the same one. */
        CHECK_STATUS(trib_comm_status(crowd.team.comms[0]), TRIB_ERR_ABORTED);
        const char *named = strstr(trib_last_detail(), "aborter ");
        char reason[32] = "";
        if (CHECK(named != NULL))
            (void)snprintf(reason, sizeof reason, "%.18s", named);
        faults_all_aborted(&crowd.team, reason);
        faults_returned(faults, check_now_ms() - start);
        trib_abort_release(crowd.handle);
    }
    team_destroy(&crowd.team);
    faults_fresh(faults);
    check_end();
}

/* --------------------------------------------------------------------------- abort and destroy */

struct race {
    struct team team;
    trib_abort *handle;
    _Atomic int arrived, begun, destroyed; /* so many ranks */
    int round;
    double raised_at;
    bool was_first, was_last; /* the abort */
};

/* Half of the aborts come when the ranks destroy, a quarter when one has begun to, a quarter when
 * all have. */
static void abort_in_turn(struct race *race)
{
    const int size = race->team.size;
    while (race->round % 4 == 1 && atomic_load(&race->begun) == 0)
        continue;
    while (race->round % 4 == 3 && atomic_load(&race->destroyed) < size)
        check_sleep_ms(0);
    race->was_last = atomic_load(&race->destroyed) == size;
    race->raised_at = check_now_ms();
    CHECK_OK(trib_abort_raise(race->handle, "in a race"));
    race->was_first = atomic_load(&race->begun) == 0;
    trib_abort_release(race->handle);
}

/* All ranks destroy, and one more thread aborts. */
static void race_member(int index, int size, void *argument)
{
    struct race *race = argument;
    team_barrier(&race->arrived, size);
    team_stagger(index, race->round);
    if (index == size - 1) {
        abort_in_turn(race);
        return;
    }
    if (race->round % 3 == 0) /* may run, may be refused; nobody knows */
        (void)trib_barrier(race->team.comms[index], race->team.streams[index]);
    atomic_fetch_add(&race->begun, 1);
    CHECK_OK(trib_comm_destroy(race->team.comms[index]));
    race->team.comms[index] = NULL;
    atomic_fetch_add(&race->destroyed, 1);
    CHECK_OK(trib_stream_wait(race->team.devices[index], race->team.streams[index]));
}

void faults_against_destroy(const struct faults *faults)
{
    struct race race = {.arrived = 0};
    int first = 0, last = 0;
    check_begin("%s, %d ranks: abort against destroy, %d times", faults->backend, faults->size,
                faults->repetitions);
    bool good = team_prepare(&race.team, faults->backend, faults->size);
    for (race.round = 0; race.round < faults->repetitions && good; race.round++) {
        atomic_store(&race.arrived, 0);
        atomic_store(&race.begun, 0);
        atomic_store(&race.destroyed, 0);
        good = team_open(&race.team, NULL) &&
               CHECK_OK(trib_comm_abort_handle(&race.handle, race.team.comms[0]));
        if (!good)
            break;
        check_ranks(faults->size + 1, race_member, &race);
        faults_returned(faults, check_now_ms() - race.raised_at);
        first += race.was_first;
        last += race.was_last;
    }
    printf("  %s, %d ranks: of %d aborts %d came before and %d after every destroy\n",
           faults->backend, faults->size, faults->repetitions, first, last);
    CHECK(last >= faults->repetitions / 4);
    team_destroy(&race.team);
    faults_fresh(faults);
    check_end();
}

/* ----------------------------------------------------------- abort while lists are running */

/* Each list multiplies every element of three tensors by the number of ranks. An abort comes at
 * any moment; then a rank's tensors are exactly what its lists_committed says, all of them, to
 * the bit. */
enum { TENSORS = 3, ROUNDS = 60 };
static const size_t lengths[TENSORS] = {5, 40000, 1001};

struct torn {
    struct team team;
    trib_abort *handle;
    _Atomic int arrived;
    int round;
    struct guarded memory[TEAM_MAX];
    _Atomic int committed; /* over all rounds and ranks, to see that the abort came in between */
};

static void fill_torn(const struct torn *torn, int rank, uint64_t lists)
{
    uint64_t factor = 1;
    for (uint64_t i = 0; i < lists; i++)
        factor *= (uint64_t)torn->team.size;
    uint64_t *element = guarded_image(&torn->memory[rank], 0);
    for (size_t i = 0; i < lengths[0] + lengths[1] + lengths[2]; i++)
        element[i] = (i % 17 + 1) * factor;
}

static void torn_rank(struct torn *torn, int rank)
{
    const struct team *team = &torn->team;
    struct guarded *memory = &torn->memory[rank];
    trib_tensor list[TENSORS];
    trib_counters counters = TRIB_COUNTERS_INIT;
    size_t at = 0;
    for (int i = 0; i < TENSORS; at += lengths[i++])
        list[i] = (trib_tensor){guarded_data(memory, at * 8), lengths[i], TRIB_U64, 0};
    trib_status status = TRIB_OK;
    for (int i = 0; i < ROUNDS && status == TRIB_OK; i++)
        status =
            trib_allreduce_list(team->comms[rank], list, TENSORS, TRIB_SUM, team->streams[rank]);
    CHECK_MSG(status == TRIB_OK || status == TRIB_ERR_ABORTED, "a list is %s: %s",
              trib_status_name(status), trib_last_detail());
    CHECK_OK(trib_stream_wait(team->devices[rank], team->streams[rank]));
    CHECK_OK(trib_comm_counters(&counters, team->comms[rank]));
    CHECK(counters.lists_committed <= counters.lists_queued + (status != TRIB_OK));
    fill_torn(torn, rank, counters.lists_committed);
    guarded_pull(memory, team->streams[rank]);
    CHECK_OK(trib_stream_wait(team->devices[rank], team->streams[rank]));
    guarded_same(memory, __FILE__, __LINE__, "the tensors of an aborted list");
    atomic_fetch_add(&torn->committed, (int)counters.lists_committed);
}

static void torn_member(int index, int size, void *argument)
{
    struct torn *torn = argument;
    const int ranks = size - 1;
    if (index < ranks) {
        guarded_reset(&torn->memory[index], (lengths[0] + lengths[1] + lengths[2]) * 8, 8);
        fill_torn(torn, index, 0);
        guarded_push(&torn->memory[index], torn->team.streams[index]);
        CHECK_OK(trib_stream_wait(torn->team.devices[index], torn->team.streams[index]));
        team_barrier(&torn->arrived, size);
        torn_rank(torn, index);
        return;
    }
    team_barrier(&torn->arrived, size);
    check_sleep_ms(torn->round % 8);
    for (volatile int spin = 0; spin < torn->round * 7919 % 100000; spin++)
        continue;
    CHECK_OK(trib_abort_raise(torn->handle, "while lists ran"));
    trib_abort_release(torn->handle);
}

static void against_lists(const struct faults *faults)
{
    const int rounds = faults->repetitions / 10 + 3;
    struct torn *torn = calloc(1, sizeof *torn);
    if (torn == NULL)
        abort();
    check_begin("%s, %d ranks: abort while lists run, %d times", faults->backend, faults->size,
                rounds);
    bool good = team_prepare(&torn->team, faults->backend, faults->size);
    for (int rank = 0; rank < faults->size && good; rank++)
        good = guarded_create(&torn->memory[rank], torn->team.devices[rank],
                              (lengths[0] + lengths[1] + lengths[2]) * 8);
    for (torn->round = 0; torn->round < rounds && good; torn->round++) {
        atomic_store(&torn->arrived, 0);
        good = team_open(&torn->team, NULL) &&
               CHECK_OK(trib_comm_abort_handle(&torn->handle, torn->team.comms[0]));
        if (good)
            check_ranks(faults->size + 1, torn_member, torn);
        team_close(&torn->team);
    }
    printf("  %s, %d ranks: aborted after %d of %d lists\n", faults->backend, faults->size,
           atomic_load(&torn->committed), rounds * faults->size * ROUNDS);
    for (int rank = 0; rank < faults->size; rank++)
        guarded_destroy(&torn->memory[rank]);
    team_destroy(&torn->team);
    faults_fresh(faults);
    free(torn);
    check_end();
}

/* -------------------------------------------------------------------------- other communicators */

void faults_neighbours(const struct faults *faults)
{
    struct team first, second;
    check_begin("%s, %d ranks: two communicators on the same devices", faults->backend,
                faults->size);
    if (faults_team(&first, faults, NULL) && faults_team(&second, faults, NULL)) {
        const double start = check_now_ms();
        faults_abort(&first, "only the first");
        faults_all_aborted(&first, "only the first");
        faults_returned(faults, check_now_ms() - start);
        faults_works(&second, "the neighbour of an aborted communicator");
        team_close(&first);
        faults_works(&second, "the neighbour of a destroyed communicator");
        CHECK(team_open(&first, NULL));
        faults_works(&first, "in the place of an aborted communicator");
        faults_abort(&second, "now the second");
        faults_works(&first, "the other neighbour");
    }
    team_destroy(&second);
    team_destroy(&first);
    faults_fresh(faults);
    check_end();
}

struct family {
    struct team *parent, *child;
};

static void split_rank(int rank, int size, void *argument)
{
    struct family *family = argument;
    (void)size;
    CHECK_OK(trib_comm_split(&family->child->comms[rank], family->parent->comms[rank], 0, rank));
}

static void families(const struct faults *faults, bool abort_parent)
{
    struct team parent, child;
    struct family family = {&parent, &child};
    struct team *aborted = abort_parent ? &parent : &child;
    struct team *other = abort_parent ? &child : &parent;
    check_begin("%s, %d ranks: abort the %s of a family", faults->backend, faults->size,
                abort_parent ? "parent" : "child");
    if (faults_team(&parent, faults, NULL) && team_prepare(&child, faults->backend, faults->size)) {
        check_ranks(faults->size, split_rank, &family);
        faults_works(&child, "a child");
        const double start = check_now_ms();
        faults_abort(aborted, "this generation");
        faults_all_aborted(aborted, "this generation");
        faults_returned(faults, check_now_ms() - start);
        faults_works(other, "the other generation");
        team_close(aborted);
        faults_works(other, "the other generation, alone");
        team_destroy(&child);
    }
    team_destroy(&parent);
    faults_fresh(faults);
    check_end();
}

void faults_family(const struct faults *faults)
{
    families(faults, strcmp(faults->call, "parent") == 0);
}

/* -------------------------------------------------------------------------- again and again */

static long threads_left(long wanted)
{
    for (int i = 0; i < 2000 && process_threads() > wanted; i++)
        check_sleep_ms(1); /* those that reclaim in the background end */
    return process_threads();
}

static void again_and_again(const struct faults *faults)
{
    struct team team;
    long threads = 0;
    check_begin("%s, %d ranks: create and abort, %d times, leave nothing", faults->backend,
                faults->size, faults->repetitions / 4 + 3);
    for (int round = 0; round < faults->repetitions / 4 + 3; round++) {
        if (faults_team(&team, faults, NULL))
            faults_abort(&team, "again");
        team_destroy(&team);
        if (round == 1) /* after the first there may be some that stay for ever */
            threads = threads_left(1);
    }
    const long left = threads_left(threads);
    CHECK_MSG(left <= threads, "%ld threads after the second time, %ld in the end", threads, left);
    check_end();
}

void faults_races(const struct faults *faults)
{
    faults_eight_at_once(faults);
    faults_against_destroy(faults);
    against_lists(faults);
    faults_neighbours(faults);
    families(faults, true);
    families(faults, false);
    again_and_again(faults);
}
