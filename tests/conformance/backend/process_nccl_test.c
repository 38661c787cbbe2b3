/* One process per GPU, and two and three that share one if there are no more: the parent makes the id
 * and hands it to its children through pipes, as a launcher would; each child is one rank. The parent
 * makes no CUDA call before it forks, so each number of processes has a parent of its own. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/children.h"
#include "tests/nccl/share.h"
#include "tests/team.h"

enum { ELEMENTS = 100003, SHARED = 3 /* processes on fewer GPUs */, RUN_MS = 160000 };

struct run {
    int size, gpus;
};

struct rank {
    int rank, size;
    int32_t ordinal;
    trib_device *device;
    trib_stream stream;
    trib_comm *comm;
    float *memory, *image;
};

static bool push(const struct rank *r)
{
    return CHECK_OK(trib_device_copy(r->device, r->memory, r->image, ELEMENTS * sizeof(float),
                                     r->stream)) &&
           CHECK_OK(trib_stream_wait(r->device, r->stream));
}

static bool pull(const struct rank *r)
{
    return CHECK_OK(trib_device_copy(r->device, r->image, r->memory, ELEMENTS * sizeof(float),
                                     r->stream)) &&
           CHECK_OK(trib_stream_wait(r->device, r->stream)) && CHECK_OK(trib_comm_status(r->comm));
}

static float input(int rank, int i)
{
    return (float)(rank * 3 + i % 11);
}

static void fill(const struct rank *r)
{
    for (int i = 0; i < ELEMENTS; i++)
        r->image[i] = input(r->rank, i);
}

static bool all_are(const struct rank *r, bool summed, int root)
{
    int wrong = 0;
    for (int i = 0; i < ELEMENTS; i++) {
        const float sum = (float)(r->size * (r->size - 1) / 2 * 3 + r->size * (i % 11));
        wrong += r->image[i] != (summed ? sum : input(root, i));
    }
    return CHECK_MSG(wrong == 0, "rank %d: %d elements are wrong", r->rank, wrong);
}

static bool try_allreduce(const struct rank *r, trib_comm *comm)
{
    fill(r);
    return push(r) &&
           CHECK_OK(trib_allreduce(comm, r->memory, r->memory, ELEMENTS, TRIB_F32, TRIB_SUM,
                                   r->stream)) &&
           pull(r) && all_are(r, true, 0);
}

static bool try_broadcast(const struct rank *r, int root)
{
    fill(r);
    return push(r) &&
           CHECK_OK(trib_broadcast(r->comm, r->memory, r->memory, ELEMENTS, TRIB_F32, root,
                                   r->stream)) &&
           pull(r) && all_are(r, false, root);
}

static bool try_list(const struct rank *r)
{
    const trib_tensor list[] = {{r->memory, 7, TRIB_F32, 0},
                                {r->memory + 7, 50000, TRIB_F32, 0},
                                {NULL, 0, TRIB_F32, 0},
                                {r->memory + 50007, ELEMENTS - 50007, TRIB_F32, 0}};
    trib_counters counters = TRIB_COUNTERS_INIT;
    fill(r);
    return push(r) && CHECK_OK(trib_allreduce_list(r->comm, list, 4, TRIB_SUM, r->stream)) &&
           pull(r) && all_are(r, true, 0) && CHECK_OK(trib_comm_counters(&counters, r->comm)) &&
           CHECK(counters.lists_committed == 1);
}

/* Everyone backwards; then the ranks are others, and the sum is the same. */
static bool try_split(const struct rank *r)
{
    trib_comm *child = NULL;
    return CHECK_OK(trib_comm_split(&child, r->comm, 0, -r->rank)) &&
           CHECK(trib_comm_rank(child) == r->size - 1 - r->rank) &&
           CHECK(trib_comm_size(child) == r->size) && try_allreduce(r, child) &&
           CHECK_OK(trib_comm_close(child, 30000)) && CHECK_OK(trib_comm_destroy(child));
}

static bool rank_body(struct rank *r, const trib_id *id)
{
    void *memory = NULL;
    r->image = malloc(ELEMENTS * sizeof(float));
    if (r->image == NULL || !CHECK_OK(trib_device_get(&r->device, "nccl", r->ordinal)) ||
        !CHECK_OK(trib_stream_create(&r->stream, r->device)) ||
        !CHECK_OK(trib_device_alloc(&memory, r->device, ELEMENTS * sizeof(float))) ||
        !CHECK_OK(trib_comm_create(&r->comm, id, r->rank, r->size, r->ordinal, NULL)))
        return false;
    r->memory = memory;
    bool good = try_allreduce(r, r->comm);
    for (int root = 0; root < r->size && good; root++)
        good = try_broadcast(r, root);
    return good && try_list(r) && try_split(r) && try_allreduce(r, r->comm) &&
           CHECK_OK(trib_comm_close(r->comm, 30000)) && CHECK_OK(trib_comm_destroy(r->comm)) &&
           CHECK_OK(trib_device_free(r->device, r->memory)) &&
           CHECK_OK(trib_stream_destroy(r->device, r->stream));
}

static void child(int rank, int size, int gpus, int from_parent)
{
    trib_id id;
    struct rank r = {.rank = rank, .size = size, .ordinal = share_gpu(rank, size, gpus)};
    alarm(150); /* no orphan is left, whatever happens */
    if (read(from_parent, &id, sizeof id) != (ssize_t)sizeof id)
        _exit(2);
    const bool good = rank_body(&r, &id);
    fflush(stdout);
    _exit(good ? 0 : 1);
}

static void run(int index, int n, void *argument)
{
    const struct run *run = argument;
    const int size = run->size;
    int pipes[TEAM_MAX][2];
    pid_t pids[TEAM_MAX];
    trib_id id;
    (void)index;
    (void)n;
    fflush(stdout);
    for (int rank = 0; rank < size; rank++) {
        if (pipe(pipes[rank]) != 0)
            abort();
        pids[rank] = fork();
        if (pids[rank] == 0)
            child(rank, size, run->gpus, pipes[rank][0]);
        CHECK(pids[rank] > 0);
    }
    if (!CHECK_OK(trib_id_create(&id, "nccl"))) /* only now: it opens a socket and a thread */
        memset(&id, 0, sizeof id);
    for (int rank = 0; rank < size; rank++) {
        CHECK(write(pipes[rank][1], &id, sizeof id) == (ssize_t)sizeof id);
        (void)close(pipes[rank][0]);
        (void)close(pipes[rank][1]);
    }
    for (int rank = 0; rank < size; rank++) {
        int status = -1;
        CHECK(waitpid(pids[rank], &status, 0) == pids[rank]);
        CHECK_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the process of rank %d ended: %d",
                  rank, status);
    }
}

int main(void)
{
    const int gpus = share_gpus();
    if (gpus == 0) {
        check_skip("nccl: there is no GPU");
        return check_finish("process_nccl_test");
    }
    for (int size = gpus; size <= SHARED || size == gpus; size++) {
        struct run with = {size, gpus};
        check_begin("nccl, %d processes, %d GPUs", size, gpus);
        children_run_all(1, RUN_MS, run, &with);
        check_end();
    }
    return check_finish("process_nccl_test");
}
