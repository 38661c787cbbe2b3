/* The arithmetic of sparse allreduce: a part of seam 2.
 *
 * The rules of kernels.h hold here too. In addition:
 *  - counts, positions and flags stay on the device; no member waits for them;
 *  - every member may be captured in a CUDA graph: fixed launches, no allocation, no copy from
 *    pageable host memory;
 *  - `scratch` is memory of the stream's device, aligned to 256, of scratch_bytes() bytes, with any
 *    contents before and after; the members of one stream share it;
 *  - the twins agree bit for bit, NaN payloads excepted.
 *
 * Magnitudes compare as bits: key(x) = the bits of x without the sign, an unsigned integer. So
 * infinity is above every number, NaN above infinity, and -0 equals 0. "Largest" is by key, and the
 * lower index comes first among equal keys: a total order, so the k largest are one set. */
#ifndef TRI_KERNELS_SPARSE_H
#define TRI_KERNELS_SPARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tributary.h"

enum {
    TRI_MAX_LISTS = 64,    /* in one merge: one per rank */
    TRI_CUT_DIGITS = 2048, /* in one round of a radix select */
    TRI_STRETCH = 4096     /* indices from one start to the next (struct tri_entries) */
};

/* Entries: distinct indices in ascending order, and their values. Selection rounds acc to the
 * nearest bf16, but a finite number beyond bf16's largest to that: the residual keeps the
 * difference, and an infinity would spoil it. */
struct tri_entries {
    uint32_t *count; /* on the device, at most capacity; NULL: exactly `capacity` of them */
    uint32_t *index;
    void *value; /* of dtype */
    uint32_t capacity;
    trib_dtype dtype; /* f32 or f64 as acc is; or bf16, where acc is f32 */
    /* starts[i] = how many entries have an index below i * TRI_STRETCH, up to the first multiple that is
     * not below the number of elements. NULL: whoever asks searches, which takes long in the memory of
     * another device. */
    uint32_t *starts;
};

/* The number of starts of `count` elements. */
static inline size_t tri_starts(size_t count)
{
    return (count + TRI_STRETCH - 1) / TRI_STRETCH + 1;
}

/* Gradient, residual and their sum acc. With two buffers the residual is buffer[*current], acc
 * is made in the other one, and acc becomes the residual when decide flips *current. With one
 * buffer (in place, `current` NULL) buffer[0] is acc and residual, and there is no gradient. */
struct tri_accumulator {
    void *buffer[2];
    const uint32_t *current;
    const void *gradient;
    trib_dtype gradient_dtype; /* f16, bf16 or f32 where acc is f32; f64 where it is f64 */
    trib_dtype dtype;          /* of acc and residual: f32 or f64 */
    double decay;              /* acc = gradient + decay * residual: product rounded, then sum */
    size_t count;              /* at most 2^32 - 1 */
    /* Not NULL: the gradient is not `gradient`, but acc of another accumulator of this type, a
     * velocity: velocity[*velocity_current ^ 1]. (With momentum, acc = gradient + m * velocity is
     * the new velocity, whose decay is m.) */
    void *velocity[2];
    const uint32_t *velocity_current;
    /* With a velocity, two buffers, and only for accumulate and select: where acc is made, that
     * velocity is made first, from `gradient`: gradient + momentum * velocity[*velocity_current],
     * product rounded, then sum. */
    bool makes_velocity;
    double momentum;
    /* Not NULL, of f32 and with two buffers, and only for accumulate: element i of acc as an entry of
     * bf16 holds it (struct tri_entries), but 0 for -0; acc keeps the rest. */
    void *rounded;
};

/* The guess of select's first threshold. The result is the same; tests use LOW (everything is a
 * candidate) and HIGH (nothing is). */
enum tri_guess { TRI_GUESS_SAMPLE, TRI_GUESS_LOW, TRI_GUESS_HIGH };

/* Each rank sends one to every other in each call, in front of its entries or alone. 64 bytes. */
struct tri_header {
    uint32_t count;     /* of the entries that follow */
    uint32_t nonfinite; /* infinities and NaNs in this rank's acc */
    uint32_t signature; /* of the state and the call: the same on all ranks */
    uint32_t calls;     /* counted before anything behind the header changes */
    uint32_t reserved[12];
};

