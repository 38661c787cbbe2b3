/* Is a step what it must be? All ranks' parts lie side by side, and nobody changes them. */
#include "tests/conformance/sparse/sparse.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/reference.h"

static _Atomic uint64_t judged;

uint64_t sparse_judged(void)
{
    return atomic_load(&judged);
}

static trib_dtype dtype_of(const struct sparse_trial *trial)
{
    return sparse_result_dtype(&trial->plan);
}

static double divisor(const struct sparse_trial *trial)
{
    return trial->plan.flags & TRIB_SPARSE_AVERAGE ? trial->team->size : 1;
}

/* What the residual is multiplied by after the call. */
static double decay_after(const struct sparse_trial *trial)
{
    return sparse_in_place(&trial->plan) && trial->plan.decay != 0
               ? sparse_round(trial->plan.decay, trial->reference.acc_dtype)
               : 1;
}

#define WRONG(trial, ...) wrong((trial), __LINE__, __VA_ARGS__)
static bool wrong(const struct sparse_trial *trial, int line, const char *what, int rank,
                  size_t index, double found, double expected)
{
    char plan[256];
    return check_that(false, __FILE__, line,
                      "%s, step %llu: %s, rank %d, element %zu: %.10g, not %.10g",
                      sparse_describe(&trial->plan, trial->team->size, plan, sizeof plan),
                      (unsigned long long)trial->step, what, rank, index, found, expected);
}

/* ------------------------------------------------------------------------- what always holds */

/* All ranks have the same bits. */
static bool agree(const struct sparse_trial *trial)
{
    const struct sparse_rank *first = &trial->ranks[0];
    const size_t n = trial->plan.count;
    for (int rank = 1; rank < trial->team->size; rank++) {
        const struct sparse_rank *other = &trial->ranks[rank];
        if (memcmp(other->applied, first->applied, n * sizeof(double)) != 0 ||
            memcmp(other->listed, first->listed, n) != 0)
            for (size_t i = 0; i < n; i++)
                if (memcmp(&other->applied[i], &first->applied[i], sizeof(double)) != 0 ||
                    other->listed[i] != first->listed[i])
                    return WRONG(trial, "result as on rank 0", rank, i, other->applied[i],
                                 first->applied[i]);
        if (other->status != first->status || other->outcome != first->outcome)
            return WRONG(trial, "status as on rank 0", rank, 0, other->status, first->status);
    }
    return true;
}

static bool sums_narrow(const struct sparse_reference *reference)
{
    return reference->narrow && strcmp(sparse_reference_algorithm(reference), "dense") == 0;
}

/* Nothing is lost: the sum of acc is the result and the residuals. No -0 in the result, unless all
 * of everybody's accumulator is added up as it is. */
static bool conserved(const struct sparse_trial *trial)
{
    const trib_dtype dtype = dtype_of(trial);
    if (trial->plan.input == SPARSE_FLOATS || trial->plan.clip != 0)
        return true; /* the sums themselves are rounded */
    const bool as_it_is = strcmp(sparse_reference_algorithm(&trial->reference), "dense") == 0 &&
                          sparse_in_place(&trial->plan);
    for (size_t i = 0; i < trial->plan.count; i++) {
        double gone = 0;
        for (int rank = 0; rank < trial->team->size; rank++)
            gone += trial->ranks[rank].acc[i] - trial->ranks[rank].residual[i] / decay_after(trial);
        if (sums_narrow(&trial->reference))
            gone = sparse_round(gone, TRIB_BF16);
        const double expected = sparse_round(gone / divisor(trial), dtype),
                     found = trial->ranks[0].applied[i];
        if (found != expected)
            return WRONG(trial, "what left the residuals is the result", 0, i, found, expected);
        if (found == 0 && signbit(found) && !as_it_is)
            return WRONG(trial, "-0 in the result", 0, i, found, 0);
    }
    return true;
}

/* ------------------------------------------------------------------------------ the reference */

/* Of the reference's step: does the type of the result hold it? */
static bool overflows(const struct sparse_trial *trial)
{
    for (size_t i = 0; i < trial->plan.count; i++)
        if (!isfinite(sparse_round(trial->reference.sum[i] / divisor(trial), dtype_of(trial))))
            return true;
    return false;
}

