// record: what a call did, for the host to read; the result of one that is not applied is 0.
#include "kernels/cuda/clear.cuh"
#include "kernels/cuda/sparse_cuda.h"

namespace {

// One of the 64-bit counters: what is added to it, or its new value. `word` on the device, or
// `value`.
struct Change {
    uint64_t *field;
    const uint32_t *word;
    uint64_t value;
    bool adds;
};

// The field that lane `lane` changes; of a call that is not applied, lanes 0 and 1 alone change
// theirs. Nothing is read here, because the lanes diverge.
__device__ inline Change change_of(const tri_record &job, uint32_t lane)
{
    tri_counters *counters = job.counters;
    switch (lane) {
    case 0:
        return {&counters->ended, nullptr, 1, true};
    case 1:
        return {&counters->non_finite_calls, job.outcome, 0, true};
    case 2:
        return {&counters->applied_calls, nullptr, 1, true};
    case 3:
        return {&counters->selected, job.selected, 0, false};
    case 4:
        return {&counters->applied, job.applied, 0, false};
    case 5:
        return {&counters->total_selected, job.selected, 0, true};
    case 6:
        return {&counters->total_applied, job.applied, 0, true};
    case 7:
        return {&counters->words_sent, nullptr, job.words_sent, true};
    case 8:
        return {&counters->words_received, nullptr, job.words_received, true};
    case 9:
        return {&counters->bytes_sent, nullptr, job.bytes_sent, true};
    case 10:
        return {&counters->bytes_received, nullptr, job.bytes_received, true};
    case 11:
        return {&counters->fallbacks, job.fallbacks, 0, false};
    case 12:
        return {&counters->exact_fallbacks, nullptr, job.exact_fallbacks, true};
    default:
        return {nullptr, nullptr, 0, false};
    }
}

// Orders what this warp wrote before what it writes next, for the host too.
__device__ inline void order_writes()
{
    asm volatile("fence.acq_rel.sys;" : : : "memory");
    __syncwarp();
}

// One warp, one field per lane; the last lane has the norm. The counters lie in the host's memory,
// a long way off: all is read at once, then the version becomes odd, the fields follow, and the
// version becomes even. This stream is the only writer.
__device__ inline void add_call(const tri_record &job)
{
    constexpr uint32_t kNormLane = kWarp - 1;
    const uint32_t lane = threadIdx.x;
    const Change change = change_of(job, lane);
    volatile uint64_t *field = change.field;
    volatile uint32_t *version_word = &job.counters->version,
                      *outcome_word = &job.counters->outcome;
    const bool measured = lane == kNormLane && job.norm != nullptr;
    // All of these before the first is used.
    const uint64_t old = change.adds ? *field : 0;
    const uint32_t version = lane == 0 ? *version_word : 0;
    const uint32_t word = change.word != nullptr ? *change.word : 0;
    const double norm = measured ? *job.norm : 0;
    const uint32_t decision = *job.decision, outcome = *job.outcome;
    const uint32_t own =
        lane == 1 ? word == TRI_OUTCOME_NON_FINITE || word == TRI_OUTCOME_OVERFLOW : word;
    if (lane == 0)
        *version_word = version + 1;
    order_writes();
    if (lane < 2 || (field != nullptr && decision != 0))
        *field = old + own + change.value;
    if (measured && decision != 0)
        *static_cast<volatile double *>(&job.counters->norm) = norm;
    if (lane == 0)
        *outcome_word = outcome;
    order_writes();
    if (lane == 0)
        *version_word = version + 2;
}

__global__ void __launch_bounds__(kThreads) record(const tri_record job)
{
    if (blockIdx.x == 0 && threadIdx.x < kWarp)
        add_call(job);
    if (*job.decision == 0)
        clear(job.result);
}

} // namespace

trib_status tri_cuda_sparse_record(const struct tri_record *job, trib_stream stream)
{
    return launch_job<record>(blocks_to_clear(job->result), kThreads, *job, stream);
}
