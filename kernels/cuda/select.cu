// select: the k largest of a range, as select.cuh explains. Here: the choice of kernels, the number
// of blocks, and the layout of scratch.
#include "kernels/cuda/select_finish.cuh"
#include "kernels/cuda/select_partition.cuh"
#include "kernels/cuda/sparse_cuda.h"

namespace {

// Lay `job` out in scratch, for ranges of `count` elements and selections of k; returns the bytes.
size_t lay_out(Select &job, void *scratch, uint64_t count, uint32_t k, trib_dtype dtype)
{
    const size_t element = trib_dtype_size(dtype);
    const uint32_t tile = dtype == TRIB_F64 ? kSmallestTile<double> : kSmallestTile<float>;
    char *const base = static_cast<char *>(scratch);
    size_t used = 0;
    const auto take = [&](size_t bytes) {
        char *const at = base == nullptr ? nullptr : base + used;
        used += aligned_up(bytes);
        return static_cast<void *>(at);
    };
    job.capacity = room_of(count, k);
    job.control = static_cast<Control *>(take(sizeof(Control)));
    job.guesses = static_cast<uint64_t *>(take(kMostGuesses * sizeof(uint64_t)));
    job.parts = static_cast<Counts *>(take(kMaxFinishBlocks * kFinishWarps * sizeof(Counts)));
    job.inside_capacity = job.capacity < kMostInside ? job.capacity : kMostInside;
    job.inside = take(job.inside_capacity * element);
    job.owner = static_cast<uint32_t *>(take(job.inside_capacity * sizeof(uint32_t)));
    job.tile = static_cast<Tile *>(take(tiles_of(count, tile) * sizeof(Tile)));
    job.index = static_cast<uint32_t *>(take(job.capacity * sizeof(uint32_t)));
    job.value = take(job.capacity * element);
    return used;
}

template <typename T, typename G>
trib_status run(Select job, trib_stream stream)
{
    constexpr uint32_t kTileSize = kSteps<T, G> * kWarp * kFour;
    const uint32_t processors = multiprocessors();
    const uint32_t finishers =
        job.few ? blocks_for(job.count, kFewSpan, kFewBlocks)
                : blocks_for(job.count, kFinishThreads * 64,
                             processors < kMaxFinishBlocks ? processors : kMaxFinishBlocks);
    job.tiles = tiles_of(job.count, kTileSize);
    while (job.tiles != 0 && (job.tiles - 1) >> job.group_bits >= kGroups)
        job.group_bits++;
    constexpr uint32_t kWarps = kPartitionThreads<T, G> / kWarp;
    const uint32_t blocks = blocks_for(job.tiles, 1, processors);
    // With a velocity a tile takes so long that an addition for each costs nothing.
    job.chunk = Has<G>::kVelocity ? 0 : chunk_of(job.count, job.capacity, blocks * kWarps);
    // Behind the end of what was before, for partition reads the range before it waits.
    trib_status status = launch_job<select_guess<T, G>>(job.guessers, kGuessThreads, job, stream);
    if (status == TRIB_OK)
        status = launch_next<select_partition<T, G>>(blocks, kPartitionThreads<T, G>, job, stream);
    if (status == TRIB_OK && job.few)
        return launch_next<select_finish<T, FinishFewRoom<T>>>(finishers, kFinishThreads, job,
                                                               stream);
    if (status == TRIB_OK)
        status = launch_next<select_filter<T>>(finishers, kFinishThreads, job, stream);
    if (status == TRIB_OK)
        status = launch_next<select_finish<T, FinishRoom>>(finishers, kFinishThreads, job, stream);
    return status;
}

} // namespace

size_t tri_cuda_sparse_select_scratch(size_t count, uint32_t k, trib_dtype dtype)
{
    Select job;
    return lay_out(job, nullptr, count, k < count ? k : static_cast<uint32_t>(count), dtype);
}

trib_status tri_cuda_sparse_select(const struct tri_accumulator *acc,
                                   const struct tri_selection *selection,
                                   const struct tri_entries *out, void *scratch, trib_stream stream)
{
    Select job = {};
    job.acc = *acc;
    job.out = *out;
    job.threshold = selection->threshold;
    job.signing = selection->signing;
    job.nonfinite = nonfinite_of(selection->signing);
    job.fallbacks = selection->fallbacks;
    job.kth = selection->kth;
    job.first = selection->first;
    job.count = selection->count;
    job.k =
        selection->k < selection->count ? selection->k : static_cast<uint32_t>(selection->count);
    job.guess = selection->guess;
    job.clear = selection->clear && selection->accumulate;
    job.few = selects_few(job.count, job.k);
    lay_out(job, scratch, job.count, job.k, acc->dtype);
    // If all elements find room, all are candidates.
    const bool sample = job.k != 0 && job.capacity < job.count && job.guess == TRI_GUESS_SAMPLE;
    job.guessers = guessers_of(job.count);
    job.rank = sample ? rank_of(job.count, job.k, job.guessers) : 0;
    return dispatch_velocity(*acc, selection->accumulate, [&](auto sum, auto gradient) {
        return run<decltype(sum), decltype(gradient)>(job, stream);
    });
}
