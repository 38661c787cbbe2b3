/* The parts of trib_sweep: its arguments, a row of the table, the report. */
#ifndef TRI_BENCHES_SWEEP_H
#define TRI_BENCHES_SWEEP_H

#include <stdio.h>

#include "benches/bench.h"
#include "benches/collective.h"

/* The arguments. Names may be lists. */
struct options {
    const char *collective, *backend, *dtype, *op, *json;
    size_t begin, end;
    int factor, ranks, threads, iterations, warmup, root;
    bool unchecked, check;
};

/* Says what is wrong and exits if something is. */
struct options sweep_options(int argc, char **argv);

/* One line of the table. `bytes` are those of the larger buffer. */
struct row {
    const struct bench_collective *collective;
    trib_dtype dtype;
    trib_op op;
    size_t count, bytes;
    bool in_place;
    size_t wrong; /* elements, over all ranks */
    struct bench_result ours, peer;
};

/* Fill `wrong`, `ours` and `peer`. */
void sweep_measure(const struct bench *bench, struct row *row, const struct options *options);

void sweep_print_heading(const struct bench *bench);
void sweep_print(const struct row *row, const struct bench *bench);
/* One object of the array in `file`. */
void sweep_write_json(FILE *file, const struct row *row, const struct bench *bench, bool first);

#endif
