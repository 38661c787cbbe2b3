/* What each sparse allreduce should give, for all ranks at once, from the definitions: written
 * without a look at csrc/sparse, but for the structure that the heads of its files document (trees,
 * blocks, constants). Everything is done naively and in double; a sum is rounded to the type of acc
 * after each addition, which changes nothing where sums are exact. */
#ifndef TRI_TESTS_CONFORMANCE_SPARSE_REFERENCE_H
#define TRI_TESTS_CONFORMANCE_SPARSE_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/team.h"

struct sparse_reference {
    const char *algorithm, *constants;
    int size;
    size_t count;
    uint64_t k;
    trib_dtype acc_dtype; /* f32 or f64 */
    trib_dtype wire;      /* acc_dtype or bf16 */
    uint32_t chunk;
    const int32_t *hosts; /* of hier: of each rank; NULL: one */
    bool narrow;          /* dense rounds what it sends, and its sums, to bf16 */

    /* One step: each rank's acc, and what becomes of it. */
    double *acc[TEAM_MAX]; /* given */
    double *residual[TEAM_MAX];
    double *sum;            /* not divided */
    unsigned char *support; /* of the result: at most here is it not 0 */
    uint64_t selected[TEAM_MAX], applied[TEAM_MAX];
    unsigned char *picked[TEAM_MAX]; /* what each rank chose */

    /* From step to step. */
    uint64_t step;                  /* calls since creation or reset */
    uint64_t since;                 /* of those, since k was set */
    double local[TEAM_MAX], global; /* thresholds; 0: none */
    bool known
        [TEAM_MAX]; /* that there is a local one, as far as the rank's host has seen: if the call
                           * that made it overflowed there is none, which it sees one call later */
    int idle[TEAM_MAX],
        idle_sums; /* calls in a row in which nothing was chosen; in which no sum was */

    double *sent; /* the values that a rank has sent: room for every rank's */
    double *room; /* for one more */
    struct sparse_ranked *order;
};

void sparse_reference_create(struct sparse_reference *reference);
void sparse_reference_destroy(struct sparse_reference *reference);
/* Make residual, sum, support, selected and applied of acc, and remember what the algorithm
 * remembers. False if there is no algorithm of that name. */
bool sparse_reference_step(struct sparse_reference *reference);
/* A call that was not applied: for what acc was, or for what the step that was just made had as
 * result; `before`: as the reference was before that. */
void sparse_reference_skip(struct sparse_reference *reference);
void sparse_reference_undo(struct sparse_reference *reference,
                           const struct sparse_reference *before);
/* k was set, or the state reset. */
void sparse_reference_set_k(struct sparse_reference *reference, uint64_t k);
void sparse_reference_reset(struct sparse_reference *reference);
/* Is the result fixed by the k largest alone, so that k = n is the dense sum? */
bool sparse_reference_exact(const char *algorithm, const char *constants);

/* What runs: where k is n, dense. */
const char *sparse_reference_algorithm(const struct sparse_reference *reference);
/* What the statistics of a rank call k. */
uint64_t sparse_reference_k(const struct sparse_reference *reference, int rank);
/* Entries of one block of srs, slots of one chunk. */
uint64_t sparse_reference_share(const struct sparse_reference *reference);
uint64_t sparse_reference_chunk_k(const struct sparse_reference *reference);
/* Elements of a rank's shard of hier, the first of them, and how many entries it may choose there. */
struct sparse_shard {
    size_t first, n;
    uint64_t k;
};
struct sparse_shard sparse_reference_shard(const struct sparse_reference *reference, int rank);
/* Are two ranks on one host? */
bool sparse_reference_together(const struct sparse_reference *reference, int rank, int other);
/* Words that every rank sends, and receives, in one call of srs. */
double sparse_reference_srs_words(const struct sparse_reference *reference);

/* The nearest number that `dtype` has, halves to even. */
double sparse_round(double value, trib_dtype dtype);

/* ------------------------------------------------------------------------------------- parts */

/* Where to choose the k largest: in [first, first + n), above `threshold` in magnitude. */
struct sparse_choice {
    size_t first, n;
    uint64_t k;
    double threshold;
};

/* picked[i] = 1 for the k largest of `values` that are not 0 and that `choice` allows: larger
 * first, then the lower index. Returns how many. `smallest`, if not NULL: the magnitude of the last
 * of them, 0 if there is none. */
uint64_t sparse_reference_top(struct sparse_reference *reference, const double *values,
                              struct sparse_choice choice, unsigned char *picked, double *smallest);
/* The whole tensor, and k. */
struct sparse_choice sparse_reference_all(const struct sparse_reference *reference);
/* How many of the `count` values are above in magnitude. */
uint64_t sparse_reference_above(const double *values, size_t count, double threshold);
/* Rank r sends wire(acc) where it picked; sum = their sum in rank order; support = their union. */
void sparse_reference_add_up(struct sparse_reference *reference);
/* residual = acc, less what was sent, where it was picked and lies in the support. */
void sparse_reference_update_residual(struct sparse_reference *reference);

/* By threshold (sparse_reference_fit.c), by tree (sparse_reference_tree.c). */
void sparse_reference_topkaopt(struct sparse_reference *reference);
void sparse_reference_gaussiank(struct sparse_reference *reference);
void sparse_reference_oktopk(struct sparse_reference *reference);
void sparse_reference_gtopk(struct sparse_reference *reference);
void sparse_reference_srs(struct sparse_reference *reference);
/* By host (reference_hosts.c). */
void sparse_reference_hier(struct sparse_reference *reference);

#endif
