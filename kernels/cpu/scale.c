/* scale: data times one factor, or the factor itself as an element. */
#include "kernels/cpu/half.h"
#include "kernels/cpu/kernels_cpu.h"

static void scale_f64(double *dst, const double *src, size_t count, double factor)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = src == NULL ? factor : factor * src[i];
}

static void scale_f32(float *dst, const float *src, size_t count, float factor)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = src == NULL ? factor : factor * src[i];
}

static void scale_f16(uint16_t *dst, const uint16_t *src, size_t count, float factor)
{
    const uint16_t rounded = tri_f32_to_f16(factor);
    const float f = tri_f16_to_f32(rounded);
    for (size_t i = 0; i < count; i++)
        dst[i] = src == NULL ? rounded : tri_f32_to_f16(f * tri_f16_to_f32(src[i]));
}

static void scale_bf16(uint16_t *dst, const uint16_t *src, size_t count, float factor)
{
    const uint16_t rounded = tri_f32_to_bf16(factor);
    const float f = tri_bf16_to_f32(rounded);
    for (size_t i = 0; i < count; i++)
        dst[i] = src == NULL ? rounded : tri_f32_to_bf16(f * tri_bf16_to_f32(src[i]));
}

trib_status tri_cpu_scale(void *dst, const void *src, size_t count, trib_dtype dtype,
                          const struct tri_factor *factor, trib_stream stream)
{
    (void)stream;
    const double wide = factor->device != NULL ? (double)*factor->device : factor->value;
    const float narrow = (float)wide;
    if (dtype == TRIB_F64)
        scale_f64(dst, src, count, wide);
    else if (dtype == TRIB_F32)
        scale_f32(dst, src, count, narrow);
    else if (dtype == TRIB_F16)
        scale_f16(dst, src, count, narrow);
    else
        scale_bf16(dst, src, count, narrow);
    return TRIB_OK;
}
