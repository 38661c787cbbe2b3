/* libtributary over the fake of CUDA and NCCL, for the tests of the Python package: what a GPU's memory
 * and streams mean to it can be seen without one. Device memory is ordinary memory, and the CPU's
 * kernels run at once. */
#include <nccl.h>
#include <string.h>

#include "csrc/backend.h"
#include "kernels/cuda/kernels_cuda.h"
#include "tests/nccl_fake/fake.h"

extern const struct tri_backend tri_backend_host, tri_backend_nccl;
extern const struct tri_kernels tri_kernels_cpu;
const struct tri_kernels tri_kernels_cuda = {.name = "none"};

static struct tri_backend backend;
/* In place of csrc/backends.c, which the linker then leaves out. */
const struct tri_backend *const tri_backends[] = {&backend, &tri_backend_host, NULL};

const struct tri_backend *tri_backend_find(const char *name)
{
    return strcmp(name, backend.name) == 0            ? &backend
           : strcmp(name, tri_backend_host.name) == 0 ? &tri_backend_host
                                                      : NULL;
}

/* A communicator of the caller's, as a framework makes it; NULL if NCCL fails. */
__attribute__((visibility("default"))) ncclComm_t fake_join(const ncclUniqueId *id, int rank,
                                                            int size)
{
    ncclComm_t out = NULL;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    config.splitShare = 0;
    fake_make_current(rank);
    return ncclCommInitRankConfig(&out, size, *id, rank, &config) == ncclSuccess ? out : NULL;
}

__attribute__((constructor)) static void begin(void)
{
    backend = tri_backend_nccl;
    backend.kernels = &tri_kernels_cpu;
    fake_move_data(true);
}
