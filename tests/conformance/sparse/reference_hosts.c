/* What a sparse allreduce should give, by definition, whose ranks add up on each host first. */
#include "tests/conformance/sparse/reference.h"

#include <stdlib.h>
#include <string.h>

bool sparse_reference_together(const struct sparse_reference *reference, int rank, int other)
{
    return reference->hosts == NULL || reference->hosts[rank] == reference->hosts[other];
}

/* The host's ranks have equal shards, of multiples of 4 elements; the last one has the rest, too. Of k each
 * has what its elements are of all, rounded where it begins and where it ends. */
struct sparse_shard sparse_reference_shard(const struct sparse_reference *reference, int rank)
{
    const size_t n = reference->count;
    size_t ranks = 0, before = 0, stride = 0;
    for (int other = 0; other < reference->size; other++) {
        const bool mate = sparse_reference_together(reference, rank, other);
        ranks += mate;
        before += mate && other < rank;
    }
    while ((stride + 4) * ranks <= n)
        stride += 4;
    const size_t first = before * stride, end = before + 1 == ranks ? n : first + stride;
    struct sparse_shard shard = {.first = first, .n = end - first};
    if (reference->k != 0 && end > first) {
        shard.k = reference->k * end / n - reference->k * first / n;
        shard.k = shard.k == 0 ? 1 : shard.k;
    }
    return shard;
}

/* The sums of a host on a rank's shard, in rank order; elsewhere 0. */
static void add_up_host(const struct sparse_reference *reference, int rank, double *sums)
{
    const struct sparse_shard shard = sparse_reference_shard(reference, rank);
    memset(sums, 0, reference->count * sizeof *sums);
    for (int other = 0; other < reference->size; other++)
        for (size_t i = shard.first; i < shard.first + shard.n; i++)
            if (sparse_reference_together(reference, rank, other))
                sums[i] = sparse_round(sums[i] + reference->acc[other][i], reference->acc_dtype);
}

/* The entries that a rank's mates have chosen are gone for it, too. */
static void share_picks(struct sparse_reference *reference)
{
    for (int rank = 0; rank < reference->size; rank++)
        for (int other = 0; other < reference->size; other++) {
            const struct sparse_shard shard = sparse_reference_shard(reference, other);
            if (other != rank && sparse_reference_together(reference, rank, other))
                memcpy(reference->picked[rank] + shard.first,
                       reference->picked[other] + shard.first, shard.n);
        }
}

void sparse_reference_hier(struct sparse_reference *reference)
{
    double *given[TEAM_MAX];
    memcpy(given, reference->acc, sizeof given);
    double *sums = calloc((size_t)reference->size * reference->count + 1, sizeof *sums);
    if (sums == NULL)
        abort();
    for (int rank = 0; rank < reference->size; rank++)
        add_up_host(reference, rank, sums + (size_t)rank * reference->count);
    for (int rank = 0; rank < reference->size; rank++) {
        const struct sparse_shard shard = sparse_reference_shard(reference, rank);
        const struct sparse_choice choice = {.first = shard.first, .n = shard.n, .k = shard.k};
        reference->acc[rank] = sums + (size_t)rank * reference->count;
        memset(reference->picked[rank], 0, reference->count);
        reference->selected[rank] = sparse_reference_top(reference, reference->acc[rank], choice,
                                                         reference->picked[rank], NULL);
    }
    sparse_reference_add_up(reference);
    sparse_reference_update_residual(reference);
    share_picks(reference);
    memcpy(reference->acc, given, sizeof given);
    free(sums);
}
