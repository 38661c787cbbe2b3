/* trib_kernels on cuda. */
#include "benches/kernels_cuda.h"
#include "benches/kernels.h"

void kernels_time_cuda(const struct kernels_options *options)
{
    struct cudaDeviceProp properties;
    cudaStream_t stream;
    CUDA_OK(cudaSetDevice(0));
    CUDA_OK(cudaGetDeviceProperties(&properties, 0));
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    printf("cuda: %s\n", properties.name);
    kernels_time_lists(stream);
    kernels_time_sparse(options, stream);
    CUDA_OK(cudaStreamDestroy(stream));
}
