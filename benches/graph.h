/* Graphs of calls, for the backends that have them: struct bench's `graphs`. */
#ifndef TRI_BENCHES_GRAPH_H
#define TRI_BENCHES_GRAPH_H

#include "benches/bench.h"

/* One rank's graph: none holds the calls of all ranks, so `rank` is not BENCH_ALL. Each rank has a
 * thread. */
struct bench_graphs {
    /* What `calls` calls of `body` queue on the rank's stream, ready to launch. The body has run
     * before: what NCCL does in its first call may wait for the other ranks, or allocate. */
    void *(*capture)(const struct bench *bench, int rank, bench_body body, void *argument,
                     int calls);
    /* Queue all of it. */
    void (*launch)(const struct bench *bench, int rank, void *graph);
    /* It has run. */
    void (*drop)(void *graph);
};

/* nccl: CUDA's. Only in a build with NCCL. */
extern const struct bench_graphs bench_graphs_cuda;

#endif
