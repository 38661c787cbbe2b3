// select: the k largest magnitudes of a range, above a threshold, in index order.
//
// The meaning, as a reference would say it:
//
//   floor    = |threshold|, or 0
//   order    = indices i of the range with |acc[i]| > floor, by |acc[i]| descending, then by i
//              ascending
//   selected = the first min(k, length of order) of them, by i ascending
//   out      = (i, acc[i] rounded to out's dtype) for each i in selected
//   clear    : acc[i] -= the rounded value, for each i in selected
//
// Four launches or three do it, and none waits for the host:
//
//   guess      select_guess.cuh      from a sample of acc: a magnitude that somewhat more than k
//                                    elements reach
//   partition  select_partition.cuh  one pass: acc is made and written; an element that reaches the
//                                    guess becomes a candidate
//   filter     select_filter.cuh     an interval with the k-th largest: how many candidates lie
//                                    above it, and which few lie in it
//                                    (where few are selected, finish does without: select_few.cuh)
//   finish     select_finish.cuh     the exact cut, and the selected in index order; if the guess
//                                    missed, of acc itself (select_rounds.cuh)
//
// They share: this file (the work as one parameter, what lies in scratch), select_parts.cuh (the
// candidates in index order, a part per warp), radix_digit.cuh (the digit of the wanted-th
// largest), fours.cuh (the candidates of a tile in shared memory), stream.cuh (moving acc).
// select.cu launches.
//
// Any guess gives the same result: if at least k elements reach it, the k largest do. The contents
// of scratch depend on the order in which warps ran, the output does not: the k largest are a set,
// and places in the output are counted, never reserved by atomics.
#pragma once

#include "kernels/cuda/radix_digit.cuh"
#include "kernels/cuda/stream.cuh"

