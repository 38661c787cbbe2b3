/* The conformance suite on the cpu table. With --slice I/N, only every N-th case, from the I-th
 * on. TRIB_TEST_PART=NAME: lists, push, pull, reduce or sparse alone; -NAME: all others. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/kernels_cpu.h"
#include "tests/conformance/kernels/kernels.h"
#include "tests/conformance/sparse_kernels/sparse_kernels.h"

static void *allocate(size_t bytes)
{
    return aligned_alloc(256, (bytes + 255) / 256 * 256);
}

static void copy(void *dst, const void *src, size_t bytes)
{
    memcpy(dst, src, bytes);
}

int main(int n, char **arguments)
{
    const struct kernels_place place = {
        .kernels = &tri_kernels_cpu,
        .alloc = allocate,
        .alloc_pinned = allocate,
        .free = free,
        .free_pinned = free,
        .upload = copy,
        .download = copy,
    };
    if (!kernels_slice(n, arguments))
        return EXIT_FAILURE;
    kernels_suite(&place);
    sparse_kernels_suite(&place);
    if (getenv("TRIB_TEST_LARGE") != NULL)
        kernels_large(&place);
    if (getenv("TRIB_TEST_LARGE") != NULL && place.kernels->sparse != NULL)
        sparse_kernels_large(&place);
    return check_finish("kernels_cpu_test");
}
