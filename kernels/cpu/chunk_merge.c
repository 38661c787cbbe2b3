/* chunk_unpack: slots as entries. chunk_merge: the chunks of all ranks added up, rank after rank,
 * beginning with 0; a slot without an entry adds nothing. */
#include "kernels/cpu/sparse_cpu.h"

enum { TILE = 2048 };

static bool is_empty(const struct tri_chunks *chunks, size_t slot)
{
    return chunks->dtype == TRIB_F64 ? tri_load_f64(chunks->value, TRIB_F64, slot) == 0
                                     : tri_load_f32(chunks->value, chunks->dtype, slot) == 0;
}

trib_status tri_cpu_sparse_chunk_unpack(const struct tri_chunks *chunks, size_t count,
                                        const struct tri_entries *out, void *scratch,
                                        trib_stream stream)
{
    (void)scratch;
    (void)stream;
    uint32_t found = 0;
    for (size_t first = 0, slot = 0; first < count; first += chunks->chunk)
        for (const size_t end = slot + chunks->k; slot < end; slot++) {
            if (is_empty(chunks, slot) || found == out->capacity)
                continue;
            out->index[found] = (uint32_t)first + chunks->index[slot];
            if (out->dtype == TRIB_F64)
                tri_store_f64(out->value, out->dtype, found,
                              tri_load_f64(chunks->value, chunks->dtype, slot));
            else
                tri_store_f32(out->value, out->dtype, found,
                              tri_load_f32(chunks->value, chunks->dtype, slot));
            found++;
        }
    tri_entries_set_count(out, found);
    return TRIB_OK;
}

/* The slots of each rank that lie in a tile. */
struct stretch {
    size_t begin, end;
};

/* Sums go up, results out, sums back to 0: as in merge_dense. `first` is where the tile begins in
 * its chunk. */
#define DEFINE_TILE(name, real, load, store, key_of, limit_of)                                     \
    static bool name(const struct tri_chunks *ranks, int32_t n, const struct stretch *in,          \
                     size_t first, real *sum, void *out, const struct tri_result *result)          \
    {                                                                                              \
        const real divisor = (real)result->divisor;                                                \
        const trib_dtype dtype = result->dtype;                                                    \
        bool overflows = false;                                                                    \
        for (int32_t r = 0; r < n; r++)                                                            \
            for (size_t i = in[r].begin; i < in[r].end; i++)                                       \
                sum[ranks[r].index[i] - first] += load(ranks[r].value, ranks[r].dtype, i);         \
        for (int32_t r = 0; r < n; r++)                                                            \
            for (size_t i = in[r].begin; i < in[r].end; i++) {                                     \
                const size_t at = ranks[r].index[i] - first;                                       \
                store(out, dtype, at, sum[at] / divisor);                                          \
                overflows |= key_of(sum[at] / divisor) >= limit_of(dtype);                         \
            }                                                                                      \
        for (int32_t r = 0; r < n; r++)                                                            \
            for (size_t i = in[r].begin; i < in[r].end; i++)                                       \
                sum[ranks[r].index[i] - first] = 0;                                                \
        return overflows;                                                                          \
    }
DEFINE_TILE(tile_f32, float, tri_load_f32, tri_store_f32, tri_key_f32, tri_key_overflow_f32)
DEFINE_TILE(tile_f64, double, tri_load_f64, tri_store_f64, tri_key_f64, tri_key_overflow_f64)

/* The slots of a chunk's tile: they follow those of the tile before. Empty ones may be among them,
 * for they add 0. */
static struct stretch next_stretch(const struct tri_chunks *chunks, size_t chunk, size_t begin,
                                   size_t first, size_t width)
{
    const size_t end = (chunk + 1) * chunks->k;
    struct stretch in = {begin, begin};
    while (in.end < end && chunks->index[in.end] - first < width)
        in.end++;
    return in;
}

trib_status tri_cpu_sparse_chunk_merge(const struct tri_chunks *ranks, int32_t n, size_t count,
                                       const struct tri_result *out, trib_stream stream)
{
    (void)stream;
    float sum_f32[TILE] = {0};
    double sum_f64[TILE] = {0};
    struct stretch in[TRI_MAX_LISTS] = {{0, 0}};
    bool overflows = false;
    for (size_t done = 0, width; done < count; done += width) {
        const size_t size = ranks[0].chunk; /* a tile lies in one chunk */
        const size_t chunk = done / size, first = done % size;
        const size_t left = size - first < count - done ? size - first : count - done;
        width = left < TILE ? left : TILE;
        void *const to = tri_at(out->data, out->dtype, done);
        memset(to, 0, width * trib_dtype_size(out->dtype));
        for (int32_t r = 0; r < n; r++)
            in[r] = next_stretch(&ranks[r], chunk, first == 0 ? chunk * ranks[r].k : in[r].end,
                                 first, width);
        overflows |= out->dtype == TRIB_F64 ? tile_f64(ranks, n, in, first, sum_f64, to, out)
                                            : tile_f32(ranks, n, in, first, sum_f32, to, out);
    }
    tri_note_overflow(out, overflows);
    return TRIB_OK;
}
