/* Lists: every tensor is written, or none, and the counters say which it was. */
#include <string.h>

#include "tests/injection/programs.h"

enum { N = 10, M = 5 };

/* Tensors of rank r: N times r + 1 (f32), M times 10 (r + 1) (f64). */
struct list {
    float *narrow;
    double *wide;
    trib_tensor tensors[2];
};

static struct list make(struct rank *rank)
{
    struct list list = {rank->data[0], (double *)(void *)rank->data[1], {{0}}};
    for (int i = 0; i < N; i++)
        list.narrow[i] = (float)(rank->rank + 1);
    for (int i = 0; i < M; i++)
        list.wide[i] = 10.0 * (rank->rank + 1);
    list.tensors[0] = (trib_tensor){list.narrow, N, TRIB_F32, 0};
    list.tensors[1] = (trib_tensor){list.wide, M, TRIB_F64, 0};
    return list;
}

static bool holds(const struct list *list, double value)
{
    bool good = true;
    for (int i = 0; i < N; i++)
        good = good && list->narrow[i] == (float)value;
    for (int i = 0; i < M; i++)
        good = good && list->wide[i] == 10 * value;
    return good;
}

/* After list number `i`, which makes each element `value`. Returns whether to go on. */
static bool whole_or_nothing(struct rank *rank, const struct list *list, bool queued, uint64_t i,
                             double value)
{
    trib_counters counters = TRIB_COUNTERS_INIT;
    const bool good = queued && settled(rank);
    if (!good)
        CHECK_OK(trib_stream_wait(rank->device, rank->stream));
    CHECK_OK(trib_comm_counters(&counters, rank->comm));
    const bool written = counters.lists_committed == i;
    CHECK_MSG(written || counters.lists_committed == i - 1, "%llu lists are committed",
              (unsigned long long)counters.lists_committed);
    CHECK_MSG(written || !good, "list %llu has succeeded and is not committed",
              (unsigned long long)i);
    /* An unpacking kernel that fails comes after the commit, which nothing takes back. */
    CHECK_MSG(holds(list, written ? value : rank->rank + 1) ||
                  (!good && strcmp(where(), "kernels.unpack") == 0),
              "%s: list %llu: torn, or wrong", where(), (unsigned long long)i);
    return good;
}

static void sums(struct rank *rank)
{
    const double sum = rank->size * (rank->size + 1) / 2;
    struct list list = make(rank);
    bool queued =
        WENT(rank, trib_allreduce_list(rank->comm, list.tensors, 2, TRIB_SUM, rank->stream));
    if (!whole_or_nothing(rank, &list, queued, 1, sum))
        return;
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    options.flags = TRIB_CALL_FACTOR;
    options.device_factor = rank->data[2];
    rank->data[2][0] = 2;
    list = make(rank);
    queued = WENT(rank, trib_allreduce_list_with(rank->comm, list.tensors, 2, TRIB_SUM, &options,
                                                 rank->stream));
    (void)whole_or_nothing(rank, &list, queued, 2, 2 * sum);
}

static void broadcasts(struct rank *rank)
{
    const int root = rank->size - 1;
    struct list list = make(rank);
    const bool queued =
        WENT(rank, trib_broadcast_list(rank->comm, list.tensors, 2, root, rank->stream));
    (void)whole_or_nothing(rank, &list, queued, 1, root + 1);
}

/* Rank r weighs 1, from the host and from device memory. */
static void averages(struct rank *rank)
{
    float (*data)[ROW] = rank->data;
    const double mean = (rank->size + 1) / 2.0;
    struct list list = make(rank);
    bool queued = WENT(
        rank, trib_weighted_average(rank->comm, list.tensors, 2, 1, NULL, data[3], rank->stream));
    if (!whole_or_nothing(rank, &list, queued, 1, mean))
        return;
    CHECK(data[3][0] == (float)rank->size);
    data[4][0] = 1;
    list = make(rank);
    queued = WENT(rank, trib_weighted_average(rank->comm, list.tensors, 2, 0, data[4], data[3],
                                              rank->stream));
    (void)whole_or_nothing(rank, &list, queued, 2, mean);
}

const struct program programs_lists[] = {
    {.name = "sums of lists", .run = sums},
    {.name = "broadcast lists", .run = broadcasts},
    {.name = "weighted averages", .run = averages},
    {.name = "matched lists", .run = sums, .options = TRIB_MATCH},
    {.name = NULL},
};
