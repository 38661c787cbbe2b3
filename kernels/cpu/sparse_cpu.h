/* The cpu table of the sparse kernels: their plain meaning, and the arithmetic of the host backend.
 * Here is what the files share: keys, the two sides of an accumulator, values of any type.
 *
 * Compile with -ffp-contract=off: a product is rounded before it is added. */
#ifndef TRI_CPU_SPARSE_CPU_H
#define TRI_CPU_SPARSE_CPU_H

#include "kernels/cpu/half.h"
#include "kernels/sparse.h"

extern const struct tri_sparse_kernels tri_sparse_kernels_cpu;

/* ---- keys: the bits of a magnitude */

#define TRI_KEY_INFINITY_F32 0x7f800000u
#define TRI_KEY_INFINITY_F64 UINT64_C(0x7ff0000000000000)
#define TRI_KEY_LAST_F32 0x7fffffffu /* no key is above it */
#define TRI_KEY_LAST_F64 UINT64_C(0x7fffffffffffffff)

static inline uint32_t tri_key_f32(float value)
{
    return tri_f32_bits(value) & TRI_KEY_LAST_F32;
}

static inline uint64_t tri_key_f64(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits & TRI_KEY_LAST_F64;
}

/* Of element i of an array of f32 or f64. */
static inline uint64_t tri_key_at(const void *values, trib_dtype dtype, size_t i)
{
    return dtype == TRIB_F64 ? tri_key_f64(((const double *)values)[i])
                             : tri_key_f32(((const float *)values)[i]);
}

static inline uint64_t tri_key_last(trib_dtype dtype)
{
    return dtype == TRIB_F64 ? TRI_KEY_LAST_F64 : TRI_KEY_LAST_F32;
}

/* A sum whose key is not below this is infinite or NaN as `dtype`: halfway to the number that
 * would come after the largest. */
static inline uint32_t tri_key_overflow_f32(trib_dtype dtype)
{
    return dtype == TRIB_F16    ? 0x477ff000u
           : dtype == TRIB_BF16 ? 0x7f7f8000u
                                : TRI_KEY_INFINITY_F32;
}

static inline uint64_t tri_key_overflow_f64(trib_dtype dtype)
{
    (void)dtype;
    return TRI_KEY_INFINITY_F64;
}

/* A kernel that writes a result reports here whether a value of it is infinite or NaN. */
static inline void tri_note_overflow(const struct tri_result *result, bool overflows)
{
    if (result->overflow != NULL && overflows)
        *result->overflow = 1;
}

/* ---- values: sums are f32, and in memory f32, f16 or bf16; or both are f64 */

static inline float tri_load_f32(const void *values, trib_dtype dtype, size_t i)
{
    switch (dtype) {
    case TRIB_F16:
        return tri_f16_to_f32(((const uint16_t *)values)[i]);
    case TRIB_BF16:
        return tri_bf16_to_f32(((const uint16_t *)values)[i]);
    default:
        return ((const float *)values)[i];
    }
}

static inline void tri_store_f32(void *values, trib_dtype dtype, size_t i, float value)
{
    switch (dtype) {
    case TRIB_F16:
        ((uint16_t *)values)[i] = tri_f32_to_f16(value);
        break;
    case TRIB_BF16:
        ((uint16_t *)values)[i] = tri_f32_to_bf16(value);
        break;
    default:
        ((float *)values)[i] = value;
        break;
    }
}

/* A chosen value, in an entry: as struct tri_entries says. */
static inline void tri_store_entry_f32(void *values, trib_dtype dtype, size_t i, float value)
{
    tri_store_f32(values, dtype, i, value);
    if (dtype != TRIB_BF16)
        return;
    uint16_t *half = (uint16_t *)values + i;
    if ((*half & 0x7fffu) == 0x7f80u && (tri_f32_bits(value) & 0x7fffffffu) < 0x7f800000u)
        *half = (uint16_t)(*half - 1u);
}

static inline double tri_load_f64(const void *values, trib_dtype dtype, size_t i)
{
    (void)dtype;
    return ((const double *)values)[i];
}

