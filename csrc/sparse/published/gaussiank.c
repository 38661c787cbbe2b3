/* gaussiank: a threshold from mean and deviation.
 *
 * Problem. A threshold that is estimated from two sums needs no search for the k-th magnitude.
 *
 * Paper. Shi, Chu, Cheung and See, "Understanding Top-k Sparsification in Distributed Deep
 * Learning" (arXiv 1911.08772), with the rules of Ok-Topk's published code (Li and Hoefler, PPoPP
 * 2022) for moving the estimate: constants "vgg" unless the options name others.
 *
 *   1. acc = gradient + residual.
 *   2. Its mean and deviation, and from them and d = k / n the estimate (gaussian.c says how).
 *   3. The estimate is moved in steps while too many magnitudes lie above it, or too few.
 *   4. All entries above it are chosen; the largest, if they are more than 4k + 1024.
 *   5. One small allgather of the headers, which hold the counts. Fetched.
 *   6. All entries to all ranks, indices and values apart. A rank may have none.
 *   7. The result is the sum of the lists in rank order, or its average; the decision; the
 *      residual loses what was chosen.
 *
 * With k = 0 nothing is chosen, without an estimate.
 *
 * Cost: rank r sends 2 k_r (P-1) words and receives twice the sum of the others' k: about 2k(P-1),
 * at most 2 (4k + 1024)(P-1). acc is read once more for the estimate, and again for it to be moved.
 * One wait for the stream.
 *
 * Invariant. As in topka: every entry that was chosen is in the result and has left the residual of
 * its rank; nothing else moved.
 *
 * Different from the published code: an estimate that is too high is moved before one that is too
 * low, so that a step too far never leaves nothing (where all magnitudes are equal); the number
 * of entries has a limit; and calls cannot choose nothing for ever (gaussian.c). */
#include "csrc/sparse/published/gaussian.h"

struct gaussiank {
    struct tri_gaussian gaussian;
    struct tri_entries gathered;
};

static void lay_out(void *memory, struct tri_arena *arena, const struct tri_sparse_params *params)
{
    struct gaussiank *own = memory;
    tri_gaussian_lay_out(&own->gaussian, arena, params);
    own->gathered = tri_arena_entries(arena, tri_counted_entries(params), params->wire);
}

static trib_status gaussiank_run(struct tri_run *run, void *memory)
{
    struct gaussiank *own = memory;
    TRI_TRY(tri_gaussian_choose(run, &own->gaussian));
    return tri_counted_gather(run, &own->gaussian.counted, &own->gathered, false);
}

static struct tri_persistent persistent(void *memory)
{
    struct gaussiank *own = memory;
    return tri_gaussian_persistent(&own->gaussian);
}

const struct tri_algorithm tri_sparse_gaussiank = {
    .name = "gaussiank",
    .waits = true,
    .own_bytes = sizeof(struct gaussiank),
    .lay_out = lay_out,
    .entries = tri_counted_entries,
    .capacity = tri_counted_capacity,
    .run = gaussiank_run,
    .persistent = persistent,
    .valid = tri_gaussian_valid,
};
