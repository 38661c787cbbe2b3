/* accumulate: acc = gradient + decay * residual, and its bf16 taken out. decay, residual: the residual
 * by itself.
 *
 * All factors are rounded to acc's type first. */
#include "csrc/base/size.h"
#include "kernels/cpu/sparse_cpu.h"

enum { BLOCK = 2048 }; /* elements that stay in the nearest cache while they are worked on */

#define DEFINE_ADD(name, real)                                                                     \
    static void name(real *restrict acc, const real *restrict gradient,                            \
                     const real *restrict residual, size_t n, real decay)                          \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            acc[i] = gradient[i] + decay * residual[i];                                            \
    }
DEFINE_ADD(add_f32, float)
DEFINE_ADD(add_f64, double)

/* `gradient` is of type `dtype`. */
static void make_f32(float *made, const void *gradient, trib_dtype dtype, const float *residual,
                     size_t count, float decay)
{
    float wide[BLOCK];
    if (dtype == TRIB_F32) {
        add_f32(made, gradient, residual, count, decay);
        return;
    }
    for (size_t i = 0; i < count; i += BLOCK) {
        const size_t n = tri_least(count - i, BLOCK);
        tri_half_widen(wide, (const uint16_t *)gradient + i, n, dtype);
        add_f32(made + i, wide, residual + i, n, decay);
    }
}

static void make(trib_dtype acc, void *made, const void *gradient, trib_dtype dtype,
                 const void *residual, size_t count, double decay)
{
    if (acc == TRIB_F64)
        add_f64(made, gradient, residual, count, decay);
    else
        make_f32(made, gradient, dtype, residual, count, (float)decay);
}

static void make_velocity(const struct tri_accumulator *acc, size_t first, size_t count)
{
    const uint32_t current = *acc->velocity_current;
    make(acc->dtype, tri_at(acc->velocity[current ^ 1], acc->dtype, first),
         tri_at(acc->gradient, acc->gradient_dtype, first), acc->gradient_dtype,
         tri_at(acc->velocity[current], acc->dtype, first), count, acc->momentum);
}

static void make_all(const struct tri_accumulator *acc, size_t first, size_t count, void *made)
{
    const trib_dtype dtype = acc->makes_velocity ? acc->dtype : acc->gradient_dtype;
    if (acc->makes_velocity)
        make_velocity(acc, first, count);
    make(acc->dtype, made, tri_at(tri_gradient_of(acc), dtype, first), dtype,
         tri_at(tri_residual_of(acc), acc->dtype, first), count, acc->decay);
}

/* Block by block, so that acc finds the new velocity in the nearest cache. */
void tri_cpu_sparse_make(const struct tri_accumulator *acc, size_t first, size_t count, void *made)
{
    for (size_t i = 0; i < count; i += BLOCK)
        make_all(acc, first + i, tri_least(count - i, BLOCK), tri_at(made, acc->dtype, i));
}

static uint32_t count_nonfinite(const void *values, trib_dtype dtype, size_t n)
{
    const float *f32 = values;
    const double *f64 = values;
    uint32_t found = 0;
    if (dtype == TRIB_F64)
        for (size_t i = 0; i < n; i++)
            found += tri_key_f64(f64[i]) >= TRI_KEY_INFINITY_F64;
    else
        for (size_t i = 0; i < n; i++)
            found += tri_key_f32(f32[i]) >= TRI_KEY_INFINITY_F32;
    return found;
}

/* What is sent of `values`; the rest stays. */
static void round_off(uint16_t *restrict rounded, float *restrict values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        tri_store_entry_f32(rounded, TRIB_BF16, i, values[i]);
        rounded[i] = (rounded[i] & 0x7fffu) == 0 ? 0 : rounded[i];
        values[i] -= tri_bf16_to_f32(rounded[i]);
    }
}

trib_status tri_cpu_sparse_accumulate(const struct tri_accumulator *acc, struct tri_signing signing,
                                      trib_stream stream)
{
    (void)stream;
    uint32_t found = 0;
    tri_sign(signing);
    for (size_t i = 0; i < acc->count; i += BLOCK) {
        const size_t n = tri_least(acc->count - i, BLOCK);
        void *const made = tri_at(tri_acc_of(acc), acc->dtype, i);
        if (acc->current != NULL)
            tri_cpu_sparse_make(acc, i, n, made);
        if (signing.header != NULL)
            found += count_nonfinite(made, acc->dtype, n);
        if (acc->rounded != NULL)
            round_off((uint16_t *)acc->rounded + i, made, n);
    }
    tri_signed_nonfinite(signing, found);
    return TRIB_OK;
}

#define DEFINE_SCALE(name, real)                                                                   \
    static void name(real *values, size_t n, real factor)                                          \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            values[i] *= factor;                                                                   \
    }
DEFINE_SCALE(scale_f32, float)
DEFINE_SCALE(scale_f64, double)

trib_status tri_cpu_sparse_decay(const struct tri_accumulator *acc, double factor,
                                 const uint32_t *decision, trib_stream stream)
{
    (void)stream;
    void *residual = tri_residual_of(acc);
    if (*decision == 0 || acc->count == 0)
        return TRIB_OK;
    if (factor == 0)
        memset(residual, 0, acc->count * trib_dtype_size(acc->dtype));
    else if (acc->dtype == TRIB_F64)
        scale_f64(residual, acc->count, factor);
    else
        scale_f32(residual, acc->count, (float)factor);
    return TRIB_OK;
}

trib_status tri_cpu_sparse_residual(const struct tri_accumulator *acc, void *out,
                                    trib_stream stream)
{
    (void)stream;
    if (acc->count != 0 && out != tri_residual_of(acc))
        memcpy(out, tri_residual_of(acc), acc->count * trib_dtype_size(acc->dtype));
    return TRIB_OK;
}
