/* accumulate_clipped: acc = factor * gradient + decay * residual, where the factor brings the
 * gradient's norm down to a limit.
 *
 * factor = 1 if norm <= limit, otherwise limit / norm, in f64; NaN if the norm is not finite, so that
 * acc is not finite either: limit / infinity would be 0, and hide it. Factor and decay are rounded to
 * acc's type first; each product is rounded, then their sum. */
#include <math.h>

#include "kernels/cpu/sparse_cpu.h"

static double factor_of(double norm, double limit)
{
    if (!isfinite(norm))
        return NAN;
    return norm <= limit ? 1 : limit / norm;
}

static void add_f32(const struct tri_accumulator *acc, float factor)
{
    const void *const gradient = tri_gradient_of(acc);
    float *const made = tri_acc_of(acc);
    const float *const residual = tri_residual_of(acc), decay = (float)acc->decay;
    for (size_t i = 0; i < acc->count; i++) {
        const float clipped = factor * tri_load_f32(gradient, acc->gradient_dtype, i);
        made[i] = clipped + decay * residual[i];
    }
}

static void add_f64(const struct tri_accumulator *acc, double factor)
{
    const double *const gradient = tri_gradient_of(acc);
    double *const made = tri_acc_of(acc);
    const double *const residual = tri_residual_of(acc);
    for (size_t i = 0; i < acc->count; i++) {
        const double clipped = factor * gradient[i];
        made[i] = clipped + acc->decay * residual[i];
    }
}

trib_status tri_cpu_sparse_accumulate_clipped(const struct tri_accumulator *acc, double limit,
                                              void *scratch, trib_stream stream)
{
    const double norm =
        sqrt(tri_cpu_sparse_squares(tri_gradient_of(acc), acc->gradient_dtype, acc->count));
    const double factor = factor_of(norm, limit);
    (void)scratch;
    (void)stream;
    if (acc->dtype == TRIB_F64)
        add_f64(acc, factor);
    else
        add_f32(acc, (float)factor);
    return TRIB_OK;
}
