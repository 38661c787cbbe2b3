// fit, adjust_threshold: move a threshold until about as many magnitudes lie above it as are
// wanted.
//
// With any counts, the threshold moves on a ladder that is known at once: up from its start, or
// down. So one pass over acc finds how many magnitudes lie above each
// rung. Only where the threshold was raised too far, and has to fall by other steps, a second
// pass is needed, over a new ladder. A pass ends in its last block, which decides.
//
// A step multiplies or divides by at least 1: rungs ascend.
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/entries.cuh"
#include "kernels/cuda/sparse_cuda.h"

namespace {

constexpr uint32_t kMaxSteps = 64, kRungs = kMaxSteps + 1;

template <typename T>
struct Ladder {
    T rung[kRungs];               // ascending: `down` below the start, the start, `up` above it
    uint32_t between[kRungs + 1]; // magnitudes above so many rungs: of those above the lowest
    uint32_t down, up;
    uint32_t blocks; // that have added theirs
    bool done;
};
static_assert(sizeof(Ladder<double>) <= kEntriesScratch, "the ladder exceeds the scratch");

template <typename T>
struct FitJob {
    tri_accumulator acc;
    tri_fit fit;
    Ladder<T> *ladder;
    T *threshold;
};

// Threads 0 and 32 of a block: rungs below and above `start`, `down` and `up` of them.
template <typename T>
__device__ inline void build(Ladder<T> &ladder, const tri_fit &fit, T start, uint32_t down,
                             uint32_t up)
{
    T at = start;
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < down; i++)
            ladder.rung[down - 1 - i] = at = static_cast<T>(at / fit.lower);
        ladder.rung[down] = start;
        ladder.down = down;
        ladder.up = up;
        ladder.blocks = 0;
        ladder.done = false;
    } else if (threadIdx.x == kWarp) {
        for (uint32_t i = 0; i < up; i++)
            ladder.rung[down + 1 + i] = at = static_cast<T>(at * fit.raise);
    }
    for (uint32_t i = threadIdx.x; i <= kRungs; i += blockDim.x)
        ladder.between[i] = 0;
}

template <typename T>
__global__ void __launch_bounds__(kThreads) start_fit(const FitJob<T> job, const T *start)
{
    const T at = *start;
    build(*job.ladder, job.fit, at, job.fit.lower_steps, job.fit.raise_steps);
    __syncthreads(); // `start` may be `threshold`
    if (threadIdx.x == 0)
        *job.threshold = at;
}

