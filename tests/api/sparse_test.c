/* The API of sparse allreduce, on host and, where there are GPUs, on nccl. */
#include "tests/api/sparse.h"

static void all(const char *backend, int size)
{
    sparse_bad(backend, size);
    sparse_differ(backend, size);
    sparse_calls(backend, size);
    sparse_momentum(backend, size);
    sparse_group(backend, size);
    sparse_life(backend, size);
    sparse_end(backend, size);
    sparse_late(backend, size, true);
}

int main(void)
{
    static const int sizes[] = {1, 2, 3, 5};
    static const char *const backends[] = {"host", "nccl"};
    for (int which = 0; which < 2; which++)
        for (int i = 0; i < 4; i++) {
            if (sizes[i] <= team_limit(backends[which]))
                all(backends[which], sizes[i]);
            else
                check_skip("%s has fewer than %d devices here", backends[which], sizes[i]);
        }
    return check_finish("sparse_test");
}
