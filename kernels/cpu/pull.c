/* pull: the steps of one worker a rank, performed at once; ranks of the same call take turns. */
#include <string.h>

#include "csrc/base/clock.h"
#include "kernels/cpu/kernels_cpu.h"
#include "kernels/cpu/pull_steps.h"
#include "kernels/cpu/waiting.h"

/* Perform what is next; false if that is to wait, or if nothing is. */
static bool perform(struct tri_pull_worker *worker)
{
    const struct tri_pull_access access = tri_pull_next(worker);
    uint64_t *const at = access.at, found = access.expected;
    switch (access.act) {
    case TRI_PULL_READ:
        found = __atomic_load_n(at, __ATOMIC_ACQUIRE);
        break;
    case TRI_PULL_WRITE:
        __atomic_store_n(at, access.value, __ATOMIC_RELAXED);
        break;
    case TRI_PULL_RELEASE:
        __atomic_store_n(at, access.value, __ATOMIC_RELEASE);
        break;
    case TRI_PULL_ADD:
        (void)__atomic_fetch_add(at, access.value, __ATOMIC_RELEASE);
        break;
    case TRI_PULL_SWAP:
        (void)__atomic_compare_exchange_n(at, &found, access.value, false, __ATOMIC_ACQUIRE,
                                          __ATOMIC_ACQUIRE);
        break;
    case TRI_PULL_OR:
        found = __atomic_fetch_or(at, access.value, __ATOMIC_ACQ_REL);
        break;
    case TRI_PULL_LOAD:
        memcpy(access.data, access.at, access.bytes);
        break;
    case TRI_PULL_STORE:
        memcpy(access.at, access.data, access.bytes);
        break;
    case TRI_PULL_END:
        return false;
    }
    return tri_pull_performed(worker, found);
}

/* Are all calls over? Asked by who waits, since `began`. */
static bool is_over(const struct tri_pull *job, uint64_t began)
{
    const uint32_t over = tri_cpu_over(job->abort_flag, job->patience_ns, began);
    for (size_t i = 0; over != 0 && i < job->n; i++)
        job->control[job->here[i].rank]->over = over;
    return over != 0;
}

static void give_up(struct tri_pull_worker *workers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (tri_pull_waits(&workers[i]))
            tri_pull_give_up(&workers[i]);
}

/* Of ranks that have left, also because a twin had: not before this process is told, too. */
static void end_all(const struct tri_pull_worker *workers, size_t n)
{
    const uint64_t began = tri_now_ns();
    for (size_t i = 0; i < n; i++) {
        const struct tri_pull *const job = workers[i].job;
        while (workers[i].left && tri_cpu_over(job->abort_flag, job->patience_ns, began) == 0)
            continue;
        struct tri_pull_control *const control = workers[i].job->control[workers[i].self->rank];
        if (workers[i].left && control->over == 0)
            control->over = TRI_PUSH_ABORTED;
    }
}

trib_status tri_cpu_pull(const struct tri_pull *job, trib_stream stream)
{
    (void)stream;
    struct tri_pull_worker workers[TRI_PULL_RANKS];
    size_t ended = 0;
    uint64_t began = 0;
    if (job->count == 0 || job->control[job->here[0].rank]->over != 0)
        return TRIB_OK;
    for (size_t i = 0; i < job->n; i++)
        tri_pull_begin(&workers[i], job, &job->here[i], 0, 1);
    while (ended < job->n) {
        bool moved = false;
        ended = 0;
        for (size_t i = 0; i < job->n; i++) {
            while (perform(&workers[i]))
                moved = true;
            ended += workers[i].phase == TRI_PULL_AT_END;
        }
        began = moved || began == 0 ? tri_now_ns() : began;
        if (ended < job->n && !moved && is_over(job, began))
            give_up(workers, job->n);
    }
    end_all(workers, job->n);
    return TRIB_OK;
}
