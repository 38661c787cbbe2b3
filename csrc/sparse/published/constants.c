/* The constants of the published code. */
#include "csrc/sparse/published/constants.h"

#include <stddef.h>
#include <string.h>

/* A rule: {below, enough, above, lower, raise, lower_steps, raise_steps}. */
static const struct tri_constants sets[] = {
    {
        .name = "vgg",
        .gaussian = {{3, 4}, {3, 4}, {5, 4}, 1.02, 1.02, 20, 20},
        .exact_every = 32,
        .regions_every = 64,
        .clamp = {{0, 1}, {0, 1}, {4, 3}, 1, 1.03, 0, 5},
        .local = {{2, 3}, {2, 3}, {5, 4}, 1.012, 1.012, 1, 1},
        .global = {{2, 3}, {2, 3}, {4, 3}, 1.008, 1.008, 1, 1},
    },
    {
        .name = "lstm",
        .gaussian = {{3, 4}, {3, 4}, {5, 4}, 1.012, 1.012, 50, 0},
        .exact_every = 32,
        .regions_every = 64,
        .clamp = {{0, 1}, {0, 1}, {3, 2}, 1, 1.03, 0, 5},
        .local = {{3, 4}, {3, 4}, {5, 4}, 1.012, 1.012, 1, 1},
        .global = {{3, 4}, {3, 4}, {5, 4}, 1.01, 1.008, 1, 1},
    },
    {
        .name = "bert",
        .gaussian = {{3, 4}, {5, 6}, {5, 4}, 1.012, 1.012, 20, 0},
        .exact_every = 128,
        .regions_every = 64,
        .clamp = {{0, 1}, {0, 1}, {1, 1}, 1, 1, 0, 0},
        .local = {{4, 5}, {4, 5}, {5, 4}, 1.025, 1.025, 1, 1},
        .global = {{4, 5}, {4, 5}, {5, 4}, 1.036, 1.025, 1, 1},
        .balance = true,
    },
};

const struct tri_constants *tri_constants_find(const char *name)
{
    for (size_t i = 0; name != NULL && i < sizeof sets / sizeof *sets; i++)
        if (strcmp(sets[i].name, name) == 0)
            return &sets[i];
    return NULL;
}

const char *tri_constants_name(const struct tri_constants *constants)
{
    return constants->name;
}

static uint32_t rounded_up(struct tri_fraction part, uint32_t k)
{
    const uint64_t times = (uint64_t)k * part.of;
    return (uint32_t)((times + part.in - 1) / part.in);
}

static uint32_t rounded_down(struct tri_fraction part, uint32_t k)
{
    const uint64_t whole = (uint64_t)k * part.of / part.in;
    return whole < UINT32_MAX ? (uint32_t)whole : UINT32_MAX;
}

/* A number of entries is below a part of k just if it is below that rounded up, and above it just
 * if it is above that rounded down. */
struct tri_fit tri_rule_fit(const struct tri_rule *rule, uint32_t k)
{
    return (struct tri_fit){
        .below = rounded_up(rule->below, k),
        .enough = rounded_up(rule->enough, k),
        .above = rounded_down(rule->above, k),
        .lower = rule->lower,
        .raise = rule->raise,
        .lower_steps = rule->lower_steps,
        .raise_steps = rule->raise_steps,
    };
}
