/* The sum of a host's acc, each rank's on its shard: the tensor is cut into a range for each rank of the
 * host, of n / L elements rounded down to a multiple of 4, and the last one has the rest, too.
 *
 * Where the ranks of a host have collectives of their own (params->inside) a reduce_scatter makes the
 * sums, not in place right in acc, and messages bring the last rank its rest. Where they have none,
 * messages bring all shards. What they bring is added up in rank order. */
#ifndef TRI_SPARSE_ALGORITHMS_SUMS_H
#define TRI_SPARSE_ALGORITHMS_SUMS_H

#include "csrc/sparse/algorithms/routes.h"
#include "csrc/sparse/run.h"

/* Elements of the tensor. */
struct tri_shard {
    size_t first, length;
};

/* That of number `index` of a host's `ranks`. */
struct tri_shard tri_shard_of(const struct tri_sparse_params *params, int32_t ranks, int32_t index);

struct tri_sums {
    const struct tri_routes *routes;
    struct tri_shard shard;   /* this rank's */
    struct tri_shard brought; /* what of it messages bring */
    /* Of each mate so much, and a spare part; the one at the own index becomes the sum. NULL: none. */
    char *parts;
    /* Memory of the sums, if that is neither acc nor a part: [0, first + length) of a whole tensor. */
    char *scattered;
    uint32_t *whole, *outcome; /* of this call: did the reduce_scatter come to its end? */
};

/* `routes` lives as long as `sums`. */
void tri_sums_lay_out(struct tri_sums *sums, struct tri_arena *arena,
                      const struct tri_sparse_params *params, const struct tri_routes *routes);

/* tri_run_accumulate, then the sums; not in place acc is no longer that. A rank that is alone on its
 * host has them in acc. */
trib_status tri_sums_make(struct tri_run *run, const struct tri_sums *sums,
                          struct tri_header *header);

/* As if the sums were those of the whole tensor: they are on this rank's shard. */
struct tri_accumulator tri_sums_acc(const struct tri_run *run, const struct tri_sums *sums);

/* Behind what was chosen of the sums, and before its packet, which `header` begins, leaves: an abort ends a
 * reduce_scatter in the middle, and other ranks may hear of it after they have applied the call. So the
 * header loses its signature if there has been one. */
trib_status tri_sums_vouch(struct tri_run *run, const struct tri_sums *sums,
                           struct tri_header *header);

/* The residual becomes the sums on this rank's shard, and 0 elsewhere. keep: not in place, before the
 * decision, which makes acc the residual. move: in place, after the decision, and by it. Each does nothing
 * where the other does it. */
trib_status tri_sums_keep(struct tri_run *run, const struct tri_sums *sums);
trib_status tri_sums_move(struct tri_run *run, const struct tri_sums *sums);

#endif
