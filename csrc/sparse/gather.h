/* One packet of every rank, which all ranks read: a header, then entries. Either a collective brings the packets
 * of the others into this rank's memory; or each rank's stays where it made it, in symmetric memory, and the
 * kernels that write the result read it there: then no copy is made, and the transfer hides behind what these
 * kernels write. All ranks do the same.
 *
 * A call: write the own packet, tri_gather, read the packets, tri_gather_decide, tri_gather_end, and only then
 * change the residual: each of the former may fail.
 *
 * Where packets stay, tri_gather is an allgather of their headers, which each rank sends behind the kernels that made
 * its packet (on a device a kernel finds in memory what kernels before it have written, and so does, by its peer's
 * memory, a kernel behind one that has got the header); the end is an allreduce of a word. After an abort a rank passes
 * either early, and may read what another rank writes for its next call. The kernels that read take anything. In one
 * process the decision finds the abort flag then, which all ranks share. One of another process may not have heard of
 * the abort: so it compares the headers of the packets with those that came, and these are counted by what a rank writes
 * first. */
#ifndef TRI_SPARSE_GATHER_H
#define TRI_SPARSE_GATHER_H

#include "csrc/sparse/link.h"

struct tri_gathering {
    char *own; /* this rank's packet */
    char *all; /* those of all ranks, in their order; NULL: each lies where it was made */
    struct tri_header *headers; /* of all ranks, if `all` is NULL, */
    uint32_t *read;             /* and a word that they add up once they have read the packets */
    size_t bytes;               /* of a packet */
};

/* Do packets of `bytes` bytes stay where they were made? */
static inline bool tri_gathers_near(const struct tri_sparse_params *params, size_t bytes)
{
    return bytes >= params->near_from;
}

/* Memory for packets of `bytes` bytes, a multiple of 64. `near`: they stay, and have `more` bytes at their ends, which
 * do not count. */
struct tri_gathering tri_arena_gathering(struct tri_arena *arena,
                                         const struct tri_sparse_params *params, size_t bytes,
                                         bool near, size_t more);

/* The packets are complete, on all ranks. Counts what moves like tri_link_allgather. */
trib_status tri_gather(struct tri_run *run, const struct tri_gathering *gathering, size_t payload);
/* Where this rank reads the packet of `rank`. */
char *tri_gathered(const struct tri_run *run, const struct tri_gathering *gathering, int32_t rank);
/* tri_run_decide, by the headers of the packets. */
trib_status tri_gather_decide(struct tri_run *run, const struct tri_gathering *gathering,
                              uint32_t capacity);
/* No rank reads the packets any more: the next call may write its own. */
trib_status tri_gather_end(struct tri_run *run, const struct tri_gathering *gathering);

#endif
