/* Buckets that the caller has: what is laid out lies there already. */
#include "csrc/reducer/buckets.h"

/* Gradient `i` belongs to the newest bucket. */
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
                                  const uint64_t *order, const uint64_t *buckets, size_t nbuckets)
{
    size_t turn = 0, slices = 0;
    out->nbuckets = out->bytes = out->most = 0;
    for (size_t b = 0; b < nbuckets; b++) {
        bool begun = false;
        for (uint64_t left = buckets[b]; left > 0; left--, turn++) {
            const size_t i = tri_gradient_at(order, turn);
            out->gradients[i].bucket = TRI_NO_BUCKET;
            if (tensors[i].count == 0)
                continue;
            if (!begun)
                out->buckets[out->nbuckets++] = (struct tri_gradient_bucket){
                    .dtype = tensors[i].dtype, .data = tensors[i].data, .first = slices};
            begun = true;
            add(out, &tensors[i], i);
            slices++;
        }
    }
}
