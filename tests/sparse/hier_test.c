/* hier on hosts of every shape, judged call by call as the conformance suite does it: every partition
 * of a few ranks into hosts, every list of numbers of ranks for more, shapes by chance of every number of
 * ranks from there to 63, chosen ones of 64; a rank's packet takes two steps to all others; where hosts
 * have one rank each the result is topka's.
 *
 * Arguments: how many of all shapes are left out between two (0). TRIB_TEST_QUICK=1: 10, and fewer
 * ranks. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/base/machine.h"
#include "csrc/core/communicator.h"
#include "csrc/reducer/reducer.h"
#include "csrc/sparse/algorithms/routes.h"
#include "csrc/sparse/hosts.h"
#include "tests/conformance/reference.h"
#include "tests/conformance/sparse/sparse.h"

/* Every partition of so many ranks, every list of numbers of ranks that add up to so many; beyond, so
 * many shapes by chance of each number, from this seed. */
enum { PARTITIONS = 6, LISTS = 12, CHANCES = 2, SEED = 20 };

/* ---------------------------------------------------------------------------------------- shapes */

struct shape {
    int32_t hosts[TEAM_MAX];
    int size;
};

struct walk {
    void (*look)(const struct shape *shape, size_t number);
    size_t number;
};

/* Ranks from `rank` on go to any of the `hosts` there are, or to a new one. */
static void all_partitions(struct walk *walk, struct shape *shape, int rank, int hosts)
{
    if (rank == shape->size) {
        walk->look(shape, walk->number++);
        return;
    }
    for (int host = 0; host <= hosts; host++) {
        shape->hosts[rank] = host;
        all_partitions(walk, shape, rank + 1, host == hosts ? hosts + 1 : hosts);
    }
}

/* Ranks from `rank` on, on hosts of at most `most` ranks, side by side or (every other shape) dealt
 * out from the last host on. */
static void all_lists(struct walk *walk, struct shape *shape, int rank, int host, int most)
{
    if (rank == shape->size) {
        struct shape dealt = *shape;
        for (int r = 0; r < shape->size; r++)
            dealt.hosts[(r * 5 + 3) % shape->size] = host - shape->hosts[r];
        walk->look(shape->size % 5 != 0 && walk->number % 2 != 0 ? &dealt : shape, walk->number);
        walk->number++;
        return;
    }
    for (int n = 1; n <= most && n <= shape->size - rank; n++) {
        for (int r = rank; r < rank + n; r++)
            shape->hosts[r] = host;
        all_lists(walk, shape, rank + n, host + 1, n);
    }
}

/* 64 ranks, on hosts of these numbers of ranks; what is left is on one more. */
static const int large[][8] = {
    {64},      {63},     {1, 63},     {32, 32}, {40}, {8, 8, 8, 8, 8, 8, 8, 8},
    {1, 2, 4}, {33, 31}, {20, 1, 22}, {62},     {1},  {7, 7, 7, 7, 7, 7, 7, 7}};
enum { LARGE = sizeof large / sizeof *large };

static struct shape large_shape(size_t i)
{
    struct shape shape = {.size = TEAM_MAX};
    int rank = 0, host = 0;
    for (; host < 8 && large[i][host] != 0; host++)
        for (int r = 0; r < large[i][host]; r++)
            shape.hosts[rank++] = host;
    while (rank < TEAM_MAX)
        shape.hosts[rank++] = host;
    return shape;
}

/* Ranks anywhere among a few hosts or many, more of them on the first ones. */
static struct shape chance_shape(int size, int chance)
{
    struct shape shape = {.size = size};
    const uint64_t seed = (uint64_t)SEED << 32 | (uint64_t)(size * CHANCES + chance);
    const uint64_t most = 1 + reference_bits(seed, 0, 0) % (uint64_t)size;
    const uint64_t hosts = 1 + reference_bits(seed, 0, 1) % most;
    for (int rank = 0; rank < size; rank++) {
        const uint64_t a = reference_bits(seed, 1, (uint64_t)rank) % hosts;
        const uint64_t b = reference_bits(seed, 2, (uint64_t)rank) % hosts;
        shape.hosts[rank] = (int32_t)(a < b ? a : b);
    }
    return shape;
}

static void for_shapes(void (*look)(const struct shape *shape, size_t number), int partitions,
                       int lists)
{
    struct walk walk = {.look = look};
    for (int size = 1; size <= lists; size++) {
        struct shape shape = {.size = size};
        if (size <= partitions)
            all_partitions(&walk, &shape, 0, 0);
        else
            all_lists(&walk, &shape, 0, 0, size);
    }
}

