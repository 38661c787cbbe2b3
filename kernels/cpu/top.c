/* The k largest of a sequence: see top.h. */
#include "kernels/cpu/top.h"

enum {
    GROUP = 16, /* elements that are looked at together */
    ROOM = 32,  /* for the largest group, also where they are larger */
    DIGIT = 8,  /* bits of a key that one round of a cut looks at */
    DIGITS = 1 << DIGIT
};

/* Candidates that there is room for: ROOM beyond the bound, so that a group always fits. */
static size_t capacity_of(size_t count, uint32_t k)
{
    const size_t half = (size_t)k + k / 2, more = (size_t)k + 65536;
    const size_t wanted = half > more ? half : more;
    return (wanted < count ? wanted : count) + ROOM;
}

enum { ALIGN = 8 };

size_t tri_top_bytes(size_t count, uint32_t k, trib_dtype dtype)
{
    const size_t size = trib_dtype_size(dtype);
    const size_t behind = (count < TRI_TOP_CHUNK ? count : TRI_TOP_CHUNK) / 2 * size;
    return capacity_of(count, k) * (size + sizeof(uint32_t)) + ALIGN + behind;
}

void *tri_top_behind(const struct tri_top *top)
{
    const uintptr_t end = (uintptr_t)(top->index + top->capacity);
    return (void *)((end + ALIGN - 1) / ALIGN * ALIGN);
}

void tri_top_begin(struct tri_top *top, void *room, size_t count, uint32_t k, trib_dtype dtype,
                   uint64_t floor)
{
    *top = (struct tri_top){.dtype = dtype, .k = k, .floor = floor};
    top->capacity = capacity_of(count, k);
    top->value = room;
    top->index = (uint32_t *)tri_at(room, dtype, top->capacity);
}

/* For one more group. */
static void make_room(struct tri_top *top)
{
    if (top->capacity - top->count < ROOM) {
        top->full = true;
        tri_top_cut(top);
    }
}

/* Group by group: its greatest key says whether anything in it is of interest, which is rare.
 * Candidates are appended without branches, as they often come in crowds. */
#define DEFINE_SHOW(name, real, key, key_of, infinity)                                             \
    static key name##_greatest(const real *values, size_t n)                                       \
    {                                                                                              \
        key greatest = 0;                                                                          \
        for (size_t i = 0; i < n; i++) {                                                           \
            const key found = (key)key_of(values[i]);                                              \
            greatest = found > greatest ? found : greatest;                                        \
        }                                                                                          \
        return greatest;                                                                           \
    }                                                                                              \
    static void name##_append(struct tri_top *top, const real *values, size_t n, uint32_t first)   \
    {                                                                                              \
        const key floor = (key)top->floor;                                                         \
        uint32_t *const index = top->index, count = top->count;                                    \
        real *const value = top->value;                                                            \
        for (size_t i = 0; i < n; i++) {                                                           \
            index[count] = first + (uint32_t)i;                                                    \
            value[count] = values[i];                                                              \
            count += (key)key_of(values[i]) > floor;                                               \
        }                                                                                          \
        top->count = count;                                                                        \
    }                                                                                              \
    static void name##_group(struct tri_top *top, const real *values, size_t n, uint32_t first)    \
    {                                                                                              \
        const key greatest = name##_greatest(values, n);                                           \
        for (size_t i = 0; i < n && greatest >= (key)infinity; i++)                                \
            top->nonfinite += key_of(values[i]) >= infinity;                                       \
        if (greatest <= (key)top->floor)                                                           \
            return;                                                                                \
        make_room(top);                                                                            \
        name##_append(top, values, n, first);                                                      \
    }                                                                                              \
    static void name(struct tri_top *top, const real *values, size_t n, uint32_t first)            \
    {                                                                                              \
        size_t i = 0;                                                                              \
        for (; i + GROUP <= n; i += GROUP)                                                         \
            name##_group(top, values + i, GROUP, first + (uint32_t)i);                             \
        if (i < n)                                                                                 \
            name##_group(top, values + i, n - i, first + (uint32_t)i);                             \
    }
DEFINE_SHOW(show_f32, float, int32_t, tri_key_f32, TRI_KEY_INFINITY_F32)
DEFINE_SHOW(show_f64, double, int64_t, tri_key_f64, TRI_KEY_INFINITY_F64)

#if defined(__x86_64__)
#  include <immintrin.h>

#  define X86 __attribute__((target("avx2")))

/* One bit for each of 32 keys: is it above the floor? */
X86 static uint32_t above_x86(const float *values, __m256i floor)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    uint32_t above = 0;
    for (int i = 0; i < 4; i++) {
        const __m256i bits = _mm256_loadu_si256((const __m256i *)(values + 8 * i));
        const __m256i yes = _mm256_cmpgt_epi32(_mm256_and_si256(bits, magnitude), floor);
        above |= (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(yes)) << 8 * i;
    }
    return above;
}

/* Append those whose bit is set, unless they are there only to be counted as not finite. */
static void append_x86(struct tri_top *top, const float *values, uint32_t above, uint32_t first)
{
    uint32_t count = top->count;
    for (; above != 0; above &= above - 1) {
        const uint32_t i = (uint32_t)__builtin_ctz(above), key = tri_key_f32(values[i]);
        top->index[count] = first + i;
        ((float *)top->value)[count] = values[i];
        count += key > top->floor;
        top->nonfinite += key >= TRI_KEY_INFINITY_F32;
    }
    top->count = count;
}

