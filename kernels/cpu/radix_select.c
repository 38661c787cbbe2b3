/* radix_init, radix_histogram, radix_refine, count_ties, share_ties: a cut through entries, in
 * rounds.
 *
 * The cut's key grows by one digit in each round, and `ties` is how many entries are still
 * wanted among those that agree with it so far. After the last round the key is that of the last
 * entry that is in, and `ties` the number of entries equal to it that are. When everything is
 * in, the key is 0, above which are all entries that are not 0; when nothing is, it is the
 * largest number there is. `done` is set where the cut is known: from the start, after a first
 * round that wants all, or after the last round. Only radix_refine looks at it. */
#include "kernels/cpu/sparse_cpu.h"

enum { DIGIT_BITS = 11 };

static int shift_of(trib_dtype dtype, int round)
{
    return DIGIT_BITS * (tri_cut_rounds(dtype) - 1 - round);
}

/* The digits that the rounds before `round` have looked at; 0 before the first. */
static uint64_t prefix_of(uint64_t key, trib_dtype dtype, int round)
{
    return round == 0 ? 0 : key >> shift_of(dtype, round - 1);
}

trib_status tri_cpu_sparse_radix_init(struct tri_cut *cut, uint32_t k, const void *threshold,
                                      trib_dtype dtype, trib_stream stream)
{
    (void)stream;
    if (threshold != NULL)
        *cut = (struct tri_cut){.key = tri_key_at(threshold, dtype, 0), .done = 1};
    else if (k == 0)
        *cut = (struct tri_cut){.key = UINT64_MAX, .done = 1};
    else
        *cut = (struct tri_cut){.ties = k};
    return TRIB_OK;
}

trib_status tri_cpu_sparse_radix_histogram(const struct tri_entries *entries,
                                           const struct tri_cut *cut, int round,
                                           uint32_t *histogram, trib_stream stream)
{
    (void)stream;
    const trib_dtype dtype = entries->dtype;
    const uint64_t prefix = prefix_of(cut->key, dtype, round);
    const int shift = shift_of(dtype, round);
    const uint32_t n = tri_entries_count(entries);
    memset(histogram, 0, TRI_CUT_DIGITS * sizeof *histogram);
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t key = tri_key_at(entries->value, dtype, i);
        histogram[key >> shift & (TRI_CUT_DIGITS - 1)] +=
            key != 0 && prefix_of(key, dtype, round) == prefix;
    }
    return TRIB_OK;
}

trib_status tri_cpu_sparse_radix_refine(struct tri_cut *cut, int round, const uint32_t *histogram,
                                        trib_dtype dtype, trib_stream stream)
{
    (void)stream;
    uint64_t found = 0;
    uint32_t digit = TRI_CUT_DIGITS;
    if (cut->done)
        return TRIB_OK;
    while (digit > 0 && found + histogram[digit - 1] < cut->ties)
        found += histogram[--digit];
    if (digit == 0 && round == 0) { /* all of them are fewer than wanted */
        *cut = (struct tri_cut){.done = 1};
        return TRIB_OK;
    }
    digit -= digit != 0;
    cut->key |= (uint64_t)digit << shift_of(dtype, round);
    cut->ties -= (uint32_t)found;
    cut->done = round == tri_cut_rounds(dtype) - 1;
    return TRIB_OK;
}

trib_status tri_cpu_sparse_count_ties(const struct tri_entries *entries, const struct tri_cut *cut,
                                      uint32_t *ties, void *scratch, trib_stream stream)
{
    (void)scratch;
    (void)stream;
    const uint32_t n = tri_entries_count(entries);
    uint32_t found = 0;
    for (uint32_t i = 0; i < n; i++)
        found += tri_key_at(entries->value, entries->dtype, i) == cut->key;
    *ties = cut->key == 0 ? 0 : found;
    return TRIB_OK;
}

trib_status tri_cpu_sparse_share_ties(struct tri_cut *cut, const uint32_t *ties, int32_t rank,
                                      trib_stream stream)
{
    (void)stream;
    uint32_t left = cut->ties;
    for (int32_t r = 0; r < rank; r++)
        left -= ties[r] < left ? ties[r] : left;
    cut->ties = ties[rank] < left ? ties[rank] : left;
    return TRIB_OK;
}
