/* unpack: one bucket back into many tensors, plain or divided by the sum of the weights. */
#include <string.h>

#include "kernels/cpu/half.h"
#include "kernels/cpu/kernels_cpu.h"

static void unpack_plain(const struct tri_slice *slices, size_t n, const struct tri_bucket *bucket)
{
    const size_t size = trib_dtype_size(bucket->dtype);
    for (size_t i = 0; i < n; i++)
        if (slices[i].count != 0)
            memcpy(slices[i].data, (const char *)bucket->data + slices[i].offset * size,
                   slices[i].count * size);
}

/* data = bucket / total, divided in the bucket's type, then rounded to the slice's. */
static void divide_f32(const struct tri_slice *slice, const float *bucket, float total)
{
    void *data = slice->data;
    switch (slice->dtype) {
    case TRIB_F16:
        for (size_t i = 0; i < slice->count; i++)
            ((uint16_t *)data)[i] = tri_f32_to_f16(bucket[i] / total);
        break;
    case TRIB_BF16:
        for (size_t i = 0; i < slice->count; i++)
            ((uint16_t *)data)[i] = tri_f32_to_bf16(bucket[i] / total);
        break;
    default: /* TRIB_F32 */
        for (size_t i = 0; i < slice->count; i++)
            ((float *)data)[i] = bucket[i] / total;
        break;
    }
}

static void divide_f64(const struct tri_slice *slice, const double *bucket, double total)
{
    for (size_t i = 0; i < slice->count; i++)
        ((double *)slice->data)[i] = bucket[i] / total;
}

static void unpack_weighted(const struct tri_slice *slices, size_t n,
                            const struct tri_bucket *bucket)
{
    const float *f32 = bucket->data;
    const double *f64 = bucket->data;
    const size_t last = bucket->count - 1;
    for (size_t i = 0; i < n; i++)
        if (bucket->dtype == TRIB_F64)
            divide_f64(&slices[i], f64 + slices[i].offset, f64[last]);
        else
            divide_f32(&slices[i], f32 + slices[i].offset, f32[last]);
}

trib_status tri_cpu_unpack(const struct tri_slice *slices, size_t n,
                           const struct tri_bucket *bucket, int weighted, const uint32_t *decision,
                           trib_stream stream)
{
    (void)stream;
    if (*decision == 0)
        return TRIB_OK;
    if (weighted)
        unpack_weighted(slices, n, bucket);
    else
        unpack_plain(slices, n, bucket);
    return TRIB_OK;
}