static bool as_defined(struct sparse_trial *trial)
{
    struct sparse_reference *reference = &trial->reference;
    const trib_dtype dtype = dtype_of(trial), acc = reference->acc_dtype;
    const double decay = decay_after(trial);
    for (size_t i = 0; i < trial->plan.count; i++) {
        const double expected = sparse_round(reference->sum[i] / divisor(trial), dtype);
        if (trial->ranks[0].applied[i] != expected)
            return WRONG(trial, "result", 0, i, trial->ranks[0].applied[i], expected);
        for (int rank = 0; rank < trial->team->size; rank++) {
            const double residual = decay == 1
                                        ? reference->residual[rank][i]
                                        : sparse_round(decay * reference->residual[rank][i], acc);
            if (trial->ranks[rank].residual[i] != residual)
                return WRONG(trial, "residual", rank, i, trial->ranks[rank].residual[i], residual);
        }
        if (!(trial->plan.flags & TRIB_SPARSE_ENTRIES))
            continue;
        if (trial->ranks[0].listed[i] > reference->support[i] ||
            (expected != 0 && !trial->ranks[0].listed[i]))
            return WRONG(trial, "listed", 0, i, trial->ranks[0].listed[i], reference->support[i]);
    }
    return true;
}

/* With momentum: what is left of the velocity. Masked where this rank has sent something that is in
 * the result, but never by dense; in place ready for the next gradient. */
static bool masked(const struct sparse_trial *trial)
{
    const struct sparse_reference *reference = &trial->reference;
    const trib_dtype acc = reference->acc_dtype;
    const bool masks = (trial->plan.flags & TRIB_SPARSE_NO_MASKING) == 0 &&
                       strcmp(sparse_reference_algorithm(reference), "dense") != 0;
    const bool in_place = trial->plan.flags & TRIB_SPARSE_IN_PLACE;
    const double factor = in_place ? sparse_round(trial->plan.momentum, acc) : 1;
    for (int rank = 0; rank < trial->team->size && trial->plan.momentum != 0; rank++) {
        const struct sparse_rank *self = &trial->ranks[rank];
        for (size_t i = 0; i < trial->plan.count; i++) {
            const bool gone = masks && reference->picked[rank][i] && reference->support[i];
            const double expected = gone ? 0 : sparse_round(factor * self->pushed[i], acc);
            if (self->left[i] != expected)
                return WRONG(trial, "velocity", rank, i, self->left[i], expected);
        }
    }
    return true;
}

/* What the wire rounds to 0 may count, or not. */
static bool is_vague(const struct sparse_trial *trial)
{
    return trial->plan.input == SPARSE_TINY && trial->plan.wire == TRIB_BF16;
}

static bool counted(const struct sparse_trial *trial)
{
    const struct sparse_reference *reference = &trial->reference;
    const bool vague = is_vague(trial);
    for (int rank = 0; rank < trial->team->size; rank++) {
        const trib_sparse_statistics *after = &trial->ranks[rank].after,
                                     *before = &trial->ranks[rank].before;
        if (after->calls != before->calls + 1 ||
            after->calls_applied != before->calls_applied + 1 ||
            after->calls_non_finite != before->calls_non_finite)
            return WRONG(trial, "calls counted", rank, 0, (double)after->calls,
                         (double)before->calls + 1);
        if (after->selected != reference->selected[rank] && !vague)
            return WRONG(trial, "selected", rank, 0, (double)after->selected,
                         (double)reference->selected[rank]);
        if (after->applied != reference->applied[rank] && !vague)
            return WRONG(trial, "applied", rank, 0, (double)after->applied,
                         (double)reference->applied[rank]);
        if (after->total_selected != before->total_selected + after->selected ||
            after->total_applied != before->total_applied + after->applied)
            return WRONG(trial, "totals", rank, 0, (double)after->total_selected,
                         (double)(before->total_selected + after->selected));
        if (after->count != trial->plan.count || after->k != sparse_reference_k(reference, rank) ||
            strcmp(after->algorithm, sparse_reference_algorithm(reference)) != 0)
            return WRONG(trial, "count and k", rank, 0, (double)after->k,
                         (double)sparse_reference_k(reference, rank));
        if (trial->ranks[rank].status != TRIB_OK || trial->ranks[rank].outcome != 1)
            return WRONG(trial, "status", rank, 0, trial->ranks[rank].status, TRIB_OK);
    }
    return true;
}

/* --------------------------------------------------------------------------- what must not be */

static bool finite(const struct sparse_trial *trial)
{
    for (int rank = 0; rank < trial->team->size; rank++)
        for (size_t i = 0; i < trial->plan.count; i++)
            if (!isfinite(trial->ranks[rank].acc[i]))
                return false;
    return true;
}