/* ---------------------------------------------------------------------------------------- routes */

static void make_routes(struct tri_routes *routes, const struct shape *shape, int rank)
{
    struct tri_sparse_params params = {.rank = rank, .size = shape->size};
    uint64_t identities[TEAM_MAX];
    for (int r = 0; r < shape->size; r++)
        identities[r] = (uint64_t)shape->hosts[r];
    (void)tri_hosts_number(params.host_of, identities, shape->size);
    tri_routes_make(routes, &params);
}

/* What mate i of `rank` brings, as that mate and as `rank` know it. */
static void same_slots(const struct tri_routes *routes, const struct tri_routes *mates)
{
    CHECK(memcmp(routes->slot, mates->slot, sizeof routes->slot) == 0);
    CHECK(memcmp(routes->begin, mates->begin, sizeof routes->begin) == 0);
    CHECK(memcmp(routes->rank_at, mates->rank_at, sizeof routes->rank_at) == 0);
}

/* Every packet comes to every host exactly once, to the rank that brings it, and no rank brings two
 * more than another of its host. */
static void judge_routes(const struct shape *shape, size_t number)
{
    static struct tri_routes all[TEAM_MAX];
    (void)number;
    for (int rank = 0; rank < shape->size; rank++)
        make_routes(&all[rank], shape, rank);
    for (int rank = 0; rank < shape->size; rank++) {
        const struct tri_routes *own = &all[rank];
        int brings = 0, takes = 0;
        CHECK(own->begin[0] == 0 && own->begin[own->mates] == shape->size);
        for (int i = 0; i < own->mates; i++) {
            const int n = own->begin[i + 1] - own->begin[i];
            same_slots(own, &all[own->mate[i]]);
            CHECK(own->rank_at[own->begin[i]] == own->mate[i]);
            CHECK(n - 1 == (shape->size - own->mates) / own->mates ||
                  n - 1 == (shape->size - own->mates + own->mates - 1) / own->mates);
            brings += own->mate[i] == rank ? n - 1 : 0;
        }
        for (int other = 0; other < shape->size; other++) {
            const int host = own->index[other] == 0 && shape->hosts[other] != shape->hosts[rank];
            const int32_t i = own->index[rank], slot = own->slot[other];
            CHECK(own->rank_at[slot] == other);
            takes += slot > own->begin[i] && slot < own->begin[i + 1];
            for (int r = 0; host && r < own->hosts; r++)
                if (own->takes[r] == other || shape->hosts[own->takes[r]] == shape->hosts[other]) {
                    const struct tri_routes *there = &all[own->takes[r]];
                    const int32_t at = there->index[own->takes[r]];
                    CHECK(there->slot[rank] > there->begin[at] &&
                          there->slot[rank] < there->begin[at + 1]);
                }
        }
        CHECK(brings == takes);
    }
}

/* ---------------------------------------------------------------------------------------- trials */

static int left_out;
static struct sparse_session session;

/* The team of so many ranks, made anew where the number changes. */
static bool ready(int size)
{
    if (session.team.size == size)
        return true;
    if (session.team.size != 0)
        team_destroy(&session.team);
    session.team.size = 0;
    return team_prepare(&session.team, "host", size) && team_open(&session.team, NULL);
}

/* The `turn`th plan on such hosts. */
static struct sparse_plan plan_of(const struct shape *shape, size_t turn)
{
    static const struct sparse_plan changes[] = {
        {.input = SPARSE_SPREAD},
        {.flags = TRIB_SPARSE_IN_PLACE, .shift = 3},
        {.flags = TRIB_SPARSE_ENTRIES | TRIB_SPARSE_AVERAGE, .dtype = TRIB_F64},
        {.wire = TRIB_BF16, .input = SPARSE_FINE},
        {.flags = TRIB_SPARSE_IN_PLACE | TRIB_SPARSE_ENTRIES, .input = SPARSE_BAD},
        {.momentum = 0.5, .decay = 0.5},
        {.dtype = TRIB_BF16, .input = SPARSE_CANCEL},
        {.momentum = 0.5, .flags = TRIB_SPARSE_IN_PLACE},
        {.input = SPARSE_FLOATS, .decay = 0.9},
        {.flags = TRIB_SPARSE_IN_PLACE, .decay = 0.5, .wire = TRIB_BF16}};
    enum { CHANGES = sizeof changes / sizeof *changes };
    static const size_t counts[] = {211, 61, 150, 1003, 97, 30, 8};
    struct sparse_plan plan = changes[turn % CHANGES];
    plan.algorithm = "hier";
    plan.hosts = shape->hosts;
    plan.count = counts[turn % (sizeof counts / sizeof *counts)];
    plan.k = turn % 11 == 10 ? 0 : turn % 3 == 2 ? 1 : plan.count / 6;
    return plan;
}

