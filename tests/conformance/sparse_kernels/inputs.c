/* Numbers to choose from: the distributions of gradients, and those that break selections. */
#include <math.h>
#include <string.h>

#include "tests/conformance/sparse_kernels/sparse_kernels.h"

const char *sparse_kind_name(int kind)
{
    static const char *const names[SPARSE_KINDS] = {
        [SPARSE_GAUSS] = "gauss",
        [SPARSE_LAPLACE] = "laplace",
        [SPARSE_STUDENT] = "student's t",
        [SPARSE_ZIPF] = "zipf",
        [SPARSE_LAYERS] = "layers of many scales",
        [SPARSE_UP] = "ascending",
        [SPARSE_DOWN] = "descending",
        [SPARSE_SAW_NARROW] = "narrow saw teeth",
        [SPARSE_SAW_WIDE] = "wide saw teeth",
        [SPARSE_HOT_TILE] = "one hot tile",
        [SPARSE_FEW] = "few",
        [SPARSE_EQUAL] = "all equal",
        [SPARSE_ZERO] = "all 0",
        [SPARSE_SIGNED_ZEROS] = "zeros of both signs",
        [SPARSE_DENORMAL] = "denormals",
        [SPARSE_TIES_BELOW] = "k - 1 and ties",
        [SPARSE_TIES_AT] = "k and ties",
        [SPARSE_TIES_ABOVE] = "k + 1 and ties",
        [SPARSE_TWO_VALUES] = "two values",
        [SPARSE_NEXT_BITS] = "successive bits",
        [SPARSE_HUGE] = "huge",
        [SPARSE_ONE_NAN] = "one NaN",
        [SPARSE_ALL_NAN] = "all NaN",
        [SPARSE_INFINITIES] = "infinities",
    };
    return names[kind];
}

/* In (0, 1). */
static double uniform(void)
{
    return ((double)(kernels_random() >> 11) + 0.5) * 0x1p-53;
}

double sparse_normal(void)
{
    return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform());
}

static double sign(void)
{
    return kernels_random() & 1 ? -1.0 : 1.0;
}

static double student(void)
{
    const double a = sparse_normal(), b = sparse_normal(), c = sparse_normal();
    return sparse_normal() / sqrt((a * a + b * b + c * c) / 3 + 1e-6);
}

/* Values that ties are made of must be representable in all types. */
static double ties(size_t i, size_t n, uint32_t distinct)
{
    const size_t step = distinct == 0 || distinct > n ? 1 : n / distinct;
    const bool big = i % step == step / 2 && i / step < distinct;
    return big ? sign() * (2 + (double)(i / step % 1024) / 1024) : sign();
}

static double tame(size_t i, size_t n, int kind)
{
    switch (kind) {
    case SPARSE_GAUSS:
        return sparse_normal();
    case SPARSE_LAPLACE:
        return sign() * -log(uniform());
    case SPARSE_STUDENT:
        return student();
    case SPARSE_ZIPF:
        return sign() / (1 + floor(1000 * uniform()));
    case SPARSE_LAYERS:
        return sparse_normal() * pow(10, -2 * (double)(i * 48 / n * 7 % 48) / 48);
    case SPARSE_UP:
        return ((double)i + 1) / (double)n * 2;
    case SPARSE_DOWN:
        return -(double)(n - i) / (double)n * 2;
    case SPARSE_SAW_NARROW:
        return (double)(i % 64 + 1) / 64;
    case SPARSE_SAW_WIDE:
        return (double)(i % (n / 1024 + 2) + 1) / 512;
    case SPARSE_HOT_TILE:
        return i / 1024 == n / 2048 ? 100 + sparse_normal() : sparse_normal() / 100;
    default:
        return kernels_random() % 16 == 0 ? sparse_normal() : 0;
    }
}

static double value(size_t i, size_t n, int kind, uint32_t k)
{
    switch (kind) {
    case SPARSE_EQUAL:
        return -0.75;
    case SPARSE_ZERO:
        return 0;
    case SPARSE_SIGNED_ZEROS:
        return kernels_random() % 128 == 0 ? sign() : copysign(0, sign());
    case SPARSE_TIES_BELOW:
        return ties(i, n, k > 0 ? k - 1 : 0);
    case SPARSE_TIES_AT:
        return ties(i, n, k);
    case SPARSE_TIES_ABOVE:
        return ties(i, n, k + 1);
    case SPARSE_TWO_VALUES:
        return kernels_random() & 1 ? 3 : -2;
    case SPARSE_ONE_NAN:
    case SPARSE_INFINITIES:
        return sparse_normal();
    default:
        return tame(i, n, kind);
    }
}

static void put_bits(unsigned char *element, trib_dtype dtype, uint64_t bits)
{
    memcpy(element, &bits, trib_dtype_size(dtype));
}

/* The bits of a positive float whose fields are all ones: the NaN that GPUs make. */
static uint64_t nan_bits(trib_dtype dtype)
{
    return ~(uint64_t)0 >> (65 - 8 * trib_dtype_size(dtype));
}

static uint64_t one_bits(trib_dtype dtype)
{
    uint64_t bits = 0;
    kernels_put(&bits, dtype, 1);
    return bits;
}

static uint64_t smallest_normal_bits(trib_dtype dtype)
{
    return dtype == TRIB_F64   ? (uint64_t)1 << 52
           : dtype == TRIB_F32 ? (uint64_t)1 << 23
           : dtype == TRIB_F16 ? (uint64_t)1 << 10
                               : (uint64_t)1 << 7;
}

static uint64_t largest_bits(trib_dtype dtype)
{
    uint64_t bits = 0;
    kernels_put(&bits, dtype, (double)INFINITY);
    return bits - 1;
}

static void some(unsigned char *data, trib_dtype dtype, size_t n, double number, size_t one_in)
{
    const size_t size = trib_dtype_size(dtype);
    for (size_t i = 0; n > 0 && i < n / one_in + 1; i++)
        kernels_put(data + kernels_random() % n * size, dtype, number);
}

void sparse_fill(unsigned char *data, trib_dtype dtype, size_t n, int kind, uint32_t k)
{
    const size_t size = trib_dtype_size(dtype);
    const uint64_t sign_bit = (uint64_t)1 << (8 * size - 1);
    for (size_t i = 0; i < n; i++) {
        unsigned char *element = data + i * size;
        if (kind == SPARSE_DENORMAL)
            put_bits(element, dtype,
                     (kernels_random() % smallest_normal_bits(dtype)) |
                         (kernels_random() & sign_bit));
        else if (kind == SPARSE_NEXT_BITS)
            put_bits(element, dtype, one_bits(dtype) + i * 7919 % n % (size == 2 ? 0x3800 : n));
        else if (kind == SPARSE_HUGE)
            put_bits(element, dtype,
                     largest_bits(dtype) - kernels_random() % (size == 2 ? 8 : 99999));
        else if (kind == SPARSE_ALL_NAN)
            put_bits(element, dtype, nan_bits(dtype));
        else
            kernels_put(element, dtype, value(i, n, kind, k));
    }
    if (kind == SPARSE_INFINITIES) {
        some(data, dtype, n, (double)INFINITY, 50);
        some(data, dtype, n, -(double)INFINITY, 50);
    }
    if (n > 0 && (kind == SPARSE_INFINITIES || kind == SPARSE_ONE_NAN))
        put_bits(data + kernels_random() % n * size, dtype, nan_bits(dtype));
}
