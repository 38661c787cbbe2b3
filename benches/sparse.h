/* trib_sparse: its arguments. */
#ifndef TRI_BENCHES_SPARSE_H
#define TRI_BENCHES_SPARSE_H

#include <stdbool.h>
#include <stddef.h>

#include "benches/arguments.h"
#include "benches/burst.h"

struct sparse_options {
    const char *backend;    /* NULL: the best */
    const char *algorithms; /* names with commas, or "all" */
    size_t counts[BENCH_MAX_LIST];
    double densities[BENCH_MAX_LIST];
    int ncounts, ndensities;
    int ranks, iterations, warmup;
    bool separate, in_place, select, bf16; /* which rows */
    double momentum;                       /* of rows beside those without; 0: no such rows */
    enum bench_way way;
    int per_host; /* ranks a host, for hier; 0: where they run */
    const char *csv;
};

/* Prints and exits where it cannot. */
struct sparse_options sparse_options(int argc, char **argv);

#endif