static void judge_calls(const struct shape *shape, size_t number)
{
    if (number % (size_t)(left_out + 1) != 0 || !CHECK(ready(shape->size)))
        return;
    const struct sparse_plan plan = plan_of(shape, number / (size_t)(left_out + 1));
    sparse_case(&session, &plan, shape->size > LISTS ? 4 : 6);
}

static void judge_chance(int size, int chance)
{
    const struct shape shape = chance_shape(size, chance);
    const struct sparse_plan plan = plan_of(&shape, (size_t)(chance * TEAM_MAX + size));
    char text[256];
    check_begin("seed %d, by chance %d: %s", (int)SEED, chance,
                sparse_describe(&plan, size, text, sizeof text));
    if (CHECK(ready(size)))
        (void)sparse_trial(&session.team, &plan, 4, NULL);
    check_end();
    sparse_session_mend(&session);
}

/* ------------------------------------------------------------------------------- the other ends */

/* Hosts of one rank each: topka's bits. */
static void as_topka(int size)
{
    enum { STEPS = 8 };
    struct sparse_seen hier[STEPS], topka[STEPS];
    struct sparse_plan plan = {.algorithm = "hier",
                               .hosts = sparse_hosts_each,
                               .count = 301,
                               .k = 30,
                               .input = SPARSE_FLOATS};
    check_begin("%d hosts of one rank: as topka", size);
    if (CHECK(ready(size)) && sparse_trial(&session.team, &plan, STEPS, hier)) {
        plan.algorithm = "topka";
        if (CHECK(sparse_trial(&session.team, &plan, STEPS, topka)))
            sparse_same_bytes(&session.team, hier, topka, STEPS, "topka");
    }
    check_end();
}

/* Hosts are numbers: which ones is no matter, which ranks share one is. A map that is not the same
 * on all ranks makes no state. */
struct maps {
    int32_t first[4], other[4];
    trib_status expected;
};

static void compare_rank(int rank, int size, void *argument)
{
    const struct maps *maps = argument;
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    trib_sparse *state = NULL;
    (void)size;
    options.algorithm = "hier";
    options.hosts = rank == 2 ? maps->other : maps->first;
    CHECK_STATUS(trib_sparse_create(&state, session.team.comms[rank], 100, TRIB_F32, &options),
                 maps->expected);
    if (maps->expected == TRIB_ERR_MISMATCH && rank == 2)
        CHECK_MSG(strstr(trib_last_detail(), "hosts is map") != NULL, "%s", trib_last_detail());
    CHECK_OK(trib_sparse_destroy(state));
    CHECK_OK(trib_comm_status(session.team.comms[rank]));
}

static void negative_rank(int rank, int size, void *argument)
{
    static const int32_t hosts[] = {0, 1, -1, 0};
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    trib_sparse *state = NULL;
    uint64_t bytes;
    (void)size, (void)argument;
    options.algorithm = "hier";
    options.hosts = hosts;
    CHECK_STATUS(trib_sparse_bytes(&bytes, session.team.comms[rank], 100, TRIB_F32, &options),
                 TRIB_ERR_INVALID_ARGUMENT);
    CHECK_MSG(strstr(trib_last_detail(), "options.hosts[2] is -1") != NULL, "%s",
              trib_last_detail());
    CHECK_STATUS(trib_sparse_create(&state, session.team.comms[rank], 100, TRIB_F32, &options),
                 TRIB_ERR_INVALID_ARGUMENT);
}

static void maps(void)
{
    static struct maps cases[] = {
        {{0, 0, 1, 1}, {7, 7, 2, 2}, TRIB_OK},
        {{0, 0, 1, 1}, {0, 1, 0, 1}, TRIB_ERR_MISMATCH},
        {{0, 0, 1, 1}, {0, 0, 1, 2}, TRIB_ERR_MISMATCH},
        {{INT32_MAX, 0, 0, INT32_MAX}, {1, 0, 0, 1}, TRIB_OK},
    };
    check_begin("maps of hosts");
    if (CHECK(ready(4))) {
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            check_ranks(4, compare_rank, &cases[i]);
        check_ranks(4, negative_rank, NULL);
    }
    check_end();
}

