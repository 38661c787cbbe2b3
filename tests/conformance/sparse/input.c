/* Gradients for sparse allreduces: small multiples of 2^-10, of which every type holds each one and
 * f32 holds the sums of hundreds of steps of 64 ranks. */
#include <math.h>

#include "tests/conformance/sparse/sparse.h"

static const char *const names[SPARSE_INPUTS] = {
    "spread",  "ties", "equal", "zero", "empty",     "corner", "disjoint", "identical", "cancel",
    "shifted", "few",  "tiny",  "fine", "shrinking", "floats", "overflow", "bad"};

const char *sparse_input_name(enum sparse_input input)
{
    return names[input];
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t draw(uint64_t seed, uint64_t step, uint64_t rank, uint64_t index)
{
    return mix(mix(seed * 0x9e3779b97f4a7c15u + step) ^ (rank + 1) * 0xd1342543de82ef95u ^
               (index + 1) * 0x2545f4914f6cdd1du);
}

/* Units of 2^-10: one in sixteen up to 127, the others up to 6. */
static double units(uint64_t bits)
{
    const double size =
        (bits >> 8) % 16 == 0 ? 1 + (double)(bits >> 16 & 1023) / 8 : (double)(bits >> 16 & 7);
    return (bits & 1 ? -1 : 1) * floor(size < 127 ? size : 127);
}

/* One in sixteen up to 2047, of which bf16 has one in eight. */
static double fine(uint64_t bits)
{
    const double more = (bits >> 8) % 16 == 0 ? (double)(bits >> 32 & 0x77f) : 0;
    return units(bits) + (bits & 1 ? -more : more);
}

static double unusual(uint64_t bits)
{
    return bits % 3 == 0 ? NAN : bits % 3 == 1 ? INFINITY : -INFINITY;
}

/* Where an input that is 0 in places is 0. */
static bool is_zero(enum sparse_input input, uint64_t seed, int rank, int size, size_t index,
                    size_t count)
{
    switch (input) {
    case SPARSE_EMPTY:
        return rank == 0;
    case SPARSE_CORNER:
        return index < count - count / 8;
    case SPARSE_DISJOINT:
        return index % (size_t)size != (size_t)rank;
    case SPARSE_FEW:
        return mix(index + seed) % 97 != 0;
    default:
        return false;
    }
}

/* One element of every third step, at another place each time. */
static bool is_singular(uint64_t seed, uint64_t step, size_t index, size_t count)
{
    return (step + seed) % 3 == 1 && index == mix(step * 7 + seed) % count;
}

/* A float with an odd significand of 24 bits, whose sums are rounded. */
static double odd_float(uint64_t bits)
{
    return (bits & 1 ? -1 : 1) *
           (double)ldexpf((float)((bits >> 40) | 1), (int)(bits >> 8 & 15) - 30);
}

/* 61440 on every rank; or 61440 on rank 0, -4096 on rank 1, 0 elsewhere. */
static double overflowing(uint64_t turn, int rank)
{
    return turn / 3 % 2 == 0 || rank == 0 ? 61440 : rank == 1 ? -4096 : 0;
}

double sparse_input(enum sparse_input input, uint64_t seed, uint64_t step, int rank, int size,
                    size_t index, size_t count)
{
    const uint64_t bits = draw(seed, step, (uint64_t)rank, index);
    const double unit = 1.0 / 1024;
    if (is_zero(input, seed, rank, size, index, count))
        return 0;
    switch (input) {
    case SPARSE_TIES:
        return unit * ((double)((bits >> 20) % 3) - 1);
    case SPARSE_EQUAL:
        return unit * 3;
    case SPARSE_ZERO:
        return bits & 1 ? -0.0 : 0.0;
    case SPARSE_IDENTICAL:
        return unit * units(draw(seed, step, 0, index));
    case SPARSE_CANCEL:
        return (rank & 1 ? -unit : unit) * units(draw(seed, step, (uint64_t)rank / 2, index));
    case SPARSE_SHIFTED:
        return unit * (40 + units(bits) / 2);
    case SPARSE_TINY:
        return ldexp(units(bits), -138);
    case SPARSE_FINE:
        return unit * fine(bits);
    case SPARSE_SHRINKING:
        return (step == 0 ? 128 : 1) * unit * units(bits);
    case SPARSE_FLOATS:
        return odd_float(bits);
    case SPARSE_OVERFLOW: /* whole numbers, so that sums are exact */
        return is_singular(seed, step, index, count) ? overflowing(step + seed, rank) : units(bits);
    case SPARSE_BAD:
        if (is_singular(seed, step, index, count) &&
            (uint64_t)rank == mix(step + seed) % (uint64_t)size)
            return unusual(mix(step + 99 * seed));
        return unit * units(bits);
    default:
        return unit * units(bits);
    }
}
