/* chunk_select: the k largest of each chunk.
 *
 * One pass, chunk by chunk, while a chunk stays in a near cache. The floor of a chunk is guessed
 * from the chunk before. A first pass counts the elements above it, which is cheap: where
 * they are fewer than k, or many more, as in chunks that are sorted or have many equal elements,
 * a bound that holds takes its place: the k-th largest of the maxima of small groups of the
 * chunk has k elements above it, or equal to it, one in each of k groups. If fewer than k lie
 * above, it is the k-th largest key itself, and of those equal to it only the first are looked
 * at. A chunk of few elements is sorted out without any of this. */
#include "kernels/cpu/top.h"

enum {
    SMALL = 16,  /* elements of a chunk that is sorted out directly */
    GROUP = 16,  /* elements of a group at most */
    BLOCK = 2048 /* elements of acc, at least, that are made at once */
};

/* ---- keys */

/* count: how many keys are above. maxima: those of groups of `group`. kth: the k-th largest of n
 * keys, 1 <= k <= n, which it moves about: a quickselect that sorts into three parts, so that
 * equal keys are gone at once, by the median of three that are drawn: no order of the keys is a
 * bad one. */
#define DEFINE_KEYS(name, real, key, key_of)                                                       \
    static uint32_t name##_count(const real *values, size_t n, key above)                          \
    {                                                                                              \
        uint32_t count = 0;                                                                        \
        for (size_t i = 0; i < n; i++)                                                             \
            count += (key)key_of(values[i]) > above;                                               \
        return count;                                                                              \
    }                                                                                              \
    static void name##_maxima(key *maxima, const real *values, size_t groups, size_t group)        \
    {                                                                                              \
        for (size_t g = 0; g < groups; g++) {                                                      \
            key greatest = 0;                                                                      \
            for (size_t i = 0; i < group; i++) {                                                   \
                const key found = (key)key_of(values[g * group + i]);                              \
                greatest = found > greatest ? found : greatest;                                    \
            }                                                                                      \
            maxima[g] = greatest;                                                                  \
        }                                                                                          \
    }                                                                                              \
    static key name##_median(const key *keys, size_t n, uint64_t *random)                          \
    {                                                                                              \
        key of[3];                                                                                 \
        for (int i = 0; i < 3; i++) {                                                              \
            *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);     \
            of[i] = keys[(*random >> 33) % n];                                                     \
        }                                                                                          \
        const key low = of[0] < of[1] ? of[0] : of[1], high = of[0] < of[1] ? of[1] : of[0];       \
        return of[2] < low ? low : of[2] > high ? high : of[2];                                    \
    }                                                                                              \
    static key name##_kth(key *keys, size_t n, size_t k)                                           \
    {                                                                                              \
        uint64_t random = n;                                                                       \
        while (n > 1) {                                                                            \
            const key pivot = name##_median(keys, n, &random);                                     \
            size_t greater = 0, i = 0, less = n;                                                   \
            while (i < less) {                                                                     \
                const key found = keys[i];                                                         \
                if (found > pivot) {                                                               \
                    keys[i++] = keys[greater];                                                     \
                    keys[greater++] = found;                                                       \
                } else if (found < pivot) {                                                        \
                    keys[i] = keys[--less];                                                        \
                    keys[less] = found;                                                            \
                } else {                                                                           \
                    i++;                                                                           \
                }                                                                                  \
            }                                                                                      \
            if (k <= greater) {                                                                    \
                n = greater;                                                                       \
            } else if (k <= less) {                                                                \
                return pivot;                                                                      \
            } else {                                                                               \
                keys += less;                                                                      \
                n -= less;                                                                         \
                k -= less;                                                                         \
            }                                                                                      \
        }                                                                                          \
        return keys[0];                                                                            \
    }
DEFINE_KEYS(f32, float, int32_t, tri_key_f32)
DEFINE_KEYS(f64, double, int64_t, tri_key_f64)

static uint32_t count_above(const void *chunk, size_t n, trib_dtype dtype, uint64_t above)
{
    return dtype == TRIB_F64 ? f64_count(chunk, n, (int64_t)above)
                             : f32_count(chunk, n, (int32_t)above);
}

static uint64_t last_finite(trib_dtype dtype)
{
    return dtype == TRIB_F64 ? TRI_KEY_INFINITY_F64 - 1 : TRI_KEY_INFINITY_F32 - 1;
}

/* ---- the chosen elements */

/* Take the elements above `kth`, and the first `ties` of those equal to it. Skips groups without
 * any. */
