/* Aborts, missing ranks and deadlines on the nccl backend: with 2 GPUs, and with all of them. */
#include <stdio.h>

#include "tests/faults/abort.h"

enum { BOUND_MS = 15000 }; /* NCCL takes up to a second to free what was aborted */

int main(void)
{
    const int gpus = team_limit("nccl");
    for (int size = 2; size <= gpus; size += gpus > 2 ? gpus - 2 : 1) {
        const struct faults faults = {"nccl", size, 5, BOUND_MS};
        faults_suite(&faults);
    }
    if (gpus < 2)
        check_skip("a rank that others wait for needs 2 GPUs: there are %d", gpus);
    return check_finish("abort_nccl_test");
}
