/* chunk_select: the k largest of each chunk.
 *
 * One pass, chunk by chunk, while a chunk stays in a near cache. The floor of a chunk is guessed from
 * the one before; where it was too high the chunk is looked at again from 0. */
#include "kernels/cpu/top.h"

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
            tri_store_f32(out->value, out->dtype, slot + i, value);
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
    uint32_t seen = 0;
    for (size_t first = 0; first < acc->count; first += out->chunk) {
        const size_t left = acc->count - first, n = left < out->chunk ? left : out->chunk;
        struct tri_top top;
        void *const chunk = tri_at(tri_acc_of(acc), acc->dtype, first);
        if (accumulate)
            tri_cpu_sparse_make(acc, first, n, chunk);
        tri_top_begin(&top, scratch, n, out->k, acc->dtype,
                      out->k == 0 ? tri_key_last(acc->dtype) : 0);
        tri_top_show(&top, chunk, n, 0);
        tri_top_cut(&top);
        emit(acc, &top, clear, out, first);
        seen += top.nonfinite;
    }
    if (nonfinite != NULL)
        *nonfinite = seen;
    return TRIB_OK;
}
