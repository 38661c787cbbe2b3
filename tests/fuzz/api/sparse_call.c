/* One call of a sparse allreduce, and whether anything is lost. */
#include <math.h>
#include <string.h>

#include "tests/conformance/reference.h"
#include "tests/fuzz/api/velocity.h"

/* Elements, and where a call's buffers are in a rank's memory. */
enum { COUNT = SPARSE_COUNT, GRADIENT = 0, RESULT = 2048, VALUE = 2560, ENTRIES_COUNT = 4088 };

struct made {
    struct world *world;
    double before[COUNT]; /* the sum over the ranks of gradient, or velocity, and residual */
    double velocity[FUZZ_RANKS][COUNT]; /* the new one; without momentum the gradient */
    uint8_t residuals[FUZZ_RANKS][COUNT * 8], gradients[FUZZ_RANKS][COUNT * 8];
    bool entries, infinite;
    bool bad; /* the result begins inside of the gradient */
    trib_stream streams[FUZZ_RANKS];
    struct verdicts verdicts;
};

static trib_dtype residual_type(const struct world *world)
{
    return world->sparse.dtype == TRIB_F64 ? TRIB_F64 : TRIB_F32;
}

/* Of one rank; nothing is queued any more. */
static void read_residual(const struct world *world, int r, uint8_t *out)
{
    const struct rank *rank = &world->ranks[r];
    const size_t bytes = world->sparse.count * trib_dtype_size(residual_type(world));
    if (!world_sparse_residual(world)) {
        memcpy(out, rank->memory + GRADIENT, bytes);
        return;
    }
    MUST(trib_sparse_residual(rank->sparse, out, NULL));
    MUST(trib_stream_wait(rank->device, NULL));
}

/* Small integers, so that every sum is exact. In place with momentum they are the new velocity. */
static void fill_gradient(struct made *made, int r)
{
    struct world *world = made->world;
    const trib_dtype dtype = world->sparse.dtype;
    uint8_t *data = made->gradients[r];
    uint64_t random = ++world->seed * 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < world->sparse.count; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const double value = (double)(random >> 60) - 8;
        reference_store(data, dtype, i, value);
        made->velocity[r][i] = velocity_next(world, r, i, value);
        made->before[i] += made->velocity[r][i];
    }
    if (made->infinite && r == 0 && world->sparse.count > 0)
        reference_store(data, dtype, world->sparse.count / 2, (double)INFINITY);
    world_fill(world, r, GRADIENT, data, world->sparse.count * trib_dtype_size(dtype),
               made->streams[r]);
}

static void make_call(int r, void *argument)
{
    struct made *made = argument;
    const struct rank *rank = &made->world->ranks[r];
    uint8_t *memory = rank->memory, *gradient = memory + GRADIENT;
    uint8_t *result =
        made->bad ? gradient + trib_dtype_size(made->world->sparse.dtype) : memory + RESULT;
    made->verdicts.status[r] =
        made->entries
            ? STATUS(trib_sparse_allreduce_entries(
                  rank->sparse, gradient, (uint32_t *)(void *)result, memory + VALUE,
                  (uint32_t *)(void *)(memory + ENTRIES_COUNT), made->streams[r]))
            : STATUS(trib_sparse_allreduce(rank->sparse, gradient, result, made->streams[r]));
}

static double result_at(const struct made *made, int r, size_t i)
{
    const struct world *world = made->world;
    const uint8_t *memory = world->ranks[r].memory;
    uint32_t n, index;
    if (!made->entries)
        return reference_load(memory + RESULT, world->sparse.result, i);
    memcpy(&n, memory + ENTRIES_COUNT, sizeof n);
    FUZZ_CHECK(n <= trib_sparse_capacity(world->ranks[r].sparse));
    for (uint32_t e = 0; e < n; e++) {
        memcpy(&index, memory + RESULT + e * sizeof index, sizeof index);
        if (index == i)
            return reference_load(memory + VALUE, world->sparse.result, e);
    }
    return 0;
}

/* What the call has done to rank r's residual and velocity, element by element. */
static void check_velocity(const struct made *made, int r, const uint8_t *residual)
{
    struct world *world = made->world;
    const uint8_t *gradient = world->ranks[r].memory + GRADIENT;
    if (world->sparse.momentum == 0)
        return;
    const enum velocity_rule rule = velocity_rule(world, r);
    for (size_t i = 0; i < world->sparse.count; i++) {
        const struct velocity_step step = {
            .velocity = made->velocity[r][i],
            .before = reference_load(made->residuals[r], residual_type(world), i),
            .after = reference_load(residual, residual_type(world), i),
            .result = result_at(made, r, i),
        };
        const double velocity = velocity_after(world, &step, rule);
        if (!world_sparse_in_place(world))
            world->sparse.velocity[r][i] = velocity;
        else if (!velocity_may_be(world, &step, velocity,
                                  reference_load(gradient, world->sparse.dtype, i)))
            FUZZ_FAIL("rank %d, element %zu: the velocity %g has become %g", r, i, step.velocity,
                      reference_load(gradient, world->sparse.dtype, i));
    }
}

