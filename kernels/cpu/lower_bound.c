/* lower_bound, index_histogram, find_starts: where entries lie. */
#include "kernels/cpu/sparse_cpu.h"

uint32_t tri_cpu_sparse_find(const struct tri_entries *entries, uint32_t from, uint64_t bound)
{
    uint32_t low = from, high = tri_entries_count(entries);
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (entries->index[middle] < bound)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

trib_status tri_cpu_sparse_lower_bound(const struct tri_entries *entries, const uint64_t *bounds,
                                       int32_t n, uint32_t *positions, trib_stream stream)
{
    (void)stream;
    for (int32_t b = 0; b <= n; b++)
        positions[b] = tri_cpu_sparse_find(entries, 0, bounds[b]);
    return TRIB_OK;
}

trib_status tri_cpu_sparse_index_histogram(const struct tri_entries *entries, uint32_t width,
                                           uint32_t *bins, uint32_t nbins, trib_stream stream)
{
    (void)stream;
    const uint32_t n = tri_entries_count(entries);
    memset(bins, 0, nbins * sizeof *bins);
    for (uint32_t i = 0; i < n; i++)
        if (entries->index[i] / width < nbins)
            bins[entries->index[i] / width]++;
    return TRIB_OK;
}

trib_status tri_cpu_sparse_find_starts(const struct tri_entries *entries, size_t count,
                                       trib_stream stream)
{
    (void)stream;
    uint32_t start = 0;
    for (size_t i = 0; i < tri_starts(count); i++) {
        start = tri_cpu_sparse_find(entries, start, (uint64_t)i * TRI_STRETCH);
        entries->starts[i] = start;
    }
    return TRIB_OK;
}
