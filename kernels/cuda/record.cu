// record: what a call did, for the host to read; the result of one that is not applied is 0.
#include "kernels/cuda/clear.cuh"
#include "kernels/cuda/sparse_cuda.h"

namespace {

// A word of the counters: what is added to it, or its new value: `word` on the device, or `value`.
struct Change {
    const uint32_t *word;
    uint64_t value;
    bool adds;
};

constexpr uint32_t kWords = TRI_COUNTERS_WORDS;
static_assert(kWords <= kWarp, "a lane a word");

#define WORD(field) (offsetof(tri_counters, field) / sizeof(uint64_t))

// Of a call that is not applied, the first three words alone change, and the check.
constexpr uint32_t kAlways = WORD(applied_calls);
static_assert(kAlways == 3 && WORD(check) == kWords - 1, "the order of the fields");

// Nothing is read here, because the lanes diverge.
__device__ inline Change change_of(const tri_record &job, uint32_t lane)
{
    switch (lane) {
    case WORD(outcome):
        return {job.outcome, 0, false};
    case WORD(ended):
    case WORD(applied_calls):
        return {nullptr, 1, true};
    case WORD(non_finite_calls):
        return {job.outcome, 0, true};
    case WORD(selected):
        return {job.selected, 0, false};
    case WORD(applied):
        return {job.applied, 0, false};
    case WORD(total_selected):
        return {job.selected, 0, true};
    case WORD(total_applied):
        return {job.applied, 0, true};
    case WORD(words_sent):
        return {nullptr, job.words_sent, true};
    case WORD(words_received):
        return {nullptr, job.words_received, true};
    case WORD(bytes_sent):
        return {nullptr, job.bytes_sent, true};
    case WORD(bytes_received):
        return {nullptr, job.bytes_received, true};
    case WORD(fallbacks):
        return {job.fallbacks, 0, false};
    case WORD(exact_fallbacks):
        return {nullptr, job.exact_fallbacks, true};
    default: // the norm, and the check
        return {nullptr, 0, true};
    }
}

// tri_counters_check, in all lanes. All lanes take part.
__device__ inline uint64_t check_of(uint64_t word, uint32_t lane)
{
    uint64_t check = 0;
    if (lane < WORD(check))
        check = mixed(word + (uint64_t{lane} + 1) * TRI_COUNTERS_STEP);
#pragma unroll
    for (uint32_t d = kWarp / 2; d > 0; d /= 2)
        check ^= __shfl_xor_sync(kAllLanes, check, d);
    return check;
}

// One warp, one word per lane. This stream is the only writer.
__device__ inline void add_call(const tri_record &job)
{
    const uint32_t lane = threadIdx.x;
    const Change change = change_of(job, lane);
    uint64_t *const words = reinterpret_cast<uint64_t *>(job.counters);
    const bool measured = lane == WORD(norm) && job.norm != nullptr;
    // All of these before the first is used.
    const uint64_t old = lane < kWords ? words[lane] : 0;
    const uint32_t word = change.word != nullptr ? *change.word : 0;
    const double norm = measured ? *job.norm : 0;
    const uint32_t decision = *job.decision;
    const uint32_t own = lane == WORD(non_finite_calls)
                             ? word == TRI_OUTCOME_NON_FINITE || word == TRI_OUTCOME_OVERFLOW
                             : word;
    uint64_t value = old;
    if (lane < kAlways || decision != 0)
        value = measured ? static_cast<uint64_t>(__double_as_longlong(norm))
                         : (change.adds ? old : 0) + own + change.value;
    const uint64_t check = check_of(value, lane);
    if (lane >= kWords)
        return;
    value = lane == WORD(check) ? check : value;
    words[lane] = value;
    reinterpret_cast<volatile uint64_t *>(job.published)[lane] = value;
}

#undef WORD

__global__ void __launch_bounds__(kThreads) record(const tri_record job)
{
    wait_for_previous();
    if (blockIdx.x == 0 && threadIdx.x < kWarp)
        add_call(job);
    if (*job.decision == 0)
        clear(job.result);
}

} // namespace

trib_status tri_cuda_sparse_record(const struct tri_record *job, trib_stream stream)
{
    return launch_next<record>(blocks_to_clear(job->result), kThreads, *job, stream);
}
