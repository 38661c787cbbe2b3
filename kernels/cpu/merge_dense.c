/* merge_dense: lists added up into an array, list after list, beginning with 0.
 *
 * Tile by tile, for the sums to stay in the nearest cache and the result to be written once. The
 * result of an index that several lists have is written several times, the same each time: that is
 * cheaper than to remember that it has been. */
#include "kernels/cpu/sparse_cpu.h"

enum { TILE = 2048 };

/* The entries of each list that lie in a tile. */
struct stretch {
    uint32_t begin, end;
};

/* Sums go up, results out, sums back to 0. */
#define DEFINE_TILE(name, real, load, store, key_of, limit_of)                                     \
    static bool name(const struct tri_entries *lists, int32_t n, const struct stretch *in,         \
                     uint32_t first, real *sum, void *out, const struct tri_result *result)        \
    {                                                                                              \
        const real divisor = (real)result->divisor;                                                \
        const trib_dtype dtype = result->dtype;                                                    \
        bool overflows = false;                                                                    \
        for (int32_t r = 0; r < n; r++)                                                            \
            for (uint32_t i = in[r].begin; i < in[r].end; i++)                                     \
                sum[lists[r].index[i] - first] += load(lists[r].value, lists[r].dtype, i);         \
        for (int32_t r = 0; r < n; r++)                                                            \
            for (uint32_t i = in[r].begin; i < in[r].end; i++) {                                   \
                const uint32_t at = lists[r].index[i] - first;                                     \
                store(out, dtype, at, sum[at] / divisor);                                          \
                overflows |= key_of(sum[at] / divisor) >= limit_of(dtype);                         \
            }                                                                                      \
        for (int32_t r = 0; r < n; r++)                                                            \
            for (uint32_t i = in[r].begin; i < in[r].end; i++)                                     \
                sum[lists[r].index[i] - first] = 0;                                                \
        return overflows;                                                                          \
    }
DEFINE_TILE(tile_f32, float, tri_load_f32, tri_store_f32, tri_key_f32, tri_key_overflow_f32)
DEFINE_TILE(tile_f64, double, tri_load_f64, tri_store_f64, tri_key_f64, tri_key_overflow_f64)

trib_status tri_cpu_sparse_merge_dense(const struct tri_merge *merge, const struct tri_result *out,
                                       void *scratch, trib_stream stream)
{
    (void)scratch;
    (void)stream;
    const struct tri_entries *const lists = merge->lists;
    const int32_t n = merge->n;
    const size_t count = merge->count;
    float sum_f32[TILE] = {0};
    double sum_f64[TILE] = {0};
    struct stretch in[TRI_MAX_LISTS] = {{0, 0}};
    const size_t size = trib_dtype_size(out->dtype);
    bool overflows = false;
    for (size_t done = 0; done < count && !tri_merge_leaves(merge); done += TILE) {
        const size_t left = count - done, width = left < TILE ? left : TILE;
        const uint32_t tile = (uint32_t)(merge->first + done);
        void *const to = tri_at(out->data, out->dtype, done);
        memset(to, 0, width * size);
        for (int32_t r = 0; r < n; r++) {
            const uint32_t end = tri_entries_count(&lists[r]);
            in[r].begin = in[r].end;
            while (in[r].end < end && lists[r].index[in[r].end] - tile < width)
                in[r].end++;
        }
        overflows |= out->dtype == TRIB_F64 ? tile_f64(lists, n, in, tile, sum_f64, to, out)
                                            : tile_f32(lists, n, in, tile, sum_f32, to, out);
    }
    tri_note_overflow(out, overflows);
    return TRIB_OK;
}
