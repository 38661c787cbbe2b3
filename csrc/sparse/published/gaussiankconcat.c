/* gaussiankconcat: gaussiank with one message from rank to rank.
 *
 * Problem. gaussiank sends indices and values as messages of their own. If a message costs much
 * and its bytes little, one is better than two.
 *
 * Paper. A variant in Ok-Topk's published code (Li and Hoefler, PPoPP 2022).
 *
 *   1. As steps 1 to 5 of gaussiank: every rank has chosen, and all ranks know the numbers of
 *      entries.
 *   2. Every rank copies its entries into one block: all indices, as 32 bits, then all values.
 *   3. One message from every rank to every other one. A rank may have none.
 *   4. The result is the sum of the lists, which are read in the blocks where they lie, in rank
 *      order; or its average. The decision; the residual loses what was chosen.
 *
 * Cost: in words as gaussiank; P - 1 messages instead of 2 (P - 1), two small copies more.
 *
 * Invariant. As in gaussiank.
 *
 * Different from the published code, where the block is of float32, in which integers are exact up
 * to 2^24 only, so that in larger tensors values were added at wrong indices. Here indices stay
 * integers, exact for all 2^32 - 1 elements. And see gaussiank. */
#include "csrc/base/size.h"
#include "csrc/sparse/link.h"
#include "csrc/sparse/published/gaussian.h"

enum { ALIGN = 16 };

struct gaussiankconcat {
    struct tri_gaussian gaussian;
    char *blocks; /* of all ranks, in rank order without gaps */
};

static size_t value_offset(size_t n)
{
    return tri_round_up(n * sizeof(uint32_t), ALIGN);
}

static size_t block_bytes(size_t n, trib_dtype dtype)
{
    return value_offset(n) + tri_round_up(n * trib_dtype_size(dtype), ALIGN);
}

/* The entries in a block of `n`. */
static struct tri_entries block_entries(char *block, uint32_t n, trib_dtype dtype)
{
    return (struct tri_entries){.index = (uint32_t *)(void *)block,
                                .value = block + value_offset(n),
                                .capacity = n,
                                .dtype = dtype};
}

static void lay_out(void *memory, struct tri_arena *arena, const struct tri_sparse_params *params)
{
    struct gaussiankconcat *own = memory;
    tri_gaussian_lay_out(&own->gaussian, arena, params);
    own->blocks =
        tri_arena_take(arena, (size_t)params->size * block_bytes(tri_limit(params), params->wire));
}

static struct tri_message message(int32_t peer, const struct tri_entries *block)
{
    const size_t n = block->capacity;
    return (struct tri_message){.peer = peer,
                                .data = block->index,
                                .bytes = n == 0 ? 0 : block_bytes(n, block->dtype),
                                .payload = tri_entries_bytes(block->capacity, block->dtype)};
}

/* Every rank's block to all, at the next rank first, so that no rank is everybody's first. */
static trib_status exchange(struct tri_run *run, const struct tri_entries *lists)
{
    struct tri_message sends[TRI_MAX_LISTS], receives[TRI_MAX_LISTS];
    const int32_t rank = run->params->rank, size = run->params->size;
    for (int32_t distance = 1; distance < size; distance++) {
        const int32_t to = (rank + distance) % size, from = (rank + size - distance) % size;
        sends[distance - 1] = message(to, &lists[rank]);
        receives[distance - 1] = message(from, &lists[from]);
    }
    return tri_link_exchange(run, sends, (size_t)size - 1, receives, (size_t)size - 1);
}

static trib_status gaussiankconcat_run(struct tri_run *run, void *memory)
{
    struct gaussiankconcat *own = memory;
    struct tri_counted *counted = &own->gaussian.counted;
    const trib_dtype wire = run->params->wire;
    struct tri_entries lists[TRI_MAX_LISTS];
    char *block = own->blocks;
    TRI_TRY(tri_gaussian_choose(run, &own->gaussian));
    if (!counted->consistent)
        return tri_counted_finish(run, counted, NULL, false);
    for (int32_t r = 0; r < run->params->size; block += block_bytes(counted->counts[r++], wire))
        lists[r] = block_entries(block, counted->counts[r], wire);
    TRI_TRY(tri_run_put_entries(run, &lists[run->params->rank], &counted->chosen));
    TRI_TRY(exchange(run, lists));
    return tri_counted_finish(run, counted, lists, false);
}

static struct tri_persistent persistent(void *memory)
{
    struct gaussiankconcat *own = memory;
    return tri_gaussian_persistent(&own->gaussian);
}

const struct tri_algorithm tri_sparse_gaussiankconcat = {
    .name = "gaussiankconcat",
    .waits = true,
    .own_bytes = sizeof(struct gaussiankconcat),
    .lay_out = lay_out,
    .entries = tri_counted_entries,
    .capacity = tri_counted_capacity,
    .run = gaussiankconcat_run,
    .persistent = persistent,
    .valid = tri_gaussian_valid,
};
