// residual_update: subtract, add or clear the residual of entries.
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/entries.cuh"
#include "kernels/cuda/sparse_cuda.h"

namespace {

constexpr uint32_t kDeep = 4; // entries of a thread at a time: their residuals are fetched together
constexpr uint32_t kBatch = kDeep * kThreads;

struct UpdateJob {
    tri_accumulator acc;
    tri_entries entries, among;
    const uint32_t *decision;
    uint32_t *matched;
    int sign; // of the value that is added; 0: the residual becomes 0
};

// Entries [base, base + kBatch) of the list, as this block's threads hold them. No entry, or one
// that is filtered out: an index beyond every tensor.
template <typename T>
struct Batch {
    uint32_t index[kDeep];
    T value[kDeep];
};

template <typename T>
__device__ inline Batch<T> load_batch(const UpdateJob &job, size_t base, uint32_t n)
{
    const tri_entries &entries = job.entries;
    Batch<T> batch;
    Loaded<T> loaded[kDeep];
#pragma unroll
    for (uint32_t j = 0; j < kDeep; j++) {
        const size_t i = base + j * kThreads + threadIdx.x;
        loaded[j].index = load_if(i < n, entries.index + i, UINT32_MAX);
        loaded[j].bits = load_bits<T>(i < n && job.sign != 0, entries.value, entries.dtype, i);
    }
#pragma unroll
    for (uint32_t j = 0; j < kDeep; j++) {
        batch.index[j] = loaded[j].index;
        batch.value[j] = value_of(loaded[j], entries, base + j * kThreads + threadIdx.x);
    }
    return batch;
}

// Every element is one entry's alone, so none has to wait for another's.
template <typename T>
__device__ inline void update_batch(T *residual, const UpdateJob &job, const Batch<T> &batch)
{
    T left[kDeep];
#pragma unroll
    for (uint32_t j = 0; j < kDeep; j++)
        left[j] = job.sign != 0 && batch.index[j] < job.acc.count ? residual[batch.index[j]] : T(0);
#pragma unroll
    for (uint32_t j = 0; j < kDeep; j++) {
        if (job.sign > 0)
            left[j] += batch.value[j];
        else if (job.sign < 0)
            left[j] -= batch.value[j];
        if (batch.index[j] < job.acc.count)
            residual[batch.index[j]] = left[j];
    }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) update_all(const UpdateJob job)
{
    let_next_start();
    const uint32_t n = *job.decision == 0 ? 0 : count_of(job.entries);
    if (job.matched != nullptr && blockIdx.x == 0 && threadIdx.x == 0)
        *job.matched = n;
    if (n == 0)
        return;
    T *residual = residual_of<T>(job.acc);
    for (size_t base = static_cast<size_t>(blockIdx.x) * kBatch; base < n;
         base += static_cast<size_t>(gridDim.x) * kBatch)
        update_batch(residual, job, load_batch<T>(job, base, n));
}

// Drop from the batch what is not in among[low, high); how many are left.
template <typename T>
__device__ inline uint32_t filter_batch(Batch<T> &batch, const tri_entries &among, uint32_t low,
                                        uint32_t high)
{
    uint32_t left = 0;
#pragma unroll
    for (uint32_t j = 0; j < kDeep; j++) {
        const uint32_t index = batch.index[j];
        const uint32_t at =
            index == UINT32_MAX ? high : first_at_least(among.index, low, high, index);
        if (at < high && among.index[at] == index)
            left++;
        else
            batch.index[j] = UINT32_MAX;
    }
    return left;
}

// As update_all, for entries whose index is also in `among`. Two warps find the stretch of `among`
// that a batch can match, then every thread searches in that. *matched is 0 before.
template <typename T>
__global__ void __launch_bounds__(kThreads) update_among(const UpdateJob job)
{
    __shared__ uint32_t stretch[2];
    const uint32_t n = *job.decision == 0 ? 0 : count_of(job.entries);
    const uint32_t m = count_of(job.among), warp = threadIdx.x / kWarp;
    T *residual = residual_of<T>(job.acc);
    uint32_t found = 0;
    for (size_t base = static_cast<size_t>(blockIdx.x) * kBatch; base < n;
         base += static_cast<size_t>(gridDim.x) * kBatch) {
        Batch<T> batch = load_batch<T>(job, base, n);
        if (warp < 2) {
            const size_t last = min(base + kBatch, static_cast<size_t>(n)) - 1;
            const uint64_t bound =
                warp == 0 ? job.entries.index[base] : uint64_t{job.entries.index[last]} + 1;
            const uint32_t end = count_below(job.among.index, m, bound);
            if (lane_of() == 0)
                stretch[warp] = end;
        }
        __syncthreads();
        found += filter_batch(batch, job.among, stretch[0], stretch[1]);
        update_batch(residual, job, batch);
        __syncthreads(); // before the stretch of the next batch
    }
    found = warp_sum(found);
    if (job.matched != nullptr && lane_of() == 0 && found != 0)
        atomicAdd(job.matched, found);
}

} // namespace

trib_status tri_cuda_sparse_residual_update(const struct tri_accumulator *acc,
                                            const struct tri_entries *entries, enum tri_update how,
                                            const struct tri_entries *among,
                                            const uint32_t *decision, uint32_t *matched,
                                            trib_stream stream)
{
    const int sign = how == TRI_UPDATE_ADD ? 1 : how == TRI_UPDATE_SUBTRACT ? -1 : 0;
    const UpdateJob job = {*acc,     *entries, among != nullptr ? *among : tri_entries{},
                           decision, matched,  sign};
    const uint32_t blocks = blocks_for(entries->capacity, kBatch, kMaxBlocks);
    if (among == nullptr)
        return dispatch_sum(acc->dtype, [&](auto sum) {
            return launch_job<update_all<decltype(sum)>>(blocks, kThreads, job, stream);
        });
    const trib_status status = zero_word(matched, stream);
    if (status != TRIB_OK)
        return status;
    return dispatch_sum(acc->dtype, [&](auto sum) {
        return launch_job<update_among<decltype(sum)>>(blocks, kThreads, job, stream);
    });
}
