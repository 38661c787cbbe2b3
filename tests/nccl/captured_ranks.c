/* An abort while graphs of several ranks live. */
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

void captured_ranks(void)
{
    aborted();
}