/* show_f32, where the processor has AVX2. */
X86 static void show_f32_x86(struct tri_top *top, const float *values, size_t n, uint32_t first)
{
    const size_t whole = n - n % 32;
    for (size_t i = 0; i < whole; i += 32) {
        const uint64_t least = TRI_KEY_INFINITY_F32 - 1;
        const uint64_t floor = top->floor < least ? top->floor : least;
        const uint32_t above = above_x86(values + i, _mm256_set1_epi32((int)floor));
        if (above == 0)
            continue;
        make_room(top);
        append_x86(top, values + i, above, first + (uint32_t)i);
    }
    show_f32(top, values + whole, n - whole, first + (uint32_t)whole);
}

static bool fast(void)
{
    return __builtin_cpu_supports("avx2");
}
#else
#  define show_f32_x86 show_f32

static bool fast(void)
{
    return false;
}
#endif

void tri_top_show(struct tri_top *top, const void *values, size_t n, uint32_t first)
{
    if (top->dtype == TRIB_F64)
        show_f64(top, values, n, first);
    else
        (fast() ? show_f32_x86 : show_f32)(top, values, n, first);
}

/* The key of the k-th largest candidate, and how many of those equal to it are among the k
 * largest. There are at least k, and k is not 0. Digit by digit, from the highest bit in which
 * any two candidates differ; those that have the digits found so far are counted in two
 * histograms in turn, since neighbours often have the same digit. When only one is left it is
 * the key. */
#define DEFINE_FIND(name, real, type, key_of)                                                      \
    static type name##_differing(const real *value, uint32_t count)                                \
    {                                                                                              \
        type any = 0, all = (type) - 1;                                                            \
        for (uint32_t i = 0; i < count; i++) {                                                     \
            any |= (type)key_of(value[i]);                                                         \
            all &= (type)key_of(value[i]);                                                         \
        }                                                                                          \
        return any ^ all;                                                                          \
    }                                                                                              \
    static uint64_t name(const struct tri_top *top, uint32_t *ties)                                \
    {                                                                                              \
        const real *value = top->value;                                                            \
        const uint32_t count = top->count;                                                         \
        int left_bits = 0; /* not known yet, the lowest ones */                                    \
        for (type differing = name##_differing(value, count); differing != 0; differing >>= 1)     \
            left_bits++;                                                                           \
        type key = key_of(value[0]) >> left_bits; /* without those */                              \
        uint32_t wanted = top->k, left = count;                                                    \
        while (left_bits > 0 && left != 1) {                                                       \
            const int width = left_bits < DIGIT ? left_bits : DIGIT, shift = left_bits - width;    \
            uint32_t histogram[2][DIGITS] = {{0}}, digit = (1u << width) - 1;                      \
            for (uint32_t i = 0; i < count; i++) {                                                 \
                const type found = (type)key_of(value[i]) >> shift;                                \
                histogram[i & 1][found & ((1u << width) - 1)] += found >> width == key;            \
            }                                                                                      \
            for (; histogram[0][digit] + histogram[1][digit] < wanted; digit--)                    \
                wanted -= histogram[0][digit] + histogram[1][digit];                               \
            left = histogram[0][digit] + histogram[1][digit];                                      \
            key = key << width | digit;                                                            \
            left_bits = shift;                                                                     \
        }                                                                                          \
        for (uint32_t i = 0; i < count && left_bits > 0; i++)                                      \
            if ((type)key_of(value[i]) >> left_bits == key) {                                      \
                key = key_of(value[i]);                                                            \
                left_bits = 0;                                                                     \
            }                                                                                      \
        *ties = wanted;                                                                            \
        return key;                                                                                \
    }
DEFINE_FIND(find_f32, float, uint32_t, tri_key_f32)
DEFINE_FIND(find_f64, double, uint64_t, tri_key_f64)

/* Keep what is above `kth` and the first `ties` of what is equal to it. */
#define DEFINE_KEEP(name, real, key_of)                                                            \
    static void name(struct tri_top *top, uint64_t kth, uint32_t ties)                             \
    {                                                                                              \
        real *value = top->value;                                                                  \
        uint32_t kept = 0;                                                                         \
        for (uint32_t i = 0; i < top->count; i++) {                                                \
            const uint64_t key = key_of(value[i]);                                                 \
            const bool tie = key == kth && ties != 0;                                              \
            value[kept] = value[i];                                                                \
            top->index[kept] = top->index[i];                                                      \
            kept += key > kth || tie;                                                              \
            ties -= tie;                                                                           \
        }                                                                                          \
        top->count = kept;                                                                         \
    }
DEFINE_KEEP(keep_f32, float, tri_key_f32)
DEFINE_KEEP(keep_f64, double, tri_key_f64)

void tri_top_cut(struct tri_top *top)
{
    const bool wide = top->dtype == TRIB_F64;
    uint32_t ties = 0;
    if (top->count <= top->k)
        return;
    top->floor = top->k == 0 ? tri_key_last(top->dtype) : (wide ? find_f64 : find_f32)(top, &ties);
    (wide ? keep_f64 : keep_f32)(top, top->floor, ties);
}
