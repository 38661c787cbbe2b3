/* The trials of sparse allreduces on nccl, with more ranks than there are GPUs: a process for each rank,
 * all of them on the first GPU. What each rank has after each step must have the bytes that it has on host,
 * where it is judged. NCCL serves all calls, over sockets (tests/nccl/share.h); or, with
 * TRIB_TEST_ONE_GPU=N, the ranks reach each other's memory: small calls are pushed (tests/push/one_gpu.h).
 *   sparse_one_gpu_test [SIZE...]   2, 3 and 4 unless they are given, in a quick run each; up to 8 */
#include <stdlib.h>
#include <string.h>

#include "tests/children.h"
#include "tests/conformance/sparse/sparse.h"
#include "tests/nccl/share.h"
#include "tests/push/one_gpu.h"

enum { DEADLINE_MS = 900000, SIZE_MAX_HERE = 8 };

struct job {
    trib_id id;
    _Atomic int made; /* count of those that may read id */
};

static void run_rank(int own, int size, void *argument)
{
    struct job *job = argument;
    if (one_gpu_ranks() > 0)
        (void)one_gpu_enter(own, size);
    else
        (void)share_gpu(own, size, 1);
    if (own == 0)
        CHECK_OK(trib_id_create(&job->id, "nccl"));
    children_meet(&job->made, size);
    sparse_suite_apart("nccl", "host", &job->id, own, size, 0, SPARSE_QUICK);
}

static void run(struct job *job, int size)
{
    if (size < 1 || size > SIZE_MAX_HERE) {
        check_skip("%d processes: 1 to %d can be had", size, SIZE_MAX_HERE);
        return;
    }
    memset(job, 0, sizeof *job);
    check_begin("%d processes on one GPU", size);
    children_run_all(size, DEADLINE_MS, run_rank, job);
    check_end();
}

int main(int n, char **arguments)
{
    const int gpus = share_gpus();
    struct job *job = children_share(sizeof *job);
    if (gpus == 0)
        check_skip("there is no GPU, or this build has no nccl backend");
    for (int i = 1; i < n && gpus > 0; i++)
        run(job, atoi(arguments[i]));
    for (int size = 2; n == 1 && size <= 4 && gpus > 0; size++)
        run(job, size);
    children_unshare(job, sizeof *job);
    return check_finish("sparse_one_gpu_test");
}
