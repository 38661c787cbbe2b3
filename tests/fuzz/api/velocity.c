/* The second computation of velocities. */
#include "tests/fuzz/api/velocity.h"

#include <math.h>
#include <string.h>

/* To the residual's type. Of two numbers of f32 the sum and the product in f64, rounded to f32, are
 * those of f32. */
static double rounded(const struct world *world, double value)
{
    return world->sparse.dtype == TRIB_F64 ? value : (double)(float)value;
}

static double scaled_sum(const struct world *world, double added, double factor, double value)
{
    return rounded(world, added + rounded(world, factor * value));
}

enum velocity_rule velocity_rule(const struct world *world, int r)
{
    trib_sparse_statistics statistics = TRIB_SPARSE_STATISTICS_INIT;
    MUST(trib_sparse_statistics_get(&statistics, world->ranks[r].sparse));
    const char *name = statistics.algorithm;
    if ((world->sparse.flags & TRIB_SPARSE_NO_MASKING) != 0 || strcmp(name, "dense") == 0)
        return VELOCITY_STAYS;
    if (strcmp(name, "shared") == 0)
        return VELOCITY_SHARED;
    /* What hier masks, and what its residual holds, is its host's. */
    const bool moved =
        strcmp(name, "gtopk") == 0 || strcmp(name, "srs") == 0 || strcmp(name, "hier") == 0;
    return moved ? VELOCITY_RESTORED : VELOCITY_MASKED;
}

double velocity_next(const struct world *world, int r, size_t i, double gradient)
{
    if (!world_sparse_velocity(world))
        return gradient;
    return scaled_sum(world, gradient, world->sparse.momentum, world->sparse.velocity[r][i]);
}

static double check_residual(const struct world *world, const struct velocity_step *step,
                             double acc, enum velocity_rule rule)
{
    const bool known = !isnan(acc) && rule != VELOCITY_RESTORED && !world->sparse.wire;
    if (known && rule != VELOCITY_STAYS && step->after != acc && step->after != 0)
        FUZZ_FAIL("acc was %g, and the residual is neither that nor 0, but %g", acc, step->after);
    return acc;
}

double velocity_after(const struct world *world, const struct velocity_step *step,
                      enum velocity_rule rule)
{
    const double sum = scaled_sum(world, step->velocity, world->sparse.decay, step->before);
    const double acc = check_residual(world, step, sum, rule);
    const bool waits = step->after == acc;
    switch (rule) {
    case VELOCITY_STAYS:
        return step->velocity;
    case VELOCITY_RESTORED:
        return waits && step->result == 0 ? step->velocity : (double)NAN;
    case VELOCITY_SHARED:
        if (acc == 0 && step->velocity != 0)
            return (double)NAN;
        break;
    default:
        break;
    }
    return isnan(acc) ? (double)NAN : waits ? step->velocity : 0;
}

bool velocity_may_be(const struct world *world, const struct velocity_step *step, double velocity,
                     double found)
{
    const double momentum = world->sparse.momentum;
    if (isnan(velocity))
        return found == 0 || found == momentum * step->velocity;
    return found == momentum * velocity;
}

void velocity_set(struct world *world, double value)
{
    for (int r = 0; r < FUZZ_RANKS; r++)
        for (size_t i = 0; i < SPARSE_COUNT; i++)
            world->sparse.velocity[r][i] = value;
}

void velocity_save(struct world *world)
{
    world->saved.has_velocity = world_sparse_velocity(world);
    memcpy(world->saved.velocity, world->sparse.velocity, sizeof world->saved.velocity);
}

void velocity_restore(struct world *world)
{
    velocity_set(world, 0);
    if (world->saved.has_velocity)
        memcpy(world->sparse.velocity, world->saved.velocity, sizeof world->sparse.velocity);
}

void velocity_add(struct world *world, int r)
{
    if (!world->saved.has_velocity)
        return;
    for (size_t i = 0; i < world->sparse.count; i++)
        world->sparse.velocity[r][i] =
            scaled_sum(world, world->saved.velocity[r][i], 1, world->sparse.velocity[r][i]);
}
