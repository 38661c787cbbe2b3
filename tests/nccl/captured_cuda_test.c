/* Calls that CUDA graphs capture, on GPUs. The cases with 2 ranks need 2. */
#include "tests/nccl/captured.h"
#include "tests/team.h"

int main(void)
{
    const int ranks = team_limit("nccl");
    if (ranks == 0)
        check_skip("there is no GPU");
    else if (ranks == 1)
        check_skip("graphs of 2 ranks need 2 GPUs");
    captured_cases(ranks, false);
    return check_finish("captured_cuda_test");
}
