/* trib_kernels on cuda. */
#include "benches/kernels_cuda.h"
#include "benches/kernels.h"

void kernels_time_cuda(const struct kernels_options *options)
{
    struct cudaDeviceProp properties;
    cudaStream_t stream;
    MUST(cudaSetDevice(0));
    MUST(cudaGetDeviceProperties(&properties, 0));
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    printf("cuda: %s\n", properties.name);
    kernels_time_lists(stream);
    kernels_time_sparse(options, stream);
    MUST(cudaStreamDestroy(stream));
}