/* What a choice writes into the header of its rank: first of all `signature`, and calls + 1; and
 * nonfinite = how many of the range are infinite or NaN. `header` NULL: nothing. */
struct tri_signing {
    struct tri_header *header;
    uint32_t signature;
};

struct tri_selection {
    size_t first, count;   /* of acc: elements [first, first + count) */
    uint32_t k;            /* at most so many; may exceed count */
    const void *threshold; /* of acc's type, on the device: only |acc| > *threshold; NULL: 0 */
    bool accumulate;       /* make acc in the range first; false (always in place): it is there */
    bool clear;            /* with accumulate: acc -= the value in `out`, for each entry selected */
    struct tri_signing signing;
    void *kth;           /* = the least selected magnitude, 0 if none; acc's type; may be NULL */
    uint32_t *fallbacks; /* += 1 if the guess missed; may be NULL */
    enum tri_guess guess;
};

/* A cut through entries, on the device: in are the keys above `key`, and the first `ties` of those
 * equal to it. */
struct tri_cut {
    uint64_t key;
    uint32_t ties;
    uint32_t done; /* further rounds change nothing */
};

/* Rounds of a radix select: digits of 11 bits, highest first; that of round r is the lowest of
 * key >> 11 * (rounds - 1 - r). */
static inline int tri_cut_rounds(trib_dtype dtype)
{
    return dtype == TRIB_F64 ? 6 : 3;
}

/* The steps in which fit moves a threshold. While more than `above` magnitudes lie above it,
 * multiply it by `raise`, at most raise_steps times. Then, if fewer than `below` do, divide it by
 * `lower`, at most lower_steps times, while fewer than max(enough, below) do. The order makes a
 * step too far leave too many, not none. Each step rounds to acc's type; at most 64 in all. */
struct tri_fit {
    uint32_t below, above;
    double lower, raise;
    uint32_t lower_steps, raise_steps;
    uint32_t enough;
};

/* Why a call was or was not applied: whether its result was written and the residual updated. */
enum tri_outcome {
    TRI_OUTCOME_NONE, /* no call has ended yet */
    TRI_OUTCOME_APPLIED,
    TRI_OUTCOME_NON_FINITE,
    TRI_OUTCOME_MISMATCH, /* a signature or a count is not what this rank expects */
    TRI_OUTCOME_ABORTED,
    TRI_OUTCOME_OVERFLOW /* the result's type does not hold a value of the result */
};

struct tri_decide {
    const uint32_t *abort_flag;
    const void *headers; /* struct tri_header of rank r is at headers + r * stride */
    size_t stride;
    int32_t n;
    uint32_t signature;
    uint32_t capacity; /* no header's count is above it; UINT32_MAX: headers without a count */
    /* The call is aborted if one of these does not say the same `calls` as its rank's of `headers`: the packet behind
     * it was written anew, by a rank that has given the call up, and whoever read it may have read both. n of them, in
     * host memory, read during the call; NULL: packets are this rank's. */
    const struct tri_header *const *packets;
    uint32_t *current;  /* ^= 1 if the call is applied; NULL in place */
    uint32_t *velocity; /* the same of a velocity; NULL: there is none */
    bool revokes;       /* take back the decision that this call has made before */
    uint32_t *decision; /* = 1 if it is, else 0 */
    uint32_t *outcome;  /* = an enum tri_outcome */
    uint32_t *overflow; /* the result overflows if it is not 0; = 0. NULL: it does not */
};

/* What the calls did. record keeps them in its own memory, where it adds, and writes a copy to pinned
 * memory, which the host reads at any time. No fence orders the stores of the copy, for each would cost
 * a call a trip over the bus: `check` says that all words are of one call. */
struct tri_counters {
    /* Every field has 8 bytes. These three change with every call, the others but for `check` with those that
     * are applied. */
    uint64_t outcome; /* of the last call */
    uint64_t ended;
    uint64_t non_finite_calls; /* and those that overflowed */
    uint64_t applied_calls;
    uint64_t selected; /* entries of this rank in the last call that was applied */
    uint64_t applied;  /* of those, part of the result */
    uint64_t total_selected, total_applied;
    uint64_t words_sent, words_received; /* of entries, in 4 bytes; of those calls */
    uint64_t bytes_sent, bytes_received; /* headers, counts and histograms included */
    uint64_t fallbacks;                  /* of select's guesses */
    uint64_t exact_fallbacks;            /* of thresholds */
    double norm;                         /* of the residual, when last measured; -1: never */
    uint64_t check;                      /* tri_counters_check; the last */
};
enum { TRI_COUNTERS_WORDS = sizeof(struct tri_counters) / sizeof(uint64_t) };
#define TRI_COUNTERS_STEP 0x9e3779b97f4a7c15u /* from one place to the next */

