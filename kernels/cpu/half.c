/* Blocks of f16 and bf16 from and to f32: in plain C, and with what nearly every x86 processor
 * since 2013 has (AVX2 and F16C), chosen as the program runs. Both give the same bits. */
#include "kernels/cpu/half.h"

/* The plain loops, compiled for the instructions that `attribute` allows. */
#define DEFINE_WIDEN(name, attribute, convert)                                                     \
    attribute static void name(float *restrict out, const uint16_t *halves, size_t n)              \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            out[i] = convert(halves[i]);                                                           \
    }
#define DEFINE_NARROW(name, attribute, convert)                                                    \
    attribute static void name(uint16_t *restrict halves, const float *values, size_t n)           \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            halves[i] = convert(values[i]);                                                        \
    }

DEFINE_WIDEN(widen_f16, , tri_f16_to_f32)
DEFINE_WIDEN(widen_bf16, , tri_bf16_to_f32)
DEFINE_NARROW(narrow_f16, , tri_f32_to_f16)
DEFINE_NARROW(narrow_bf16, , tri_f32_to_bf16)

#if defined(__x86_64__)
#  include <cpuid.h>
#  include <immintrin.h>

#  define X86 __attribute__((target("avx2,f16c")))

DEFINE_WIDEN(widen_bf16_x86, X86, tri_bf16_to_f32)
DEFINE_NARROW(narrow_bf16_x86, X86, tri_f32_to_bf16)

X86 static void widen_f16_x86(float *restrict out, const uint16_t *halves, size_t n)
{
    const size_t whole = n & ~(size_t)7;
    for (size_t i = 0; i < whole; i += 8)
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(halves + i))));
    widen_f16(out + whole, halves + whole, n - whole);
}

X86 static void narrow_f16_x86(uint16_t *restrict halves, const float *values, size_t n)
{
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)); /* becomes 0x7fff */
    const size_t whole = n & ~(size_t)7;
    for (size_t i = 0; i < whole; i += 8) {
        const __m256 x = _mm256_loadu_ps(values + i);
        const __m256 y = _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
        _mm_storeu_si128((__m128i *)(halves + i), _mm256_cvtps_ph(y, _MM_FROUND_TO_NEAREST_INT));
    }
    narrow_f16(halves + whole, values + whole, n - whole);
}

/* Of AVX2 the compiler's support also asks the operating system; F16C needs nothing more of it. */
static int ask(void)
{
    unsigned int a, b, c = 0, d;
    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}

/* Asked once, as cpuid takes microseconds in a virtual machine. Threads may ask at the same time:
 * all of them get the same answer. */
static int fast(void)
{
    static int known; /* 0: not yet; 1: no; 2: yes */
    int answer = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (answer == 0) {
        answer = 1 + ask();
        __atomic_store_n(&known, answer, __ATOMIC_RELAXED);
    }
    return answer == 2;
}
#else
#  define widen_f16_x86 widen_f16
#  define widen_bf16_x86 widen_bf16
#  define narrow_f16_x86 narrow_f16
#  define narrow_bf16_x86 narrow_bf16

static int fast(void)
{
    return 0;
}
#endif

void tri_half_widen(float *out, const void *halves, size_t n, trib_dtype dtype)
{
    if (dtype == TRIB_F16)
        (fast() ? widen_f16_x86 : widen_f16)(out, halves, n);
    else
        (fast() ? widen_bf16_x86 : widen_bf16)(out, halves, n);
}

void tri_half_narrow(void *halves, const float *values, size_t n, trib_dtype dtype)
{
    if (dtype == TRIB_F16)
        (fast() ? narrow_f16_x86 : narrow_f16)(halves, values, n);
    else
        (fast() ? narrow_bf16_x86 : narrow_bf16)(halves, values, n);
}
