// deliver, deliver_dense: sums become the result, divided and rounded once. withdraw: it becomes 0.
#include "kernels/cuda/entries.cuh"
#include "kernels/cuda/sparse_cuda.h"

namespace {

constexpr uint32_t kDeep = 4; // loads of a thread that are on their way together

// ---------------------------------------------------------------------------------------- entries

template <typename T>
struct EntriesJob {
    tri_entries entries;
    uint32_t *index;
    void *value;
    uint32_t *count;
    uint32_t *overflow;
    Divisor<T> divisor;
};

template <typename T, typename Out>
__global__ void __launch_bounds__(kThreads) deliver(const EntriesJob<T> job)
{
    const uint32_t n = count_of(job.entries);
    bool overflows = false;
    if (blockIdx.x == 0 && threadIdx.x == 0)
        *job.count = n;
    const size_t stride = static_cast<size_t>(gridDim.x) * kDeep * kThreads;
    for (size_t base = static_cast<size_t>(blockIdx.x) * kDeep * kThreads; base < n;
         base += stride) {
        Loaded<T> loaded[kDeep];
#pragma unroll
        for (uint32_t j = 0; j < kDeep; j++) {
            const size_t i = base + j * kThreads + threadIdx.x;
            loaded[j] = load_entry<T>(i < n, job.entries, i);
        }
#pragma unroll
        for (uint32_t j = 0; j < kDeep; j++) {
            const size_t i = base + j * kThreads + threadIdx.x;
            if (i >= n)
                continue;
            job.index[i] = loaded[j].index;
            overflows |= put_quotient(static_cast<Out *>(job.value)[i],
                                      value_of(loaded[j], job.entries, i), job.divisor);
        }
    }
    tell_overflow(job.overflow, overflows);
}

// ------------------------------------------------------------------------------------------ dense

template <typename T>
struct DenseJob {
    const void *sum;
    void *out;
    size_t count;
    uint32_t *overflow;
    Divisor<T> divisor;
};

// `V` elements that are loaded and stored as one.
template <typename T, int V>
struct alignas(sizeof(T) * V) Vector {
    T element[V];
};

template <typename T, typename Out, int V>
__global__ void __launch_bounds__(kThreads) deliver_dense(const DenseJob<T> job)
{
    const Vector<T, V> *from = static_cast<const Vector<T, V> *>(job.sum);
    Vector<Out, V> *to = static_cast<Vector<Out, V> *>(job.out);
    const size_t units = job.count / V, stride = static_cast<size_t>(gridDim.x) * kThreads * kDeep;
    bool overflows = false;
    for (size_t base = static_cast<size_t>(blockIdx.x) * kThreads * kDeep; base < units;
         base += stride) {
        Vector<T, V> sum[kDeep] = {};
#pragma unroll
        for (uint32_t j = 0; j < kDeep; j++) {
            const size_t i = base + j * kThreads + threadIdx.x;
            if (i < units)
                sum[j] = from[i];
        }
#pragma unroll
        for (uint32_t j = 0; j < kDeep; j++) {
            const size_t i = base + j * kThreads + threadIdx.x;
            Vector<Out, V> out;
#pragma unroll
            for (int v = 0; v < V; v++)
                overflows |= put_quotient(out.element[v], sum[j].element[v], job.divisor);
            if (i < units)
                to[i] = out;
        }
    }
    const size_t tail = units * V + threadIdx.x;
    if (blockIdx.x == 0 && tail < job.count)
        overflows |= put_quotient(static_cast<Out *>(job.out)[tail],
                                  static_cast<const T *>(job.sum)[tail], job.divisor);
    tell_overflow(job.overflow, overflows);
}

template <typename T, typename Out>
trib_status launch_dense(const DenseJob<T> &job, trib_stream stream)
{
    constexpr int kV = 16 / sizeof(T);
    const bool aligned = reinterpret_cast<uintptr_t>(job.sum) % 16 == 0 &&
                         reinterpret_cast<uintptr_t>(job.out) % (kV * sizeof(Out)) == 0;
    const uint32_t blocks = blocks_for(job.count, kThreads * 16, 8 * kMaxBlocks);
    return launch_job(aligned ? deliver_dense<T, Out, kV> : deliver_dense<T, Out, 1>, blocks,
                      kThreads, job, stream);
}

// --------------------------------------------------------------------------------------- withdraw

struct WithdrawJob {
    unsigned char *dense;
    size_t bytes;
    uint32_t *count;
    const uint32_t *decision;
};

// In 16 bytes, but for what lies before the first such unit and behind the last.
__global__ void __launch_bounds__(kThreads) withdraw(const WithdrawJob job)
{
    if (*job.decision != 0)
        return;
    const size_t place = static_cast<size_t>(blockIdx.x) * kThreads + threadIdx.x;
    const size_t misplaced = reinterpret_cast<uintptr_t>(job.dense) % 16;
    const size_t head = min((16 - misplaced) % 16, job.bytes), units = (job.bytes - head) / 16;
    uint4 *to = reinterpret_cast<uint4 *>(job.dense + head);
    for (size_t i = place; i < units; i += static_cast<size_t>(gridDim.x) * kThreads)
        to[i] = uint4{};
    if (place < head)
        job.dense[place] = 0;
    const size_t tail = head + units * 16 + place;
    if (place < 16 && tail < job.bytes)
        job.dense[tail] = 0;
    if (place == 0 && job.count != nullptr)
        *job.count = 0;
}

} // namespace

