/* Lists on host: the ranks work on each other's tensors where they lie, without buckets. So lists
 * that differ are refused, and a list takes effect on all ranks or on none. */
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "tests/team.h"

/* Too large for buckets. */
enum { RANKS = 3, TENSORS = 3, BOUND_MS = 20000, ROUNDS = 60, LISTS = 200 };
static const size_t lengths[TENSORS] = {5, 3000, 1001};
enum { LENGTH = 4006 };

static float data[RANKS][LENGTH];
static double wide[RANKS][LENGTH];

static void fill(void)
{
    for (int rank = 0; rank < RANKS; rank++)
        for (int i = 0; i < LENGTH; i++) {
            data[rank][i] = (float)(rank + i);
            wide[rank][i] = rank - i;
        }
}

/* `data`, cut as `counts` says. */
static void cut(trib_tensor *out, int rank, const size_t *counts)
{
    float *next = data[rank];
    for (int i = 0; i < TENSORS; next += counts[i++])
        out[i] = (trib_tensor){next, counts[i], TRIB_F32, 0};
}

static bool untouched(int rank)
{
    bool same = true;
    for (int i = 0; i < LENGTH; i++)
        same = same && data[rank][i] == (float)(rank + i);
    return same;
}

/* What rank 1 does while the others call the list. */
static trib_status same_total(const struct team *team, int rank)
{
    static const size_t other[TENSORS] = {3000, 5, 1001};
    trib_tensor tensors[TENSORS];
    cut(tensors, rank, other);
    return trib_allreduce_list(team->comms[rank], tensors, TENSORS, TRIB_SUM, team->streams[rank]);
}

static trib_status one_less(const struct team *team, int rank)
{
    trib_tensor tensors[TENSORS];
    cut(tensors, rank, lengths);
    return trib_allreduce_list(team->comms[rank], tensors + 1, TENSORS - 1, TRIB_SUM,
                               team->streams[rank]);
}

/* Of as many elements as the list's bucket would have. */
static trib_status no_list(const struct team *team, int rank)
{
    return trib_allreduce(team->comms[rank], data[rank], data[rank], 8 + 3000 + 1001, TRIB_F32,
                          TRIB_SUM, team->streams[rank]);
}

static void differ(const char *what, trib_status (*other)(const struct team *team, int rank),
                   const char *detail)
{
    struct team team;
    trib_tensor tensors[TENSORS];
    check_begin("lists that differ: %s", what);
    fill();
    if (team_create(&team, "host", RANKS, NULL)) {
        for (int rank = 0; rank < RANKS; rank++) {
            cut(tensors, rank, lengths);
            const trib_status status = rank == 1
                                           ? other(&team, rank)
                                           : trib_allreduce_list(team.comms[rank], tensors, TENSORS,
                                                                 TRIB_SUM, team.streams[rank]);
            CHECK(status == TRIB_OK || status == TRIB_ERR_ABORTED);
        }
        for (int rank = 0; rank < RANKS; rank++) {
            CHECK(team_wait(&team, rank, BOUND_MS));
            CHECK_STATUS(trib_comm_status(team.comms[rank]), TRIB_ERR_MISMATCH);
            CHECK_DETAIL(detail);
            CHECK(untouched(rank));
        }
    }
    team_destroy(&team);
    check_end();
}

/* Two types, a factor for each rank, and no memory but that of the scalars. */
static void factors(void)
{
    struct team team;
    trib_memory memory = TRIB_MEMORY_INIT;
    check_begin("a list of two types with factors");
    fill();
    if (team_create(&team, "host", RANKS, NULL)) {
        for (int rank = 0; rank < RANKS; rank++) {
            trib_call_options options = TRIB_CALL_OPTIONS_INIT;
            const trib_tensor tensors[] = {{data[rank] + 1, LENGTH - 1, TRIB_F32, 0},
                                           {wide[rank], LENGTH, TRIB_F64, 0}};
            options.flags = TRIB_CALL_FACTOR;
            options.factor = rank + 1;
            CHECK_OK(trib_allreduce_list_with(team.comms[rank], tensors, 2, TRIB_SUM, &options,
                                              team.streams[rank]));
        }
        for (int rank = 0; rank < RANKS; rank++) {
            CHECK(team_wait(&team, rank, BOUND_MS));
            bool good = data[rank][0] == (float)rank && wide[rank][0] == 8;
            for (int i = 1; i < LENGTH; i++) /* 1 i + 2 (i + 1) + 3 (i + 2); 8 - 6 i */
                good = good && data[rank][i] == (float)(6 * i + 8) && wide[rank][i] == 8 - 6 * i;
            CHECK(good);
            CHECK_OK(trib_comm_memory(&memory, team.comms[rank]));
            CHECK_MSG(memory.workspace_bytes <= 65536, "%d bytes", (int)memory.workspace_bytes);
        }
    }
    team_destroy(&team);
    check_end();
}