/* The bits of word + place without a pattern (the finalizer of MurmurHash3, Appleby 2011), so that
 * words of two calls have the check of neither, but once in 2^64. */
static inline uint64_t tri_counters_mixed(uint64_t word, uint64_t place)
{
    uint64_t x = word + (place + 1) * TRI_COUNTERS_STEP;
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdu;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53u;
    return x ^ x >> 33;
}

static inline uint64_t tri_counters_check(const struct tri_counters *counters)
{
    uint64_t words[TRI_COUNTERS_WORDS], check = 0;
    memcpy(words, counters, sizeof words);
    for (uint64_t i = 0; i + 1 < TRI_COUNTERS_WORDS; i++)
        check ^= tri_counters_mixed(words[i], i);
    return check;
}

/* What becomes 0 if a call is not applied: its result. Each may be NULL; `dense` is aligned to its
 * elements. */
struct tri_clearing {
    void *dense;
    size_t bytes; /* of dense */
    uint32_t *count;
};

struct tri_record {
    struct tri_counters *counters;  /* on the device */
    struct tri_counters *published; /* pinned memory */
    struct tri_clearing result;
    const uint32_t *decision, *outcome;
    const uint32_t *selected, *applied, *fallbacks; /* on the device; fallbacks: so far */
    const double *norm;                             /* on the device; NULL: not measured */
    uint64_t words_sent, words_received, bytes_sent, bytes_received;
    uint32_t exact_fallbacks; /* of this call */
};

/* One rank's part of chunk-wise entries: chunk c has the k slots [c * k, c * k + k), in
 * ascending order of index within the chunk. Slots without an entry have index 0 and value 0,
 * and come last. */
struct tri_chunks {
    uint16_t *index;
    void *value;
    trib_dtype dtype; /* as tri_entries.dtype */
    uint32_t chunk;   /* elements: a power of two, at most 65,536 */
    uint32_t k;       /* of each chunk; at most `chunk` */
};

/* Lists whose values are added up at each index. */
struct tri_merge {
    const struct tri_entries *lists;
    int32_t n;           /* at most TRI_MAX_LISTS */
    size_t first, count; /* all indices lie in [first, first + count); first: 0 with starts */
    const uint32_t *abort_flag; /* as decide's; NULL: there is none */
};

/* The result that a kernel writes: each value is sum / divisor, rounded to `dtype` once. */
struct tri_result {
    void *data;
    trib_dtype dtype;
    double divisor;
    uint32_t *overflow; /* = 1 if a value is infinite or NaN, otherwise left alone; may be NULL */
};

/* The operation of residual_update at the index of an entry. */
enum tri_update {
    TRI_UPDATE_SUBTRACT, /* residual -= value */
    TRI_UPDATE_ADD,      /* residual += value */
    TRI_UPDATE_CLEAR     /* residual = 0: faster, for where the whole residual was applied */
};

struct tri_sparse_kernels {
    /* Bytes of scratch for every member below, on a tensor of `count` elements of acc type `dtype`,
     * selections of at most `k`, and lists that hold at most `entries` together. */
    size_t (*scratch_bytes)(size_t count, uint32_t k, size_t entries, trib_dtype dtype);

    /* ---- choosing */

    /* accumulate: acc is made, all of it; in place it is there. */
    trib_status (*accumulate)(const struct tri_accumulator *acc, struct tri_signing signing,
                              trib_stream stream);

    /* accumulate_clipped: accumulate, with two buffers, but the gradient is first multiplied by
     * min(1, limit / norm), NaN if the norm is not finite. The norm is the gradient's, as `norm`
     * says. The factor is rounded to acc's type, then the product. */
    trib_status (*accumulate_clipped)(const struct tri_accumulator *acc, double limit,
                                      void *scratch, trib_stream stream);

