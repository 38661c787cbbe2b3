/* Gradients that lie in the buckets. */
#include "csrc/base/types.h"
#include "csrc/core/validate.h"
#include "csrc/reducer/reducer.h"

void tri_reducer_set_views(struct trib_reducer *reducer, size_t b)
{
    const struct tri_gradient_bucket *of = &reducer->layout.buckets[b];
    char *data = tri_reducer_bucket(reducer, reducer->buckets, b).data;
    for (size_t i = of->first; i < of->first + of->n; i++) {
        struct tri_slice *slice = &reducer->layout.slices[i];
        slice->data = data + slice->offset * trib_dtype_size(of->dtype);
    }
}

trib_status tri_reducer_zero_bucket(const struct trib_reducer *reducer, size_t b,
                                    trib_stream stream)
{
    const struct tri_factor zero = {.value = 0};
    const struct tri_bucket bucket = tri_reducer_bucket(reducer, reducer->buckets, b);
    return reducer->backend->kernels->scale(bucket.data, NULL, bucket.count, bucket.dtype, &zero,
                                            stream);
}

trib_status tri_reducer_view(void **out, const struct trib_reducer *reducer, size_t i)
{
    *out = NULL;
    if ((reducer->flags & TRIB_REDUCER_VIEWS) == 0)
        return tri_fail_call(reducer->comm, TRI_REDUCER_VIEW, TRIB_ERR_INVALID_USAGE,
                             "the reducer was created without TRIB_REDUCER_VIEWS");
    if (i >= reducer->n)
        return tri_fail_call(reducer->comm, TRI_REDUCER_VIEW, TRIB_ERR_INVALID_ARGUMENT,
                             "`i` is %zu; the reducer has %zu gradients", i, reducer->n);
    const struct tri_gradient *gradient = &reducer->layout.gradients[i];
    if (gradient->bucket != TRI_NO_BUCKET)
        *out = reducer->layout.slices[gradient->slice].data;
    return TRIB_OK;
}
