/* How fast the ranks reach each other: auto's figures, measured once by all ranks together. */
#ifndef TRI_SPARSE_MEASURE_H
#define TRI_SPARSE_MEASURE_H

#include "csrc/core/communicator.h"

/* One rank's measurement; zeroed at first. */
struct tri_measurement {
    struct trib_comm *comm;
    int operation;
    struct tri_workspace memory; /* what is exchanged; its event is where a round ends */
    trib_event start;            /* of a round */
};

/* For the body of a tri_all_ranks_run. begin takes what this rank needs, and is local: a rank that
 * fails tells the others before any of them runs. end may follow either; it never waits. */
trib_status tri_measure_begin(struct tri_measurement *measurement, struct trib_comm *comm,
                              int operation);
/* Blocking call of all ranks, on `stream`: sets comm->measured, to the same on all ranks. Ends on
 * every rank: any failure ends the communicator, because the other ranks wait for this one. */
trib_status tri_measure_run(struct tri_measurement *measurement, trib_stream stream);
void tri_measure_end(struct tri_measurement *measurement);

/* The figures of a link on which an exchange of each size of tri_measure_sizes takes so many
 * nanoseconds; `n` sizes were exchanged, at least 2. */
struct tri_measured tri_measure_figures(const uint64_t *ns, size_t n, int32_t size, int32_t hosts);

enum { TRI_MEASURE_SIZES = 4 };
extern const size_t tri_measure_sizes[TRI_MEASURE_SIZES]; /* bytes */

#endif