/* Is every rank's part of acc known, and a multiple of 1 / 1024? Then no sum is rounded. */
static bool is_exact(const struct made *made, size_t i)
{
    const struct world *world = made->world;
    bool exact = world->sparse.exact;
    for (int r = 0; r < world->size; r++) {
        const double velocity = made->velocity[r][i] * 1024;
        const double residual = reference_load(made->residuals[r], residual_type(world), i) * 1024;
        exact = exact && velocity == floor(velocity) && residual == floor(residual);
    }
    return exact;
}

/* Nothing is lost: gradients and residuals before are the result and the residuals after. Velocities
 * have gone on. */
static void check_sum(struct made *made)
{
    struct world *world = made->world;
    uint8_t residual[COUNT * 8];
    double after[COUNT];
    for (size_t i = 0; i < world->sparse.count; i++)
        after[i] = result_at(made, 0, i);
    for (int r = 0; r < world->size; r++) {
        read_residual(world, r, residual);
        for (size_t i = 0; i < world->sparse.count; i++) {
            after[i] += reference_load(residual, residual_type(world), i);
            const double other = result_at(made, r, i), first = result_at(made, 0, i);
            FUZZ_CHECK(other == first || (isnan(other) && isnan(first)));
        }
        check_velocity(made, r, residual);
    }
    for (size_t i = 0; i < world->sparse.count; i++)
        if (is_exact(made, i) && after[i] != made->before[i])
            FUZZ_FAIL("element %zu: result and residuals are %g, and were %g before the call", i,
                      after[i], made->before[i]);
}

/* The call was not applied, on any rank: residuals are as before, the result is 0. */
static void check_nothing(struct made *made)
{
    const struct world *world = made->world;
    uint8_t residual[COUNT * 8];
    const size_t bytes = world->sparse.count * trib_dtype_size(residual_type(world));
    for (int r = 0; r < world->size; r++) {
        FUZZ_CHECK(*trib_sparse_outcome(world->ranks[r].sparse) == 0);
        FUZZ_CHECK(STATUS(trib_sparse_status(world->ranks[r].sparse)) == TRIB_ERR_NON_FINITE);
        for (size_t i = 0; i < world->sparse.count; i++)
            FUZZ_CHECK(result_at(made, r, i) == 0);
        read_residual(world, r, residual);
        if (world_sparse_residual(world))
            FUZZ_CHECK(memcmp(residual, made->residuals[r], bytes) == 0);
        if (world_sparse_in_place(world))
            FUZZ_CHECK(memcmp(world->ranks[r].memory + GRADIENT, made->gradients[r], bytes) == 0);
    }
}

/* What a call may write. */
static void touch(const struct made *made, int r, bool adopt)
{
    struct world *world = made->world;
    const size_t n = world->sparse.count, out = trib_dtype_size(world->sparse.result);
    const struct {
        size_t at, bytes;
    } parts[] = {
        {GRADIENT, world_sparse_in_place(world) ? n * trib_dtype_size(world->sparse.dtype) : 0},
        {RESULT, n * (made->entries ? sizeof(uint32_t) : out)},
        {VALUE, made->entries ? n * out : 0},
        {ENTRIES_COUNT, made->entries ? sizeof(uint32_t) : 0}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (adopt)
            world_adopt(world, r, parts[i].at, parts[i].bytes);
        else
            world_result(world, r, parts[i].at, NULL, parts[i].bytes);
}

static void prepare_call(struct made *made)
{
    struct world *world = made->world;
    const int stream = (int)bytes_below(world->in, 1 + STREAMS);
    made->entries = (world->sparse.flags & TRIB_SPARSE_ENTRIES) != 0;
    made->infinite = bytes_rare(world->in, 16) && world->sparse.count > 0;
    made->bad = bytes_rare(world->in, 32) && (world->flags & TRIB_UNCHECKED) == 0 &&
                world->sparse.count > 1;
    if (world->life == WORLD_LIVE && world_sparse_residual(world))
        for (int r = 0; r < world->size; r++) {
            read_residual(world, r, made->residuals[r]);
            for (size_t i = 0; i < world->sparse.count; i++)
                made->before[i] += reference_load(made->residuals[r], residual_type(world), i);
        }
    for (int r = 0; r < world->size; r++) {
        made->streams[r] = world_stream(world, r, stream);
        made->verdicts.valid[r] = !made->bad;
        fill_gradient(made, r);
    }
}

void sparse_call(struct world *world)
{
    struct made made = {.world = world};
    world_settle(world);
    prepare_call(&made);
    world_each(world, false, make_call, &made);
    const bool known = world_judge(world, &made.verdicts);
    bool queued = false;
    for (int r = 0; r < world->size; r++)
        if (world_may_write(&made.verdicts, r)) {
            touch(&made, r, false);
            queued = true;
        }
    if (!known || world->life != WORLD_LIVE || world->uneven) {
        if (queued)
            velocity_set(world, (double)NAN);
        return;
    }
    for (int r = 0; r < world->size; r++)
        MUST(trib_stream_wait(world->ranks[r].device, made.streams[r]));
    bool live = true;
    for (int r = 0; r < world->size; r++) {
        touch(&made, r, true);
        live = live && STATUS(trib_comm_status(world->ranks[r].comm)) == TRIB_OK;
    }
    if (live && made.infinite)
        check_nothing(&made);
    else if (live)
        check_sum(&made);
    else
        velocity_set(world, (double)NAN);
}
