/* deliver, deliver_dense: sums become the result, divided and rounded once. withdraw: it becomes 0.
 *
 * The divisor is rounded to the type of the sums first. */
#include "kernels/cpu/sparse_cpu.h"

enum { BLOCK = 2048 };

/* One loop for each pair of types, so that the compiler can vectorise those of one width. Returns the
 * greatest key of a quotient. */
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
static int32_t divide_narrow(const void *sum, trib_dtype dtype, size_t n, void *out,
                             trib_dtype out_dtype, float divisor)
{
    float block[BLOCK];
    int32_t greatest = 0;
    for (size_t i = 0; i < n; i += BLOCK) {
        const size_t left = n - i, m = left < BLOCK ? left : BLOCK;
        const void *from = tri_at(sum, dtype, i);
        void *const to = tri_at(out, out_dtype, i);
        if (dtype != TRIB_F32)
            tri_half_widen(block, from, m, dtype);
        const int32_t found = divide_f32(block, dtype == TRIB_F32 ? from : block, m, divisor);
        greatest = found > greatest ? found : greatest;
        if (out_dtype == TRIB_F32)
            memcpy(to, block, m * sizeof *block);
        else
            tri_half_narrow(to, block, m, out_dtype);
    }
    return greatest;
}

/* Whether a value of `out` is not finite. */
static bool divide(const void *sum, trib_dtype dtype, size_t n, void *out, trib_dtype out_dtype,
                   double divisor)
{
    if (dtype == TRIB_F64)
        return (uint64_t)divide_f64(out, sum, n, divisor) >= tri_key_overflow_f64(out_dtype);
    const int32_t greatest = dtype == TRIB_F32 && out_dtype == TRIB_F32
                                 ? divide_f32(out, sum, n, (float)divisor)
                                 : divide_narrow(sum, dtype, n, out, out_dtype, (float)divisor);
    return (uint32_t)greatest >= tri_key_overflow_f32(out_dtype);
}

trib_status tri_cpu_sparse_deliver(const struct tri_entries *entries, uint32_t *index, void *value,
                                   trib_dtype out_dtype, uint32_t *count, double divisor,
                                   uint32_t *overflow, trib_stream stream)
{
    (void)stream;
    const uint32_t n = tri_entries_count(entries);
    for (uint32_t i = 0; i < n; i++)
        index[i] = entries->index[i];
    tri_tell_overflow(overflow,
                      divide(entries->value, entries->dtype, n, value, out_dtype, divisor));
    *count = n;
    return TRIB_OK;
}

trib_status tri_cpu_sparse_deliver_dense(const void *sum, trib_dtype dtype, size_t count, void *out,
                                         trib_dtype out_dtype, double divisor,
                                         uint32_t *overflow, trib_stream stream)
{
    (void)stream;
    tri_tell_overflow(overflow, divide(sum, dtype, count, out, out_dtype, divisor));
    return TRIB_OK;
}

trib_status tri_cpu_sparse_withdraw(void *dense, size_t bytes, uint32_t *count,
                                    const uint32_t *decision, trib_stream stream)
{
    (void)stream;
    if (*decision != 0)
        return TRIB_OK;
    if (dense != NULL)
        memset(dense, 0, bytes);
    if (count != NULL)
        *count = 0;
    return TRIB_OK;
}
