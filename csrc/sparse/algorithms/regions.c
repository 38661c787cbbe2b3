/* Split by bounds, exchange to owners, merge.
 *
 *   1. exchange_rows: one small allgather brings every rank's header and the positions of the
 *      bounds in its list, and one fetch brings them to the host: now every rank knows the length
 *      of every message;
 *   2. reduce: all messages at once, rank r's to r + 1, r + 2, ... so that the ranks do not all
 *      begin with the same owner; the owner merges the parts in rank order, its own among them.
 *
 * Cost: a rank sends what it chose outside its own region, and receives what the others chose in
 * it. An entry is two words (index u32, value f32), three with f64, one and a half with bf16.
 *
 * Invariant: an entry lies in one region, so one owner adds it up; the order of a sum is that of
 * the ranks, so it does not depend on the bounds. */
#include "csrc/sparse/algorithms/regions.h"

#include "csrc/base/size.h"
#include "csrc/sparse/algorithms/p2p_batch.h"
#include "csrc/sparse/link.h"

size_t tri_regions_entries(const struct tri_sparse_params *params, size_t chosen, size_t region)
{
    return (size_t)params->size * tri_least(chosen, region);
}

void tri_regions_lay_out(struct tri_regions *regions, struct tri_arena *arena,
                         const struct tri_sparse_params *params, size_t chosen, size_t region)
{
    const size_t size = (size_t)params->size;
    const size_t others = (size - 1) * tri_least(chosen, region);
    regions->most = (uint32_t)tri_least(chosen, UINT32_MAX);
    regions->device_rows = tri_arena_take(arena, size * sizeof *regions->device_rows);
    regions->counts = tri_arena_take(arena, size * sizeof *regions->counts);
    regions->arrived = tri_arena_entries(arena, others, params->wire);
    regions->merged = tri_arena_entries(
        arena, tri_least(tri_regions_entries(params, chosen, region), region), params->acc);
}

struct tri_entries tri_regions_chosen(const struct tri_regions *regions, struct tri_arena *arena,
                                      const struct tri_sparse_params *params, size_t chosen)
{
    struct tri_entries entries = tri_arena_entries(arena, chosen, params->wire);
    if (regions->device_rows != NULL)
        entries.count = &regions->device_rows[params->rank].header.count;
    return entries;
}

struct tri_header *tri_regions_header(const struct tri_regions *regions, const struct tri_run *run)
{
    return &regions->device_rows[run->params->rank].header;
}

void tri_regions_equal(struct tri_regions *regions, const struct tri_sparse_params *params)
{
    for (int32_t b = 0; b <= params->size; b++)
        regions->bounds[b] = (uint64_t)params->count * (uint64_t)b / (uint64_t)params->size;
}

trib_status tri_regions_exchange_rows(struct tri_run *run, struct tri_regions *regions,
                                      const struct tri_entries *entries, uint32_t flags)
{
    const int32_t size = run->params->size;
    struct tri_regions_row *own = &regions->device_rows[run->params->rank];
    TRI_TRY(tri_run_put(run, &own->flags, &flags, sizeof flags));
    TRI_TRY(run->kernels->lower_bound(entries, regions->bounds, size, own->positions, run->stream));
    TRI_TRY(tri_link_allgather(run, own, regions->device_rows, sizeof *own, 0));
    TRI_TRY(tri_run_fetch(run, regions->rows, regions->device_rows, (size_t)size * sizeof *own));
    regions->flags = 0;
    for (int32_t r = 0; r < size; r++)
        regions->flags |= regions->rows[r].flags;
    return TRIB_OK;
}

bool tri_regions_consistent(const struct tri_regions *regions, const struct tri_run *run)
{
    return tri_run_consistent(run, &regions->rows[0].header, sizeof regions->rows[0],
                              regions->most);
}

trib_status tri_regions_decide(struct tri_run *run, const struct tri_regions *regions)
{
    return tri_run_decide(run, &regions->device_rows[0].header, sizeof *regions->device_rows,
                          regions->most);
}

