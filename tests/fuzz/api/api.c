/* Fuzz target: an input is a program of calls of the C API against the host backend.
 *
 * A byte chooses each step and each argument, so that most inputs are valid programs; a small share
 * of the arguments is deliberately invalid, or differs on one rank. Each step's status and each
 * byte of the ranks' memory are compared with what the header promises (world.h). An abort may come
 * from another thread while a step runs. */
#include "tests/fuzz/api/world.h"

enum { STEPS = 40 };

/* Raise an abort soon: at some point of the next step. */
static void raise_soon(int rank, void *argument)
{
    struct world *world = argument;
    (void)rank;
    for (volatile uint32_t spins = 0; spins < (world->seed * 7919) % 4096; spins++) {}
    MUST(trib_abort_raise(world->abort, "from another thread"));
}

static void step(struct world *world)
{
    const uint32_t which = bytes_below(world->in, 16);
    fuzz_trace("step %u, %zu bytes left\n", which, world->in->left);
    switch (which) {
    case 0:
    case 1:
    case 2:
    case 3:
        step_collective(world);
        break;
    case 4:
        step_vectored(world);
        break;
    case 5:
        step_exchange(world);
        break;
    case 6:
    case 7:
    case 8:
        step_list(world);
        break;
    case 9:
        step_streams(world);
        break;
    case 10:
        step_queries(world);
        break;
    case 11:
        step_life(world);
        break;
    case 12:
        step_shrink(world);
        break;
    default:
        step_sparse(world);
    }
}

/* A split would replace the handle that the other thread holds, so this aborts the one it has. */
static void step_under_abort(struct world *world)
{
    trib_abort *mine = NULL;
    struct world other = {.seed = world->seed};
    MUST(trib_abort_clone(&mine, world->abort));
    other.abort = mine;
    if (world->life == WORLD_LIVE)
        world->life = WORLD_ENDING;
    fuzz_beside(raise_soon, &other);
    step(world);
    fuzz_beside_end();
    if (trib_abort_raised(world->abort))
        world->life = WORLD_ENDED;
    trib_abort_release(mine);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct bytes in = {data, bytes};
    struct world world;
    world_open(&world, &in);
    fuzz_trace("%d ranks, flags %u%s%s\n", world.size, world.flags, world.hasty ? ", hasty" : "",
               world.group != NULL ? ", group" : "");
    for (int steps = 0; steps < STEPS && in.left > 0; steps++)
        if (bytes_rare(&in, 64))
            step_under_abort(&world);
        else
            step(&world);
    world_close(&world);
    fuzz_quiet();
    world_check_freed();
    return 0;
}
