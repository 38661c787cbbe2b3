/* The conformance suite of sparse allreduces on the host backend.
 *
 * TRIB_TEST_QUICK=1 in the environment: fewer steps and numbers of ranks, for sanitizers.
 * TRIB_TEST_PART=NAME: one part of the suite alone (sparse.c lists them); -NAME: all others.
 * Arguments: numbers of ranks, instead of all. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/conformance/sparse/sparse.h"

int main(int n, char **arguments)
{
    static const int sizes[] = {1, 2, 3, 4, 5, 7, 8, 12, 16, 31, 32, 64};
    const enum sparse_depth depth = sparse_depth();
    for (int i = 1; i < n; i++)
        sparse_suite("host", NULL, atoi(arguments[i]), depth);
    for (size_t i = 0; n == 1 && i < sizeof sizes / sizeof *sizes; i++)
        if (depth == SPARSE_WHOLE || sizes[i] == 1 || sizes[i] == 2 || sizes[i] == 3)
            sparse_suite("host", NULL, sizes[i], sizes[i] > 8 ? SPARSE_LIGHT : depth);
    printf("host: %llu steps judged\n", (unsigned long long)sparse_judged());
    return check_finish("sparse_host_test");
}
