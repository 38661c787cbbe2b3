/* The one function that the Python package asks of CUDA's driver, which it finds by the library's
 * SONAME, libcuda.so.1. */
#include <cuda.h>
#include <cuda_runtime_api.h>

__attribute__((visibility("default"))) CUresult cuStreamIsCapturing(CUstream stream,
                                                                    CUstreamCaptureStatus *out)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaError_t error = cudaStreamIsCapturing(stream, &status);
    *out = (CUstreamCaptureStatus)status;
    return error == cudaSuccess ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}
