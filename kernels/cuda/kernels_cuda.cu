// The cuda table.
#include "kernels/cuda/kernels_cuda.h"

#include "kernels/cuda/preload.h"
#include "kernels/cuda/sparse_cuda.h"

const struct tri_kernels tri_kernels_cuda = {
    "cuda",
    tri_cuda_pack,
    tri_cuda_commit,
    tri_cuda_forget,
    tri_cuda_unpack,
    tri_cuda_keep,
    tri_cuda_pack_kept,
    tri_cuda_unpack_kept,
    nullptr, // no reduce
    tri_cuda_scale,
    tri_cuda_push,
    tri_cuda_pull,
    tri_cuda_preload,
    &tri_sparse_kernels_cuda,
};
