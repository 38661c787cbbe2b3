/* The collectives that the sweep measures: one struct each, in the manner of nccl-tests. */
#include "benches/collective.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

static size_t one(size_t count, int ranks)
{
    (void)ranks;
    return count;
}

static size_t all(size_t count, int ranks)
{
    return count * (size_t)ranks;
}

static size_t at_start(size_t count, int rank)
{
    (void)count, (void)rank;
    return 0;
}

static size_t at_own_block(size_t count, int rank)
{
    return count * (size_t)rank;
}

static double bus_allreduce(int ranks)
{
    return 2.0 * (ranks - 1) / ranks;
}

static double bus_share(int ranks)
{
    return (double)(ranks - 1) / ranks;
}

static double bus_one(int ranks)
{
    (void)ranks;
    return 1;
}

double bench_input(int rank, size_t i)
{
    return (double)(1 + (i * 7 + (size_t)rank) % 2);
}

/* Element `i` of the reduction of all sends. Products of 64 ranks wrap in small types, so they are
 * compared through bench_encode, which wraps too. */
static double reduced(const struct bench_call *call, int ranks, size_t i)
{
    double result = bench_input(0, i);
    for (int rank = 1; rank < ranks; rank++) {
        const double x = bench_input(rank, i);
        switch (call->op) {
        case TRIB_PROD: result *= x; break;
        case TRIB_MIN: result = fmin(result, x); break;
        case TRIB_MAX: result = fmax(result, x); break;
        default: result += x; break;
        }
    }
    if (call->op != TRIB_AVG)
        return result;
    return call->dtype <= TRIB_F64 ? result / ranks : floor(result / ranks);
}

static bool expect_allreduce(double *out, const struct bench_call *call, int rank, int ranks,
                             size_t i)
{
    (void)rank;
    *out = reduced(call, ranks, i);
    return true;
}

static bool expect_broadcast(double *out, const struct bench_call *call, int rank, int ranks,
                             size_t i)
{
    (void)rank, (void)ranks;
    *out = bench_input(call->root, i);
    return true;
}

static bool expect_reduce(double *out, const struct bench_call *call, int rank, int ranks, size_t i)
{
    *out = reduced(call, ranks, i);
    return rank == call->root;
}

static bool expect_allgather(double *out, const struct bench_call *call, int rank, int ranks,
                             size_t i)
{
    (void)rank, (void)ranks;
    *out = bench_input((int)(i / call->count), i % call->count);
    return true;
}

static bool expect_reduce_scatter(double *out, const struct bench_call *call, int rank, int ranks,
                                  size_t i)
{
    *out = reduced(call, ranks, i + call->count * (size_t)rank);
    return true;
}

static bool expect_alltoall(double *out, const struct bench_call *call, int rank, int ranks,
                            size_t i)
{
    (void)ranks;
    *out = bench_input((int)(i / call->count), i % call->count + call->count * (size_t)rank);
    return true;
}

static trib_status run_allreduce(trib_comm *comm, const struct bench_call *c, int ranks,
                                 trib_stream stream)
{
    (void)ranks;
    return trib_allreduce(comm, c->send, c->recv, c->count, c->dtype, c->op, stream);
}

static trib_status run_broadcast(trib_comm *comm, const struct bench_call *c, int ranks,
                                 trib_stream stream)
{
    (void)ranks;
    return trib_broadcast(comm, c->send, c->recv, c->count, c->dtype, c->root, stream);
}

static trib_status run_reduce(trib_comm *comm, const struct bench_call *c, int ranks,
                              trib_stream stream)
{
    (void)ranks;
    return trib_reduce(comm, c->send, c->recv, c->count, c->dtype, c->op, c->root, stream);
}

static trib_status run_allgather(trib_comm *comm, const struct bench_call *c, int ranks,
                                 trib_stream stream)
{
    (void)ranks;
    return trib_allgather(comm, c->send, c->recv, c->count, c->dtype, stream);
}

static trib_status run_reduce_scatter(trib_comm *comm, const struct bench_call *c, int ranks,
                                      trib_stream stream)
{
    (void)ranks;
    return trib_reduce_scatter(comm, c->send, c->recv, c->count, c->dtype, c->op, stream);
}