static inline void tri_store_f64(void *values, trib_dtype dtype, size_t i, double value)
{
    (void)dtype;
    ((double *)values)[i] = value;
}

/* Element i of an array, as an address. */
static inline void *tri_at(const void *values, trib_dtype dtype, size_t i)
{
    return (char *)values + i * trib_dtype_size(dtype);
}

/* ---- accumulators and entries */

/* The buffers of acc and of the residual: one in place; swapped where decide applies the call. */
static inline void *tri_acc_of(const struct tri_accumulator *acc)
{
    return acc->current == NULL ? acc->buffer[0] : acc->buffer[*acc->current ^ 1];
}

static inline const void *tri_gradient_of(const struct tri_accumulator *acc)
{
    return acc->velocity_current == NULL ? acc->gradient
                                         : acc->velocity[*acc->velocity_current ^ 1];
}

static inline void *tri_residual_of(const struct tri_accumulator *acc)
{
    return acc->current == NULL ? acc->buffer[0] : acc->buffer[*acc->current];
}

/* Never above the capacity, whatever a rank has sent. */
static inline uint32_t tri_entries_count(const struct tri_entries *entries)
{
    const uint32_t count = entries->count == NULL ? entries->capacity : *entries->count;
    return count < entries->capacity ? count : entries->capacity;
}

static inline void tri_entries_set_count(const struct tri_entries *entries, uint32_t count)
{
    if (entries->count != NULL)
        *entries->count = count;
}

/* Asked between tiles: a load from the processor's cache, so no clock is needed. */
static inline bool tri_merge_leaves(const struct tri_merge *merge)
{
    return merge->abort_flag != NULL && __atomic_load_n(merge->abort_flag, __ATOMIC_ACQUIRE) != 0;
}

/* The first of the entries from `from` on whose index is not below `bound`. */
uint32_t tri_cpu_sparse_find(const struct tri_entries *entries, uint32_t from, uint64_t bound);

/* The sum of the squares of `count` elements of any type, in the order of gauss. */
double tri_cpu_sparse_squares(const void *values, trib_dtype dtype, size_t count);

/* made = acc in [first, first + count); before that the velocity, if it is to be made. */
void tri_cpu_sparse_make(const struct tri_accumulator *acc, size_t first, size_t count, void *made);

/* Bytes of scratch for select and chunk_select; no other kernel needs any. */
size_t tri_cpu_sparse_select_scratch(size_t count, uint32_t k, trib_dtype dtype);

/* Before the choice, and what it has found after it. */
static inline void tri_sign(struct tri_signing signing)
{
    if (signing.header == NULL)
        return;
    signing.header->signature = signing.signature;
    signing.header->calls++;
}

static inline void tri_signed_nonfinite(struct tri_signing signing, uint32_t nonfinite)
{
    if (signing.header != NULL)
        signing.header->nonfinite = nonfinite;
}

/* The kernels. Contracts: kernels/sparse.h. */
trib_status tri_cpu_sparse_accumulate(const struct tri_accumulator *acc, struct tri_signing signing,
                                      trib_stream stream);
trib_status tri_cpu_sparse_accumulate_clipped(const struct tri_accumulator *acc, double limit,
                                              void *scratch, trib_stream stream);
trib_status tri_cpu_sparse_select(const struct tri_accumulator *acc,
                                  const struct tri_selection *selection,
                                  const struct tri_entries *out, void *scratch, trib_stream stream);
trib_status tri_cpu_sparse_index_select(const struct tri_accumulator *acc,
                                        const struct tri_entries *entries, trib_stream stream);
trib_status tri_cpu_sparse_gauss(const struct tri_accumulator *acc, double z, void *threshold,
                                 void *scratch, trib_stream stream);
trib_status tri_cpu_sparse_fit(const struct tri_accumulator *acc, const struct tri_fit *fit,
                               const void *start, void *threshold, void *scratch,
                               trib_stream stream);
