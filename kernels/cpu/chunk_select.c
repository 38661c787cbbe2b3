/* chunk_select: the k largest of each chunk.
 *
 * One pass, chunk by chunk, while a chunk stays in a near cache. The floor of a chunk is guessed
 * from the chunk before; where it was too high, the chunk is looked at again from 0. */
#include "kernels/cpu/top.h"

/* The floor of the next chunk: the k-th key of the last one, less a margin that follows the data:
 * wider after a miss, a little narrower where there were twice as many candidates as needed. */
struct guess {
    uint64_t kth, margin;
};

static uint64_t octave(trib_dtype dtype) /* keys from a number to its double */
{
    return dtype == TRIB_F64 ? UINT64_C(1) << 52 : UINT64_C(1) << 23;
}

static uint64_t floor_of(const struct guess *guess)
{
    return guess->kth > guess->margin ? guess->kth - guess->margin : 0;
}

static void learn(struct guess *guess, const struct tri_top *top, uint32_t candidates, bool missed)
{
    const uint64_t whole = octave(top->dtype);
    if (missed)
        guess->margin += guess->margin < whole ? guess->margin : 0;
    else if (candidates > 2 * top->k && guess->margin > whole / 64)
        guess->margin -= guess->margin / 8;
    guess->kth = candidates > top->k ? top->floor : 0;
}

/* The k largest of one chunk. */
static struct tri_top choose(const void *chunk, size_t n, uint32_t k, trib_dtype dtype,
                             void *scratch, struct guess *guess)
{
    struct tri_top top;
    const uint64_t floor = k == 0 ? tri_key_last(dtype) : floor_of(guess);
    tri_top_begin(&top, scratch, n, k, dtype, floor);
    tri_top_show(&top, chunk, n, 0);
    const uint32_t nonfinite = top.nonfinite;
    const bool missed = top.count < k && floor != 0;
    if (missed) {
        tri_top_begin(&top, scratch, n, k, dtype, 0);
        tri_top_show(&top, chunk, n, 0);
        top.nonfinite = nonfinite;
    }
    const uint32_t candidates = top.count;
    tri_top_cut(&top);
    learn(guess, &top, candidates, missed);
    return top;
}

/* Slots of one chunk: what was found, then empty ones. */
static void emit(const struct tri_accumulator *acc, const struct tri_top *top, bool clear,
                 const struct tri_chunks *out, size_t first)
{
    const size_t slot = first / out->chunk * out->k;
    float *const made_f32 = (float *)tri_acc_of(acc) + (acc->dtype == TRIB_F64 ? 0 : first);
    double *const made_f64 = (double *)tri_acc_of(acc) + (acc->dtype == TRIB_F64 ? first : 0);
    for (uint32_t i = 0; i < out->k; i++) {
        const uint32_t at = i < top->count ? top->index[i] : 0;
        out->index[slot + i] = (uint16_t)at;
        if (acc->dtype == TRIB_F64) {
            const double value = i < top->count ? ((const double *)top->value)[i] : 0;
            tri_store_f64(out->value, out->dtype, slot + i, value);
            if (clear && i < top->count)
                made_f64[at] -= tri_load_f64(out->value, out->dtype, slot + i);
        } else {
            const float value = i < top->count ? ((const float *)top->value)[i] : 0;
            tri_store_entry_f32(out->value, out->dtype, slot + i, value);
            if (clear && i < top->count)
                made_f32[at] -= tri_load_f32(out->value, out->dtype, slot + i);
        }
    }
}

trib_status tri_cpu_sparse_chunk_select(const struct tri_accumulator *acc, bool accumulate,
                                        bool clear, const struct tri_chunks *out,
                                        uint32_t *nonfinite, void *scratch, trib_stream stream)
{
    (void)stream;
    struct guess guess = {.margin = octave(acc->dtype) / 8};
    uint32_t seen = 0;
    for (size_t first = 0; first < acc->count; first += out->chunk) {
        const size_t left = acc->count - first, n = left < out->chunk ? left : out->chunk;
        void *const chunk = tri_at(tri_acc_of(acc), acc->dtype, first);
        if (accumulate)
            tri_cpu_sparse_make(acc, first, n, chunk);
        const struct tri_top top = choose(chunk, n, out->k, acc->dtype, scratch, &guess);
        emit(acc, &top, clear, out, first);
        seen += top.nonfinite;
    }
    if (nonfinite != NULL)
        *nonfinite = seen;
    return TRIB_OK;
}
