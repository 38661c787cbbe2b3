/* select: the k largest of a range, above a threshold.
 *
 * The meaning: take the indices i with |acc[i]| > |threshold|, by |acc[i]| descending, then by i
 * ascending; the first k are selected; write (i, acc[i] as out's type) for them by i ascending.
 * (Magnitudes compare as keys: kernels/sparse.h.)
 *
 * One pass, block by block in the nearest cache, makes acc and collects the elements above
 * a guessed floor as candidates. The guess comes from a sample; somewhat more than k should reach
 * it. If it is too low, the candidates are cut on the way (top.h); if it is too high, a second pass
 * starts at the threshold. */
#include <math.h>

#include "kernels/cpu/top.h"

enum {
    BLOCK = 2048,
    SAMPLE = 16,         /* elements that lie together */
    MOST_STRATA = 16384, /* such samples, one in each of so many equal parts */
    SAMPLE_BITS = 16     /* of a key that are looked at */
};

static uint64_t threshold_key(const struct tri_selection *selection, trib_dtype dtype)
{
    return selection->threshold == NULL ? 0 : tri_key_at(selection->threshold, dtype, 0);
}

static void pass(const struct tri_accumulator *acc, const struct tri_selection *selection,
                 struct tri_top *top, bool accumulate)
{
    for (size_t i = 0; i < selection->count; i += BLOCK) {
        const size_t left = selection->count - i, n = left < BLOCK ? left : BLOCK;
        const size_t first = selection->first + i;
        void *const made = tri_at(tri_acc_of(acc), acc->dtype, first);
        if (accumulate)
            tri_cpu_sparse_make(acc, first, n, made);
        tri_top_show(top, made, n, (uint32_t)first);
    }
}

/* ---- the guess */

/* Somewhere in stratum `s` of `strata`: the same place in every run. */
static size_t sample_place(const struct tri_selection *selection, uint32_t s, uint32_t strata)
{
    const size_t width = selection->count / strata;
    const uint32_t hash = (s + 1) * 2654435761u;
    return selection->first + s * width + (hash ^ hash >> 15) % (width - SAMPLE + 1);
}

/* histogram[b]: the number of sampled keys with the upper bits b. */
static void sample(const struct tri_accumulator *acc, const struct tri_selection *selection,
                   uint32_t strata, uint32_t *histogram)
{
    const int shift = (acc->dtype == TRIB_F64 ? 63 : 31) - SAMPLE_BITS;
    double room[SAMPLE];
    memset(histogram, 0, sizeof *histogram << SAMPLE_BITS);
    for (uint32_t s = 0; s < strata; s++) {
        const size_t first = sample_place(selection, s, strata);
        void *const made =
            selection->accumulate ? room : tri_at(tri_acc_of(acc), acc->dtype, first);
        if (selection->accumulate)
            tri_cpu_sparse_make(acc, first, SAMPLE, room);
        for (size_t i = 0; i < SAMPLE; i++)
            histogram[tri_key_at(made, acc->dtype, i) >> shift]++;
    }
}

/* A floor above which lie probably somewhat more than k: of the sample, as many as belong to k and
 * then six times their deviation, for samples lie in clusters. */
static uint64_t sampled_floor(const struct tri_accumulator *acc,
                              const struct tri_selection *selection, uint32_t k,
                              uint32_t *histogram)
{
    const int shift = (acc->dtype == TRIB_F64 ? 63 : 31) - SAMPLE_BITS;
    const size_t most = selection->count / (16 * SAMPLE);
    const uint32_t strata = most < MOST_STRATA ? (uint32_t)most : MOST_STRATA;
    const double expected = (double)strata * SAMPLE * k / (double)selection->count;
    const double wanted = 1.05 * expected + 6 * sqrt(expected);
    uint32_t bin = 1u << SAMPLE_BITS, found = 0;
    sample(acc, selection, strata, histogram);
    while (bin > 0 && found < wanted)
        found += histogram[--bin];
    return bin == 0 ? 0 : ((uint64_t)bin << shift) - 1;
}

/* `least` if all that lies above it has room, or if one cannot say more. */
static uint64_t guess_floor(const struct tri_accumulator *acc,
                            const struct tri_selection *selection, const struct tri_top *top,
                            uint64_t least)
{
    if (selection->guess == TRI_GUESS_HIGH)
        return tri_key_last(acc->dtype);
    if (selection->guess == TRI_GUESS_LOW || top->k == 0 || selection->count < top->capacity)
        return least;
    const uint64_t floor = sampled_floor(acc, selection, top->k, top->value);
    return floor > least ? floor : least;
}

/* ---- the result */

/* Write what was found, and take it out of acc. */
static void emit(const struct tri_accumulator *acc, const struct tri_selection *selection,
                 const struct tri_top *top, const struct tri_entries *out)
{
    float *made_f32 = tri_acc_of(acc);
    double *made_f64 = tri_acc_of(acc);
    for (uint32_t i = 0; i < top->count; i++) {
        const uint32_t index = top->index[i];
        out->index[i] = index;
        if (acc->dtype == TRIB_F64) {
            tri_store_f64(out->value, out->dtype, i, ((const double *)top->value)[i]);
            if (selection->clear)
                made_f64[index] -= tri_load_f64(out->value, out->dtype, i);
        } else {
            tri_store_entry_f32(out->value, out->dtype, i, ((const float *)top->value)[i]);
            if (selection->clear)
                made_f32[index] -= tri_load_f32(out->value, out->dtype, i);
        }
    }
    tri_entries_set_count(out, top->count);
}

/* The smallest magnitude that was selected, 0 if there is none. */
static void store_kth(const struct tri_top *top, void *kth)
{
    uint64_t least = top->count == 0 ? 0 : tri_key_last(top->dtype);
    for (uint32_t i = 0; i < top->count; i++) {
        const uint64_t key = tri_key_at(top->value, top->dtype, i);
        least = key < least ? key : least;
    }
    const uint32_t least_f32 = (uint32_t)least;
    memcpy(kth, top->dtype == TRIB_F64 ? (const void *)&least : (const void *)&least_f32,
           trib_dtype_size(top->dtype));
}

size_t tri_cpu_sparse_select_scratch(size_t count, uint32_t k, trib_dtype dtype)
{
    return tri_top_bytes(count, k, dtype);
}

trib_status tri_cpu_sparse_select(const struct tri_accumulator *acc,
                                  const struct tri_selection *selection,
                                  const struct tri_entries *out, void *scratch, trib_stream stream)
{
    (void)stream;
    const uint32_t k = selection->k < selection->count ? selection->k : (uint32_t)selection->count;
    const uint64_t least = k == 0 ? tri_key_last(acc->dtype) : threshold_key(selection, acc->dtype);
    struct tri_top top;
    tri_sign(selection->signing);
    tri_top_begin(&top, scratch, selection->count, k, acc->dtype, least);
    const uint64_t guess = top.floor = guess_floor(acc, selection, &top, least);
    pass(acc, selection, &top, selection->accumulate);
    const uint32_t nonfinite = top.nonfinite;
    bool missed = top.full;
    if (top.count < k && guess > least) {
        missed = true;
        tri_top_begin(&top, scratch, selection->count, k, acc->dtype, least);
        pass(acc, selection, &top, false);
    }
    tri_top_cut(&top);
    emit(acc, selection, &top, out);
    if (selection->kth != NULL)
        store_kth(&top, selection->kth);
    tri_signed_nonfinite(selection->signing, nonfinite);
    if (selection->fallbacks != NULL)
        *selection->fallbacks += missed;
    return TRIB_OK;
}
