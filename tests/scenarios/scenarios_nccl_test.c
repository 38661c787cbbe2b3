/* The scenarios of aborts on the nccl backend, with all GPUs, at most 4. */
#include "tests/scenarios/scenario.h"

enum { RANKS_MAX = 4 };

int main(int n, char **arguments)
{
    const int gpus = team_limit("nccl");
    (void)n;
    if (gpus < 2) {
        check_skip("a rank that others wait for needs 2 GPUs: there are %d", gpus);
        return check_finish("scenarios_nccl_test");
    }
    scenarios_cuda_begin();
    return scenarios_main("nccl", gpus < RANKS_MAX ? gpus : RANKS_MAX, scenarios_cuda, arguments);
}