static trib_status run_alltoall(trib_comm *comm, const struct bench_call *c, int ranks,
                                trib_stream stream)
{
    (void)ranks;
    return trib_alltoall(comm, c->send, c->recv, c->count, c->dtype, stream);
}

const struct bench_collective bench_collectives[] = {
    {"allreduce", BENCH_ALLREDUCE, true, false, true, one, one, at_start, bus_allreduce, run_allreduce,
     expect_allreduce},
    {"broadcast", BENCH_BROADCAST, false, true, true, one, one, at_start, bus_one, run_broadcast, expect_broadcast},
    {"reduce", BENCH_REDUCE, true, true, true, one, one, at_start, bus_one, run_reduce, expect_reduce},
    {"allgather", BENCH_ALLGATHER, false, false, true, one, all, at_own_block, bus_share, run_allgather,
     expect_allgather},
    {"reduce_scatter", BENCH_REDUCE_SCATTER, true, false, true, all, one, at_own_block, bus_share, run_reduce_scatter,
     expect_reduce_scatter},
    {"alltoall", BENCH_ALLTOALL, false, false, false, all, all, at_start, bus_share, run_alltoall,
     expect_alltoall},
    {.name = NULL},
};

const struct bench_collective *bench_collective_find(const char *name)
{
    for (const struct bench_collective *c = bench_collectives; c->name != NULL; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

static uint16_t f16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) == 0)
        return 0;
    const uint32_t exponent = (bits >> 23 & 0xff) - 127 + 15;
    return (uint16_t)((bits >> 16 & 0x8000u) | exponent << 10 | (bits >> 13 & 0x3ffu));
}

static double of_f16(uint16_t half)
{
    const int exponent = half >> 10 & 0x1f;
    const double mantissa = half & 0x3ff;
    const double size = exponent == 0 ? ldexp(mantissa, -24)
                                      : ldexp(1024 + mantissa, exponent - 25);
    return half & 0x8000 ? -size : size;
}

#define STORE(type) ((type *)out)[i] = (type)value
#define STORE_WRAPPED(type) ((type *)out)[i] = (type)(uint64_t)(int64_t)fmod(value, 0x1p62)

void bench_encode(void *out, size_t i, double value, trib_dtype dtype)
{
    switch (dtype) {
    case TRIB_F16: ((uint16_t *)out)[i] = f16_of((float)value); break;
    case TRIB_BF16: {
        const float single = (float)value;
        uint32_t bits;
        memcpy(&bits, &single, sizeof bits);
        ((uint16_t *)out)[i] = (uint16_t)(bits >> 16);
        break;
    }
    case TRIB_F32: STORE(float); break;
    case TRIB_F64: STORE(double); break;
    case TRIB_I8: STORE_WRAPPED(int8_t); break;
    case TRIB_U8: STORE_WRAPPED(uint8_t); break;
    case TRIB_I32: STORE_WRAPPED(int32_t); break;
    case TRIB_U32: STORE_WRAPPED(uint32_t); break;
    case TRIB_I64: STORE_WRAPPED(int64_t); break;
    case TRIB_U64: STORE_WRAPPED(uint64_t); break;
    default: break;
    }
}

double bench_decode(const void *in, size_t i, trib_dtype dtype)
{
    switch (dtype) {
    case TRIB_F16: return of_f16(((const uint16_t *)in)[i]);
    case TRIB_BF16: {
        const uint32_t bits = (uint32_t)((const uint16_t *)in)[i] << 16;
        float single;
        memcpy(&single, &bits, sizeof single);
        return (double)single;
    }
    case TRIB_F32: return (double)((const float *)in)[i];
    case TRIB_F64: return ((const double *)in)[i];
    case TRIB_I8: return ((const int8_t *)in)[i];
    case TRIB_U8: return ((const uint8_t *)in)[i];
    case TRIB_I32: return ((const int32_t *)in)[i];
    case TRIB_U32: return ((const uint32_t *)in)[i];
    case TRIB_I64: return (double)((const int64_t *)in)[i];
    case TRIB_U64: return (double)((const uint64_t *)in)[i];
    default: return NAN;
    }
}
