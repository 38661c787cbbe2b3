// commit: does this call deliver? record: what came of it, for the host to read.
#include "kernels/cuda/entries.cuh"
#include "kernels/cuda/sparse_cuda.h"

namespace {

__device__ inline uint32_t load_acquire(const uint32_t *word)
{
    uint32_t value;
    asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

__device__ inline void store_release(uint32_t *word, uint32_t value)
{
    asm volatile("st.release.sys.u32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
}

constexpr uint32_t kReaders = 64;

// One thread a header, so that all are on their way at once.
__global__ void __launch_bounds__(kReaders) commit(const tri_commit job)
{
    bool differs = false, nonfinite = false;
    for (int32_t r = static_cast<int32_t>(threadIdx.x); r < job.n; r += kReaders) {
        const tri_header *header = reinterpret_cast<const tri_header *>(
            static_cast<const char *>(job.headers) + static_cast<size_t>(r) * job.stride);
        differs = differs || header->signature != job.signature;
        nonfinite = nonfinite || header->nonfinite != 0;
    }
    const bool any_differs = __syncthreads_or(differs) != 0;
    const bool any_nonfinite = __syncthreads_or(nonfinite) != 0;
    if (threadIdx.x != 0)
        return;
    const uint32_t outcome = load_acquire(job.abort_word) != 0 ? TRI_OUTCOME_ABORTED
                             : any_differs                     ? TRI_OUTCOME_MISMATCH
                             : any_nonfinite                   ? TRI_OUTCOME_NON_FINITE
                                                               : TRI_OUTCOME_DELIVERED;
    const uint32_t delivers = outcome == TRI_OUTCOME_DELIVERED;
    *job.outcome = outcome;
    *job.decision = delivers;
    if (job.current != nullptr)
        *job.current ^= delivers;
}

// One 64-bit field of the tally: what is added to it, or what it becomes.
struct Change {
    uint64_t *field;
    uint64_t value;
    bool adds;
};

// The change that lane `lane` makes of a call that delivered; of others, lanes 0 and 1 alone.
__device__ inline Change change_of(const tri_record &job, uint32_t lane)
{
    tri_tally *tally = job.tally;
    switch (lane) {
    case 0:
        return {&tally->ended, 1, true};
    case 1:
        return {&tally->non_finite_calls, *job.outcome == TRI_OUTCOME_NON_FINITE, true};
    case 2:
        return {&tally->delivered_calls, 1, true};
    case 3:
        return {&tally->selected, *job.selected, false};
    case 4:
        return {&tally->delivered, *job.delivered, false};
    case 5:
        return {&tally->total_selected, *job.selected, true};
    case 6:
        return {&tally->total_delivered, *job.delivered, true};
    case 7:
        return {&tally->words_sent, job.words_sent, true};
    case 8:
        return {&tally->words_received, job.words_received, true};
    case 9:
        return {&tally->bytes_sent, job.bytes_sent, true};
    case 10:
        return {&tally->bytes_received, job.bytes_received, true};
    case 11:
        return {&tally->fallbacks, *job.fallbacks, false};
    case 12:
        if (job.norm != nullptr)
            return {reinterpret_cast<uint64_t *>(&tally->norm),
                    static_cast<uint64_t>(__double_as_longlong(*job.norm)), false};
        return {nullptr, 0, false};
    default:
        return {nullptr, 0, false};
    }
}

// One warp, one field a lane. The tally lies in the host's memory, a long way off: all is read at
// once, then the version becomes odd, the fields follow, and the version becomes even. This stream is
// the only writer.
__global__ void __launch_bounds__(kWarp) record(const tri_record job)
{
    const uint32_t lane = threadIdx.x;
    Change change = change_of(job, lane);
    if (lane > 1 && *job.decision == 0)
        change.field = nullptr;
    volatile uint64_t *field = change.field;
    volatile uint32_t *version_word = &job.tally->version;
    const uint32_t version = *version_word;
    const uint64_t value = change.value + (field != nullptr && change.adds ? *field : 0);
    __syncwarp();
    if (lane == 0)
        *version_word = version + 1;
    __threadfence_system();
    __syncwarp();
    if (field != nullptr)
        *field = value;
    if (lane == 0)
        *const_cast<volatile uint32_t *>(&job.tally->outcome) = *job.outcome;
    __threadfence_system();
    __syncwarp();
    if (lane == 0)
        store_release(&job.tally->version, version + 2);
}

} // namespace

trib_status tri_cuda_sparse_commit(const struct tri_commit *job, trib_stream stream)
{
    return launch_job(commit, 1, kReaders, *job, stream);
}

trib_status tri_cuda_sparse_record(const struct tri_record *job, trib_stream stream)
{
    return launch_job(record, 1, kWarp, *job, stream);
}
