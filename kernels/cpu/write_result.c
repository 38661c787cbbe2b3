/* write_entries, write_dense: sums become the result, divided and rounded once.
 *
 * The divisor is rounded to the type of the sums first. */
#include "kernels/cpu/sparse_cpu.h"

enum { BLOCK = 2048 };

/* One loop for each pair of types, so that the compiler can vectorise those of one width.
 * Returns the greatest key of a quotient. */
#define DEFINE_DIVIDE(name, real, key, key_of)                                                     \
    static key name(real *out, const real *sum, size_t n, real divisor)                            \
    {                                                                                              \
        key greatest = 0;                                                                          \
        for (size_t i = 0; i < n; i++) {                                                           \
            out[i] = sum[i] / divisor;                                                             \
            const key found = (key)key_of(out[i]);                                                 \
            greatest = found > greatest ? found : greatest;                                        \
        }                                                                                          \
        return greatest;                                                                           \
    }
DEFINE_DIVIDE(divide_f32, float, int32_t, tri_key_f32)
DEFINE_DIVIDE(divide_f64, double, int64_t, tri_key_f64)

/* Values of lists and results may also be narrow: by way of a block of f32. */
static int32_t divide_narrow(const void *sum, trib_dtype dtype, size_t n,
                             const struct tri_result *out)
{
    const float divisor = (float)out->divisor;
    float block[BLOCK];
    int32_t greatest = 0;
    for (size_t i = 0; i < n; i += BLOCK) {
        const size_t left = n - i, m = left < BLOCK ? left : BLOCK;
        const void *from = tri_at(sum, dtype, i);
        void *const to = tri_at(out->data, out->dtype, i);
        if (dtype != TRIB_F32)
            tri_half_widen(block, from, m, dtype);
        const int32_t found = divide_f32(block, dtype == TRIB_F32 ? from : block, m, divisor);
        greatest = found > greatest ? found : greatest;
        if (out->dtype == TRIB_F32)
            memcpy(to, block, m * sizeof *block);
        else
            tri_half_narrow(to, block, m, out->dtype);
    }
    return greatest;
}

static void divide(const void *sum, trib_dtype dtype, size_t n, const struct tri_result *out)
{
    if (dtype == TRIB_F64) {
        tri_note_overflow(out, (uint64_t)divide_f64(out->data, sum, n, out->divisor) >=
                                   tri_key_overflow_f64(out->dtype));
        return;
    }
    const int32_t greatest = dtype == TRIB_F32 && out->dtype == TRIB_F32
                                 ? divide_f32(out->data, sum, n, (float)out->divisor)
                                 : divide_narrow(sum, dtype, n, out);
    tri_note_overflow(out, (uint32_t)greatest >= tri_key_overflow_f32(out->dtype));
}

trib_status tri_cpu_sparse_write_entries(const struct tri_entries *entries, uint32_t *index,
                                         uint32_t *count, const struct tri_result *out,
                                         trib_stream stream)
{
    (void)stream;
    const uint32_t n = tri_entries_count(entries);
    for (uint32_t i = 0; i < n; i++)
        index[i] = entries->index[i];
    divide(entries->value, entries->dtype, n, out);
    *count = n;
    return TRIB_OK;
}

trib_status tri_cpu_sparse_write_dense(const void *sum, trib_dtype dtype, size_t count,
                                       const struct tri_result *out, trib_stream stream)
{
    (void)stream;
    divide(sum, dtype, count, out);
    return TRIB_OK;
}