/* ------------------------------------------------------------------------------ checks of buffers */

enum { MANY = 300, PLACE = 64 };

/* Tensor i at a place that looks random; with odd `seed` one in seven is empty. The same order for the
 * same `seed`. */
static void scatter(trib_tensor *out, float *block, unsigned seed)
{
    for (unsigned i = 0; i < MANY; i++) /* 7 and 300 have no common divisor */
        out[i] = (trib_tensor){block + (size_t)((7 * i + seed) % MANY) * PLACE,
                               seed % 2 == 1 && i % 7 == 3 ? 0 : PLACE, TRIB_F32, 0};
}

static void refused(trib_comm *comm, const trib_tensor *tensors, const char *detail)
{
    CHECK_STATUS(trib_allreduce_list(comm, tensors, MANY, TRIB_SUM, NULL), TRIB_ERR_INVALID_BUFFER);
    CHECK_DETAIL(detail);
}

/* Of a communicator of one rank: a list that is good, and the same with a mistake, in turn. `block`
 * has a place more, before all tensors. */
static void make_mistakes(trib_comm *comm, float *block, float *const foreign[2], unsigned seed)
{
    trib_tensor good[MANY], bad[MANY];
    scatter(good, block + PLACE, seed);
    for (int round = 0; round < 2; round++) {
        memcpy(bad, good, sizeof bad);
        bad[18].data = bad[4].data;
        refused(comm, bad, "overlaps `tensors[");
        for (int i = 0; i < 2; i++) {
            CHECK_OK(trib_allreduce_list(comm, good, MANY, TRIB_SUM, NULL));
            memcpy(bad, good, sizeof bad);
            bad[50].data = foreign[i];
            refused(comm, bad, "`tensors[50]`");
        }
        memcpy(bad, good, sizeof bad);
        for (int i = 0; i < MANY; i++) /* the last place */
            bad[i].count += bad[i].data == block + (size_t)MANY * PLACE && bad[i].count != 0;
        if (memcmp(bad, good, sizeof bad) != 0)
            refused(comm, bad, "is too short");
        memcpy(bad, good, sizeof bad);
        bad[60].dtype = 11;
        CHECK_STATUS(trib_allreduce_list(comm, bad, MANY, TRIB_SUM, NULL),
                     TRIB_ERR_INVALID_ARGUMENT);
        CHECK_DETAIL("`tensors[60].dtype`");
    }
    CHECK_OK(trib_weighted_average(comm, good, MANY, 1, block, block + 1, NULL));
    for (int i = 0; i < MANY; i++) { /* with scalars that are good, and that are not */
        float *inside = good[i].data;
        if (good[i].count == 0)
            continue;
        CHECK_STATUS(trib_weighted_average(comm, good, MANY, 1, NULL, inside, NULL),
                     TRIB_ERR_INVALID_BUFFER);
        CHECK_DETAIL("overlaps `device_total`");
        CHECK_STATUS(trib_weighted_average(comm, good, MANY, 1, inside, NULL, NULL),
                     TRIB_ERR_INVALID_BUFFER);
        CHECK_DETAIL("`device_weight`");
    }
    CHECK_OK(trib_weighted_average(comm, good, MANY, 1, block, block + 1, NULL));
}

/* What a list that failed leaves behind serves no other: here as many tensors that are not empty as the
 * next list has, and no place among these for the last two. */
