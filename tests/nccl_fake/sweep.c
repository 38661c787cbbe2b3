/* trib_sweep over the fake: its main, and what surrounds it. The fake has no clock, so every time is 0;
 * the checks of the rows, and the fake's of the calls, are what can fail. */

#include "kernels/cuda/kernels_cuda.h"
#include "tests/nccl_fake/fake.h"
#include "tests/own_backend.h"

extern const struct tri_backend tri_backend_nccl;

/* Before the main of benches/sweep.c. */
__attribute__((constructor)) static void begin(void)
{
    backend = tri_backend_nccl;
    backend.kernels = &tri_kernels_cuda;
    fake_move_data(true);
    fake_reach(true, true);
}
