/* The trials of sparse allreduces with a process for each rank, over the backend "processes". What each
 * rank has after each step must have the bytes that it has where all ranks are threads, and those are
 * judged. */
#include "tests/check.h"
#include "tests/conformance/sparse/sparse.h"
#include "tests/processes/backend.h"

enum { DEADLINE_MS = CHECK_SANITIZED ? 250000 : 80000 };

/* Under the thread sanitizer the long runs alone. */
#ifdef __SANITIZE_THREAD__
static const enum sparse_depth depth = SPARSE_LIGHT;
#else
static const enum sparse_depth depth = SPARSE_QUICK;
#endif

static void run_rank(int own, int size, void *argument)
{
    const trib_id id = processes_id(0);
    (void)argument;
    sparse_suite_apart("processes", "processes", &id, own, size, 0, depth);
}

int main(void)
{
    static const int sizes[] = {3, 4};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_begin("%d processes", sizes[i]);
        processes_check(sizes[i], DEADLINE_MS, run_rank, NULL);
        check_end();
    }
    return check_finish("sparse_processes_test");
}