// The number of the n ascending keys below `key`.
template <typename K>
__device__ inline uint32_t rungs_below(const K *keys, uint32_t n, K key)
{
    uint32_t low = 0, high = n;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (keys[middle] < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// A key above the lowest rung waits in a queue of its warp until there is one for every lane: else
// all lanes would climb for each of the few.
constexpr uint32_t kQueue = 2 * kWarp;

template <typename K>
struct Counter {
    const K *keys; // of the n rungs
    uint32_t n;
    uint32_t *between;
    K *queue;
    uint32_t waiting;

    // By all lanes.
    __device__ void take(K key)
    {
        const uint32_t above = __ballot_sync(kAllLanes, key > keys[0]);
        if (above == 0)
            return;
        const uint32_t place = waiting + __popc(above & ((1u << lane_of()) - 1));
        if (key > keys[0])
            queue[place] = key;
        waiting += __popc(above);
        __syncwarp();
        if (waiting >= kWarp)
            empty(kWarp);
    }
    // The last `number` of those that wait.
    __device__ void empty(uint32_t number)
    {
        waiting -= number;
        if (lane_of() < number)
            atomicAdd(&between[rungs_below(keys, n, queue[waiting + lane_of()])], 1);
        __syncwarp();
    }
};

// Count this block's part of acc: neighbouring threads take neighbouring elements.
template <typename T>
__device__ inline void count_between(Counter<Key<T>> counter, const tri_accumulator &acc)
{
    constexpr uint32_t kDeep = 16;
    const T *sum = sum_of<T>(acc);
    const size_t step = kDeep * kThreads;
    for (size_t base = blockIdx.x * step; base < acc.count; base += gridDim.x * step) {
        T value[kDeep];
#pragma unroll
        for (uint32_t j = 0; j < kDeep; j++) {
            const size_t i = base + j * kThreads + threadIdx.x;
            value[j] = i < acc.count ? sum[i] : T(0); // above no rung
        }
#pragma unroll
        for (uint32_t j = 0; j < kDeep; j++)
            counter.take(key_of(value[j]));
    }
    counter.empty(counter.waiting);
}

// The rung of the new threshold, by the number of keys above each. True if it is not on this
// ladder: then another one has to start at `rung`.
__device__ inline bool climb(const uint32_t *above, const tri_fit &fit, uint32_t down, uint32_t up,
                             uint32_t &rung)
{
    rung = down;
    while (rung < down + up && above[rung] > fit.above)
        rung++;
    const uint32_t enough = above[rung] >= fit.below ? 0 : max(fit.enough, fit.below);
    if (above[rung] >= enough || fit.lower_steps == 0)
        return false;
    if (rung != down)
        return true;
    while (rung > 0 && above[rung] < enough)
        rung--;
    return false;
}

// Add this block's counts to those of all. True for the last block, which then sees all of them.
template <typename T>
__device__ inline bool add_counts(Ladder<T> &ladder, const uint32_t *between, uint32_t n)
{
    __shared__ bool last;
    if (threadIdx.x <= n && between[threadIdx.x] != 0)
        atomicAdd(&ladder.between[threadIdx.x], between[threadIdx.x]);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        last = atomicAdd(&ladder.blocks, 1) == gridDim.x - 1;
    __syncthreads();
    if (last)
        __threadfence();
    return last;
}

// In the last block: the threshold, or the ladder of the next pass.
template <typename T>
__device__ inline void decide_threshold(const FitJob<T> &job, uint32_t down, uint32_t up)
{
    __shared__ uint32_t above[kRungs], rung;
    __shared__ bool again;
    Ladder<T> &ladder = *job.ladder;
    if (threadIdx.x == 0) {
        uint32_t sum = 0;
        for (uint32_t i = down + 1 + up; i-- > 0;)
            above[i] = sum += __ldcg(&ladder.between[i + 1]);
        again = climb(above, job.fit, down, up, rung);
    }
    __syncthreads();
    const T at = ladder.rung[rung];
    __syncthreads();
    if (again)
        build(ladder, job.fit, at, job.fit.lower_steps, 0);
    else if (threadIdx.x == 0) {
        ladder.done = true;
        *job.threshold = at;
    }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) fit_pass(const FitJob<T> job)
{
    __shared__ Key<T> keys[kRungs];
    __shared__ uint32_t between[kRungs + 1];
    __shared__ Key<T> queue[kThreads / kWarp][kQueue];
    Ladder<T> &ladder = *job.ladder;
    if (ladder.done)
        return;
    const uint32_t down = ladder.down, up = ladder.up, n = down + 1 + up;
    for (uint32_t i = threadIdx.x; i <= kRungs; i += kThreads) {
        between[i] = 0;
        if (i < n)
            keys[i] = key_of(ladder.rung[i]);
    }
    __syncthreads();
    count_between<T>({keys, n, between, queue[threadIdx.x / kWarp], 0}, job.acc);
    __syncthreads();
    if (add_counts(ladder, between, n))
        decide_threshold(job, down, up);
}

template <typename T>
trib_status launch_fit(const tri_accumulator *acc, const tri_fit *fit, const void *start,
                       void *threshold, void *scratch, trib_stream stream)
{
    FitJob<T> job = {*acc, *fit, static_cast<Ladder<T> *>(scratch), static_cast<T *>(threshold)};
    const T *from = static_cast<const T *>(start);
    void *arguments[] = {&job, &from};
    const uint32_t blocks = blocks_for(acc->count, 16 * kThreads, kMaxBlocks);
    const uint32_t passes = fit->raise_steps != 0 && fit->lower_steps != 0   ? 2
                            : fit->raise_steps != 0 || fit->lower_steps != 0 ? 1
                                                                             : 0;
    trib_status status = launch_kernel<start_fit<T>>(1, kThreads, arguments, stream);
    for (uint32_t pass = 0; pass < passes && status == TRIB_OK; pass++)
        status = launch_job<fit_pass<T>>(blocks, kThreads, job, stream);
    return status;
}

template <typename T>
__global__ void adjust_threshold(T *kept, const T *threshold, const uint32_t *count,
                                 const tri_fit fit, bool moves, const uint32_t *decision)
{
    if (*decision == 0)
        return;
    const T at = *threshold;
    if (moves && *count < fit.below)
        *kept = static_cast<T>(at / fit.lower);
    else if (moves && *count > fit.above)
        *kept = static_cast<T>(at * fit.raise);
    else
        *kept = at;
}

} // namespace

trib_status tri_cuda_sparse_fit(const struct tri_accumulator *acc, const struct tri_fit *fit,
                                const void *start, void *threshold, void *scratch,
                                trib_stream stream)
{
    return dispatch_sum(acc->dtype, [&](auto sum) {
        return launch_fit<decltype(sum)>(acc, fit, start, threshold, scratch, stream);
    });
}

trib_status tri_cuda_sparse_adjust_threshold(void *kept, const void *threshold, trib_dtype dtype,
                                             const uint32_t *count, const struct tri_fit *fit,
                                             const uint32_t *decision, trib_stream stream)
{
    bool moves = fit != nullptr;
    tri_fit by = moves ? *fit : tri_fit{};
    void *arguments[] = {&kept, &threshold, &count, &by, &moves, &decision};
    return dispatch_sum(dtype, [&](auto sum) {
        return launch_kernel<adjust_threshold<decltype(sum)>>(1, 1, arguments, stream);
    });
}
