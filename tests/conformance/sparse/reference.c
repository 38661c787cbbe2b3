/* What sparse allreduces should give, by definition: those that cut by count alone. */
#include "tests/conformance/sparse/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct sparse_ranked {
    double magnitude;
    size_t index;
};

/* ------------------------------------------------------------------------------------- memory */

static void *need(size_t n, size_t size)
{
    void *memory = calloc(n + 1, size);
    if (memory == NULL)
        abort();
    return memory;
}

void sparse_reference_create(struct sparse_reference *reference)
{
    const size_t n = reference->count;
    for (int rank = 0; rank < reference->size; rank++) {
        reference->residual[rank] = need(n, sizeof(double));
        reference->picked[rank] = need(n, 1);
    }
    reference->sum = need(n, sizeof(double));
    reference->support = need(n, 1);
    reference->sent = need(n, (size_t)reference->size * sizeof(double));
    reference->room = need(n, sizeof(double));
    reference->order = need(n, sizeof *reference->order);
}

void sparse_reference_destroy(struct sparse_reference *reference)
{
    for (int rank = 0; rank < reference->size; rank++) {
        free(reference->residual[rank]);
        free(reference->picked[rank]);
    }
    free(reference->sum);
    free(reference->support);
    free(reference->sent);
    free(reference->room);
    free(reference->order);
}

/* ------------------------------------------------------------------------------------ numbers */

/* In the range of normal numbers. */
static double power_of_two(int exponent)
{
    const uint64_t bits = (uint64_t)(1023 + exponent) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return power;
}

/* `digits` of a significand, the smallest power of two in use, the largest finite number. */
static double nearest(double value, int digits, int lowest, double largest)
{
    int exponent;
    if (value == 0 || !isfinite(value))
        return value;
    (void)frexp(value, &exponent);
    const int unit = exponent - digits > lowest ? exponent - digits : lowest;
    const double near = nearbyint(value * power_of_two(-unit)) * power_of_two(unit);
    return fabs(near) > largest ? copysign(INFINITY, value) : near;
}

double sparse_round(double value, trib_dtype dtype)
{
    switch (dtype) {
    case TRIB_F16:
        return nearest(value, 11, -24, 65504);
    case TRIB_BF16:
        return nearest(value, 8, -133, 0x1.fep127);
    case TRIB_F32:
        return (float)value;
    default:
        return value;
    }
}

/* ---------------------------------------------------------------------------------- selection */

static bool before(const struct sparse_ranked *a, const struct sparse_ranked *b)
{
    return a->magnitude != b->magnitude ? a->magnitude > b->magnitude : a->index < b->index;
}

static void swap(struct sparse_ranked *a, struct sparse_ranked *b)
{
    const struct sparse_ranked kept = *a;
    *a = *b;
    *b = kept;
}

/* The first k of `n` come to the front, in any order: quickselect. */
static void partition(struct sparse_ranked *order, size_t n, size_t k)
{
    size_t begin = 0, end = n;
    while (end - begin > 1) {
        size_t last = begin;
        swap(&order[begin], &order[begin + (end - begin) / 2]);
        for (size_t i = begin + 1; i < end; i++)
            if (before(&order[i], &order[begin]))
                swap(&order[++last], &order[i]);
        swap(&order[begin], &order[last]);
        if (last == k || last + 1 == k)
            return;
        if (last < k)
            begin = last + 1;
        else
            end = last;
    }
}

uint64_t sparse_reference_top(struct sparse_reference *reference, const double *values,
                              struct sparse_choice choice, unsigned char *picked, double *smallest)
{
    struct sparse_ranked *order = reference->order;
    size_t above = 0;
    double least = 0;
    memset(picked + choice.first, 0, choice.n);
    for (size_t i = choice.first; i < choice.first + choice.n; i++)
        if (fabs(values[i]) > choice.threshold)
            order[above++] = (struct sparse_ranked){fabs(values[i]), i};
    if (above > choice.k)
        partition(order, above, (size_t)choice.k);
    const uint64_t chosen = above < choice.k ? above : choice.k;
    for (size_t i = 0; i < chosen; i++) {
        picked[order[i].index] = 1;
        least = i == 0 || order[i].magnitude < least ? order[i].magnitude : least;
    }
    if (smallest != NULL)
        *smallest = least;
    return chosen;
}