#define DEFINE_TAKE(name, real, key, key_of)                                                       \
    static void name(struct tri_top *top, const real *values, size_t n, key kth, uint32_t ties)    \
    {                                                                                              \
        real *const value = top->value;                                                            \
        uint32_t count = 0;                                                                        \
        for (size_t first = 0; first < n; first += GROUP) {                                        \
            const size_t end = n - first < GROUP ? n : first + GROUP;                              \
            const key floor = ties != 0 ? kth - 1 : kth;                                           \
            bool any = false;                                                                      \
            for (size_t i = first; i < end; i++)                                                   \
                any |= (key)key_of(values[i]) > floor;                                             \
            for (size_t i = first; i < end && any; i++) {                                          \
                const key found = (key)key_of(values[i]);                                          \
                const bool tie = found == kth && ties != 0;                                        \
                top->index[count] = (uint32_t)i;                                                   \
                value[count] = values[i];                                                          \
                count += found > kth || tie;                                                       \
                ties -= tie;                                                                       \
            }                                                                                      \
        }                                                                                          \
        top->count = count;                                                                        \
    }
DEFINE_TAKE(take_f32, float, int32_t, tri_key_f32)
DEFINE_TAKE(take_f64, double, int64_t, tri_key_f64)

/* The k largest, where fewer than k keys are above `kth`, which is the k-th if it is not 0. */
static void take_ties(struct tri_top *top, const void *chunk, size_t n, uint64_t kth,
                      uint32_t above)
{
    const uint32_t ties = kth == 0 ? 0 : top->k - above;
    top->floor = kth;
    top->nonfinite = count_above(chunk, n, top->dtype, last_finite(top->dtype));
    if (top->dtype == TRIB_F64)
        take_f64(top, chunk, n, (int64_t)kth, ties);
    else
        take_f32(top, chunk, n, (int32_t)kth, ties);
}

/* The k-th largest key of a chunk of up to SMALL elements. */
static uint64_t kth_of_few(const void *chunk, size_t n, uint32_t k, trib_dtype dtype)
{
    union {
        int32_t f32[SMALL];
        int64_t f64[SMALL];
    } keys;
    if (dtype == TRIB_F64) {
        f64_maxima(keys.f64, chunk, n, 1);
        return (uint64_t)f64_kth(keys.f64, n, k);
    }
    f32_maxima(keys.f32, chunk, n, 1);
    return (uint64_t)f32_kth(keys.f32, n, k);
}

/* A key that at least k keys are not below: 0 if k is so large that groups would not find one. */
static uint64_t bound(void *room, const void *chunk, size_t n, uint32_t k, trib_dtype dtype)
{
    size_t group = GROUP;
    while (group > 1 && n / group < 2 * (size_t)k)
        group /= 2;
    if (group == 1)
        return 0;
    if (dtype == TRIB_F64) {
        f64_maxima(room, chunk, n / group, group);
        return (uint64_t)f64_kth(room, n / group, k);
    }
    f32_maxima(room, chunk, n / group, group);
    return (uint64_t)f32_kth(room, n / group, k);
}

/* The floor of the next chunk: the k-th key of the last one, less a margin that follows the data:
 * wider after a miss, a little narrower where there were twice as many candidates as needed. */
struct guess {
    uint64_t kth, margin;
};

static uint64_t octave(trib_dtype dtype) /* keys from a number to its double */
{
    return dtype == TRIB_F64 ? UINT64_C(1) << 52 : UINT64_C(1) << 23;
}

static uint64_t floor_of(const struct guess *guess)
{
    return guess->kth > guess->margin ? guess->kth - guess->margin : 0;
}

static void learn(struct guess *guess, const struct tri_top *top, uint32_t candidates, bool missed)
{
    const uint64_t whole = octave(top->dtype);
    if (missed)
        guess->margin += guess->margin < whole ? guess->margin : 0;
    else if (candidates > 2 * top->k && guess->margin > whole / 64)
        guess->margin -= guess->margin / 8;
    guess->kth = top->floor;
}

/* The k largest of a chunk of more than SMALL elements, 1 <= k < n. */
static void choose_many(struct tri_top *top, const void *chunk, size_t n, void *room,
                        struct guess *guess)
{
    const uint32_t k = top->k;
    uint64_t floor = floor_of(guess);
    uint32_t candidates = count_above(chunk, n, top->dtype, floor);
    const bool missed = candidates < k && floor != 0;
    if (missed || candidates > 2 * (uint64_t)k + SMALL) {
        floor = bound(room, chunk, n, k, top->dtype);
        candidates = count_above(chunk, n, top->dtype, floor);
    }
    if (candidates < k) {
        take_ties(top, chunk, n, floor, candidates);
    } else {
        top->floor = floor;
        tri_top_show(top, chunk, n, 0);
        tri_top_cut(top);
    }
    learn(guess, top, candidates, missed);
}

/* The k largest of one chunk of more than k elements. */
static struct tri_top choose(const void *chunk, size_t n, uint32_t k, trib_dtype dtype,
                             void *scratch, struct guess *guess)
{
    struct tri_top top;
    tri_top_begin(&top, scratch, n, k, dtype, 0);
    if (k == 0) {
        top.nonfinite = count_above(chunk, n, dtype, last_finite(dtype));
    } else if (n <= SMALL) {
        const uint64_t kth = kth_of_few(chunk, n, k, dtype);
        take_ties(&top, chunk, n, kth, count_above(chunk, n, dtype, kth));
    } else {
        choose_many(&top, chunk, n, tri_top_behind(&top), guess);
    }
    return top;
}

