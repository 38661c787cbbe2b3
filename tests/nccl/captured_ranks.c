/* Graphs of several ranks: an abort while they live, and those of a group. */
#include "tests/nccl/captured_fixture.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT = 128 };

static const struct kind list_kind = {
    .name = "a list", .queue = captured_queue_list, .expected = captured_sum, .lists = 1};

struct stuck {
    struct cast cast;
    trib_abort *handle;
    struct captured ranks[2];
};

static void capture_rank(int rank, int size, void *argument)
{
    struct stuck *stuck = argument;
    struct captured *self = &stuck->ranks[rank];
    (void)size;
    captured_open(self, &stuck->cast, rank);
    CHECK(captured_call(self, 0));
    captured_begin(self->stream);
    CHECK_OK(captured_queue_list(self, self->tensors, self->stream));
    self->replay = captured_end(self->stream);
    captured_put(self, self->tensors, 1);
    captured_settle(self);
}

/* Rank 0 replays, and rank 1 aborts instead. */
static void abort_rank(int rank, int size, void *argument)
{
    struct stuck *stuck = argument;
    struct captured *self = &stuck->ranks[rank];
    (void)size;
    CHECK(cudaSetDevice(trib_device_ordinal(self->device)) == cudaSuccess);
    if (rank == 0)
        (void)captured_launch(self);
    check_sleep_ms(50);
    if (rank == 1)
        CHECK_OK(trib_abort_raise(stuck->handle, "while one rank replays"));
    captured_settle(self);
    CHECK_STATUS(trib_comm_status(self->comm), TRIB_ERR_ABORTED);
    CHECK(captured_lists(self) == 1);
    (void)captured_holds(self, self->tensors, 1, "after an abort", captured_untouched);
}

static void becomes(trib_abort *handle, trib_comm_state wanted, const char *begin)
{
    char text[TEXT] = "";
    trib_comm_state state = -1;
    const double limit = check_now_ms() + PLENTY_MS;
    do {
        check_sleep_ms(1);
        CHECK_OK(trib_abort_state(&state, text, sizeof text, handle));
    } while ((state != wanted || strncmp(text, begin, strlen(begin)) != 0) &&
             check_now_ms() < limit);
    CHECK_MSG(state == wanted && strncmp(text, begin, strlen(begin)) == 0,
              "the state is %d (\"%s\"), expected %d (\"%s\")", state, text, (int)wanted, begin);
}

/* An abort while one rank waits in a replay: no list is written, and what the graphs hold is freed
 * with them, long after the communicator. */
static void aborted(void)
{
    struct stuck *stuck = calloc(1, sizeof *stuck);
    if (stuck == NULL)
        abort();
    stuck->cast.kind = &list_kind;
    check_begin("2 ranks: an abort while graphs of lists live");
    if (team_create(&stuck->cast.team, "nccl", 2, NULL)) {
        CHECK_OK(trib_comm_abort_handle(&stuck->handle, stuck->cast.team.comms[0]));
        check_ranks(2, capture_rank, stuck);
        check_ranks(2, abort_rank, stuck);
        becomes(stuck->handle, TRIB_COMM_PARKED,
                "2 live CUDA graphs that captured its calls, for ");
        team_close(&stuck->cast.team);
        for (int rank = 2; rank-- > 0;) {
            CHECK(cudaSetDevice(rank) == cudaSuccess);
            captured_drop(&stuck->ranks[rank]);
        }
        becomes(stuck->handle, TRIB_COMM_RECLAIMED, "");
        for (int rank = 0; rank < 2; rank++)
            captured_close(&stuck->ranks[rank]);
        trib_abort_release(stuck->handle);
        team_destroy(&stuck->cast.team);
        CHECK_OK(trib_quiesce(PLENTY_MS));
    }
    check_end();
    free(stuck);
}

/* One thread captures the lists of all ranks of a group. */
struct together {
    struct cast cast;
    struct captured ranks[2];
};

static void replay_together(int rank, int size, void *argument)
{
    struct captured *self = &((struct together *)argument)->ranks[rank];
    (void)size;
    CHECK(cudaSetDevice(trib_device_ordinal(self->device)) == cudaSuccess);
    for (size_t round = 0; round < REPLAYS; round++)
        if (!captured_replay(self, round))
            break;
}

static trib_status queue_together(trib_group *group, struct together *all)
{
    const trib_tensor *const lists[2] = {all->ranks[0].tensors, all->ranks[1].tensors};
    trib_stream streams[2] = {all->ranks[0].stream, all->ranks[1].stream};
    return trib_group_allreduce_list(group, lists, 2, TRIB_SUM, streams);
}

static void capture_together(trib_group *group, struct together *all)
{
    captured_begin(all->ranks[0].stream);
    CHECK_STATUS(queue_together(group, all), TRIB_ERR_INVALID_USAGE);
    CHECK_DETAIL("capture the streams of all ranks of a group");
    CHECK(cudaSetDevice(1) == cudaSuccess);
    captured_begin(all->ranks[1].stream);
    CHECK_OK(queue_together(group, all));
    cudaGraph_t graphs[2];
    for (int rank = 0; rank < 2; rank++)
        graphs[rank] = captured_take(all->ranks[rank].stream);
    for (int rank = 2; rank-- > 0;) {
        CHECK(cudaSetDevice(rank) == cudaSuccess);
        all->ranks[rank].replay = captured_make(graphs[rank]);
    }
}

static void groups(bool fake)
{
    struct together *all = calloc(1, sizeof *all);
    trib_group *group = NULL;
    trib_options options = TRIB_OPTIONS_INIT;
    if (all == NULL)
        abort();
    options.backend = "nccl";
    all->cast.kind = &list_kind;
    check_begin("2 ranks: a graph of each rank of a group");
    if (team_prepare(&all->cast.team, "nccl", 2) &&
        CHECK_OK(trib_group_create(&group, NULL, 2, &options))) {
        for (int rank = 0; rank < 2; rank++)
            captured_open(&all->ranks[rank], &all->cast, rank);
        CHECK(cudaSetDevice(0) == cudaSuccess);
        for (int eager = 0; eager < 2 && !fake; eager++) /* the fake wants a thread for each rank */
            CHECK_OK(queue_together(group, all));
        capture_together(group, all);
        check_ranks(2, replay_together, all);
        if (!fake)
            CHECK_OK(queue_together(group, all));
        for (int rank = 0; rank < 2; rank++) {
            CHECK(cudaSetDevice(rank) == cudaSuccess);
            captured_settle(&all->ranks[rank]);
            captured_drop(&all->ranks[rank]);
            captured_close(&all->ranks[rank]);
            CHECK_OK(trib_stream_destroy(all->ranks[rank].device, all->ranks[rank].stream));
        }
        CHECK_OK(trib_group_destroy(group));
        CHECK_OK(trib_quiesce(PLENTY_MS));
    }
    check_end();
    free(all);
}

void captured_ranks(bool fake)
{
    aborted();
    groups(fake);
}