/* A host's sum may be too large for f32 though no acc is: the call is not applied, also where nothing
 * is chosen. */
struct overflow {
    uint64_t k;
    uint32_t flags;
};

static void overflow_rank(int rank, int size, void *argument)
{
    static const int32_t hosts[] = {0, 0, 1};
    const struct overflow *overflow = argument;
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    trib_stream stream = session.team.streams[rank];
    trib_sparse *state = NULL;
    float gradient[40] = {0}, result[40], kept[40];
    (void)size;
    gradient[7] = 3e38f;
    gradient[30] = 1;
    memcpy(kept, gradient, sizeof kept);
    options.algorithm = "hier";
    options.k = overflow->k;
    options.flags = overflow->flags | TRIB_SPARSE_USE_K;
    options.hosts = hosts;
    CHECK_OK(trib_sparse_create(&state, session.team.comms[rank], 40, TRIB_F32, &options));
    CHECK_OK(trib_sparse_allreduce(state, gradient, result, stream));
    CHECK_OK(trib_stream_wait(session.team.devices[rank], stream));
    CHECK_STATUS(trib_sparse_status(state), TRIB_ERR_NON_FINITE);
    CHECK(*trib_sparse_outcome(state) == 0);
    CHECK(overflow->k == 0 || strstr(trib_last_detail(), "were finite") != NULL);
    if (overflow->flags == 0) {
        memset(kept, 0, sizeof kept);
        CHECK_OK(trib_sparse_residual(state, gradient, stream));
        CHECK_OK(trib_stream_wait(session.team.devices[rank], stream));
    }
    CHECK(memcmp(gradient, kept, sizeof kept) == 0);
    for (int i = 0; i < 40; i++)
        CHECK(result[i] == 0);
    CHECK_OK(trib_sparse_destroy(state));
}

static void overflows(void)
{
    static struct overflow cases[] = {
        {0, 0}, {1, 0}, {4, 0}, {0, TRIB_SPARSE_IN_PLACE}, {2, TRIB_SPARSE_IN_PLACE}};
    check_begin("sums of a host that overflow");
    if (CHECK(ready(3)))
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            check_ranks(3, overflow_rank, &cases[i]);
    check_end();
}

/* A reducer makes states again when it has learnt an order, long after it was created: it keeps the
 * map that it was given, and not where that was. */
static void reducer_rank(int rank, int size, void *argument)
{
    const int32_t given[] = {5, 2, 5};
    trib_sparse_options sparse = TRIB_SPARSE_OPTIONS_INIT;
    trib_reducer_options options = TRIB_REDUCER_OPTIONS_INIT;
    trib_reducer *reducer = NULL;
    float gradient[40] = {0};
    const trib_tensor tensor = {gradient, 40, TRIB_F32, 0};
    (void)size, (void)argument;
    sparse.algorithm = "hier";
    sparse.hosts = given;
    options.sparse = &sparse;
    if (!CHECK_OK(trib_reducer_create(&reducer, session.team.comms[rank], &tensor, 1, &options)))
        return;
    CHECK(reducer->sparse.hosts != given);
    CHECK(memcmp(reducer->sparse.hosts, given, sizeof given) == 0);
    CHECK_OK(trib_reducer_destroy(reducer));
}

static void reducers(void)
{
    check_begin("a reducer's map");
    if (CHECK(ready(3)))
        check_ranks(3, reducer_rank, NULL);
    check_end();
}

/* ------------------------------------------------------------------------------ hosts as found */

/* In place of base/machine.c's: what the thread, a rank's, says. 0: the machine. */
static _Thread_local uint64_t identity;
uint64_t __real_tri_machine_host(void);
uint64_t __wrap_tri_machine_host(void);
uint64_t __wrap_tri_machine_host(void)
{
    return identity == 0 ? __real_tri_machine_host() : identity;
}

enum { FOUND = 5, FOUND_COUNT = 200 };
static const int32_t found_hosts[FOUND] = {4, 9, 4, 9, 9};

