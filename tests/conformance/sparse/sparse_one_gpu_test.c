/* The trials of sparse allreduces on nccl, with more ranks than there are GPUs: a process for each rank,
 * and all of them on the first GPU. NCCL refuses two ranks on one device of one host, so each process
 * is a host of its own to it (NCCL_HOSTID), and they are connected by sockets. What each rank has
 * after each step must have the bytes that it has on host, where it is judged.
 *   sparse_one_gpu_test [SIZE...]   2, 3 and 4 unless they are given; up to 8 */
#define _POSIX_C_SOURCE 200112L
#include <stdio.h>
#include <stdlib.h>

#include "tests/children.h"
#include "tests/conformance/sparse/sparse.h"

enum { DEADLINE_MS = 1800000, LOOK_MS = 60000, SIZE_MAX_HERE = 8 };

struct job {
    bool built;
    int devices;
    trib_id id;
    _Atomic int made; /* count of those that may read id */
};

/* In a child, because a process that has used CUDA may not fork. */
static void look(int index, int n, void *argument)
{
    struct job *job = argument;
    uint32_t version = 0;
    (void)index, (void)n;
    job->built = trib_backend_version(&version, "nccl") == TRIB_OK;
    job->devices = job->built ? team_limit("nccl") : 0;
}

static void run_rank(int own, int size, void *argument)
{
    struct job *job = argument;
    char host[32];
    (void)snprintf(host, sizeof host, "host of rank %d", own);
    (void)setenv("NCCL_HOSTID", host, 1);
    (void)setenv("NCCL_NET", "Socket", 0);
    (void)setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    if (own == 0)
        CHECK_OK(trib_id_create(&job->id, "nccl"));
    children_meet(&job->made, size);
    sparse_suite_apart("nccl", "host", &job->id, own, size, 0, sparse_depth());
}

static void run(struct job *job, int size)
{
    struct child_end ends[CHILDREN_MAX];
    if (size < 1 || size > SIZE_MAX_HERE) {
        check_skip("%d processes: 1 to %d can be had", size, SIZE_MAX_HERE);
        return;
    }
    atomic_store(&job->made, 0);
    check_begin("%d processes on one GPU", size);
    children_run(ends, size, DEADLINE_MS, run_rank, job);
    for (int rank = 0; rank < size; rank++)
        children_check(&ends[rank], rank);
    check_end();
}

int main(int n, char **arguments)
{
    struct child_end end;
    struct job *job = children_share(sizeof *job);
    children_run(&end, 1, LOOK_MS, look, job);
    if (!job->built)
        check_skip("this build has no nccl backend");
    else if (job->devices == 0)
        check_skip("there is no GPU");
    for (int i = 1; i < n && job->devices > 0; i++)
        run(job, atoi(arguments[i]));
    for (int size = 2; n == 1 && size <= 4 && job->devices > 0; size++)
        run(job, size);
    children_unshare(job, sizeof *job);
    return check_finish("sparse_one_gpu_test");
}
