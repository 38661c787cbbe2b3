/* Calls of a group: one thread captures those of all ranks, in a graph of each. */
#include "tests/nccl/captured_fixture.h"

#include <stdlib.h>

enum { HALF = N / 2 };

struct together {
    struct cast cast;
    trib_group *group;
    struct captured ranks[2];
};

/* What a group queues, and what it does to each rank's tensors. */
struct doing {
    struct kind kind;
    trib_status (*queue)(struct together *all, const trib_stream *streams);
    bool refused; /* while not all of the streams are captured */
};

static float *at(const struct captured *self, size_t i)
{
    return self->data + i;
}

/* ---------------------------------------------------------------------------------------- calls */

static trib_status queue_list(struct together *all, const trib_stream *streams)
{
    const trib_tensor *const lists[2] = {all->ranks[0].tensors, all->ranks[1].tensors};
    return trib_group_allreduce_list(all->group, lists, 2, TRIB_SUM, streams);
}

static trib_status queue_sum(struct together *all, const trib_stream *streams)
{
    void *const data[2] = {all->ranks[0].data, all->ranks[1].data};
    return trib_group_allreduce(all->group, (const void *const *)data, data, N, TRIB_F32, TRIB_SUM,
                                streams);
}

static trib_status queue_broadcast(struct together *all, const trib_stream *streams)
{
    const void *const send[2] = {at(&all->ranks[0], 0), at(&all->ranks[1], 0)};
    void *const recv[2] = {at(&all->ranks[0], HALF), at(&all->ranks[1], HALF)};
    return trib_group_broadcast(all->group, send, recv, HALF, TRIB_F32, 1, streams);
}

static double broadcast_of(const struct captured *self, size_t round, size_t i)
{
    return (double)(i < HALF ? captured_input(self->rank, round, i)
                             : captured_input(1, round, i - HALF));
}

/* Ranks exchange the first half, each by a call of its own; the group adds up the second. */
static trib_status queue_batch(struct together *all, const trib_stream *streams)
{
    void *const sums[2] = {at(&all->ranks[0], HALF), at(&all->ranks[1], HALF)};
    CHECK_OK(trib_group_batch_begin(all->group));
    for (int rank = 0; rank < 2; rank++) {
        float *data = at(&all->ranks[rank], 0);
        CHECK_OK(trib_alltoall(trib_group_comm(all->group, rank), data, data, HALF / 2, TRIB_F32,
                               streams[rank]));
    }
    CHECK_OK(trib_group_allreduce(all->group, (const void *const *)sums, sums, HALF, TRIB_F32,
                                  TRIB_SUM, streams));
    return trib_group_batch_end(all->group);
}

static double batch_of(const struct captured *self, size_t round, size_t i)
{
    const size_t each = HALF / 2;
    if (i >= HALF)
        return captured_sum(self, round, i);
    return (double)captured_input((int)(i / each), round, (size_t)self->rank * each + i % each);
}

static const struct doing doings[] = {
    {{"a list of a group", NULL, NULL, captured_sum, 1, true}, queue_list, true},
    {{"an allreduce of a group", NULL, NULL, captured_sum, 0, true}, queue_sum, false},
    {{"a broadcast of a group", NULL, NULL, broadcast_of, 0, true}, queue_broadcast, false},
    {{"a batch of a group", NULL, NULL, batch_of, 0, true}, queue_batch, false},
};

/* ---------------------------------------------------------------------------------------- cases */

static trib_status queue(const struct doing *doing, struct together *all)
{
    const trib_stream streams[2] = {all->ranks[0].stream, all->ranks[1].stream};
    return doing->queue(all, streams);
}

/* The values of `round` go to every rank, a call is made, and its results are what they must be. */
static void call(const struct doing *doing, struct together *all, size_t round)
{
    for (int rank = 0; rank < 2; rank++)
        captured_put(&all->ranks[rank], all->ranks[rank].tensors, round);
    CHECK_OK(queue(doing, all));
    for (int rank = 0; rank < 2; rank++)
        (void)captured_holds(&all->ranks[rank], all->ranks[rank].tensors, round, "eager",
                             doing->kind.expected);
}

static void replay_together(int rank, int size, void *argument)
{
    struct captured *self = &((struct together *)argument)->ranks[rank];
    (void)size;
    CHECK(cudaSetDevice(trib_device_ordinal(self->device)) == cudaSuccess);
    bool good = true;
    for (size_t round = 0; good && round < REPLAYS; round++)
        good = captured_replay(self, round);
    if (!good)
        captured_give_up(self);
}

static void capture_together(const struct doing *doing, struct together *all)
{
    captured_begin(all->ranks[0].stream);
    if (doing->refused) {
        CHECK_STATUS(queue(doing, all), TRIB_ERR_INVALID_USAGE);
        CHECK_DETAIL("capture the streams of all ranks of a group");
    }
    CHECK(cudaSetDevice(1) == cudaSuccess);
    captured_begin(all->ranks[1].stream);
    CHECK_OK(queue(doing, all));
    cudaGraph_t graphs[2];
    for (int rank = 0; rank < 2; rank++)
        graphs[rank] = captured_take(all->ranks[rank].stream);
    for (int rank = 2; rank-- > 0;) {
        CHECK(cudaSetDevice(rank) == cudaSuccess);
        all->ranks[rank].replay = captured_make(graphs[rank]);
    }
}

static void close_rank(struct captured *self)
{
    CHECK(cudaSetDevice(self->rank) == cudaSuccess);
    captured_settle(self);
    captured_drop(self);
    captured_close(self);
    CHECK_OK(trib_stream_destroy(self->device, self->stream));
}

/* The fake wants a thread of its own for each rank whose call is eager. */
static void run(const struct doing *doing, struct together *all, bool fake)
{
    for (int rank = 0; rank < 2; rank++) {
        captured_open(&all->ranks[rank], &all->cast, rank);
        all->ranks[rank].comm = trib_group_comm(all->group, rank);
    }
    CHECK(cudaSetDevice(0) == cudaSuccess);
    for (size_t eager = 0; eager < 2 && !fake; eager++)
        call(doing, all, eager);
    capture_together(doing, all);
    check_ranks(2, replay_together, all);
    if (!fake)
        call(doing, all, 2);
    for (int rank = 0; rank < 2; rank++)
        close_rank(&all->ranks[rank]);
}

static void together(const struct doing *doing, bool fake)
{
    struct together *all = calloc(1, sizeof *all);
    trib_options options = TRIB_OPTIONS_INIT;
    if (all == NULL)
        abort();
    options.backend = "nccl";
    all->cast.kind = &doing->kind;
    check_begin("2 ranks: %s in a graph of each", doing->kind.name);
    if (team_prepare(&all->cast.team, "nccl", 2) &&
        CHECK_OK(trib_group_create(&all->group, NULL, 2, &options))) {
        run(doing, all, fake);
        CHECK_OK(trib_group_destroy(all->group));
        CHECK_OK(trib_quiesce(PLENTY_MS));
    }
    check_end();
    free(all);
}

void captured_groups(bool fake)
{
    for (size_t i = 0; i < sizeof doings / sizeof *doings; i++)
        together(&doings[i], fake);
}
