/* The conformance suite on the nccl backend, for every number of GPUs from 1 to all that are
 * there, or for the numbers given as arguments. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/conformance/backend/backend.h"

static void run(int size, int devices)
{
    if (size < 1 || size > devices) {
        check_skip("%d GPUs: there are %d", size, devices);
        return;
    }
    backend_suite("nccl", size, backend_depth());
}

int main(int n, char **arguments)
{
    uint32_t version = 0;
    const int devices = team_limit("nccl");
    if (trib_backend_version(&version, "nccl") != TRIB_OK) {
        check_skip("this build has no nccl backend");
        return check_finish("backend_nccl_test");
    }
    printf("nccl: NCCL %u, %d GPUs\n", (unsigned)version, devices);
    if (devices == 0)
        check_skip("there is no GPU");
    for (int i = 1; i < n; i++)
        run(atoi(arguments[i]), devices);
    for (int size = 1; n == 1 && size <= devices; size++)
        run(size, devices);
    printf("nccl: %llu collectives compared\n", (unsigned long long)backend_compared());
    return check_finish("backend_nccl_test");
}
