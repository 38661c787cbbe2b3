/* Even shares of the work. */
#include "csrc/sparse/algorithms/balance.h"

#include "csrc/sparse/algorithms/p2p_batch.h"

static uint64_t share_of(uint64_t total, int32_t size, int32_t b)
{
    const uint64_t longer = total % (uint64_t)size;
    return total / (uint64_t)size * (uint64_t)b + ((uint64_t)b < longer ? (uint64_t)b : longer);
}

/* The index with `target` entries below it, fewer than all; bins before *bin hold *below. */
static uint64_t bound_at(uint64_t target, const uint32_t *bins, uint32_t width, uint32_t *bin,
                         uint64_t *below)
{
    while (*below + bins[*bin] <= target)
        *below += bins[(*bin)++];
    return (uint64_t)*bin * width + (target - *below) * width / bins[*bin];
}

void tri_balance_bounds(uint64_t *bounds, int32_t size, size_t count, const uint32_t *bins,
                        uint32_t nbins, uint32_t width)
{
    uint64_t total = 0, below = 0;
    uint32_t bin = 0;
    for (uint32_t b = 0; b < nbins; b++)
        total += bins[b];
    bounds[0] = 0;
    for (int32_t b = 1; b < size; b++) {
        const uint64_t all = total == 0 ? count : total;
        const uint64_t share = all * (uint64_t)b / (uint64_t)size; /* fewer than all */
        const uint64_t at = total == 0 ? share : bound_at(share, bins, width, &bin, &below);
        bounds[b] = at < count ? at : count; /* which may end within the last bin */
    }
    bounds[size] = count;
}

/* Rank r's own bounds ascend, and none is above the count. */
static trib_status check_own(const struct tri_run *run, int32_t r, const uint32_t *own)
{
    struct tri_sent sent = {.rank = r, .what = "a bound of regions", .most = run->params->count};
    for (int32_t b = 1; b < run->params->size; b++) {
        sent.found = own[b];
        TRI_TRY(tri_run_check(run, &sent));
        sent.least = own[b];
    }
    return TRIB_OK;
}

trib_status tri_balance_mean(const struct tri_run *run, uint64_t *bounds, const uint32_t *own)
{
    const int32_t size = run->params->size;
    for (int32_t r = 0; r < size; r++)
        TRI_TRY(check_own(run, r, own + (size_t)r * (size_t)size));
    bounds[0] = 0;
    for (int32_t b = 1; b < size; b++) {
        uint64_t sum = 0; /* of at most 64 numbers of 32 bits */
        for (int32_t r = 0; r < size; r++)
            sum += own[(size_t)r * (size_t)size + (size_t)b];
        bounds[b] = sum / (uint64_t)size;
    }
    bounds[size] = run->params->count;
    return TRIB_OK;
}

/* The intersection of two ranges of the list. */
struct range {
    uint64_t begin, end;
};

static struct range common(struct range a, struct range b)
{
    const uint64_t begin = a.begin > b.begin ? a.begin : b.begin;
    const uint64_t end = a.end < b.end ? a.end : b.end;
    return (struct range){begin, end > begin ? end : begin};
}

/* The part of a list that begins at `origin` of the whole one. */
static struct tri_entries part_at(const struct tri_entries *entries, uint64_t origin,
                                  struct range range)
{
    if (range.begin == range.end)
        return tri_entries_part(entries, 0, 0);
    return tri_entries_part(entries, (size_t)(range.begin - origin),
                            (size_t)(range.end - range.begin));
}

trib_status tri_balance_blocks(struct tri_run *run, const struct tri_entries *entries,
                               uint32_t *counts, const struct tri_entries *block)
{
    const int32_t rank = run->params->rank, size = run->params->size;
    struct range held[TRI_MAX_LISTS], wanted[TRI_MAX_LISTS];
    struct tri_p2p_batch batch = {.nsends = 0, .nreceives = 0};
    uint64_t total = 0;
    for (int32_t r = 0; r < size; r++) {
        held[r] = (struct range){total, total + counts[r]};
        total += counts[r];
    }
    for (int32_t r = 0; r < size; r++) {
        wanted[r] = (struct range){share_of(total, size, r), share_of(total, size, r + 1)};
        counts[r] = (uint32_t)(wanted[r].end - wanted[r].begin);
    }
    for (int32_t distance = 1; distance < size; distance++) {
        const int32_t to = (rank + distance) % size, from = (rank + size - distance) % size;
        const struct tri_entries leaving =
            part_at(entries, held[rank].begin, common(held[rank], wanted[to]));
        const struct tri_entries incoming =
            part_at(block, wanted[rank].begin, common(held[from], wanted[rank]));
        tri_p2p_batch_send(&batch, to, &leaving);
        tri_p2p_batch_receive(&batch, from, &incoming);
    }
    const struct range staying = common(held[rank], wanted[rank]);
    const struct tri_entries kept = part_at(entries, held[rank].begin, staying);
    const struct tri_entries place = part_at(block, wanted[rank].begin, staying);
    TRI_TRY(tri_run_put_entries(run, &place, &kept));
    return tri_p2p_batch_exchange(run, &batch);
}
