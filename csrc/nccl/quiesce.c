/* Waiting for everything that this backend does in the background: jobs, and tasks that their
 * callers gave up. */
#include "csrc/nccl/quiesce.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "csrc/base/clock.h"
#include "csrc/base/process.h"
#include "csrc/nccl/background.h"
#include "csrc/nccl/thread.h"

enum { EXIT_STALL_MS = 3000, POLL_NS = 200000 };

/* The number of jobs and threads that have not ended. Without communicators and jobs the background
 * threads and the prober end too: idle as they are, they would prevent unloading the library. */
static uint32_t unfinished(uint64_t *out_ended)
{
    const uint32_t n = tri_nccl_jobs(out_ended) + tri_nccl_threads(TRI_NCCL_TASKS);
    if (n > 0 || !tri_nccl_background_stop())
        return n;
    return tri_nccl_threads(TRI_NCCL_BACKGROUND) + tri_nccl_threads(TRI_NCCL_PROBER);
}

uint32_t tri_nccl_quiesce(uint64_t deadline_ns, uint32_t *graphs)
{
    uint64_t ended;
    uint32_t n;
    while ((n = unfinished(&ended)) > 0 && tri_now_ns() < deadline_ns)
        tri_nap_ns(POLL_NS);
    tri_nccl_threads_join();
    *graphs += tri_nccl_jobs_graphs();
    return n;
}

/* Freeing a communicator takes half a second to a second: go on waiting while one job after the
 * other ends. Abandon a job that takes longer (a CUDA graph that lives, a kernel that does not
 * end). */
static void on_exit_wait(void)
{
    if (tri_process_forked()) /* the child process has none of the threads */
        return;
    uint64_t deadline = tri_deadline_ns(EXIT_STALL_MS);
    uint64_t before = 0;
    uint64_t ended;
    while (unfinished(&ended) > 0 && tri_now_ns() < deadline) {
        if (ended != before)
            deadline = tri_deadline_ns(EXIT_STALL_MS);
        before = ended;
        tri_nap_ns(POLL_NS);
    }
    tri_nccl_threads_join();
}

static void register_exit_wait(void)
{
    (void)atexit(on_exit_wait);
}

void tri_nccl_wait_at_exit(int32_t device)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT; /* guards the first registration */
    static _Atomic uint64_t devices;                /* registered again for these devices */
    (void)pthread_once(&once, register_exit_wait);
    if (device < 0)
        return;
    const uint64_t bit = (uint64_t)1 << device;
    if ((atomic_load(&devices) & bit) == 0 && (atomic_fetch_or(&devices, bit) & bit) == 0)
        register_exit_wait();
}
