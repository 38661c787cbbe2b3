/* Processes that share the first GPU. The functions by which the library learns where ranks are come first here: the
 * linker wraps them. */
#include "tests/push/one_gpu.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "csrc/base/machine.h"
#include "kernels/push.h"
#include "tests/nccl/share.h"

static int rank = -1; /* in whose process this is; -1: the GPU is its own */
static int ranks;     /* there are */

int one_gpu_ranks(void)
{
    const char *said = getenv("TRIB_TEST_ONE_GPU");
    const int n = said == NULL ? 0 : atoi(said);
    if (said != NULL && (n < 2 || n > TRI_PUSH_RANKS)) {
        (void)fprintf(stderr, "TRIB_TEST_ONE_GPU is \"%s\"; expected 2 to %d\n", said,
                      TRI_PUSH_RANKS);
        exit(2);
    }
    return n;
}

int32_t one_gpu_enter(int index, int n)
{
    rank = index;
    ranks = n;
    return share_gpu(index, n, 1);
}

uint64_t __real_tri_machine_host(void);
uint64_t __wrap_tri_machine_host(void);
uint64_t __wrap_tri_machine_host(void)
{
    return rank < 0 ? __real_tri_machine_host() : tri_machine();
}

int32_t __real_tri_nccl_device_count(void);
int32_t __wrap_tri_nccl_device_count(void);
int32_t __wrap_tri_nccl_device_count(void)
{
    const int32_t found = __real_tri_nccl_device_count();
    return rank < 0 || found == 0 ? found : ranks;
}

bool __real_tri_nccl_is_nvlink(int32_t from, int32_t to);
bool __wrap_tri_nccl_is_nvlink(int32_t from, int32_t to);
bool __wrap_tri_nccl_is_nvlink(int32_t from, int32_t to)
{
    return rank >= 0 || __real_tri_nccl_is_nvlink(from, to);
}

/* A name that no device has: the library takes it for one that this process does not see. */
cudaError_t __real_cudaDeviceGetPCIBusId(char *out, int size, int device);
cudaError_t __wrap_cudaDeviceGetPCIBusId(char *out, int size, int device);
cudaError_t __wrap_cudaDeviceGetPCIBusId(char *out, int size, int device)
{
    if (rank < 0)
        return __real_cudaDeviceGetPCIBusId(out, size, device);
    (void)snprintf(out, (size_t)size, "rank %d", rank);
    return cudaSuccess;
}