struct sparse_choice sparse_reference_all(const struct sparse_reference *reference)
{
    return (struct sparse_choice){.n = reference->count, .k = reference->k};
}

uint64_t sparse_reference_above(const double *values, size_t count, double threshold)
{
    uint64_t above = 0;
    for (size_t i = 0; i < count; i++)
        above += fabs(values[i]) > threshold;
    return above;
}

void sparse_reference_add_up(struct sparse_reference *reference)
{
    for (size_t i = 0; i < reference->count; i++) {
        reference->sum[i] = 0;
        reference->support[i] = 0;
        for (int rank = 0; rank < reference->size; rank++) {
            double *sent = &reference->sent[(size_t)rank * reference->count + i];
            *sent = 0;
            if (!reference->picked[rank][i])
                continue;
            *sent = sparse_round(reference->acc[rank][i], reference->wire);
            reference->sum[i] = sparse_round(reference->sum[i] + *sent, reference->acc_dtype);
            reference->support[i] = 1;
        }
    }
}

void sparse_reference_update_residual(struct sparse_reference *reference)
{
    for (int rank = 0; rank < reference->size; rank++) {
        const double *acc = reference->acc[rank];
        const double *sent = reference->sent + (size_t)rank * reference->count;
        reference->applied[rank] = 0;
        for (size_t i = 0; i < reference->count; i++) {
            const bool gone = reference->picked[rank][i] && reference->support[i];
            reference->applied[rank] += gone;
            reference->residual[rank][i] = gone ? acc[i] - sent[i] : acc[i];
        }
    }
}

/* Leave only the k largest of the sum. */
static void cut_sum(struct sparse_reference *reference)
{
    memcpy(reference->room, reference->sum, reference->count * sizeof(double));
    sparse_reference_top(reference, reference->room, sparse_reference_all(reference),
                         reference->support, NULL);
    for (size_t i = 0; i < reference->count; i++)
        if (!reference->support[i])
            reference->sum[i] = 0;
}

static void each_top(struct sparse_reference *reference)
{
    for (int rank = 0; rank < reference->size; rank++)
        reference->selected[rank] =
            sparse_reference_top(reference, reference->acc[rank], sparse_reference_all(reference),
                                 reference->picked[rank], NULL);
}

/* --------------------------------------------------------------------------------- algorithms */

/* Choose nothing: everything goes, rounded or not. */
static void everything(struct sparse_reference *reference)
{
    for (int rank = 0; rank < reference->size; rank++) {
        memset(reference->picked[rank], 1, reference->count);
        reference->selected[rank] = reference->count;
    }
    const trib_dtype wire = reference->wire;
    reference->wire = reference->narrow ? TRIB_BF16 : reference->acc_dtype;
    sparse_reference_add_up(reference);
    for (size_t i = 0; i < reference->count && reference->narrow; i++)
        reference->sum[i] = sparse_round(reference->sum[i], TRIB_BF16);
    reference->wire = wire;
    sparse_reference_update_residual(reference);
}

/* topka; topksa and gaussianksa take another way to the same sums. */
static void topka(struct sparse_reference *reference)
{
    each_top(reference);
    sparse_reference_add_up(reference);
    sparse_reference_update_residual(reference);
}

/* topka2; the exact mode of oktopk takes another way to it. */
static void topka2(struct sparse_reference *reference)
{
    each_top(reference);
    sparse_reference_add_up(reference);
    cut_sum(reference);
    sparse_reference_update_residual(reference);
}

/* The leader's indices, everybody's values: those that are 0, too. The wire type is not used. */
static void shared(struct sparse_reference *reference)
{
    reference->wire = reference->acc_dtype;
    const int leader = (int)(reference->step % (uint64_t)reference->size);
    const uint64_t chosen =
        sparse_reference_top(reference, reference->acc[leader], sparse_reference_all(reference),
                             reference->picked[leader], NULL);
    for (int rank = 0; rank < reference->size; rank++) {
        if (rank != leader)
            memcpy(reference->picked[rank], reference->picked[leader], reference->count);
        reference->selected[rank] = chosen;
    }
    sparse_reference_add_up(reference);
    sparse_reference_update_residual(reference);
}

uint64_t sparse_reference_chunk_k(const struct sparse_reference *reference)
{
    const uint64_t n = reference->count, chunk = reference->chunk < n ? reference->chunk : n;
    if (reference->k == 0 || n == 0)
        return 0;
    const uint64_t part = (2 * chunk * reference->k + n) / (2 * n);
    return part > 0 ? part : 1;
}

