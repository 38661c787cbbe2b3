/* commit: may unpack write? */
#include <math.h>

#include "kernels/cpu/kernels_cpu.h"

/* This stream is the only writer; others read at any time. */
static void store(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static double total_of(const struct tri_commit *job)
{
    if (job->total == NULL)
        return 1;
    return job->total_dtype == TRIB_F64 ? *(const double *)job->total
                                        : (double)*(const float *)job->total;
}

static int all_applied(const struct tri_commit *job)
{
    size_t n = 0;
    while (n < job->ncalls && *job->calls[n].decision != 0)
        n++;
    return n == job->ncalls;
}

static void take_back(const struct tri_commit *job)
{
    for (size_t i = 0; i < job->ncalls; i++) {
        const struct tri_revocable *call = &job->calls[i];
        *call->current ^= *call->decision;
        if (call->velocity != NULL)
            *call->velocity ^= *call->decision;
        *call->decision = 0;
    }
}

trib_status tri_cpu_commit(const struct tri_commit *job, trib_stream stream)
{
    (void)stream;
    /* Read once: all that is written must agree. */
    const int aborted = __atomic_load_n(job->abort_flag, __ATOMIC_ACQUIRE) != 0;
    const double total = total_of(job);
    const int valid = isfinite(total) && total >= 0, applied = all_applied(job);
    const uint32_t outcome = aborted                 ? TRI_COMMIT_ABORTED
                             : !(valid && total > 0) ? TRI_COMMIT_WEIGHTS
                             : !applied              ? TRI_COMMIT_CALL
                                                     : TRI_COMMIT_DONE;
    if (job->total_out != NULL && job->total != NULL)
        *job->total_out = !aborted && valid ? (float)total : NAN;
    *job->decision = outcome == TRI_COMMIT_DONE;
    if (outcome == TRI_COMMIT_DONE)
        store(&job->counts->committed, job->counts->committed + 1);
    else
        take_back(job);
    if (!aborted && (!valid || !applied))
        store(&job->counts->refused, job->counts->refused + 1);
    store(&job->counts->newest, outcome);
    return TRIB_OK;
}

trib_status tri_cpu_forget(const struct tri_revocable *calls, size_t n, trib_stream stream)
{
    (void)stream;
    for (size_t i = 0; i < n; i++)
        *calls[i].decision = 0;
    return TRIB_OK;
}
