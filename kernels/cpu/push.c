/* push: the steps of one worker a rank, performed at once; ranks of the same call take turns. What
 * orders two kernels on a GPU is here acquire and release. */
#include "csrc/base/clock.h"
#include "kernels/cpu/kernels_cpu.h"
#include "kernels/cpu/push_steps.h"
#include "kernels/cpu/waiting.h"

static uint64_t load_granule(const void *at, trib_dtype dtype)
{
    return tri_push_is_wide(dtype) ? __atomic_load_n((const uint64_t *)at, __ATOMIC_ACQUIRE)
                                   : __atomic_load_n((const uint32_t *)at, __ATOMIC_ACQUIRE);
}

static void store_granule(void *at, uint64_t value, trib_dtype dtype)
{
    if (tri_push_is_wide(dtype))
        __atomic_store_n((uint64_t *)at, value, __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint32_t *)at, (uint32_t)value, __ATOMIC_RELEASE);
}

/* Perform what is next; false if that is to wait, or if nothing is. */
static bool perform(struct tri_push_worker *worker)
{
    const struct tri_push_access access = tri_push_next(worker);
    const trib_dtype dtype = worker->job->dtype;
    uint64_t found = 0;
    switch (access.act) {
    case TRI_PUSH_READ:
        found = __atomic_load_n((const uint32_t *)access.at, __ATOMIC_ACQUIRE);
        break;
    case TRI_PUSH_ARRIVE:
        found = __atomic_fetch_add((uint32_t *)access.at, (uint32_t)access.value, __ATOMIC_ACQ_REL);
        break;
    case TRI_PUSH_POLL:
        found = load_granule(access.at, dtype);
        if (found == access.value)
            return false;
        break;
    case TRI_PUSH_STORE:
    case TRI_PUSH_RESTORE:
        store_granule(access.at, access.value, dtype);
        break;
    case TRI_PUSH_END:
        return false;
    }
    tri_push_performed(worker, found);
    return true;
}

/* Are all calls over? Asked by who waits, since `began`. */
static bool is_over(const struct tri_push *job, uint64_t began)
{
    const uint32_t over = tri_cpu_over(job->abort_flag, job->patience_ns, began);
    for (size_t i = 0; over != 0 && i < job->n; i++)
        job->here[i].control->over = over;
    return over != 0;
}

trib_status tri_cpu_push(const struct tri_push *job, trib_stream stream)
{
    (void)stream;
    struct tri_push_worker workers[TRI_PUSH_RANKS];
    size_t ended = 0;
    uint64_t began = 0;
    if (job->count == 0 || job->here[0].control->over != 0)
        return TRIB_OK;
    for (size_t i = 0; i < job->n; i++)
        tri_push_begin(&workers[i], job, &job->here[i], 0, 1);
    while (ended < job->n) {
        bool moved = false;
        ended = 0;
        for (size_t i = 0; i < job->n; i++) {
            while (perform(&workers[i]))
                moved = true;
            ended += workers[i].act == TRI_PUSH_END;
        }
        began = moved || began == 0 ? tri_now_ns() : began;
        if (ended < job->n && !moved && is_over(job, began))
            return TRIB_OK;
    }
    return TRIB_OK;
}
