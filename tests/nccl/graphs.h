/* Ranks with CUDA graphs of their calls. */
#ifndef TRI_TESTS_NCCL_GRAPHS_H
#define TRI_TESTS_NCCL_GRAPHS_H

#include <cuda_runtime_api.h>

#include "tests/team.h"

enum { GRAPH_RANKS = 2, GRAPH_ELEMENTS = 1000 };

struct graphs {
    struct team team;
    trib_abort *handle;
    void *data[GRAPH_RANKS];
    cudaGraphExec_t graphs[GRAPH_RANKS];
    _Atomic int captured;
};

/* A communicator whose ranks each have an executable graph of two sums, launched once. */
bool graphs_make(struct graphs *graphs);
void graphs_destroy_one(struct graphs *graphs, int rank);
/* All but the graphs. */
void graphs_end(struct graphs *graphs);

/* In place, on the rank's stream; the first element, after a wait. */
trib_status graphs_sum(struct graphs *graphs, int rank);
float graphs_value(struct graphs *graphs, int rank);
/* The state becomes `wanted`, and what it waits for begins with `begin`. */
void graphs_become(const struct graphs *graphs, trib_comm_state wanted, const char *begin, int ms);

#endif
