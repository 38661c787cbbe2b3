/* The CUDA kernels, with the right device current.
 *
 * The kernel seam knows no device, and a launch wants that of its stream to be current. The stream
 * cannot tell (the default stream is that of whichever device is current), but the memory can: a bucket
 * and a decision word are device memory that core has allocated for the rank. */
#include "kernels/cuda/kernels_cuda.h"

#include "csrc/nccl/device.h"
#include "csrc/nccl/ops.h"

static trib_status enter(struct tri_nccl_scope *scope, const void *data)
{
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    int device = -1;
    void *places[] = {&device};
    if (tri_nccl_driver.pointer_attributes(1, attributes, places, (CUdeviceptr)data) !=
            CUDA_SUCCESS ||
        device < 0)
        return tri_fail(TRIB_ERR_INTERNAL, "a kernel was given %p, which is not device memory", data);
    return tri_nccl_enter(scope, device);
}

static trib_status pack(const struct tri_slice *slices, size_t n, const struct tri_bucket *bucket,
                        const struct tri_weight *weight, trib_stream stream)
{
    struct tri_nccl_scope scope;
    trib_status status = enter(&scope, bucket->data);
    if (status != TRIB_OK)
        return status;
    status = tri_kernels_cuda.pack(slices, n, bucket, weight, stream);
    tri_nccl_leave(&scope);
    return status;
}

static trib_status commit(uint32_t *decision, const uint32_t *abort_word, uint32_t *committed,
                          const void *total, trib_dtype total_dtype, float *total_out,
                          trib_stream stream)
{
    struct tri_nccl_scope scope;
    trib_status status = enter(&scope, decision);
    if (status != TRIB_OK)
        return status;
    status = tri_kernels_cuda.commit(decision, abort_word, committed, total, total_dtype, total_out,
                                     stream);
    tri_nccl_leave(&scope);
    return status;
}

static trib_status unpack(const struct tri_slice *slices, size_t n, const struct tri_bucket *bucket,
                          int weighted, const uint32_t *decision, trib_stream stream)
{
    struct tri_nccl_scope scope;
    trib_status status = enter(&scope, bucket->data);
    if (status != TRIB_OK)
        return status;
    status = tri_kernels_cuda.unpack(slices, n, bucket, weighted, decision, stream);
    tri_nccl_leave(&scope);
    return status;
}

/* NCCL does the reducing. */
const struct tri_kernels tri_nccl_kernels = {
    .name = "cuda",
    .pack = pack,
    .commit = commit,
    .unpack = unpack,
    .reduce = NULL,
};