    /* select: out = the at most k largest of the range above the threshold, in index order, as
     * (index, acc rounded to out->dtype). Zeros are never selected, so there may be fewer than k.
     * out->capacity >= min(k, range). */
    trib_status (*select)(const struct tri_accumulator *acc, const struct tri_selection *selection,
                          const struct tri_entries *out, void *scratch, trib_stream stream);

    /* index_select: for every entry, value = acc[index] rounded to entries->dtype. */
    trib_status (*index_select)(const struct tri_accumulator *acc,
                                const struct tri_entries *entries, trib_stream stream);

    /* gauss: *threshold (acc's type) = max(0, mean + z * sigma) of all acc, sigma over count;
     * summed in f64 in an order that is part of the meaning (cpu/gauss.c), rounded once. */
    trib_status (*gauss)(const struct tri_accumulator *acc, double z, void *threshold,
                         void *scratch, trib_stream stream);

    /* fit: *threshold = *start, moved as `fit` says, by the counts over all of acc. */
    trib_status (*fit)(const struct tri_accumulator *acc, const struct tri_fit *fit,
                       const void *start, void *threshold, void *scratch, trib_stream stream);

    /* adjust_threshold: if *decision, *kept = *threshold, divided once by fit->lower if *count <
     * below, multiplied once by fit->raise if *count > above. `fit` NULL: unchanged. Both have
     * `dtype`. */
    trib_status (*adjust_threshold)(void *kept, const void *threshold, trib_dtype dtype,
                                    const uint32_t *count, const struct tri_fit *fit,
                                    const uint32_t *decision, trib_stream stream);

    /* ---- radix select of entries (f32 or f64), in rounds: ranks can add up their histograms
     * between radix_histogram and radix_refine, and so cut all their entries as one list */

    /* radix_init: start the search for the k largest (threshold NULL), or cut above *threshold and
     * be done. */
    trib_status (*radix_init)(struct tri_cut *cut, uint32_t k, const void *threshold,
                              trib_dtype dtype, trib_stream stream);
    /* radix_histogram: histogram[d], d < TRI_CUT_DIGITS, = how many entries, not 0, agree with
     * cut->key in the digits of earlier rounds and have the digit d in this one. */
    trib_status (*radix_histogram)(const struct tri_entries *entries, const struct tri_cut *cut,
                                   int round, uint32_t *histogram, trib_stream stream);
    /* radix_refine: append to the key the digit that holds the last wanted entry; `ties` = how many
     * are still wanted there. If round 0 finds no more entries than wanted, all are in. */
    trib_status (*radix_refine)(struct tri_cut *cut, int round, const uint32_t *histogram,
                                trib_dtype dtype, trib_stream stream);
    /* count_ties: *ties = how many entries are equal to the cut's key (0 if the key is 0). */
    trib_status (*count_ties)(const struct tri_entries *entries, const struct tri_cut *cut,
                              uint32_t *ties, void *scratch, trib_stream stream);
    /* share_ties: of cut->ties, rank r takes at most ties[r], lower ranks first: cut->ties = the
     * part of `rank`. */
    trib_status (*share_ties)(struct tri_cut *cut, const uint32_t *ties, int32_t rank,
                              trib_stream stream);
    /* radix_partition: kept = the entries that are in, dropped (may be NULL) = the others, zeros
     * included; both in index order. Capacities suffice. */
    trib_status (*radix_partition)(const struct tri_entries *entries, const struct tri_cut *cut,
                                   const struct tri_entries *kept,
                                   const struct tri_entries *dropped, void *scratch,
                                   trib_stream stream);

    /* ---- where entries lie */

    /* lower_bound: positions[b] = how many entries have an index below bounds[b], b <= n. `bounds`:
     * n + 1 numbers in host memory, read during the call, n <= TRI_MAX_LISTS. */
    trib_status (*lower_bound)(const struct tri_entries *entries, const uint64_t *bounds, int32_t n,
                               uint32_t *positions, trib_stream stream);
    /* index_histogram: bins[b] = how many entries have index / width == b, for all b < nbins. */
    trib_status (*index_histogram)(const struct tri_entries *entries, uint32_t width,
                                   uint32_t *bins, uint32_t nbins, trib_stream stream);
    /* find_starts: write entries->starts, of `count` elements. */
    trib_status (*find_starts)(const struct tri_entries *entries, size_t count, trib_stream stream);

