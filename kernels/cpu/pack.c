/* pack: many tensors into one bucket, plain or times this rank's weight. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/half.h"
#include "kernels/cpu/kernels_cpu.h"

/* Set elements [from, to) to 0; all bits 0 is 0 in every type. */
static void clear(const struct tri_bucket *bucket, size_t size, size_t from, size_t to)
{
    memset((char *)bucket->data + from * size, 0, (to - from) * size);
}

static void pack_plain(const struct tri_slice *slices, size_t n, const struct tri_bucket *bucket)
{
    const size_t size = trib_dtype_size(bucket->dtype);
    size_t end = 0; /* of what is written so far */
    for (size_t i = 0; i < n; i++) {
        const struct tri_slice *slice = &slices[i];
        clear(bucket, size, end, slice->offset);
        if (slice->count != 0)
            memcpy((char *)bucket->data + slice->offset * size, slice->data, slice->count * size);
        end = slice->offset + slice->count;
    }
    clear(bucket, size, end, bucket->count);
}

/* bucket = weight * data, in the bucket's type. */
static void scale(const struct tri_slice *slice, const struct tri_bucket *bucket, float weight)
{
    const void *data = slice->data;
    float *f32 = (float *)bucket->data + slice->offset;
    double *f64 = (double *)bucket->data + slice->offset;
    switch (slice->dtype) {
    case TRIB_F16:
        for (size_t i = 0; i < slice->count; i++)
            f32[i] = weight * tri_f16_to_f32(((const uint16_t *)data)[i]);
        break;
    case TRIB_BF16:
        for (size_t i = 0; i < slice->count; i++)
            f32[i] = weight * tri_bf16_to_f32(((const uint16_t *)data)[i]);
        break;
    case TRIB_F32:
        for (size_t i = 0; i < slice->count; i++)
            f32[i] = weight * ((const float *)data)[i];
        break;
    default: /* TRIB_F64 */
        for (size_t i = 0; i < slice->count; i++)
            f64[i] = (double)weight * ((const double *)data)[i];
        break;
    }
}

static void set_last(const struct tri_bucket *bucket, float value)
{
    if (bucket->dtype == TRIB_F64)
        ((double *)bucket->data)[bucket->count - 1] = value;
    else
        ((float *)bucket->data)[bucket->count - 1] = value;
}

static void pack_weighted(const struct tri_slice *slices, size_t n, const struct tri_bucket *bucket,
                          float weight)
{
    const size_t size = trib_dtype_size(bucket->dtype);
    const int valid = weight >= 0 && isfinite(weight);
    if (!valid || weight == 0)
        n = 0; /* no data is looked at: all of it counts as padding */
    size_t end = 0;
    for (size_t i = 0; i < n; i++) {
        clear(bucket, size, end, slices[i].offset);
        scale(&slices[i], bucket, weight);
        end = slices[i].offset + slices[i].count;
    }
    clear(bucket, size, end, bucket->count);
    set_last(bucket, valid ? weight : NAN);
}

trib_status tri_cpu_pack(const struct tri_slice *slices, size_t n, const struct tri_bucket *bucket,
                         const struct tri_weight *weight, trib_stream stream)
{
    (void)stream;
    if (weight == NULL)
        pack_plain(slices, n, bucket);
    else
        pack_weighted(slices, n, bucket, weight->device != NULL ? *weight->device : weight->value);
    return TRIB_OK;
}
