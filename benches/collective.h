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
    trib_variant variant; /* of calls that take one */
};

enum bench_kind {
    BENCH_ALLREDUCE,
    BENCH_BROADCAST,
    BENCH_REDUCE,
    BENCH_ALLGATHER,
    BENCH_REDUCE_SCATTER,
    BENCH_ALLTOALL,
    BENCH_GATHER,
    BENCH_SCATTER,
    BENCH_SENDRECV, /* to the next rank, from the one before, in one batch */
    BENCH_BARRIER   /* moves nothing; send is one element, for the peer, which has no barrier */
};

struct bench_collective {
    const char *name;
    enum bench_kind kind;
    bool reduces; /* takes an op */
    bool varies;  /* takes a variant */
    /* Elements of send and recv for `count` on `ranks` ranks. */
    size_t (*send_elements)(size_t count, int ranks);
    size_t (*recv_elements)(size_t count, int ranks);
    /* NULL, or in place: which element of the larger buffer the smaller one starts at. */
    size_t (*in_place_offset)(size_t count, int rank);
    /* Bus bandwidth over algorithm bandwidth (nccl-tests, PERFORMANCE.md). */
    double (*bus_factor)(int ranks);
    /* Our call. */
    trib_status (*run)(trib_comm *comm, const struct bench_call *call, trib_stream stream);
    /* Our call for all ranks at once, rank i's is `calls[i]`; NULL if there is none. */
    trib_status (*run_group)(trib_group *group, const struct bench_call *calls,
                             const trib_stream *streams);
    /* The value that element `i` of `rank`'s recv must have; false: recv is not checked. */
    bool (*expected)(double *out, const struct bench_call *call, int rank, int ranks, size_t i);
};

/* What lists and reducers stand beside: the average of one flat buffer of floats, in place. */
struct bench_call bench_flat_call(void *data, size_t count);

/* By name; NULL if there is none. */
const struct bench_collective *bench_collective_find(const char *name);
/* The table, ended by a NULL name. */
extern const struct bench_collective bench_collectives[];

/* The ring of BENCH_SENDRECV. */
int bench_after(int rank, int ranks);
int bench_before(int rank, int ranks);

/* Input: element `i` of `rank`'s send. Small integers, so that every result is exact. Without a
 * reduction no two ranks have the same. */
double bench_input(const struct bench_call *call, int rank, size_t i);

#endif