trib_status tri_cpu_sparse_adjust_threshold(void *kept, const void *threshold, trib_dtype dtype,
                                            const uint32_t *count, const struct tri_fit *fit,
                                            const uint32_t *decision, trib_stream stream);
trib_status tri_cpu_sparse_radix_init(struct tri_cut *cut, uint32_t k, const void *threshold,
                                      trib_dtype dtype, trib_stream stream);
trib_status tri_cpu_sparse_radix_histogram(const struct tri_entries *entries,
                                           const struct tri_cut *cut, int round,
                                           uint32_t *histogram, trib_stream stream);
trib_status tri_cpu_sparse_radix_refine(struct tri_cut *cut, int round, const uint32_t *histogram,
                                        trib_dtype dtype, trib_stream stream);
trib_status tri_cpu_sparse_count_ties(const struct tri_entries *entries, const struct tri_cut *cut,
                                      uint32_t *ties, void *scratch, trib_stream stream);
trib_status tri_cpu_sparse_share_ties(struct tri_cut *cut, const uint32_t *ties, int32_t rank,
                                      trib_stream stream);
trib_status tri_cpu_sparse_radix_partition(const struct tri_entries *entries,
                                           const struct tri_cut *cut,
                                           const struct tri_entries *kept,
                                           const struct tri_entries *dropped, void *scratch,
                                           trib_stream stream);
trib_status tri_cpu_sparse_lower_bound(const struct tri_entries *entries, const uint64_t *bounds,
                                       int32_t n, uint32_t *positions, trib_stream stream);
trib_status tri_cpu_sparse_index_histogram(const struct tri_entries *entries, uint32_t width,
                                           uint32_t *bins, uint32_t nbins, trib_stream stream);
trib_status tri_cpu_sparse_find_starts(const struct tri_entries *entries, size_t count,
                                       trib_stream stream);
trib_status tri_cpu_sparse_merge(const struct tri_merge *merge, const struct tri_entries *out,
                                 void *scratch, trib_stream stream);
trib_status tri_cpu_sparse_merge_dense(const struct tri_merge *merge, const struct tri_result *out,
                                       void *scratch, trib_stream stream);
trib_status tri_cpu_sparse_decide(const struct tri_decide *job, trib_stream stream);
trib_status tri_cpu_sparse_residual_update(const struct tri_accumulator *acc,
                                           const struct tri_entries *entries, enum tri_update how,
                                           const struct tri_entries *among,
                                           const uint32_t *decision, uint32_t *matched,
                                           trib_stream stream);
trib_status tri_cpu_sparse_decay(const struct tri_accumulator *acc, double factor,
                                 const uint32_t *decision, trib_stream stream);
trib_status tri_cpu_sparse_norm(const struct tri_accumulator *acc, double *norm, void *scratch,
                                trib_stream stream);
trib_status tri_cpu_sparse_residual(const struct tri_accumulator *acc, void *out,
                                    trib_stream stream);
trib_status tri_cpu_sparse_write_entries(const struct tri_entries *entries, uint32_t *index,
                                         uint32_t *count, const struct tri_result *out,
                                         trib_stream stream);
trib_status tri_cpu_sparse_write_dense(const void *sum, trib_dtype dtype, size_t count,
                                       const struct tri_result *out, trib_stream stream);
trib_status tri_cpu_sparse_clear_result(const struct tri_clearing *result, const uint32_t *decision,
                                        trib_stream stream);
trib_status tri_cpu_sparse_record(const struct tri_record *record, trib_stream stream);
trib_status tri_cpu_sparse_chunk_select(const struct tri_accumulator *acc, bool accumulate,
                                        bool clear, const struct tri_chunks *out,
                                        struct tri_signing signing, void *scratch,
                                        trib_stream stream);
trib_status tri_cpu_sparse_chunk_unpack(const struct tri_chunks *chunks, size_t count,
                                        const struct tri_entries *out, void *scratch,
                                        trib_stream stream);
trib_status tri_cpu_sparse_chunk_merge(const struct tri_chunks *ranks, int32_t n, size_t count,
                                       const struct tri_result *out, trib_stream stream);

#endif