/* ---- slots */

/* put: one entry; rest: slots [slot, end) are empty; some: those of one chunk, from what was
 * found; all: from a chunk that is not above the number of its slots, in which everything but
 * zeros is found. `made` is where acc of the chunk lies. `all` returns how many are not finite. */
#define DEFINE_SLOTS(name, real, key_of, infinity, load, store)                                    \
    static inline void name##_put(const struct tri_chunks *out, size_t slot, uint32_t at,          \
                                  real value, real *made, bool clear)                              \
    {                                                                                              \
        out->index[slot] = (uint16_t)at;                                                           \
        store(out->value, out->dtype, slot, value);                                                \
        if (clear)                                                                                 \
            made[at] -= load(out->value, out->dtype, slot);                                        \
    }                                                                                              \
    static void name##_rest(const struct tri_chunks *out, size_t slot, size_t end)                 \
    {                                                                                              \
        for (; slot < end; slot++) {                                                               \
            out->index[slot] = 0;                                                                  \
            store(out->value, out->dtype, slot, 0);                                                \
        }                                                                                          \
    }                                                                                              \
    static void name##_some(const struct tri_chunks *out, size_t slot, const struct tri_top *top,  \
                            real *made, bool clear)                                                \
    {                                                                                              \
        for (uint32_t i = 0; i < top->count; i++)                                                  \
            name##_put(out, slot + i, top->index[i], ((const real *)top->value)[i], made, clear);  \
        name##_rest(out, slot + top->count, slot + out->k);                                        \
    }                                                                                              \
    static uint32_t name##_all(const struct tri_chunks *out, size_t slot, size_t n, real *made,    \
                               bool clear)                                                         \
    {                                                                                              \
        const size_t end = slot + out->k;                                                          \
        uint32_t nonfinite = 0;                                                                    \
        for (uint32_t i = 0; i < n; i++) {                                                         \
            const bool zero = key_of(made[i]) == 0;                                                \
            nonfinite += key_of(made[i]) >= infinity;                                              \
            if (!zero)                                                                             \
                name##_put(out, slot++, i, made[i], made, clear);                                  \
        }                                                                                          \
        name##_rest(out, slot, end);                                                               \
        return nonfinite;                                                                          \
    }
DEFINE_SLOTS(slots_f32, float, tri_key_f32, TRI_KEY_INFINITY_F32, tri_load_f32, tri_store_entry_f32)
DEFINE_SLOTS(slots_f64, double, tri_key_f64, TRI_KEY_INFINITY_F64, tri_load_f64, tri_store_f64)

/* One chunk: where its acc lies, of how many elements, and its first slot. */
struct chunk {
    void *made;
    size_t n, slot;
};

/* Fill the slots of a chunk. Returns how many elements are not finite. */
static uint32_t emit(trib_dtype dtype, const struct chunk *chunk, bool clear,
                     const struct tri_chunks *out, void *scratch, struct guess *guess)
{
    const bool wide = dtype == TRIB_F64;
    void *const made = chunk->made;
    if (chunk->n <= out->k)
        return wide ? slots_f64_all(out, chunk->slot, chunk->n, made, clear)
                    : slots_f32_all(out, chunk->slot, chunk->n, made, clear);
    const struct tri_top top = choose(made, chunk->n, out->k, dtype, scratch, guess);
    if (wide)
        slots_f64_some(out, chunk->slot, &top, made, clear);
    else
        slots_f32_some(out, chunk->slot, &top, made, clear);
    return top.nonfinite;
}

trib_status tri_cpu_sparse_chunk_select(const struct tri_accumulator *acc, bool accumulate,
                                        bool clear, const struct tri_chunks *out,
                                        struct tri_signing signing, void *scratch,
                                        trib_stream stream)
{
    (void)stream;
    const size_t block = out->chunk > BLOCK ? out->chunk : BLOCK;
    struct guess guess = {.margin = octave(acc->dtype) / 8};
    uint32_t seen = 0;
    tri_sign(signing);
    for (size_t first = 0, slot = 0; first < acc->count; first += out->chunk, slot += out->k) {
        const size_t left = acc->count - first;
        const struct chunk chunk = {.made = tri_at(tri_acc_of(acc), acc->dtype, first),
                                    .n = left < out->chunk ? left : out->chunk,
                                    .slot = slot};
        if (accumulate && first % block == 0)
            tri_cpu_sparse_make(acc, first, left < block ? left : block, chunk.made);
        seen += emit(acc->dtype, &chunk, clear, out, scratch, &guess);
    }
    tri_signed_nonfinite(signing, seen);
    return TRIB_OK;
}
