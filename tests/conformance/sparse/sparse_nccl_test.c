/* The conformance suite of sparse allreduces on the nccl backend, for 2, 3 and 4 GPUs as far as
 * they are there, or for the numbers given as arguments. Every trial is made on host as well, and
 * the bytes are compared. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/conformance/sparse/sparse.h"

static void run(int size, int devices)
{
    if (size < 1 || size > devices)
        check_skip("%d GPUs: there are %d", size, devices);
    else
        sparse_suite("nccl", "host", size, sparse_depth());
}

int main(int n, char **arguments)
{
    uint32_t version = 0;
    const int devices = team_limit("nccl");
    if (trib_backend_version(&version, "nccl") != TRIB_OK) {
        check_skip("this build has no nccl backend");
        return check_finish("sparse_nccl_test");
    }
    printf("nccl: NCCL %u, %d GPUs\n", (unsigned)version, devices);
    if (devices == 0)
        check_skip("there is no GPU");
    for (int i = 1; i < n; i++)
        run(atoi(arguments[i]), devices);
    for (int size = 1; n == 1 && size <= devices && size <= 4; size++)
        run(size, devices);
    printf("nccl: %llu steps judged\n", (unsigned long long)sparse_judged());
    return check_finish("sparse_nccl_test");
}
