/* Steps: allgatherv, alltoallv, and a ring of sends and receives. */
#include <string.h>

#include "tests/conformance/reference.h"
#include "tests/fuzz/api/world.h"

enum { RECV = ARENA / 2, MOST = 12 };

struct vectored {
    struct world *world;
    bool gathers, in_place;
    trib_dtype dtype;
    size_t counts[FUZZ_RANKS][FUZZ_RANKS]; /* from, to */
    size_t gap;                            /* elements between two blocks */
    bool overlaps;                         /* all blocks of recv begin at one place */
    int wrong;                             /* the rank whose send_counts lie; -1: none */
    uint64_t seed;
    trib_stream streams[FUZZ_RANKS];
    struct verdicts verdicts;
};

static size_t count_of(const struct vectored *step, int from, int to)
{
    return step->gathers ? step->counts[from][0] : step->counts[from][to];
}

/* Elements before the block to rank `to` in rank r's send buffer. */
static size_t send_offset(const struct vectored *step, int r, int to)
{
    size_t offset = 0;
    for (int i = 0; i < to; i++)
        offset += step->gap + count_of(step, r, i);
    return offset;
}

/* Elements before the block from rank `from` in rank r's recv buffer. */
static size_t recv_offset(const struct vectored *step, int r, int from)
{
    size_t offset = 0;
    for (int i = 0; i < from && !step->overlaps; i++)
        offset += step->gap + count_of(step, i, r);
    return offset;
}

static void make_vectored(int r, void *argument)
{
    struct vectored *step = argument;
    const struct rank *rank = &step->world->ranks[r];
    size_t sends[FUZZ_RANKS], send_offsets[FUZZ_RANKS], recvs[FUZZ_RANKS], offsets[FUZZ_RANKS];
    for (int i = 0; i < step->world->size; i++) {
        sends[i] = count_of(step, r, i) + (step->wrong == r);
        send_offsets[i] = send_offset(step, r, i);
        recvs[i] = count_of(step, i, r);
        offsets[i] = recv_offset(step, r, i);
    }
    uint8_t *send = rank->memory, *recv = rank->memory + RECV;
    if (step->gathers && step->in_place)
        send = recv + offsets[r] * trib_dtype_size(step->dtype);
    step->verdicts.status[r] =
        step->gathers ? STATUS(trib_allgatherv(rank->comm, send, recv, recvs, offsets, step->dtype,
                                               step->streams[r]))
                      : STATUS(trib_alltoallv(rank->comm, send, sends, send_offsets, recv, recvs,
                                              offsets, step->dtype, step->streams[r]));
}

static struct reference inputs_of(const struct vectored *step)
{
    return (struct reference){step->dtype, REFERENCE_MOVED, step->world->size, step->seed};
}

/* Queue the input of rank r, and note in `result` what the rank gets. */
static void fill_vectored(struct vectored *step, int r)
{
    struct world *world = step->world;
    const struct reference inputs = inputs_of(step);
    const size_t element = trib_dtype_size(step->dtype);
    uint8_t data[ARENA];
    for (int to = 0; to < (step->gathers ? 1 : world->size); to++) {
        const size_t count = count_of(step, r, to);
        size_t at = send_offset(step, r, to) * element;
        if (step->gathers)
            at = step->in_place ? RECV + recv_offset(step, r, r) * element : 0;
        reference_input(data, &inputs, r, (size_t)to * MOST, count);
        world_fill(world, r, at, data, count * element, step->streams[r]);
    }
}

static void note_vectored(struct vectored *step, int r, bool known)
{
    const struct reference inputs = inputs_of(step);
    const size_t element = trib_dtype_size(step->dtype);
    uint8_t data[ARENA];
    for (int from = 0; from < step->world->size; from++) {
        const size_t count = count_of(step, from, r);
        const size_t at = RECV + recv_offset(step, r, from) * element;
        reference_input(data, &inputs, from, step->gathers ? 0 : (size_t)r * MOST, count);
        world_result(step->world, r, at, known ? data : NULL, count * element);
    }
}

/* Overlapping blocks, or counts to itself that differ, are refused. */
static bool is_valid(const struct vectored *step, int r)
{
    int blocks = 0;
    for (int from = 0; from < step->world->size; from++)
        blocks += count_of(step, from, r) != 0;
    if (step->overlaps && blocks > 1)
        return false;
    return step->wrong != r || step->gathers;
}

