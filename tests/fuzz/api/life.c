/* Steps: aborts, splits, ranks that leave, and calls at the wrong time; and the barrier. */
#include <string.h>

#include "tests/fuzz/api/world.h"

/* --------------------------------------------------------------------------------------- aborts */

static void raise_it(struct world *world)
{
    char reason[40];
    trib_abort *clone = NULL;
    memset(reason, 0, sizeof reason);
    (void)bytes_copy(world->in, reason, bytes_below(world->in, sizeof reason));
    MUST(trib_abort_clone(&clone, world->abort));
    MUST(trib_abort_raise(clone, bytes_rare(world->in, 2) ? reason : NULL));
    FUZZ_CHECK(trib_abort_raised(world->abort) == 1);
    FUZZ_CHECK(STATUS(trib_abort_status(clone)) != TRIB_OK);
    trib_abort_release(clone);
    world->life = WORLD_ENDED;
}

/* ---------------------------------------------------------------------------------------- splits */

struct split {
    struct world *world;
    int32_t colors[FUZZ_RANKS], keys[FUZZ_RANKS];
    trib_comm *comms[FUZZ_RANKS];
    struct verdicts verdicts;
};

static void split_rank(int r, void *argument)
{
    struct split *split = argument;
    split->comms[r] = (trib_comm *)1;
    split->verdicts.status[r] = STATUS(trib_comm_split(
        &split->comms[r], split->world->ranks[r].comm, split->colors[r], split->keys[r]));
    if (split->verdicts.status[r] != TRIB_OK || split->colors[r] < 0)
        FUZZ_CHECK(split->comms[r] == NULL);
    else
        FUZZ_CHECK(split->comms[r] != NULL);
}

/* Ranks by color (0 first, which the world keeps) and key, then by rank. */
static bool precedes(const struct split *split, int a, int b)
{
    const bool out_a = split->colors[a] != 0, out_b = split->colors[b] != 0;
    if (out_a != out_b)
        return out_b;
    return split->keys[a] != split->keys[b] ? split->keys[a] < split->keys[b] : a < b;
}

/* The world goes on with the communicator of color 0; the others, and the old one, end. */
static void go_on(struct split *split)
{
    struct world *world = split->world;
    struct rank old[FUZZ_RANKS];
    const int size = world->size;
    sparse_drop(world);
    for (int r = 0; r < size; r++)
        world_judge_end(world, STATUS(trib_comm_destroy(world->ranks[r].comm)));
    memcpy(old, world->ranks, sizeof old);
    world->size = 0;
    for (int r = 0; r < size; r++) {
        int place = 0;
        for (int other = 0; other < size; other++)
            place += other != r && precedes(split, other, r);
        world->ranks[place] = old[r];
        world->ranks[place].comm = split->colors[r] == 0 ? split->comms[r] : NULL;
        world->size += split->colors[r] == 0;
        if (split->colors[r] != 0 && split->comms[r] != NULL)
            world_judge_end(world, STATUS(trib_comm_destroy(split->comms[r])));
    }
    trib_abort_release(world->abort);
    MUST(trib_comm_abort_handle(&world->abort, world->ranks[0].comm));
    for (int r = 0; r < world->size; r++)
        FUZZ_CHECK(trib_comm_rank(world->ranks[r].comm) == r &&
                   trib_comm_size(world->ranks[r].comm) == world->size);
}

static void split(struct world *world)
{
    struct split split = {.world = world};
    if (!world_can_wait(world))
        return;
    world_settle(world); /* so that the old communicator's end has nothing to wait for */
    for (int r = 0; r < world->size; r++) {
        const uint32_t color = r == 0 ? 0 : bytes_below(world->in, 8);
        split.colors[r] = color == 7 ? TRIB_NO_COLOR : color == 6 ? 1 : 0;
        split.keys[r] = (int8_t)bytes_u8(world->in);
    }
    fuzz_ranks(world->size, split_rank, &split);
    int good = 0;
    for (int r = 0; r < world->size; r++)
        good += split.verdicts.status[r] == TRIB_OK;
    FUZZ_CHECK(world->life == WORLD_ENDED ? good == 0 : good == 0 || good == world->size);
    FUZZ_CHECK(good != 0 || !world_is_sound(world));
    if (good != 0)
        go_on(&split);
}