trib_status tri_regions_skip(struct tri_run *run, const struct tri_regions *regions)
{
    const struct tri_entries nothing = tri_entries_part(&regions->merged, 0, 0);
    TRI_TRY(tri_run_result(run, &nothing, 1, NULL));
    return tri_regions_decide(run, regions);
}

/* Rank r's positions ascend from 0 to its count, and none of its parts is longer than the region. */
static trib_status check_row(const struct tri_run *run, const struct tri_regions *regions,
                             int32_t r)
{
    const uint32_t *positions = regions->rows[r].positions;
    const uint32_t count = regions->rows[r].header.count;
    const int32_t size = run->params->size;
    struct tri_sent sent = {r, "the number of its entries", 0, count, 0, regions->most};
    TRI_TRY(tri_run_check(run, &sent));
    sent.most = 0;
    for (int32_t b = 0; b <= size; b++) {
        sent.bound = b;
        sent.found = positions[b];
        TRI_TRY(tri_run_check(run, &sent));
        sent.least = positions[b];
        if (b < size)
            sent.most =
                tri_least(count, sent.least + (regions->bounds[b + 1] - regions->bounds[b]));
    }
    sent.least = sent.most = count;
    return tri_run_check(run, &sent);
}

/* Rank `from`'s entries for rank `to`: how many, and where they begin in its list. */
static size_t between(const struct tri_regions *regions, int32_t from, int32_t to, size_t *begin)
{
    const uint32_t *positions = regions->rows[from].positions;
    *begin = positions[to];
    return positions[to + 1] - positions[to];
}

static trib_status exchange(struct tri_run *run, struct tri_regions *regions,
                            const struct tri_entries *entries)
{
    const int32_t rank = run->params->rank, size = run->params->size;
    struct tri_p2p_batch batch = {.nsends = 0, .nreceives = 0};
    size_t begin, arrived = 0;
    size_t n = between(regions, rank, rank, &begin);
    regions->parts[rank] = tri_entries_part(entries, begin, n);
    for (int32_t distance = 1; distance < size; distance++) {
        const int32_t to = (rank + distance) % size, from = (rank + size - distance) % size;
        n = between(regions, rank, to, &begin);
        const struct tri_entries part = tri_entries_part(entries, begin, n);
        tri_p2p_batch_send(&batch, to, &part);
        n = between(regions, from, rank, &begin);
        regions->parts[from] = tri_entries_part(&regions->arrived, arrived, n);
        tri_p2p_batch_receive(&batch, from, &regions->parts[from]);
        arrived += n;
    }
    return tri_p2p_batch_exchange(run, &batch);
}

trib_status tri_regions_reduce(struct tri_run *run, struct tri_regions *regions,
                               const struct tri_entries *entries)
{
    const int32_t rank = run->params->rank;
    for (int32_t r = 0; r < run->params->size; r++)
        TRI_TRY(check_row(run, regions, r));
    const struct tri_merge merge =
        tri_run_merge(run, regions->parts, run->params->size, (size_t)regions->bounds[rank],
                      (size_t)regions->bounds[rank + 1]);
    TRI_TRY(exchange(run, regions, entries));
    return run->kernels->merge(&merge, &regions->merged, run->scratch, run->stream);
}

trib_status tri_regions_count(struct tri_run *run, const struct tri_regions *regions,
                              const struct tri_entries *entries, size_t room, uint32_t *counts)
{
    const size_t bytes = sizeof *counts;
    TRI_TRY(tri_link_allgather(run, entries->count, regions->counts, bytes, 0));
    TRI_TRY(tri_run_fetch(run, counts, regions->counts, (size_t)run->params->size * bytes));
    for (int32_t r = 0; r < run->params->size; r++) {
        const struct tri_sent sent = {r, "the number of its sums",          0, counts[r],
                                      0, tri_least(entries->capacity, room)};
        TRI_TRY(tri_run_check(run, &sent));
        room -= counts[r];
    }
    return TRIB_OK;
}
