/* The parts of trib_sweep: its arguments, a row of the table, the report. */
#ifndef TRI_BENCHES_SWEEP_H
#define TRI_BENCHES_SWEEP_H

#include <stdio.h>

#include "benches/bench.h"
#include "benches/burst.h"
#include "benches/collective.h"

/* A way to open the communicators and to make the calls, by name, so that rows with it and without stand in
 * one table. Those that are opened alike are opened once: few of a device can have pull. */
struct sweep_variant {
    const char *name;
    void (*choose)(trib_options *options); /* NULL: as they are by default */
    bool symmetric;                        /* the buffers are symmetric memory */
    trib_variant variant;                  /* on nccl, of calls that take one */
};
/* The table, ended by a NULL name. */
extern const struct sweep_variant sweep_variants[];
enum { SWEEP_VARIANTS = 12 }; /* room for all of them */

/* The arguments. Names may be lists. */
struct options {
    const char *collective, *backend, *dtype, *op, *variant, *json;
    size_t begin, end;
    int factor, ranks, threads, calls, iterations, warmup, root;
    bool processes, eager, graph, check;
};

/* Says what is wrong and exits if something is. */
struct options sweep_options(int argc, char **argv);

/* One line of the table. `bytes` are those of the larger buffer. */
struct row {
    const struct sweep_variant *variant;
    const struct bench_collective *collective;
    enum bench_way way;
    int calls; /* of a sample */
    trib_dtype dtype;
    trib_op op;
    size_t count, bytes;
    bool in_place;
    size_t wrong; /* elements, over all ranks; of a barrier ranks that did not wait */
    struct bench_result ours, peer;
};

/* Buffers of one row, per rank: the argument of the two bodies. */
struct sweep_buffers {
    struct bench_call call[BENCH_MAX_RANKS];
    void *large[BENCH_MAX_RANKS], *small[BENCH_MAX_RANKS];
};
void sweep_ours(const struct bench *bench, int rank, void *buffers);
void sweep_peer(const struct bench *bench, int rank, void *buffers);

/* Fill `wrong`, `ours` and `peer`. False: the row's variant does not serve such a call. */
bool sweep_measure(const struct bench *bench, struct row *row, const struct options *options);

/* Run our call once, by a graph if the row's is one, on inputs whose result is exact in every type.
 * Returns what is wrong. */
size_t sweep_check(const struct bench *bench, struct sweep_buffers *buffers, const struct row *row);

void sweep_print_heading(const struct bench *bench, const struct options *options);
void sweep_print(const struct row *row, const struct bench *bench);
/* One object of the array in `file`. */
void sweep_write_json(FILE *file, const struct row *row, const struct bench *bench, bool first);

#endif