/* One call; the words that it sent. */
static uint64_t words_of(trib_comm *comm, const int32_t *hosts, int rank, float *result)
{
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    trib_sparse_statistics statistics = TRIB_SPARSE_STATISTICS_INIT;
    trib_stream stream = session.team.streams[rank];
    trib_sparse *state = NULL;
    float gradient[FOUND_COUNT];
    for (int i = 0; i < FOUND_COUNT; i++)
        gradient[i] = (float)((i * 7 + rank * 3) % 31 - 15);
    options.algorithm = "hier";
    options.density = 0.1;
    options.hosts = hosts;
    CHECK_OK(trib_sparse_create(&state, comm, FOUND_COUNT, TRIB_F32, &options));
    CHECK_OK(trib_sparse_allreduce(state, gradient, result, stream));
    CHECK_OK(trib_stream_wait(session.team.devices[rank], stream));
    CHECK_OK(trib_sparse_statistics_get(&statistics, state));
    CHECK_OK(trib_sparse_destroy(state));
    return statistics.words_sent;
}

/* The ranks tell each other where they run, once, and a state that is told no hosts takes those. */
static void found_rank(int rank, int size, void *argument)
{
    trib_comm *comm = session.team.comms[rank];
    float found[FOUND_COUNT], told[FOUND_COUNT];
    (void)size, (void)argument;
    identity = 1000 + (uint64_t)found_hosts[rank];
    CHECK(comm->hosts == 0);
    const uint64_t words = words_of(comm, NULL, rank, found);
    CHECK(comm->hosts == 2 && comm->host_of[0] == 0 && comm->host_of[1] == 1 &&
          comm->host_of[2] == 0 && comm->host_of[3] == 1 && comm->host_of[4] == 1);
    CHECK(words == words_of(comm, found_hosts, rank, told));
    CHECK(words != words_of(comm, sparse_hosts_each, rank, told));
    (void)words_of(comm, found_hosts, rank, told);
    CHECK(memcmp(found, told, sizeof found) == 0);
    identity = 0;
}

static void found(void)
{
    check_begin("hosts as the ranks find them");
    if (CHECK(ready(FOUND)))
        check_ranks(FOUND, found_rank, NULL);
    check_end();
}

/* What a process says of its host is what NCCL_HOSTID says, if that says anything. */
static void said(void)
{
    check_begin("NCCL_HOSTID");
    const uint64_t machine = tri_machine();
    CHECK(unsetenv("NCCL_HOSTID") == 0 && __real_tri_machine_host() == machine);
    CHECK(setenv("NCCL_HOSTID", "a", 1) == 0);
    const uint64_t a = __real_tri_machine_host();
    CHECK(setenv("NCCL_HOSTID", "b", 1) == 0);
    const uint64_t b = __real_tri_machine_host();
    CHECK(a != b && a != machine && b != machine && tri_machine() == machine);
    CHECK(setenv("NCCL_HOSTID", "a", 1) == 0 && __real_tri_machine_host() == a);
    CHECK(setenv("NCCL_HOSTID", "", 1) == 0 && __real_tri_machine_host() == machine);
    CHECK(unsetenv("NCCL_HOSTID") == 0);
    check_end();
}

int main(int n, char **arguments)
{
    const bool quick = sparse_depth() == SPARSE_QUICK;
    left_out = n > 1 ? atoi(arguments[1]) : quick ? 10 : 0;
    session.team.backend = "host";
    session.depth = SPARSE_WHOLE;
    check_begin("routes");
    for_shapes(judge_routes, PARTITIONS, LISTS);
    for (size_t i = 0; i < LARGE; i++) {
        const struct shape shape = large_shape(i);
        judge_routes(&shape, i);
    }
    for (int size = LISTS + 1; size < TEAM_MAX; size++)
        for (int chance = 0; chance < CHANCES; chance++) {
            const struct shape shape = chance_shape(size, chance);
            judge_routes(&shape, 0);
        }
    check_end();
    said();
    maps();
    found();
    overflows();
    reducers();
    as_topka(2);
    as_topka(5);
    for_shapes(judge_calls, PARTITIONS, quick ? 8 : LISTS);
    for (size_t i = 0; i < LARGE && !quick; i++) {
        const struct shape shape = large_shape(i);
        judge_calls(&shape, i * (size_t)(left_out + 1));
    }
    for (int size = LISTS + 1; size < TEAM_MAX && !quick; size++)
        for (int chance = 0; chance < CHANCES; chance++)
            judge_chance(size, chance);
    if (session.team.size != 0)
        team_destroy(&session.team);
    return check_finish("hier_test");
}