namespace {

constexpr uint32_t kMostGuesses = 128, kGuessThreads = 1024;
constexpr uint32_t kRounds = 6;    // at most: 63 bits
constexpr uint32_t kGroups = 4096; // of tiles, at most
constexpr uint32_t kMaxFinishBlocks = 512;
constexpr uint32_t kFinishThreads = 1024, kFinishWarps = kFinishThreads / kWarp;
constexpr uint32_t kPhases = kRounds + 4; // of finish, at most, and one that nobody does

// Fours that a lane has of a tile. What is done once a tile, and waits, counts for less where more is
// read at a time; as many as there are registers for.
template <typename T, typename G>
constexpr uint32_t kSteps = sizeof(T) == 8      ? 4
                            : Has<G>::kGradient ? 8
                                                : 16;
template <typename T>
constexpr uint32_t kSmallestTile = (sizeof(T) == 8 ? 4 : 8) * kWarp * kFour;

// The place of a tile's candidates, in index order; none if `base + count` is beyond the room.
struct Tile {
    uint32_t base, count;
};

constexpr uint32_t kMostInside = 1u << 15;

// Of some elements: above the cut, and equal to it.
struct Counts {
    uint32_t above, equal;
};

// Add what each thread of a block has counted to `sums`, in shared memory.
__device__ inline void add_counts(Counts &sums, Counts mine)
{
    mine = {warp_sum(mine.above), warp_sum(mine.equal)};
    if (lane_of() == 0 && (mine.above | mine.equal) != 0) {
        atomicAdd(&sums.above, mine.above);
        atomicAdd(&sums.equal, mine.equal);
    }
}

// Zeroed by guess.
struct Control {
    uint64_t low;        // the least key of a candidate: the guess, as partition used it
    uint64_t floor;      // keys above this can be selected
    uint32_t candidates; // that were found, also those for which there was no room
    uint32_t reserved;   // places, also beyond the room; one without a candidate holds the value 0
    uint32_t lost;       // 1: there was no room for some
    uint64_t base;       // of the interval with the k-th largest, written by filter;
    int32_t shift;       // it is 2^shift wide,
    uint32_t wanted;     // so many of it are wanted,
    uint32_t inside;     // and so many candidates are in it
    uint32_t filtered;   // 1: filter has written these
    uint32_t above[kMaxFinishBlocks]; // candidates beyond the interval, in the parts of a block
    uint32_t groups[kGroups];         // candidates in a group of tiles
    uint32_t drawn[kPhases], done[kPhases]; // tasks of finish
    uint32_t window[kDigits];               // candidates by the distance of their keys from `low`
    uint32_t digits[kRounds][kDigits];
};

struct Select {
    tri_accumulator acc;
    tri_entries out;
    const void *threshold;
    tri_signing signing;
    uint32_t *nonfinite; // in the header that is signed
    uint32_t *fallbacks;
    void *kth;
    uint64_t first, count;
    Control *control;
    uint64_t *guesses; // kMostGuesses
    Counts *parts;     // of the warps of filter and finish: what they hold
    void *inside;      // candidates in the interval: how far they are above its base, as keys,
    uint32_t *owner;   // and the warp in whose part they lie
    Tile *tile;
    uint32_t *index; // of candidates
    void *value;
    uint32_t tiles, group_bits; // 2^group_bits neighbouring tiles are a group
    uint32_t capacity;          // of candidates
    uint32_t
        chunk; // places that a warp of partition reserves at a time; 0: as many as a tile takes
    uint32_t inside_capacity;
    uint32_t k; // at most count
    uint32_t
        rank; // of the guess in a block's sample, in parts of `guessers`; 0: no sample is taken
    uint32_t guessers; // blocks
    tri_guess guess;
    bool clear;
    bool few; // there is no filter
};

// Do the candidates suffice?
struct Need {
    uint32_t candidates;
    bool missed;     // the guess missed: finish reads all of acc
    uint32_t wanted; // so many are selected, or fewer if it missed
};

__device__ inline Need need_of(const Select &job)
{
    const uint32_t candidates = job.control->candidates;
    const bool all = job.control->low == job.control->floor + 1; // that may be selected
    const bool missed = job.k != 0 && (job.control->lost != 0 || (candidates < job.k && !all));
    return {candidates, missed, missed || job.k < candidates ? job.k : candidates};
}

// Places that candidates may lie in.
__device__ inline uint32_t places_of(const Select &job)
{
    return min(job.control->reserved, job.capacity);
}

// No key is so high.
template <typename T>
constexpr uint64_t kNothing = uint64_t(1) << KeyOf<T>::kBits;

// Keys above this can be selected.
template <typename T>
__device__ inline Key<T> floor_of(const Select &job)
{
    return job.threshold == nullptr ? 0 : key_of(*static_cast<const T *>(job.threshold));
}

// The distance of two neighbouring digits of Control.window: it covers half an octave.
template <typename T>
constexpr int kWindowShift = (sizeof(T) == 8 ? 52 : 23) - 1 - static_cast<int>(kDigitBits);

// Tiles of a range: it may begin anywhere in its first four.
inline uint32_t tiles_of(uint64_t count, uint32_t tile)
{
    return count == 0 ? 0 : static_cast<uint32_t>((count + kFour - 1 + tile - 1) / tile);
}

// Candidates that there is room for.
inline uint32_t room_of(uint64_t count, uint64_t k)
{
    const uint64_t wanted = 2 * k + count / 64 + 4096;
    return static_cast<uint32_t>(wanted < count ? wanted : count);
}

constexpr uint32_t kMostChunk = 256;

// Select.chunk: what `warps` leave of their last ones is at most a quarter of the room. None if the
// room is that of all elements, or so little that it would save nothing; or if so many places could be
// reserved that Control.reserved wraps. (A chunk that a warp has used up has served four tiles or more,
// which have more elements than it has places; a tile that draws alone has them, too.)
constexpr uint32_t chunk_of(uint64_t count, uint32_t capacity, uint32_t warps)
{
    const uint32_t each = capacity / 4 / warps;
    if (capacity == count || each < 16 || count + uint64_t(kMostChunk) * warps > UINT32_MAX)
        return 0;
    return each < kMostChunk ? each : kMostChunk;
}
static_assert(chunk_of(8 << 20, 151944, 2112) == 17 && chunk_of(8 << 20, 8 << 20, 2112) == 0 &&
                  chunk_of(1000003, 39722, 992) == 0,
              "a quarter of the room, if that is worth it");
static_assert(chunk_of(UINT32_MAX - 256 * 2112, 1u << 27, 2112) == 256 &&
                  chunk_of(UINT32_MAX - 256 * 2112 + 1, 1u << 27, 2112) == 0,
              "no count of places wraps");

} // namespace
