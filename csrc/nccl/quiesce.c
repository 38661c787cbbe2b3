/* The end of everything that this backend does in the background: what the reaper gives back, and
 * calls that were given up. */
#include "csrc/nccl/quiesce.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "csrc/base/clock.h"
#include "csrc/base/process.h"
#include "csrc/nccl/reaper.h"
#include "csrc/nccl/thread.h"

enum { EXIT_PATIENCE_MS = 3000, NAP_NS = 200000 };

/* The threads that stay have nothing to do then, but they would be in the way of who unloads the
 * library: without communicators they end, too. */
static uint32_t left(uint64_t *out_ended)
{
    const uint32_t n = tri_nccl_errands(out_ended) + tri_nccl_threads(TRI_NCCL_TASKS);
    return n > 0 ? n : tri_nccl_reaper_dismiss() ? tri_nccl_threads(TRI_NCCL_REAPERS) : 0;
}

uint32_t tri_nccl_quiesce(uint64_t deadline_ns)
{
    uint64_t ended;
    uint32_t n;
    while ((n = left(&ended)) > 0 && tri_now_ns() < deadline_ns)
        tri_nap_ns(NAP_NS);
    tri_nccl_threads_join();
    return n;
}

/* Freeing a communicator takes half a second or a whole one: as long as one after the other is
 * freed, let them. What waits for longer (a CUDA graph that lives, a kernel that does not end) is
 * left as it is. */
static void wait_at_exit(void)
{
    if (tri_process_forked()) /* the threads are not here */
        return;
    uint64_t deadline = tri_deadline_ns(EXIT_PATIENCE_MS);
    uint64_t before = 0;
    uint64_t ended;
    while (left(&ended) > 0 && tri_now_ns() < deadline) {
        if (ended != before)
            deadline = tri_deadline_ns(EXIT_PATIENCE_MS);
        before = ended;
        tri_nap_ns(NAP_NS);
    }
    tri_nccl_threads_join();
}

static void register_exit(void)
{
    (void)atexit(wait_at_exit);
}

void tri_nccl_watch_exit(int32_t device)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT; /* guards the first registration */
    static _Atomic uint64_t devices;                /* those with which it was registered again */
    (void)pthread_once(&once, register_exit);
    if (device < 0)
        return;
    const uint64_t bit = (uint64_t)1 << device;
    if ((atomic_load(&devices) & bit) == 0 && (atomic_fetch_or(&devices, bit) & bit) == 0)
        register_exit();
}