static void after_a_failure(trib_comm *comm, float *block)
{
    trib_tensor list[5];
    for (size_t i = 0; i < 5; i++)
        list[i] = (trib_tensor){block + i * PLACE, PLACE, TRIB_F32, 0};
    CHECK_OK(trib_allreduce_list(comm, list, 5, TRIB_SUM, NULL));
    CHECK_OK(trib_allreduce_list(comm, list, 3, TRIB_SUM, NULL));
    list[0].count = list[1].count = 0;
    list[4].data = list[3].data;
    CHECK_STATUS(trib_allreduce_list(comm, list, 5, TRIB_SUM, NULL), TRIB_ERR_INVALID_BUFFER);
    list[0] = (trib_tensor){block, PLACE, TRIB_F32, 7};
    CHECK_STATUS(trib_allreduce_list(comm, list, 3, TRIB_SUM, NULL), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL("`tensors[0].reserved`");
}

/* A communicator keeps what it has found out about its last list, and one answer about memory is for
 * all of an allocation: what is wrong is found all the same, also in a list that is like the last
 * one but for that. */
static void mistakes(void)
{
    struct team team;
    trib_device *other = NULL;
    void *block = NULL, *foreign[2] = {NULL, NULL}; /* one above and one below, as it may be */
    const size_t place = sizeof(float) * PLACE;
    check_begin("mistakes in lists of many tensors");
    if (team_create(&team, "host", 1, NULL) && CHECK_OK(trib_device_get(&other, "host", 1)) &&
        CHECK_OK(trib_device_alloc(&foreign[0], other, place)) &&
        CHECK_OK(trib_device_alloc(&block, team.devices[0], place * (MANY + 1))) &&
        CHECK_OK(trib_device_alloc(&foreign[1], other, place))) {
        for (unsigned seed = 0; seed < 3; seed++)
            make_mistakes(team.comms[0], block, (float *[]){foreign[0], foreign[1]}, seed);
        after_a_failure(team.comms[0], block);
        CHECK_OK(trib_stream_wait(team.devices[0], NULL));
        CHECK_OK(trib_device_free(team.devices[0], block));
        CHECK_OK(trib_device_free(other, foreign[0]));
        CHECK_OK(trib_device_free(other, foreign[1]));
    }
    team_destroy(&team);
    check_end();
}

/* ----------------------------------------------------------------------------- one after another */

enum kind { SUM, AVERAGE, TWICE };

/* A list of parts of `data`: from `first` on, `count` elements. */
struct parts {
    enum kind kind;
    size_t first[TENSORS], count[TENSORS];
};

static trib_status call(const struct team *team, int rank, const struct parts *list,
                        trib_dtype dtype)
{
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    trib_tensor tensors[TENSORS];
    for (int i = 0; i < TENSORS; i++)
        tensors[i] = (trib_tensor){data[rank] + list->first[i], list->count[i], dtype, 0};
    options.flags = TRIB_CALL_FACTOR;
    options.factor = 2;
    if (list->kind == AVERAGE)
        return trib_weighted_average(team->comms[rank], tensors, TENSORS, 1, NULL, NULL,
                                     team->streams[rank]);
    if (list->kind == TWICE)
        return trib_allreduce_list_with(team->comms[rank], tensors, TENSORS, TRIB_SUM, &options,
                                        team->streams[rank]);
    return trib_allreduce_list(team->comms[rank], tensors, TENSORS, TRIB_SUM, team->streams[rank]);
}

/* What element `i` of rank `rank` is after the list. */
static float after(const struct parts *list, int rank, size_t i)
{
    static const int times[] = {[SUM] = RANKS, [AVERAGE] = 1, [TWICE] = 2 * RANKS};
    for (int t = 0; t < TENSORS; t++)
        if (i >= list->first[t] && i - list->first[t] < list->count[t])
            return (float)(times[list->kind] * ((int)i + 1)); /* the mean of i, i + 1, i + 2 */
    return (float)(rank + (int)i);
}

static void judge(const struct team *team, const struct parts *list, int number)
{
    for (int rank = 0; rank < RANKS; rank++) {
        size_t wrong = 0;
        CHECK(team_wait(team, rank, BOUND_MS));
        for (size_t i = 0; i < LENGTH; i++)
            wrong += data[rank][i] != after(list, rank, i);
        CHECK_MSG(wrong == 0, "list %d, rank %d: %zu elements are wrong", number, rank, wrong);
    }
}

/* A communicator keeps what it has found out about its last list: for the same one, and for no
 * other. */
static void one_after_another(uint32_t flags)
{
    static const struct parts lists[] = {
        {SUM, {0, 5, 3005}, {5, 3000, 1001}},     {SUM, {0, 5, 3005}, {5, 3000, 1001}},
        {SUM, {0, 5, 3005}, {5, 2999, 1001}}, /* a count */
        {SUM, {0, 6, 3005}, {5, 2999, 1001}}, /* an address */
        {AVERAGE, {0, 6, 3005}, {5, 2999, 1001}}, {AVERAGE, {0, 6, 3005}, {5, 2999, 1001}},
        {TWICE, {0, 6, 3005}, {5, 2999, 1001}},   {AVERAGE, {0, 6, 3005}, {5, 2999, 1001}},
        {SUM, {0, 6, 3005}, {5, 2999, 1001}},     {TWICE, {0, 6, 3005}, {5, 2999, 1001}},
        {AVERAGE, {0, 6, 3005}, {5, 2999, 1001}}, /* after a layout without a weight */
        {SUM, {3005, 6, 0}, {1001, 2999, 5}},     /* the order */
        {SUM, {3005, 6, 0}, {1001, 0, 5}},        /* an empty one */
        {SUM, {3005, 6, 0}, {1001, 0, 6}},        {SUM, {3005, 6, 0}, {1001, 2999, 6}},
    };
    static const struct parts factor = {TWICE, {0, 5, 3005}, {5, 3000, 1001}};
    struct team team;
    trib_options options = TRIB_OPTIONS_INIT;
    options.flags = flags;
    check_begin("lists one after another, %s", flags == 0 ? "checked" : "unchecked");
    if (team_create(&team, "host", RANKS, &options)) {
        for (int i = 0; i < (int)(sizeof lists / sizeof *lists); i++) {
            fill();
            for (int rank = 0; rank < RANKS; rank++)
                CHECK_OK(call(&team, rank, &lists[i], TRIB_F32));
            judge(&team, &lists[i], i);
        }
        for (int rank = 0; rank < RANKS; rank++) /* integers take no factor, seen before or not */
            CHECK_OK(call(&team, rank, &lists[0], TRIB_I32));
        for (int rank = 0; rank < RANKS; rank++)
            CHECK_STATUS(call(&team, rank, &factor, TRIB_I32), TRIB_ERR_UNSUPPORTED);
    }
    team_destroy(&team);
    check_end();
}

/* ------------------------------------------------------------------------------ all ranks or none */

struct torn {
    struct team team;
    trib_abort *handle;
    _Atomic int arrived, done; /* done: lists of rank 0 that have run, at least */
    int round;
    uint64_t committed[RANKS];
};

/* The first list brings all ranks the last one's data; the others change nothing. */
static void torn_rank(int index, int size, void *argument)
{
    struct torn *torn = argument;
    const struct team *team = &torn->team;
    trib_tensor tensors[TENSORS];
    trib_counters counters = TRIB_COUNTERS_INIT;
    trib_status status = TRIB_OK;
    team_barrier(&torn->arrived, size);
    if (index == RANKS) {
        while (atomic_load(&torn->done) < torn->round % 20)
            check_sleep_ms(0);
        for (volatile int spin = 0; spin < torn->round * 7919 % 20000; spin++)
            continue;
        CHECK_OK(trib_abort_raise(torn->handle, "while lists ran"));
        return;
    }
    cut(tensors, index, lengths);
    for (int i = 0; i < LISTS && status == TRIB_OK; i++) {
        status = trib_allreduce_list(team->comms[index], tensors, TENSORS, TRIB_MAX,
                                     team->streams[index]);
        if (status == TRIB_OK && i < 20) /* the others are queued all at once */
            CHECK_OK(trib_stream_wait(team->devices[index], team->streams[index]));
        if (index == 0)
            atomic_store(&torn->done, i + 1);
    }
    CHECK(team_wait(team, index, BOUND_MS));
    CHECK_OK(trib_comm_counters(&counters, team->comms[index]));
    torn->committed[index] = counters.lists_committed;
}

static void all_or_none(void)
{
    static struct torn torn;
    uint64_t committed = 0;
    check_begin("an abort while lists run, %d times", ROUNDS);
    for (torn.round = 0; torn.round < ROUNDS; torn.round++) {
        fill();
        atomic_store(&torn.arrived, 0);
        atomic_store(&torn.done, 0);
        if (!team_create(&torn.team, "host", RANKS, NULL))
            break;
        CHECK_OK(trib_comm_abort_handle(&torn.handle, torn.team.comms[0]));
        check_ranks(RANKS + 1, torn_rank, &torn);
        for (int rank = 0; rank < RANKS; rank++) {
            bool good = true;
            const int largest = torn.committed[rank] == 0 ? rank : RANKS - 1;
            CHECK_MSG(torn.committed[rank] == torn.committed[0], "rank %d: %d lists, rank 0: %d",
                      rank, (int)torn.committed[rank], (int)torn.committed[0]);
            for (int i = 0; i < LENGTH; i++)
                good = good && data[rank][i] == (float)(largest + i);
            CHECK_MSG(good, "rank %d, after %d lists", rank, (int)torn.committed[rank]);
        }
        committed += torn.committed[0];
        trib_abort_release(torn.handle);
        team_destroy(&torn.team);
    }
    CHECK_MSG(committed > 0 && committed < (uint64_t)ROUNDS * LISTS, "%d lists in all",
              (int)committed);
    check_end();
}

int main(void)
{
    differ("counts of the same sum", same_total, "the ranks did not pass the same list");
    differ("a tensor less", one_less, "the ranks did not");
    differ("a call that is none", no_list, "rank 0 made a list, allreduce of 4009 f32");
    factors();
    mistakes();
    one_after_another(0);
    one_after_another(TRIB_UNCHECKED);
    all_or_none();
    return check_finish("list_test");
}