static void pick_vectored(struct vectored *step)
{
    struct world *world = step->world;
    struct bytes *in = world->in;
    step->gathers = bytes_rare(in, 2);
    step->in_place = bytes_rare(in, 4);
    step->dtype = 1 + (trib_dtype)bytes_below(in, 10);
    step->gap = bytes_rare(in, 4) ? bytes_below(in, 4) : 0;
    step->overlaps = (world->flags & TRIB_MATCH) == 0 && bytes_rare(in, 16);
    step->wrong = !step->gathers && bytes_rare(in, 32) ? (int)bytes_below(in, FUZZ_RANKS) : -1;
    if ((world->flags & TRIB_MATCH) != 0 && !world->hasty)
        step->wrong = -1;
    for (int from = 0; from < world->size; from++)
        for (int to = 0; to < world->size; to++)
            step->counts[from][to] = bytes_below(in, MOST);
    if (step->overlaps)
        step->in_place = false;
    step->seed = ++world->seed;
}

void step_vectored(struct world *world)
{
    struct vectored step = {.world = world};
    const int stream = (int)bytes_below(world->in, 1 + STREAMS);
    bool whole = true;
    if (world->group != NULL)
        return;
    pick_vectored(&step);
    for (int r = 0; r < world->size; r++) {
        step.verdicts.valid[r] = world->ranks[r].comm != NULL && is_valid(&step, r);
        whole = whole && step.verdicts.valid[r];
        step.streams[r] = world_stream(world, r, stream);
    }
    for (int r = 0; r < world->size && whole; r++)
        fill_vectored(&step, r);
    world_each(world, false, make_vectored, &step);
    const bool known = world_judge(world, &step.verdicts);
    for (int r = 0; r < world->size; r++)
        if (world_may_write(&step.verdicts, r))
            note_vectored(&step, r, known && whole);
}

/* ------------------------------------------------------------------------------ sends, receives */

struct ring {
    struct world *world;
    trib_dtype dtype;
    size_t count;
    int distance, longer; /* the rank that receives one element more; -1: none */
    uint64_t seed;
    trib_stream streams[FUZZ_RANKS];
    struct verdicts verdicts;
};

/* Each rank sends to the one `distance` further, and receives from the one before. */
static void exchange(int r, void *argument)
{
    struct ring *ring = argument;
    const int size = ring->world->size;
    const struct rank *rank = &ring->world->ranks[r];
    const int32_t to = (r + ring->distance) % size, from = (r + size - ring->distance) % size;
    trib_status status = STATUS(trib_batch_begin(rank->comm));
    if (status == TRIB_OK)
        status = STATUS(
            trib_send(rank->comm, rank->memory, ring->count, ring->dtype, to, ring->streams[r]));
    if (status == TRIB_OK)
        status =
            STATUS(trib_recv(rank->comm, rank->memory + RECV, ring->count + (ring->longer == r),
                             ring->dtype, from, ring->streams[r]));
    const trib_status end = STATUS(trib_batch_end(rank->comm));
    ring->verdicts.status[r] = status == TRIB_OK ? end : status;
}

void step_exchange(struct world *world)
{
    struct ring ring = {.world = world, .longer = -1};
    const int stream = (int)bytes_below(world->in, 1 + STREAMS);
    uint8_t data[ARENA];
    if (world->group != NULL)
        return;
    ring.dtype = 1 + (trib_dtype)bytes_below(world->in, 10);
    ring.count = 1 + bytes_below(world->in, 64);
    ring.distance = (int)bytes_below(world->in, (uint32_t)world->size);
    if (bytes_rare(world->in, 16) && ring.distance != 0)
        ring.longer = (int)bytes_below(world->in, (uint32_t)world->size);
    ring.verdicts.differs = ring.longer >= 0;
    ring.verdicts.unmatched = true;
    ring.seed = ++world->seed;
    const struct reference inputs = {ring.dtype, REFERENCE_MOVED, world->size, ring.seed};
    const size_t bytes = ring.count * trib_dtype_size(ring.dtype);
    for (int r = 0; r < world->size; r++) {
        ring.streams[r] = world_stream(world, r, stream);
        ring.verdicts.valid[r] = world->ranks[r].comm != NULL;
        reference_input(data, &inputs, r, 0, ring.count);
        world_fill(world, r, 0, data, bytes, ring.streams[r]);
    }
    const bool uneven = world->uneven;
    world_each(world, false, exchange, &ring);
    const bool known = world_judge(world, &ring.verdicts);
    if (ring.distance == 0) /* every rank by itself */
        world->uneven = uneven;
    for (int r = 0; r < world->size; r++) {
        const int from = (r + world->size - ring.distance) % world->size;
        reference_input(data, &inputs, from, 0, ring.count);
        if (world_may_write(&ring.verdicts, r))
            world_result(world, r, RECV, known ? data : NULL,
                         bytes + (ring.longer == r ? trib_dtype_size(ring.dtype) : 0));
    }
}