static void split_group(struct world *world)
{
    trib_comm *comms[FUZZ_RANKS];
    if (world->group == NULL)
        return;
    MUST(trib_group_split(comms, world->group));
    world->group = NULL;
    for (int r = 0; r < world->size; r++)
        world->ranks[r].comm = comms[r];
}

/* --------------------------------------------------------------------------------- ranks that leave */

static void leave(struct world *world)
{
    struct rank *rank = &world->ranks[bytes_below(world->in, (uint32_t)world->size)];
    if (rank->comm == NULL)
        return;
    world_settle(world);
    sparse_drop(world);
    world->left = true;
    if (world->life == WORLD_LIVE)
        world->life = WORLD_ENDING;
    if (bytes_rare(world->in, 2) && !rank->closed) {
        world_judge_end(world, STATUS(trib_comm_close(rank->comm, bytes_below(world->in, 20))));
        FUZZ_CHECK(STATUS(trib_comm_status(rank->comm)) == TRIB_ERR_CLOSED);
        rank->closed = true;
        return;
    }
    world_judge_end(world, STATUS(trib_comm_destroy(rank->comm)));
    rank->comm = NULL;
}

/* ------------------------------------------------------------------------------- at the wrong time */

static void misuse(struct world *world)
{
    const struct rank *rank = &world->ranks[bytes_below(world->in, (uint32_t)world->size)];
    trib_comm *child = (trib_comm *)1;
    if (rank->comm == NULL)
        return;
    FUZZ_CHECK(STATUS(trib_batch_end(rank->comm)) != TRIB_OK);
    if (STATUS(trib_batch_begin(rank->comm)) != TRIB_OK) {
        FUZZ_CHECK(!world_is_sound(world));
        return;
    }
    switch (bytes_below(world->in, 3)) {
    case 0:
        FUZZ_CHECK(STATUS(trib_batch_begin(rank->comm)) != TRIB_OK);
        break;
    case 1:
        FUZZ_CHECK(STATUS(trib_comm_split(&child, rank->comm, 0, 0)) != TRIB_OK);
        FUZZ_CHECK(child == NULL);
        break;
    default:
        FUZZ_CHECK(STATUS(trib_allreduce_list(rank->comm, NULL, 0, TRIB_SUM, NULL)) != TRIB_OK);
    }
    (void)STATUS(trib_batch_end(rank->comm));
}

/* Two devices that are one, and other groups that cannot be. */
static void impossible_groups(struct world *world)
{
    const int32_t devices[FUZZ_RANKS] = {
        (int32_t)bytes_below(world->in, 4), (int32_t)bytes_below(world->in, 4),
        (int32_t)bytes_below(world->in, 80) - 8, (int32_t)bytes_u32(world->in)};
    const int32_t size = (int32_t)bytes_below(world->in, 8) - 2;
    const trib_options options = world_options(world);
    trib_group *group = (trib_group *)1;
    bool valid = size >= 1 && size <= 64;
    const bool none = size > FUZZ_RANKS || bytes_rare(world->in, 4);
    for (int32_t i = 0; i < size && !none; i++) {
        valid = valid && devices[i] >= 0 && devices[i] < 64;
        for (int32_t j = 0; j < i; j++)
            valid = valid && devices[i] != devices[j];
    }
    const trib_status status =
        STATUS(trib_group_create(&group, none ? NULL : devices, size, &options));
    FUZZ_CHECK((status == TRIB_OK) == valid && (group != NULL) == valid);
    MUST(trib_group_destroy(group));
}

void step_life(struct world *world)
{
    switch (bytes_below(world->in, 16)) {
    case 0:
    case 1:
    case 2:
    case 3:
        split(world);
        break;
    case 4:
    case 5:
        split_group(world);
        break;
    case 6:
    case 7:
    case 8:
    case 9:
        misuse(world);
        break;
    case 10:
    case 11:
        impossible_groups(world);
        break;
    case 12:
        leave(world);
        break;
    case 13:
        raise_it(world);
        break;
    case 15: /* here, so that the other choices keep their numbers in the corpus */
        step_barrier(world);
        break;
    default:
        world_settle(world);
    }
}
