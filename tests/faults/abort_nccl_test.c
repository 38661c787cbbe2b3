/* Aborts, missing ranks and deadlines on the nccl backend, with all GPUs, at most 4. */
#include "tests/faults/abort.h"

enum { RANKS_MAX = 4, BOUND_MS = 15000 }; /* NCCL takes up to a second to free what was aborted */

int main(void)
{
    const int gpus = team_limit("nccl");
    if (gpus < 2) {
        check_skip("a rank that others wait for needs 2 GPUs: there are %d", gpus);
    } else {
        const struct faults faults = {.backend = "nccl",
                                      .size = gpus < RANKS_MAX ? gpus : RANKS_MAX,
                                      .repetitions = 5,
                                      .bound_ms = BOUND_MS,
                                      .slow = true};
        faults_suite(&faults);
    }
    return check_finish("abort_nccl_test");
}
