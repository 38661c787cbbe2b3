/* The collectives that the sweep measures: one struct each, in the manner of nccl-tests. */
#ifndef TRI_BENCHES_COLLECTIVE_H
#define TRI_BENCHES_COLLECTIVE_H

#include "benches/bench.h"

struct bench_collective;

/* One rank's call. `count` is that of the public function. */
struct bench_call {
    const struct bench_collective *collective;
    void *send, *recv;
    size_t count;
    trib_dtype dtype;
    trib_op op;
    int32_t root;
};

enum bench_kind {
    BENCH_ALLREDUCE,
    BENCH_BROADCAST,
    BENCH_REDUCE,
    BENCH_ALLGATHER,
    BENCH_REDUCE_SCATTER,
    BENCH_ALLTOALL
};

struct bench_collective {
    const char *name;
    enum bench_kind kind;
    bool reduces;      /* takes an op */
    bool rooted;       /* takes a root */
    bool can_in_place; /* has an in-place form */
    /* Elements of send and recv for `count` on `ranks` ranks. */
    size_t (*send_elements)(size_t count, int ranks);
    size_t (*recv_elements)(size_t count, int ranks);
    /* In place: which element of the larger buffer the smaller one starts at. */
    size_t (*in_place_offset)(size_t count, int rank);
    /* Bus bandwidth over algorithm bandwidth (nccl-tests, PERFORMANCE.md). */
    double (*bus_factor)(int ranks);
    /* Our call. */
    trib_status (*run)(trib_comm *comm, const struct bench_call *call, int ranks,
                       trib_stream stream);
    /* What element `i` of `rank`'s recv must be; false: this rank's recv is not looked at. */
    bool (*expected)(double *out, const struct bench_call *call, int rank, int ranks, size_t i);
};

/* By name; NULL if there is none. */
const struct bench_collective *bench_collective_find(const char *name);
/* The table, ended by a NULL name. */
extern const struct bench_collective bench_collectives[];

/* Input: element `i` of `rank`'s send. Small integers, so that every result is exact. */
double bench_input(int rank, size_t i);

/* Elements in host memory, as the type's bytes. Exact for the numbers used here. */
void bench_encode(void *out, size_t i, double value, trib_dtype dtype);
double bench_decode(const void *in, size_t i, trib_dtype dtype);

#endif
