/* Calls that CUDA graphs capture. One thread a rank. */
#include "tests/nccl/captured.h"

#include "tests/nccl/captured_fixture.h"

/* An eager call on other tensors and another stream while the replay runs: they share nothing. */
static bool replay_beside(struct captured *self, size_t round)
{
    captured_put(self, self->tensors, round);
    captured_put(self, self->others, round + 1);
    captured_settle(self);
    return captured_launch(self) && CHECK_OK(self->kind->queue(self, self->others, self->beside)) &&
           captured_holds(self, self->tensors, round, "replayed beside", self->kind->expected) &&
           CHECK_OK(trib_stream_wait(self->device, self->beside)) &&
           captured_holds(self, self->others, round + 1, "eager beside", self->kind->expected);
}

static uint64_t workspace_bytes(struct captured *self)
{
    trib_memory memory = TRIB_MEMORY_INIT;
    CHECK_OK(trib_comm_memory(&memory, self->comm));
    return memory.workspace_bytes;
}

/* CUDA tells of the graph's end on a thread of its own. */
static void check_freed(struct captured *self, uint64_t before)
{
    const double limit = check_now_ms() + PLENTY_MS;
    while (workspace_bytes(self) != before && check_now_ms() < limit)
        check_sleep_ms(1);
    CHECK_MSG(workspace_bytes(self) == before, "%llu bytes of workspace, not %llu",
              (unsigned long long)workspace_bytes(self), (unsigned long long)before);
}

static void replays_rank(int rank, int size, void *argument)
{
    struct cast *cast = argument;
    struct captured self;
    captured_open(&self, cast, rank);
    const struct kind *kind = self.kind;
    bool good = captured_call(&self, 0);
    const uint64_t bytes = workspace_bytes(&self);
    const uint64_t lists = captured_lists(&self);
    team_barrier(&cast->met[0], size);
    captured_begin(self.stream);
    good = CHECK_OK(kind->queue(&self, self.tensors, self.stream)) && good;
    self.replay = captured_end(self.stream);
    team_barrier(&cast->met[1], size);
    CHECK(captured_lists(&self) == lists);
    good = captured_call(&self, 1) && good;
    uint64_t eager = 1;
    for (size_t round = 2; good && round < 2 + REPLAYS; round++) {
        const bool beside = round % PERIOD == 0 && !kind->not_eager;
        good = beside ? replay_beside(&self, round) : captured_replay(&self, round);
        eager += beside;
        if (good && round % PERIOD == PERIOD / 2) {
            good = captured_call(&self, round);
            eager++;
        }
    }
    good = good && captured_call(&self, 3);
    if (!good)
        captured_give_up(&self);
    eager++;
    if (good)
        CHECK_MSG(captured_lists(&self) == lists + (eager + REPLAYS) * kind->lists,
                  "%llu lists committed, not %llu", (unsigned long long)captured_lists(&self),
                  (unsigned long long)(lists + (eager + REPLAYS) * kind->lists));
    if (self.reducer != NULL)
        CHECK_OK(trib_reducer_status(self.reducer));
    CHECK_OK(trib_comm_status(self.comm));
    team_barrier(&cast->met[2], size);
    captured_drop(&self);
    check_freed(&self, bytes);
    (void)captured_call(&self, 4);
    captured_close(&self);
}

void captured_replays(int size, const struct kind *kind)
{
    captured_run(size, kind, kind->name, 0, replays_rank);
}

void captured_cases(int ranks, bool fake)
{
    for (int size = 1; size <= ranks && size <= 2; size++) {
        captured_calls(size);
        captured_moves(size);
        captured_reducers(size, fake);
    }
    if (ranks >= 2) {
        captured_ranks();
        captured_groups(fake);
    }
}
