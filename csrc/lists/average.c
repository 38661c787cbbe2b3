/* The weighted average: a list whose buckets have the weight as their last element. */
#include "csrc/core/operation.h"
#include "csrc/lists/list.h"

trib_status tri_weighted_average(struct trib_comm *comm, const trib_tensor *tensors, size_t n,
                                 float weight, const float *device_weight, float *device_total,
                                 trib_stream stream)
{
    /* Packing multiplies by the weight and appends it, so one sum gives numerator and denominator;
     * unpacking divides. A weight of 0 packs zeros without reading the values. */
    const struct tri_list list = {.operation = TRI_WEIGHTED_AVERAGE,
                                  .tensors = tensors,
                                  .n = n,
                                  .op = TRIB_SUM,
                                  .weight = {device_weight, weight},
                                  .total_out = device_total,
                                  .stream = stream};
    return tri_list(comm, &list);
}
