/* gaussianksa: topksa that never becomes dense.
 *
 * Problem and paper. One of the paths of the code of "Near-Optimal Sparse Allreduce for Distributed
 * Deep Learning" (Li and Hoefler, PPoPP 2022). In spite of its name its threshold is not the
 * Gaussian estimate but the exact k-th magnitude.
 *
 *   1. acc = gradient + residual; the k largest of acc are chosen, exactly.
 *   2. Regions of equal size; counts and headers in one small allgather. Fetched.
 *   3. P - 1 exchanges bring every entry to the owner of its region, which adds up in rank order.
 *   4. The sums are gathered as entries, however many there are.
 *   5. The result; the decision; the residual loses what was chosen.
 *
 * Cost, in words per rank: at most 2k sent and 2 (P-1) min(k, n/P) received for 3, as in topksa; 4,
 * with U sums in all, 2U(P-1)/P if spread evenly, where U <= min(Pk, n).
 *
 * Invariant. As in topksa: exactly the chosen entries leave the residual, and each is in one sum.
 *
 * Different from the published code, which cannot run (it unpacks two results where there is one),
 * and would exchange step by step, every size before its data, with absolute indices in float32,
 * wrong above 2^24: here all sizes travel at once, all data goes side by side, and indices are
 * integers. */
#include "csrc/sparse/published/topksa.h"

static void lay_out(void *own, struct tri_arena *arena, const struct tri_sparse_params *params)
{
    tri_topksa_lay_out(own, arena, params, false);
}

static trib_status gaussianksa_run(struct tri_run *run, void *own)
{
    return tri_topksa_run(run, own, false);
}

const struct tri_algorithm tri_sparse_gaussianksa = {
    .name = "gaussianksa",
    .waits = true,
    .own_bytes = sizeof(struct tri_topksa),
    .lay_out = lay_out,
    .entries = tri_topksa_entries,
    .capacity = tri_topksa_capacity,
    .run = gaussianksa_run,
    .selects = tri_topksa_selects,
};