static bool same_but_calls(const trib_sparse_statistics *before,
                           const trib_sparse_statistics *after)
{
    trib_sparse_statistics expected = *before;
    expected.calls++;
    expected.calls_non_finite++;
    expected.size = after->size;
    expected.algorithm = after->algorithm;
    expected.reason = after->reason;
    expected.count = after->count;
    expected.k = after->k;
    expected.fallbacks = after->fallbacks;
    expected.residual_norm = after->residual_norm;
    return memcmp(&expected, after, sizeof expected) == 0;
}

static bool refused(struct sparse_trial *trial)
{
    const bool in_place = sparse_in_place(&trial->plan);
    const bool pushed = trial->plan.flags & TRIB_SPARSE_IN_PLACE && trial->plan.momentum != 0;
    for (int rank = 0; rank < trial->team->size; rank++) {
        const struct sparse_rank *self = &trial->ranks[rank];
        const double *expected = in_place ? self->acc : self->held;
        const double *velocity = pushed ? self->pushed : self->velocity;
        if (self->status != TRIB_ERR_NON_FINITE || self->outcome != 0)
            return WRONG(trial, "status of what is not finite", rank, 0, self->status,
                         TRIB_ERR_NON_FINITE);
        if (self->says_overflow != finite(trial))
            return WRONG(trial, "why the result is not finite", rank, 0, self->says_overflow,
                         finite(trial));
        if (!same_but_calls(&self->before, &self->after))
            return WRONG(trial, "statistics of what is not finite", rank, 0, 0, 0);
        for (size_t i = 0; i < trial->plan.count; i++) {
            if (self->applied[i] != 0 || signbit(self->applied[i]) || self->listed[i])
                return WRONG(trial, "result of what is not finite", rank, i, self->applied[i], 0);
            if (self->residual[i] != expected[i] &&
                !(isnan(self->residual[i]) && isnan(expected[i])))
                return WRONG(trial, "residual of what is not finite", rank, i, self->residual[i],
                             expected[i]);
            if (trial->plan.momentum != 0 && self->left[i] != velocity[i] &&
                !(isnan(self->left[i]) && isnan(velocity[i])))
                return WRONG(trial, "velocity of what is not finite", rank, i, self->left[i],
                             velocity[i]);
        }
    }
    return true;
}

/* The counts are those of the step: a state that was imported begins at 0. */
static uint64_t hash_of(const struct sparse_trial *trial, const struct sparse_rank *self)
{
    const trib_sparse_statistics *after = &self->after, *before = &self->before;
    const uint64_t known = is_vague(trial) ? 0 : 1;
    const uint64_t seen[] = {self->residual_hash,
                             self->outcome,
                             (uint64_t)self->status,
                             after->calls - before->calls,
                             after->calls_applied - before->calls_applied,
                             after->calls_non_finite - before->calls_non_finite,
                             known * (after->total_selected - before->total_selected),
                             known * (after->total_applied - before->total_applied)};
    uint64_t hash = sparse_hash(trial->step + 1, self->applied, trial->plan.count * sizeof(double));
    hash = sparse_hash(hash, self->listed, trial->plan.count);
    return sparse_hash(hash, seen, sizeof seen);
}

static uint64_t words_of(const struct sparse_trial *trial, const struct sparse_rank *self)
{
    return is_vague(trial) ? 0
                           : self->after.words_sent - self->before.words_sent +
                                 self->after.words_received - self->before.words_received;
}

static void remember(struct sparse_trial *trial)
{
    if (trial->step >= SPARSE_STEPS)
        return;
    for (int rank = 0; rank < trial->team->size; rank++) {
        if (!team_has(trial->team, rank))
            continue;
        trial->trace[trial->step].hash[rank] = hash_of(trial, &trial->ranks[rank]);
        trial->trace[trial->step].words[rank] = words_of(trial, &trial->ranks[rank]);
    }
}

bool sparse_judge(struct sparse_trial *trial)
{
    if (trial->team->apart) {
        trial->poisoned = trial->ranks[trial->team->own].outcome == 0;
        remember(trial);
        return true;
    }
    atomic_fetch_add(&judged, (uint64_t)trial->team->size);
    trial->poisoned = !finite(trial);
    if (!agree(trial))
        return false;
    remember(trial);
    if (trial->poisoned) {
        sparse_reference_skip(&trial->reference);
    } else {
        const struct sparse_reference before = trial->reference;
        if (!CHECK(sparse_reference_step(&trial->reference)))
            return false;
        trial->poisoned = overflows(trial);
        if (trial->poisoned)
            sparse_reference_undo(&trial->reference, &before);
    }
    if (trial->poisoned)
        return refused(trial);
    /* & and not &&: what a reader wants to know first is whether mass was lost. */
    return conserved(trial) & as_defined(trial) && masked(trial) && counted(trial) &&
           sparse_judge_volume(trial);
}
