// write_entries, write_dense: sums become the result, divided and rounded once.
#include "kernels/cuda/dispatch.cuh"
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
__global__ void __launch_bounds__(kThreads) write_entries(const EntriesJob<T> job)
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
    note_overflow(job.overflow, overflows);
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

// From sums of type S, which T holds.
template <typename S, typename T, typename Out, int V>
__global__ void __launch_bounds__(kThreads) write_dense(const DenseJob<T> job)
{
    const Vector<S, V> *from = static_cast<const Vector<S, V> *>(job.sum);
    Vector<Out, V> *to = static_cast<Vector<Out, V> *>(job.out);
    const size_t units = job.count / V, stride = static_cast<size_t>(gridDim.x) * kThreads * kDeep;
    bool overflows = false;
    for (size_t base = static_cast<size_t>(blockIdx.x) * kThreads * kDeep; base < units;
         base += stride) {
        Vector<S, V> sum[kDeep] = {};
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
                overflows |= put_quotient(out.element[v], widen(sum[j].element[v]), job.divisor);
            if (i < units)
                to[i] = out;
        }
    }
    const size_t tail = units * V + threadIdx.x;
    if (blockIdx.x == 0 && tail < job.count)
        overflows |= put_quotient(static_cast<Out *>(job.out)[tail],
                                  widen(static_cast<const S *>(job.sum)[tail]), job.divisor);
    note_overflow(job.overflow, overflows);
}

template <typename S, typename T, typename Out>
trib_status launch_dense(const DenseJob<T> &job, trib_stream stream)
{
    constexpr int kV = 16 / sizeof(T);
    const bool aligned = reinterpret_cast<uintptr_t>(job.sum) % (kV * sizeof(S)) == 0 &&
                         reinterpret_cast<uintptr_t>(job.out) % (kV * sizeof(Out)) == 0;
    const uint32_t blocks = blocks_for(job.count, kThreads * 16, 8 * kMaxBlocks);
    return aligned ? launch_job<write_dense<S, T, Out, kV>>(blocks, kThreads, job, stream)
                   : launch_job<write_dense<S, T, Out, 1>>(blocks, kThreads, job, stream);
}

} // namespace

trib_status tri_cuda_sparse_write_entries(const struct tri_entries *entries, uint32_t *index,
                                          uint32_t *count, const struct tri_result *out,
                                          trib_stream stream)
{
    return dispatch_float(out->dtype, [&](auto type) {
        using Out = decltype(type);
        using T = Sum<Out>;
        const uint32_t blocks = blocks_for(entries->capacity, kDeep * kThreads, kMaxBlocks);
        const EntriesJob<T> job = {*entries, index,         out->data,
                                   count,    out->overflow, divisor_of<T>(out->divisor)};
        return launch_job<write_entries<T, Out>>(blocks, kThreads, job, stream);
    });
}

trib_status tri_cuda_sparse_write_dense(const void *sum, trib_dtype dtype, size_t count,
                                        const struct tri_result *out, trib_stream stream)
{
    if (count == 0)
        return TRIB_OK;
    return dispatch_float(dtype == TRIB_F64 ? TRIB_F64 : out->dtype, [&](auto type) {
        using Out = decltype(type);
        using T = Sum<Out>;
        const DenseJob<T> job = {sum, out->data, count, out->overflow, divisor_of<T>(out->divisor)};
        if constexpr (sizeof(T) == 4)
            if (dtype == TRIB_BF16)
                return launch_dense<Bf16, T, Out>(job, stream);
        return launch_dense<T, T, Out>(job, stream);
    });
}
