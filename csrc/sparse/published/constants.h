/* The constants of the published code of Ok-Topk ("Near-Optimal Sparse Allreduce for Distributed
 * Deep Learning", Li and Hoefler, PPoPP 2022), which tune its thresholds. It has three sets of
 * them, one for each model that its authors trained. */
#ifndef TRI_SPARSE_PUBLISHED_CONSTANTS_H
#define TRI_SPARSE_PUBLISHED_CONSTANTS_H

#include <stdbool.h>
#include <stdint.h>

#include "csrc/sparse/algorithm.h"

/* A part of k. */
struct tri_fraction {
    uint32_t of, in;
};

/* A tri_fit for any k: fewer than `below` of k is too few, `enough` is enough then, and more than
 * `above` of k too many. */
struct tri_rule {
    struct tri_fraction below, enough, above;
    double lower, raise;
    uint32_t lower_steps, raise_steps;
};

struct tri_constants {
    const char *name;
    struct tri_rule gaussian; /* how the Gaussian estimate is moved before it is used */

    /* oktopk: calls from one exact threshold, and from one set of regions, to the next; how the
     * local threshold is moved before it is used; and how both are by the numbers that they have
     * chosen (steps do not matter there: one per call). */
    uint32_t exact_every, regions_every;
    struct tri_rule clamp, local, global;
    bool balance; /* of blocks, before they are gathered */
};

struct tri_fit tri_rule_fit(const struct tri_rule *rule, uint32_t k);

#endif
