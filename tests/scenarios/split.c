/* An abort against a split that all ranks make. Either all ranks have a child that works, or those
 * that have one learn that it is aborted. */
#include <stdatomic.h>

#include "tests/scenarios/scenario.h"

enum { ROUNDS = 30, ROUNDS_SLOW = 4 };

struct splitting {
    struct team team;
    const struct faults *faults;
    trib_abort *handle;
    _Atomic int arrived, raised, returned, with_child;
    int round;
    double raised_at;
};

static void use_child(struct splitting *splitting, int rank, trib_comm *child)
{
    const struct team *team = &splitting->team;
    const bool all = atomic_load(&splitting->with_child) == team->size;
    const trib_status status = trib_barrier(child, team->streams[rank]);
    CHECK_MSG(status == TRIB_OK || (!all && status == TRIB_ERR_ABORTED), "a barrier is %s: %s",
              trib_status_name(status), trib_last_detail());
    CHECK_STATUS(trib_comm_wait(child, team->streams[rank], (uint32_t)splitting->faults->bound_ms),
                 all ? TRIB_OK : TRIB_ERR_ABORTED);
    CHECK_OK(trib_stream_wait(team->devices[rank], team->streams[rank]));
}

static void split_rank(struct splitting *splitting, int rank)
{
    trib_comm *child = NULL;
    const trib_status status = trib_comm_split(&child, splitting->team.comms[rank], 0, rank);
    CHECK_MSG(status == TRIB_OK || status == TRIB_ERR_ABORTED, "a split is %s: %s",
              trib_status_name(status), trib_last_detail());
    CHECK((child != NULL) == (status == TRIB_OK));
    atomic_fetch_add(&splitting->with_child, child != NULL);
    while (atomic_load(&splitting->raised) == 0) /* the split may have been quicker */
        check_sleep_ms(0);
    faults_returned(splitting->faults, check_now_ms() - splitting->raised_at);
    team_barrier(&splitting->returned, splitting->team.size);
    if (child != NULL)
        use_child(splitting, rank, child);
    CHECK_OK(trib_comm_destroy(child));
}

/* A third of the aborts come at once, a third later and later, a third when a rank has its child. */
static void abort_in_turn(struct splitting *splitting)
{
    const int round = splitting->round;
    for (volatile int spin = 0; round % 3 == 1 && spin < round * 4000; spin++)
        continue;
    while (round % 3 == 2 && atomic_load(&splitting->with_child) == 0)
        check_sleep_ms(0);
    splitting->raised_at = check_now_ms();
    CHECK_OK(trib_abort_raise(splitting->handle, "against a split"));
    atomic_store(&splitting->raised, 1);
}

static void member(int index, int size, void *argument)
{
    struct splitting *splitting = argument;
    team_barrier(&splitting->arrived, size);
    team_stagger(index, splitting->round);
    if (index < size - 1)
        split_rank(splitting, index);
    else
        abort_in_turn(splitting);
}

void scenario_split(const struct faults *faults)
{
    const int rounds = faults->slow ? ROUNDS_SLOW : ROUNDS;
    int whole = 0, none = 0;
    check_begin("%s, %d ranks: abort against split, %d times", faults->backend, faults->size,
                rounds);
    for (int round = 0; round < rounds && !check_failed(); round++) {
        struct splitting splitting = {.faults = faults, .round = round};
        if (!faults_team(&splitting.team, faults, NULL) ||
            !CHECK_OK(trib_comm_abort_handle(&splitting.handle, splitting.team.comms[0])))
            break;
        check_ranks(faults->size + 1, member, &splitting);
        faults_all_aborted(&splitting.team, "against a split");
        whole += atomic_load(&splitting.with_child) == faults->size;
        none += atomic_load(&splitting.with_child) == 0;
        trib_abort_release(splitting.handle);
        team_destroy(&splitting.team);
    }
    scenario_says("of the last %d splits the abort came before %d and after %d", rounds, none,
                  whole);
    CHECK(none > 0);
    check_end();
}
