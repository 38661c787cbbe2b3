/* Pull between processes, a rank and a GPU each, of which one is killed while large calls run: the others'
 * communicators end, and their streams are free, within DEATH_MS, and they know who is gone. What they read
 * and wrote of the dead stays mapped until they destroy their communicators. */
#define _DEFAULT_SOURCE
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/children.h"
#include "tests/conformance/cuda_must.h"
#include "tests/push/processes.h"

enum {
    AHEAD = 300, /* calls of some 50 us that are queued before the death */
    DEATH_MS = 5000,
    LOST_MS = 100, /* in which all that have died are known */
    LAST_MS = 8
};

struct killed {
    struct shared shared;
    int after_ms; /* when, after its calls were queued */
};

struct sums {
    uint32_t *send, *recv; /* LARGE each, symmetric */
};

static bool allocate(const struct rank *r, struct sums *s)
{
    void *send = NULL, *recv = NULL;
    const size_t bytes = (size_t)LARGE * sizeof *s->send;
    if (!CHECK_OK(trib_symmetric_alloc(&send, r->comm, bytes)) ||
        !CHECK_OK(trib_symmetric_alloc(&recv, r->comm, bytes)))
        return false;
    *s = (struct sums){send, recv};
    MUST(cudaMemsetAsync(send, 1, bytes, r->stream));
    MUST(cudaMemsetAsync(recv, 0xa5, bytes, r->stream));
    return true;
}

/* Calls until one cannot be queued, `n` at most. */
static trib_status queue_row(const struct rank *r, const struct sums *s, int n)
{
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    trib_status status = TRIB_OK;
    options.variant = TRIB_VARIANT_TWO_SHOT;
    for (int i = 0; i < n && status == TRIB_OK; i++)
        status = trib_allreduce_with(r->comm, s->send, s->recv, LARGE, TRIB_U32, TRIB_SUM, &options,
                                     r->stream);
    return status;
}

/* All ranks are here, and pull has served. */
static bool begin(const struct rank *r, const struct sums *s, struct shared *shared)
{
    uint32_t found[2] = {0, 0};
    const uint32_t right = 0x01010101u * (uint32_t)r->size;
    const bool good = CHECK_OK(queue_row(r, s, 1));
    MUST(cudaMemcpyAsync(&found[0], s->recv, sizeof found[0], cudaMemcpyDeviceToHost, r->stream));
    MUST(cudaMemcpyAsync(&found[1], s->recv + LARGE - 1, sizeof found[1], cudaMemcpyDeviceToHost,
                         r->stream));
    if (!good || !CHECK_OK(trib_comm_wait(r->comm, r->stream, PLENTY_MS)))
        return false;
    CHECK_MSG(found[0] == right && found[1] == right, "%08x %08x", (unsigned)found[0],
              (unsigned)found[1]);
    children_meet(&shared->met, r->size);
    return true;
}

static void check_lost(const struct rank *r)
{
    const double end = check_now_ms() + LOST_MS;
    int32_t lost = -1, n = 0;
    while (CHECK_OK(trib_comm_lost(&n, r->comm, &lost, 1)) && n == 0 && check_now_ms() < end)
        check_sleep_ms(1);
    CHECK_MSG(n == 1 && lost == r->size - 1, "%d lost, rank %d", (int)n, (int)lost);
}

/* One call more than the dead has queued, which it cannot complete. */
static void survive(const struct rank *r, const struct sums *s, struct shared *shared)
{
    const double begun = check_now_ms();
    const trib_status queued = queue_row(r, s, AHEAD + 1);
    CHECK_MSG(queued == TRIB_OK || queued == TRIB_ERR_CLOSED, "%s", trib_status_name(queued));
    CHECK_STATUS(trib_comm_wait(r->comm, r->stream, PLENTY_MS), TRIB_ERR_CLOSED);
    MUST(cudaStreamSynchronize(r->stream)); /* the kernels have ended, too */
    const double took = check_now_ms() - begun;
    CHECK_MSG(took < DEATH_MS, "it took %.0f ms", took);
    printf("  rank %d of %d: its stream is free after %.1f ms\n", r->rank, r->size, took);
    fflush(stdout);
    check_lost(r);
    children_meet(&shared->met, 2 * r->size - 1); /* nobody is found missing who has only left */
}

static void run_killed(int index, int n, void *argument)
{
    struct killed *killed = argument;
    struct rank r;
    struct sums s;
    if (!open_rank(&r, &killed->shared, index, n) || !allocate(&r, &s) ||
        !begin(&r, &s, &killed->shared))
        return;
    if (index == n - 1) {
        if (!CHECK_OK(queue_row(&r, &s, AHEAD)))
            return; /* a death would hide it: the parent misses that */
        (void)usleep((useconds_t)killed->after_ms * 1000);
        (void)raise(SIGKILL);
    }
    survive(&r, &s, &killed->shared);
    (void)trib_comm_destroy(r.comm);
}

static void run_size(int size, int after_ms)
{
    struct child_end ends[CHILDREN_MAX];
    struct killed *killed = children_share(sizeof *killed);
    killed->shared.reach = killed->shared.nvlink = true;
    killed->after_ms = after_ms;
    check_begin("%d processes, one is killed %d ms after it has queued large sums", size, after_ms);
    children_run(ends, size, DEADLINE_MS, run_killed, killed);
    children_check_killed(ends, size, size - 1);
    check_end();
    children_unshare(killed, sizeof *killed);
}

int main(void)
{
    const struct machine machine = look_at_machine();
    if (machine.gpus < 2 || !machine.nvlink) {
        check_skip("pull between processes: %d GPUs, over NVLink: %d", machine.gpus,
                   (int)machine.nvlink);
        return check_finish("killed_gpus_test");
    }
    for (int size = machine.fewest; size <= machine.gpus && size <= PROCESSES_MAX; size++)
        for (int ms = 0; ms <= LAST_MS; ms += 2)
            run_size(size, ms);
    return check_finish("killed_gpus_test");
}