const char *sparse_reference_algorithm(const struct sparse_reference *reference)
{
    return reference->k == reference->count ? "dense" : reference->algorithm;
}

uint64_t sparse_reference_k(const struct sparse_reference *reference, int rank)
{
    if (strcmp(sparse_reference_algorithm(reference), "dense") == 0)
        return reference->count;
    uint64_t k = reference->k;
    if (strcmp(reference->algorithm, "hier") == 0)
        return sparse_reference_shard(reference, rank).k;
    if (strcmp(reference->algorithm, "srs") == 0)
        k = sparse_reference_share(reference) * (uint64_t)reference->size;
    if (strcmp(reference->algorithm, "chunked") == 0) {
        const size_t each = sparse_reference_chunk_k(reference);
        k = 0;
        for (size_t first = 0; first < reference->count; first += reference->chunk)
            k += reference->count - first < each ? reference->count - first : each;
    }
    return k < reference->count ? k : reference->count;
}

static void chunked(struct sparse_reference *reference)
{
    const size_t n = reference->count, chunk = reference->chunk;
    for (int rank = 0; rank < reference->size; rank++) {
        reference->selected[rank] = 0;
        for (size_t first = 0; first < n; first += chunk) {
            const struct sparse_choice choice = {.first = first,
                                                 .n = n - first < chunk ? n - first : chunk,
                                                 .k = sparse_reference_chunk_k(reference)};
            reference->selected[rank] += sparse_reference_top(
                reference, reference->acc[rank], choice, reference->picked[rank], NULL);
        }
    }
    sparse_reference_add_up(reference);
    sparse_reference_update_residual(reference);
}

bool sparse_reference_exact(const char *algorithm, const char *constants)
{
    return strncmp(algorithm, "gaussiank", 10) != 0 && strcmp(algorithm, "gaussiankconcat") != 0 &&
           strcmp(algorithm, "topkaopt") != 0 &&
           (strcmp(algorithm, "oktopk") != 0 || constants == NULL);
}

static const struct {
    const char *name;
    void (*step)(struct sparse_reference *reference);
} algorithms[] = {{"dense", everything},
                  {"topka", topka},
                  {"topka2", topka2},
                  {"topkaopt", sparse_reference_topkaopt},
                  {"topksa", topka},
                  {"gtopk", sparse_reference_gtopk},
                  {"gaussiank", sparse_reference_gaussiank},
                  {"gaussiankconcat", sparse_reference_gaussiank},
                  {"gaussianksa", topka},
                  {"srs", sparse_reference_srs},
                  {"shared", shared},
                  {"chunked", chunked},
                  {"hier", sparse_reference_hier}};

bool sparse_reference_step(struct sparse_reference *reference)
{
    const char *name = sparse_reference_algorithm(reference);
    void (*step)(struct sparse_reference *) = NULL;
    for (size_t i = 0; i < sizeof algorithms / sizeof *algorithms; i++)
        if (strcmp(algorithms[i].name, name) == 0)
            step = algorithms[i].step;
    if (strcmp(name, "oktopk") == 0)
        step = reference->constants == NULL ? topka2 : sparse_reference_oktopk;
    if (step == NULL)
        return false;
    step(reference);
    reference->step++;
    reference->since++;
    return true;
}

void sparse_reference_skip(struct sparse_reference *reference)
{
    reference->step++;
    reference->since++;
}

void sparse_reference_undo(struct sparse_reference *reference,
                           const struct sparse_reference *before)
{
    memcpy(reference->local, before->local, sizeof reference->local);
    reference->global = before->global;
}

static void begin_anew(struct sparse_reference *reference)
{
    reference->since = 0;
    memset(reference->local, 0, sizeof reference->local);
    memset(reference->known, 0, sizeof reference->known);
    reference->global = 0;
    memset(reference->idle, 0, sizeof reference->idle);
    reference->idle_sums = 0;
}

void sparse_reference_set_k(struct sparse_reference *reference, uint64_t k)
{
    reference->k = k < reference->count ? k : reference->count;
    begin_anew(reference);
}

void sparse_reference_reset(struct sparse_reference *reference)
{
    reference->step = 0;
    begin_anew(reference);
}