trib_status tri_cuda_sparse_deliver(const struct tri_entries *entries, uint32_t *index, void *value,
                                    trib_dtype out_dtype, uint32_t *count, double divisor,
                                    uint32_t *overflow, trib_stream stream)
{
    const uint32_t blocks = blocks_for(entries->capacity, kDeep * kThreads, kMaxBlocks);
    const EntriesJob<float> job = {*entries, index,    value,
                                   count,    overflow, divisor_of<float>(divisor)};
    switch (out_dtype) {
    case TRIB_F64:
        return launch_job(deliver<double, double>, blocks, kThreads,
                          EntriesJob<double>{*entries, index, value, count, overflow,
                                             divisor_of<double>(divisor)},
                          stream);
    case TRIB_F16:
        return launch_job(deliver<float, F16>, blocks, kThreads, job, stream);
    case TRIB_BF16:
        return launch_job(deliver<float, Bf16>, blocks, kThreads, job, stream);
    default:
        return launch_job(deliver<float, float>, blocks, kThreads, job, stream);
    }
}

trib_status tri_cuda_sparse_deliver_dense(const void *sum, trib_dtype dtype, size_t count,
                                          void *out, trib_dtype out_dtype, double divisor,
                                          uint32_t *overflow, trib_stream stream)
{
    if (count == 0)
        return TRIB_OK;
    const DenseJob<float> job = {sum, out, count, overflow, divisor_of<float>(divisor)};
    if (dtype == TRIB_F64)
        return launch_dense<double, double>(
            {sum, out, count, overflow, divisor_of<double>(divisor)}, stream);
    switch (out_dtype) {
    case TRIB_F16:
        return launch_dense<float, F16>(job, stream);
    case TRIB_BF16:
        return launch_dense<float, Bf16>(job, stream);
    default:
        return launch_dense<float, float>(job, stream);
    }
}

// Few blocks, for there is next to never anything to do.
trib_status tri_cuda_sparse_withdraw(void *dense, size_t bytes, uint32_t *count,
                                     const uint32_t *decision, trib_stream stream)
{
    const WithdrawJob job = {static_cast<unsigned char *>(dense), dense == nullptr ? 0 : bytes,
                             count, decision};
    return launch_job(withdraw, blocks_for(job.bytes, kThreads * 64, kMaxBlocks / 4), kThreads, job,
                      stream);
}
