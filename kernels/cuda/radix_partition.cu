// radix_partition: entries on the two sides of a cut.
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/partition.cuh"
#include "kernels/cuda/sparse_cuda.h"

namespace {

template <typename T>
struct Sides {
    using Type = T;
    tri_entries entries, kept, dropped;
    const tri_cut *cut;
    bool drops; // the caller wants `dropped`

    __device__ uint32_t n() const
    {
        return count_of(entries);
    }
    __device__ Level level() const
    {
        return {cut->key, cut->key == 0 ? 0 : cut->ties};
    }
    __device__ Key<T> load(uint32_t i, bool wanted) const
    {
        return load_bits<T>(wanted, entries.value, entries.dtype, i);
    }
    __device__ T value(uint32_t i, Key<T> bits) const
    {
        return value_of<T>(bits, entries.value, entries.dtype, i);
    }
    __device__ uint32_t load_index(uint32_t i, bool wanted) const
    {
        return load_if(wanted, entries.index + i, 0);
    }
    __device__ void copy(const tri_entries &out, uint32_t index, T value, uint32_t at) const
    {
        if (at >= out.capacity)
            return;
        out.index[at] = index;
        put_value(out.value, out.dtype, at, value);
    }
    __device__ void keep(uint32_t, uint32_t index, T value, uint32_t at) const
    {
        copy(kept, index, value, at);
    }
    __device__ void drop(uint32_t, uint32_t index, T value, uint32_t at) const
    {
        if (drops)
            copy(dropped, index, value, at);
    }
    __device__ void end(uint32_t in, uint32_t out) const
    {
        if (kept.count != nullptr)
            *kept.count = min(in, kept.capacity);
        if (drops && dropped.count != nullptr)
            *dropped.count = min(out, dropped.capacity);
    }
};

} // namespace

trib_status tri_cuda_sparse_radix_partition(const struct tri_entries *entries,
                                            const struct tri_cut *cut,
                                            const struct tri_entries *kept,
                                            const struct tri_entries *dropped, void *scratch,
                                            trib_stream stream)
{
    const bool drops = dropped != nullptr;
    const tri_entries out = drops ? *dropped : tri_entries{};
    return dispatch_sum(entries->dtype, [&](auto sum) {
        return partition(Sides<decltype(sum)>{*entries, *kept, out, cut, drops}, entries->capacity,
                         scratch, stream);
    });
}
