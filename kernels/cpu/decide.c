/* decide: is this call applied? */
#include "kernels/cpu/sparse_cpu.h"

static const struct tri_header *header_of(const struct tri_decide *job, int32_t rank)
{
    return (const void *)((const char *)job->headers + (size_t)rank * job->stride);
}

static uint32_t outcome_of(const struct tri_decide *job)
{
    uint32_t outcome = TRI_OUTCOME_APPLIED;
    if (__atomic_load_n(job->abort_flag, __ATOMIC_ACQUIRE) != 0)
        return TRI_OUTCOME_ABORTED;
    for (int32_t r = 0; r < job->n; r++) {
        const struct tri_header *header = header_of(job, r);
        if (header->signature != job->signature || header->count > job->capacity)
            return TRI_OUTCOME_MISMATCH;
        if (header->nonfinite != 0)
            outcome = TRI_OUTCOME_NON_FINITE;
    }
    for (int32_t r = 0; r < job->n && job->packets != NULL; r++)
        if (job->packets[r]->calls != header_of(job, r)->calls)
            return TRI_OUTCOME_ABORTED;
    if (outcome == TRI_OUTCOME_APPLIED && job->overflow != NULL && *job->overflow != 0)
        return TRI_OUTCOME_OVERFLOW;
    return outcome;
}

trib_status tri_cpu_sparse_decide(const struct tri_decide *job, trib_stream stream)
{
    (void)stream;
    const uint32_t outcome = outcome_of(job);
    const uint32_t applies = outcome == TRI_OUTCOME_APPLIED;
    const uint32_t flips = job->revokes ? *job->decision : applies;
    *job->outcome = outcome;
    *job->decision = applies;
    if (job->current != NULL)
        *job->current ^= flips;
    if (job->velocity != NULL)
        *job->velocity ^= flips;
    if (job->overflow != NULL)
        *job->overflow = 0;
    return TRIB_OK;
}
