/* Buckets that the caller has: what is laid out lies there already. */
#include "csrc/base/types.h"
#include "csrc/reducer/buckets.h"

/* Right behind the last gradient of the bucket, and of its type? */
static bool continues(const struct tri_gradient_bucket *bucket, const trib_tensor *tensor)
{
    return bucket->dtype == tensor->dtype &&
           (char *)tensor->data == bucket->data + bucket->count * trib_dtype_size(bucket->dtype);
}

static void add(struct tri_gradient_layout *layout, const trib_tensor *tensor, size_t i)
{
    struct tri_gradient_bucket *bucket = &layout->buckets[layout->nbuckets - 1];
    struct tri_gradient *gradient = &layout->gradients[i];
    gradient->bucket = layout->nbuckets - 1;
    gradient->slice = bucket->first + bucket->n++;
    layout->owners[gradient->slice] = i;
    layout->slices[gradient->slice] = (struct tri_slice){.data = tensor->data,
                                                         .count = tensor->count,
                                                         .offset = bucket->count,
                                                         .dtype = tensor->dtype};
    bucket->count += tensor->count;
}

void tri_gradient_layout_in_place(struct tri_gradient_layout *out, const trib_tensor *tensors,
                                  size_t n, const uint64_t *order)
{
    out->nbuckets = out->bytes = out->most = 0;
    for (size_t turn = 0, slices = 0; turn < n; turn++) {
        const size_t i = order == NULL ? turn : (size_t)order[turn];
        const trib_tensor *tensor = &tensors[i];
        out->gradients[i].bucket = TRI_NO_BUCKET;
        if (tensor->count == 0)
            continue;
        if (out->nbuckets == 0 || !continues(&out->buckets[out->nbuckets - 1], tensor))
            out->buckets[out->nbuckets++] = (struct tri_gradient_bucket){
                .dtype = tensor->dtype, .data = tensor->data, .first = slices};
        add(out, tensor, i);
        slices++;
    }
}
