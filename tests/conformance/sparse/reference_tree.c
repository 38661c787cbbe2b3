/* What sparse allreduces should give, by definition: those whose result depends on which ranks
 * merge. Trees and blocks are those that csrc/sparse/algorithms/gtopk.c and srs.c document at their
 * heads. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/sparse/reference.h"

/* What one rank holds on the way: sums, dense. A sum of 0 is not held. */
struct held {
    double *sum;
    unsigned char *marked;
};

static void *need(size_t n, size_t size)
{
    void *memory = calloc(n + 1, size);
    if (memory == NULL)
        abort();
    return memory;
}

static struct held *hold(const struct sparse_reference *reference)
{
    struct held *held = need((size_t)reference->size, sizeof *held);
    for (int rank = 0; rank < reference->size; rank++)
        held[rank] =
            (struct held){need(reference->count, sizeof(double)), need(reference->count, 1)};
    return held;
}

static void let_go(const struct sparse_reference *reference, struct held *held)
{
    for (int rank = 0; rank < reference->size; rank++) {
        free(held[rank].sum);
        free(held[rank].marked);
    }
    free(held);
}

/* Each rank's chosen values, as they travel. */
static void begin(struct sparse_reference *reference, struct held *held)
{
    for (int rank = 0; rank < reference->size; rank++)
        for (size_t i = 0; i < reference->count; i++) {
            double *sent = &reference->sent[(size_t)rank * reference->count + i];
            *sent = reference->picked[rank][i]
                        ? sparse_round(reference->acc[rank][i], reference->wire)
                        : 0;
            held[rank].sum[i] = *sent;
        }
}

/* Of the sums that `self` holds in [first, first + n) keep the k largest; the others are its to
 * give back: they wait in `dropped`. */
static void cut(struct sparse_reference *reference, struct held *self, double *dropped,
                size_t first, size_t n, uint64_t k)
{
    const struct sparse_choice choice = {.first = first, .n = n, .k = k};
    sparse_reference_top(reference, self->sum, choice, self->marked, NULL);
    for (size_t i = first; i < first + n; i++)
        if (!self->marked[i]) {
            dropped[i] = self->sum[i];
            self->sum[i] = 0;
        }
}

static void add(const struct sparse_reference *reference, struct held *to, const struct held *from,
                size_t first, size_t n)
{
    for (size_t i = first; i < first + n; i++)
        to->sum[i] = sparse_round(to->sum[i] + from->sum[i], reference->acc_dtype);
}

/* The result is known: what was chosen leaves the residuals where it is in it. */
static void update_residual(struct sparse_reference *reference)
{
    for (size_t i = 0; i < reference->count; i++)
        reference->support[i] = reference->sum[i] != 0;
    sparse_reference_update_residual(reference);
}

/* What was dropped, at most once at each index, comes back at the indices of the result. */
static void give_back(struct sparse_reference *reference, const struct held *dropped)
{
    for (int rank = 0; rank < reference->size; rank++)
        for (size_t i = 0; i < reference->count; i++)
            if (reference->support[i])
                reference->residual[rank][i] = sparse_round(
                    reference->residual[rank][i] + dropped[rank].sum[i], reference->acc_dtype);
}

/* -------------------------------------------------------------------------------------- gtopk */

static void merge_pair(struct sparse_reference *reference, struct held *held, struct held *dropped,
                       int to, int from)
{
    add(reference, &held[to], &held[from], 0, reference->count);
    cut(reference, &held[to], dropped[to].sum, 0, reference->count, reference->k);
}

void sparse_reference_gtopk(struct sparse_reference *reference)
{
    struct held *held = hold(reference), *dropped[8]; /* one per round */
    int power = 1, rounds = 0;
    while (2 * power <= reference->size)
        power *= 2;
    for (int rank = 0; rank < reference->size; rank++)
        reference->selected[rank] =
            sparse_reference_top(reference, reference->acc[rank], sparse_reference_all(reference),
                                 reference->picked[rank], NULL);
    begin(reference, held);
    dropped[rounds++] = hold(reference);
    for (int rank = 0; power + rank < reference->size; rank++)
        merge_pair(reference, held, dropped[0], rank, power + rank);
    for (int s = 1; s < power; s *= 2) {
        dropped[rounds++] = hold(reference);
        for (int rank = 0; rank < power; rank += 2 * s)
            merge_pair(reference, held, dropped[rounds - 1], rank, rank + s);
    }
    memcpy(reference->sum, held[0].sum, reference->count * sizeof(double));
    update_residual(reference);
    for (int round = 0; round < rounds; round++) {
        give_back(reference, dropped[round]);
        let_go(reference, dropped[round]);
    }
    let_go(reference, held);
}

