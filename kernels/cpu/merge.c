/* merge: the union of lists, values added up list after list, beginning with 0.
 *
 * Tile by tile: the sums of a stretch of indices that stays in the nearest cache, and one bit for
 * each index that occurs. The lists of a call that will not be applied, because ranks differ or one
 * has aborted, may hold anything: what lies outside of the range is passed over. */
#include "kernels/cpu/sparse_cpu.h"

enum { TILE = 2048, WORDS = TILE / 64 };

/* Add one list's entries in [first, first + width), from entry `at` on; returns where it stops. */
#define DEFINE_ADD(name, real, load)                                                               \
    static uint32_t name(const struct tri_entries *list, uint32_t at, uint32_t n, uint32_t first,  \
                         size_t width, real *sum, uint64_t *occurs)                                \
    {                                                                                              \
        for (; at < n && list->index[at] - first < width; at++) {                                  \
            const uint32_t i = list->index[at] - first;                                            \
            sum[i] += load(list->value, list->dtype, at);                                          \
            occurs[i / 64] |= UINT64_C(1) << i % 64;                                               \
        }                                                                                          \
        return at;                                                                                 \
    }
DEFINE_ADD(add_f32, float, tri_load_f32)
DEFINE_ADD(add_f64, double, tri_load_f64)

/* Append the sums of the indices that occur, and make both 0 again. */
#define DEFINE_EMIT(name, real, store)                                                             \
    static uint32_t name(const struct tri_entries *out, uint32_t count, uint32_t first, real *sum, \
                         uint64_t *occurs)                                                         \
    {                                                                                              \
        for (uint32_t w = 0; w < WORDS; w++)                                                       \
            for (; occurs[w] != 0 && count < out->capacity; occurs[w] &= occurs[w] - 1, count++) { \
                const uint32_t i = w * 64 + (uint32_t)__builtin_ctzll(occurs[w]);                  \
                out->index[count] = first + i;                                                     \
                store(out->value, out->dtype, count, sum[i]);                                      \
                sum[i] = 0;                                                                        \
            }                                                                                      \
        return count;                                                                              \
    }
DEFINE_EMIT(emit_f32, float, tri_store_f32)
DEFINE_EMIT(emit_f64, double, tri_store_f64)

/* The number of indices from the lowest that is still to be merged to the end of the range: 0 if
 * there is none. */
static size_t find_next(const struct tri_entries *lists, int32_t n, uint32_t *at,
                        const uint32_t *counts, size_t first, size_t count)
{
    size_t most = 0;
    for (int32_t r = 0; r < n; r++) {
        while (at[r] < counts[r] && lists[r].index[at[r]] - first >= count)
            at[r]++;
        if (at[r] < counts[r] && first + count - lists[r].index[at[r]] > most)
            most = first + count - lists[r].index[at[r]];
    }
    return most;
}

trib_status tri_cpu_sparse_merge(const struct tri_merge *merge, const struct tri_entries *out,
                                 void *scratch, trib_stream stream)
{
    (void)scratch;
    (void)stream;
    const struct tri_entries *const lists = merge->lists;
    const int32_t n = merge->n;
    const size_t first = merge->first, count = merge->count;
    float sum_f32[TILE] = {0};
    double sum_f64[TILE] = {0};
    uint64_t occurs[WORDS] = {0};
    uint32_t at[TRI_MAX_LISTS] = {0}, counts[TRI_MAX_LISTS], total = 0;
    for (int32_t r = 0; r < n; r++)
        counts[r] = tri_entries_count(&lists[r]);
    for (size_t left;
         !tri_merge_leaves(merge) && (left = find_next(lists, n, at, counts, first, count)) != 0;) {
        const size_t width = left < TILE ? left : TILE;
        const uint32_t tile = (uint32_t)(first + count - left);
        for (int32_t r = 0; r < n; r++)
            at[r] = out->dtype == TRIB_F64
                        ? add_f64(&lists[r], at[r], counts[r], tile, width, sum_f64, occurs)
                        : add_f32(&lists[r], at[r], counts[r], tile, width, sum_f32, occurs);
        total = out->dtype == TRIB_F64 ? emit_f64(out, total, tile, sum_f64, occurs)
                                       : emit_f32(out, total, tile, sum_f32, occurs);
    }
    tri_entries_set_count(out, total);
    return TRIB_OK;
}
