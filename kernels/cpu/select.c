/* select: the k largest of a range, above a threshold.
 *
 * One pass, block by block in the nearest cache: acc is made, and what lies above a guessed floor
 * becomes a candidate. The guess comes from a sample and aims at somewhat more than k. Too low, and the
 * candidates are cut on the way (top.h); too high, and a second pass starts from the threshold. */
#include "kernels/cpu/top.h"

enum { BLOCK = 2048 };

static uint64_t threshold_key(const struct tri_selection *selection, trib_dtype dtype)
{
    return selection->threshold == NULL ? 0 : tri_key_at(selection->threshold, dtype, 0);
}

static void pass(const struct tri_accumulator *acc, const struct tri_selection *selection,
                 struct tri_top *top, bool accumulate)
{
    const void *made = tri_acc_of(acc);
    for (size_t i = 0; i < selection->count; i += BLOCK) {
        const size_t left = selection->count - i, n = left < BLOCK ? left : BLOCK;
        const size_t first = selection->first + i;
        if (accumulate)
            tri_cpu_sparse_make(acc, first, n);
        tri_top_show(top, tri_at(made, acc->dtype, first), n, (uint32_t)first);
    }
}

static uint64_t guess_floor(const struct tri_selection *selection, trib_dtype dtype,
                            uint64_t least)
{
    if (selection->guess == TRI_GUESS_HIGH)
        return tri_key_last(dtype);
    return least;
}

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
            tri_store_f32(out->value, out->dtype, i, ((const float *)top->value)[i]);
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

trib_status tri_cpu_sparse_select(const struct tri_accumulator *acc,
                                  const struct tri_selection *selection,
                                  const struct tri_entries *out, void *scratch,
                                  trib_stream stream)
{
    (void)stream;
    const uint32_t k =
        selection->k < selection->count ? selection->k : (uint32_t)selection->count;
    const uint64_t least =
        k == 0 ? tri_key_last(acc->dtype) : threshold_key(selection, acc->dtype);
    const uint64_t guess = guess_floor(selection, acc->dtype, least);
    struct tri_top top;
    tri_top_begin(&top, scratch, selection->count, k, acc->dtype, guess);
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
    if (selection->nonfinite != NULL)
        *selection->nonfinite = nonfinite;
    if (selection->fallbacks != NULL)
        *selection->fallbacks += missed;
    return TRIB_OK;
}