    /* ---- sums: at each index 0 + the values of list 0, 1, ..., in that order, in f32 (f64 for
     * f64), the same bits on every rank.
     *
     * A merge that finds *abort_flag set may leave: then its output holds anything, but a count not
     * above the capacity. That is sound because the flag never becomes 0 again while its
     * communicator lives, and decide runs later on the same stream: it finds the flag set too, and
     * the call is not applied. */

    /* merge: out = the union, in index order, sums of 0 included. */
    trib_status (*merge)(const struct tri_merge *merge, const struct tri_entries *out,
                         void *scratch, trib_stream stream);
    /* merge_dense: for all i < count, out[i] = sum at first + i; 0 where no list has an entry.
     * All lists have starts, or none. The kernels that write a result (this one, write_entries, write_dense, chunk_merge) run
     * before decide, so lists may hold anything. */
    trib_status (*merge_dense)(const struct tri_merge *merge, const struct tri_result *out,
                               void *scratch, trib_stream stream);

    /* write_entries: index, out->data and *count = the entries; those whose value is 0 stay. */
    trib_status (*write_entries)(const struct tri_entries *entries, uint32_t *index,
                                 uint32_t *count, const struct tri_result *out, trib_stream stream);
    /* write_dense: out[i] = sum[i], i < count; sum is of type `dtype`, acc's or bf16 where that is
     * f32, and may be out->data if that has its type. */
    trib_status (*write_dense)(const void *sum, trib_dtype dtype, size_t count,
                               const struct tri_result *out, trib_stream stream);

    /* ---- the end of a call */

    /* decide: is the call applied? The first of these reasons against it is the outcome: aborted,
     * mismatch, a packet written anew, not finite, overflow. With `revokes` there is one, so it is
     * not; and *current and *velocity are what they were before *decision. */
    trib_status (*decide)(const struct tri_decide *decide, trib_stream stream);

    /* residual_update: if *decision, update the residual at each entry whose index is in `among`
     * (NULL: at each entry). *matched (may be NULL) = the number of those entries, 0 if not
     * *decision. After decide. */
    trib_status (*residual_update)(const struct tri_accumulator *acc,
                                   const struct tri_entries *entries, enum tri_update update,
                                   const struct tri_entries *among, const uint32_t *decision,
                                   uint32_t *matched, trib_stream stream);
    /* decay: if *decision, residual[i] *= factor; becomes 0 if the factor is 0. After decide. */
    trib_status (*decay)(const struct tri_accumulator *acc, double factor, const uint32_t *decision,
                         trib_stream stream);
    /* norm: *norm = sqrt(sum of residual[i]^2), in f64, in the order of gauss. After decide. */
    trib_status (*norm)(const struct tri_accumulator *acc, double *norm, void *scratch,
                        trib_stream stream);

    /* residual: out[i] = residual[i], i < acc->count. out may be a buffer of acc. */
    trib_status (*residual)(const struct tri_accumulator *acc, void *out, trib_stream stream);

    /* clear_result: if not *decision, `result` = 0. */
    trib_status (*clear_result)(const struct tri_clearing *result, const uint32_t *decision,
                                trib_stream stream);

    /* record: add the call to the counters: every field if *decision, otherwise outcome, ended and
     * non_finite_calls; and publish them. And clear_result of `result`. The host may see the counters
     * first: it reads the result behind the stream. */
    trib_status (*record)(const struct tri_record *record, trib_stream stream);

    /* ---- chunk-wise */

    /* chunk_select: the k largest of each chunk of acc (the last one may be shorter), by the
     * rules of select, in one pass. */
    trib_status (*chunk_select)(const struct tri_accumulator *acc, bool accumulate, bool clear,
                                const struct tri_chunks *out, struct tri_signing signing,
                                void *scratch, trib_stream stream);
    /* chunk_unpack: the slots whose value is not 0, as entries. `count`: of acc. */
    trib_status (*chunk_unpack)(const struct tri_chunks *chunks, size_t count,
                                const struct tri_entries *out, void *scratch, trib_stream stream);
    /* chunk_merge: merge_dense of n ranks' chunks, over all `count` elements. */
    trib_status (*chunk_merge)(const struct tri_chunks *ranks, int32_t n, size_t count,
                               const struct tri_result *out, trib_stream stream);
};

#endif
