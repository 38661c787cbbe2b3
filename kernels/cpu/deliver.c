/* deliver, deliver_dense: sums become the result, divided and rounded once.
 *
 * The divisor is rounded to the type of the sums first. */
#include "kernels/cpu/sparse_cpu.h"

enum { BLOCK = 2048 };

/* One loop for each pair of types, so that the compiler can vectorise those of one width. */
#define DEFINE_DIVIDE(name, real)                                                                  \
    static void name(real *out, const real *sum, size_t n, real divisor)                           \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            out[i] = sum[i] / divisor;                                                             \
    }
DEFINE_DIVIDE(divide_f32, float)
DEFINE_DIVIDE(divide_f64, double)

/* Values of lists and results may also be narrow: by way of a block of f32. */
static void divide_narrow(const void *sum, trib_dtype dtype, size_t n, void *out,
                          trib_dtype out_dtype, float divisor)
{
    float block[BLOCK];
    for (size_t i = 0; i < n; i += BLOCK) {
        const size_t left = n - i, m = left < BLOCK ? left : BLOCK;
        const void *from = tri_at(sum, dtype, i);
        void *const to = tri_at(out, out_dtype, i);
        if (dtype != TRIB_F32)
            tri_half_widen(block, from, m, dtype);
        divide_f32(block, dtype == TRIB_F32 ? from : block, m, divisor);
        if (out_dtype == TRIB_F32)
            memcpy(to, block, m * sizeof *block);
        else
            tri_half_narrow(to, block, m, out_dtype);
    }
}

static void divide(const void *sum, trib_dtype dtype, size_t n, void *out, trib_dtype out_dtype,
                   double divisor)
{
    if (dtype == TRIB_F64)
        divide_f64(out, sum, n, divisor);
    else if (dtype == TRIB_F32 && out_dtype == TRIB_F32)
        divide_f32(out, sum, n, (float)divisor);
    else
        divide_narrow(sum, dtype, n, out, out_dtype, (float)divisor);
}

trib_status tri_cpu_sparse_deliver(const struct tri_entries *entries, uint32_t *index, void *value,
                                   trib_dtype out_dtype, uint32_t *count, double divisor,
                                   const uint32_t *decision, trib_stream stream)
{
    (void)stream;
    const uint32_t n = *decision == 0 ? 0 : tri_entries_count(entries);
    for (uint32_t i = 0; i < n; i++)
        index[i] = entries->index[i];
    divide(entries->value, entries->dtype, n, value, out_dtype, divisor);
    *count = n;
    return TRIB_OK;
}

trib_status tri_cpu_sparse_deliver_dense(const void *sum, trib_dtype dtype, size_t count, void *out,
                                         trib_dtype out_dtype, double divisor,
                                         const uint32_t *decision, trib_stream stream)
{
    (void)stream;
    if (*decision != 0)
        divide(sum, dtype, count, out, out_dtype, divisor);
    else if (count != 0)
        memset(out, 0, count * trib_dtype_size(out_dtype));
    return TRIB_OK;
}
