// keep: a list of slices as a table on the device, which pack_kept and unpack_kept read. It travels in
// launches, as every list does, so that the caller's is free when the call returns, and no copy waits
// for host memory.
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/kernels_cuda.h"

namespace {

// One launch: entries [begin, begin + job.n) of the table, whose units count from the bucket's first.
template <uint32_t Capacity>
struct Part {
    Table table;
    uint32_t begin;
    Job<Capacity> job;
};

constexpr uint32_t kBlock = 256; // threads
constexpr uint32_t kBeside = 4;  // slices that what Part adds to Job takes the room of
constexpr uint32_t kSmallPart = kSmall - kBeside, kLargePart = kLarge - kBeside;
static_assert(sizeof(Part<kSmallPart>) <= 4096 &&
                  sizeof(Part<kLargePart>) <= (kLarge == kSmall ? 4096 : 32764),
              "a part exceeds the limit of parameters");

template <uint32_t Capacity>
__global__ void keep_part(const __grid_constant__ Part<Capacity> part)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > part.job.n)
        return;
    const uint32_t base = static_cast<uint32_t>(part.job.base);
    const uint32_t first = base + part.job.first[i];
    part.table.first[part.begin + i] = first; // the end of one part begins the next
    if (i == part.job.n)
        return;
    if ((part.begin + i) % kSample == 0)
        part.table.sample[(part.begin + i) / kSample] = first;
    part.table.data[part.begin + i] = part.job.data[i];
    part.table.tail[part.begin + i] = part.job.tail[i];
}

template <uint32_t Capacity>
trib_status keep_parts(Request request, const Table &table, trib_stream stream)
{
    Part<Capacity> part;
    part.table = table;
    part.begin = 0;
    do {
        next_job(part.job, request);
        void *arguments[] = {&part};
        const trib_status status =
            launch_kernel<keep_part<Capacity>>(part.job.n / kBlock + 1, kBlock, arguments, stream);
        if (status != TRIB_OK)
            return status;
        part.begin += part.job.n;
    } while (request.slice < request.n);
    return TRIB_OK;
}

} // namespace

trib_status tri_cuda_keep(void *table, const struct tri_slice *slices, size_t n,
                          const struct tri_bucket *bucket, trib_stream stream)
{
    const Request request = {slices, n, bucket, nullptr, nullptr};
    const Table at = table_at(table, n);
    return travels_large(n) ? keep_parts<kLargePart>(request, at, stream)
                            : keep_parts<kSmallPart>(request, at, stream);
}
