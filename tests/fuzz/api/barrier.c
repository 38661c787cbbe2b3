/* A step: a barrier. What is behind it on one rank's stream finds what was before it on all. */
#define _POSIX_C_SOURCE 200809L
#include <string.h>
#include <time.h>

#include "tests/fuzz/api/world.h"

enum { LETTER = ARENA - 16 }; /* the byte where each rank writes its own */

struct barrier {
    struct world *world;
    uint64_t number;
    int wrong; /* the rank whose stream is none; -1: none */
    bool batch;
    trib_stream streams[FUZZ_RANKS];
    struct verdicts verdicts;
};

static uint64_t letter(const struct barrier *step, int r)
{
    return step->number << 8 | (uint64_t)r;
}

static void make_barrier(int r, void *argument)
{
    struct barrier *step = argument;
    trib_comm *comm = step->world->ranks[r].comm;
    trib_status end = TRIB_OK, status = step->batch ? STATUS(trib_batch_begin(comm)) : TRIB_OK;
    if (status == TRIB_OK)
        status = STATUS(trib_barrier(comm, step->streams[r]));
    if (step->batch)
        end = STATUS(trib_batch_end(comm));
    step->verdicts.status[r] = status == TRIB_OK ? end : status;
}

/* All letters, as a rank's stream finds them. */
struct look {
    int n;
    const uint8_t *from[FUZZ_RANKS];
    uint64_t found[FUZZ_RANKS];
};

static void look_around(void *argument)
{
    struct look *look = argument;
    for (int r = 0; r < look->n; r++)
        memcpy(&look->found[r], look->from[r], sizeof look->found[r]);
}

static struct look *queue_look(const struct barrier *step, int r)
{
    struct world *world = step->world;
    struct look *look = world_keep(world, sizeof *look);
    look->n = world->size;
    for (int i = 0; i < look->n; i++)
        look->from[i] = world->ranks[i].memory + LETTER;
    MUST(trib_stream_submit(world->ranks[r].device, look_around, look, step->streams[r]));
    return look;
}

static void check_letters(const struct barrier *step)
{
    const struct look *looks[FUZZ_RANKS];
    for (int r = 0; r < step->world->size; r++)
        looks[r] = queue_look(step, r);
    world_settle(step->world);
    for (int r = 0; r < step->world->size; r++)
        for (int i = 0; i < step->world->size; i++)
            FUZZ_CHECK(looks[r]->found[i] == letter(step, i));
}

static void rest(void *argument)
{
    const struct timespec millisecond = {.tv_nsec = 1000000};
    (void)argument;
    (void)nanosleep(&millisecond, NULL);
}

/* One rank writes its letter late. */
static void prepare(struct barrier *step, int r, int stream)
{
    struct world *world = step->world;
    const uint64_t own = letter(step, r);
    step->streams[r] = world_stream(world, r, stream);
    if (step->number % (uint64_t)world->size == (uint64_t)r)
        MUST(trib_stream_submit(world->ranks[r].device, rest, NULL, step->streams[r]));
    world_fill(world, r, LETTER, &own, sizeof own, step->streams[r]);
    if (r == step->wrong)
        step->streams[r] = world->ranks[r].memory;
    step->verdicts.valid[r] = world->ranks[r].comm != NULL && r != step->wrong;
}

void step_barrier(struct world *world)
{
    struct barrier step = {.world = world, .number = ++world->seed, .wrong = -1};
    const int stream = (int)bytes_below(world->in, 1 + STREAMS);
    if (world->group != NULL)
        return;
    step.batch = bytes_rare(world->in, 4);
    /* A mistake of one rank alone would make the others wait for long. */
    if (bytes_rare(world->in, 16) && (world->flags & TRIB_UNCHECKED) == 0 &&
        (world->hasty || (world->flags & TRIB_MATCH) == 0))
        step.wrong = (int)bytes_below(world->in, (uint32_t)world->size);
    for (int r = 0; r < world->size; r++)
        prepare(&step, r, stream);
    world_each(world, false, make_barrier, &step);
    if (world_judge(world, &step.verdicts) && world_is_sound(world))
        check_letters(&step);
}