/* ---------------------------------------------------------------------------------------- srs */

uint64_t sparse_reference_share(const struct sparse_reference *reference)
{
    const uint64_t size = (uint64_t)reference->size;
    return reference->k == 0 ? 0 : reference->k / size > 0 ? reference->k / size : 1;
}

static size_t bound(const struct sparse_reference *reference, int block)
{
    return (size_t)block * reference->count / (size_t)reference->size;
}

/* Blocks on their way: which have something that arrived in them, and what was dropped. */
struct journey {
    struct sparse_reference *reference;
    struct held *held, *dropped;
    unsigned char *arrived; /* rank * size + block */
};

static void leave(struct journey *journey, int rank, int block)
{
    struct sparse_reference *reference = journey->reference;
    const size_t first = bound(reference, block), n = bound(reference, block + 1) - first;
    if (journey->arrived[rank * reference->size + block])
        cut(reference, &journey->held[rank], journey->dropped[rank].sum, first, n,
            sparse_reference_share(reference));
}

static void move(struct journey *journey, int from, int to, int block)
{
    const struct sparse_reference *reference = journey->reference;
    const size_t first = bound(reference, block), n = bound(reference, block + 1) - first;
    add(reference, &journey->held[to], &journey->held[from], first, n);
    memset(journey->held[from].sum + first, 0, n * sizeof(double));
    journey->arrived[to * reference->size + block] = 1;
}

static void travel(struct journey *journey)
{
    const int size = journey->reference->size;
    int distance = 1;
    while (distance < size)
        distance *= 2;
    for (int below = size; (distance /= 2) >= 1; below = distance) {
        for (int rank = 0; rank < size; rank++)
            for (int offset = distance; offset < below; offset++)
                leave(journey, rank, (rank + offset) % size);
        for (int rank = 0; rank < size; rank++)
            for (int offset = distance; offset < below; offset++)
                move(journey, rank, (rank + distance) % size, (rank + offset) % size);
    }
    for (int rank = 0; rank < size; rank++)
        leave(journey, rank, rank);
}

void sparse_reference_srs(struct sparse_reference *reference)
{
    const int size = reference->size;
    struct journey journey = {reference, hold(reference), hold(reference),
                              need((size_t)size, (size_t)size)};
    for (int rank = 0; rank < size; rank++) {
        reference->selected[rank] = 0;
        for (int block = 0; block < size; block++) {
            const size_t first = bound(reference, block);
            const struct sparse_choice choice = {.first = first,
                                                 .n = bound(reference, block + 1) - first,
                                                 .k = sparse_reference_share(reference)};
            reference->selected[rank] += sparse_reference_top(
                reference, reference->acc[rank], choice, reference->picked[rank], NULL);
        }
    }
    begin(reference, journey.held);
    travel(&journey);
    for (int rank = 0; rank < size; rank++)
        memcpy(reference->sum + bound(reference, rank),
               journey.held[rank].sum + bound(reference, rank),
               (bound(reference, rank + 1) - bound(reference, rank)) * sizeof(double));
    update_residual(reference);
    give_back(reference, journey.dropped);
    let_go(reference, journey.held);
    let_go(reference, journey.dropped);
    free(journey.arrived);
}

double sparse_reference_srs_words(const struct sparse_reference *reference)
{
    const double sums = 1 + (double)trib_dtype_size(reference->acc_dtype) / 4,
                 first = 1 + (double)trib_dtype_size(reference->wire) / 4;
    double words = (double)sparse_reference_share(reference) * (reference->size - 1) * sums;
    int distance = 1;
    while (distance < reference->size)
        distance *= 2;
    for (int below = reference->size; (distance /= 2) >= 1; below = distance)
        words += ceil((double)sparse_reference_share(reference) * (below - distance) *
                      (below == reference->size ? first : sums));
    return words;
}
