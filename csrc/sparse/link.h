/* The exchange of entries between the ranks of a sparse allreduce. All ranks call each of these
 * functions, on the run's stream. Each counts its traffic in run->volume: all of it as bytes, and
 * `payload`, the bytes of entries, also as words of 4 bytes, rounded up for each message. */
#ifndef TRI_SPARSE_LINK_H
#define TRI_SPARSE_LINK_H

#include "csrc/sparse/run.h"

/* The most sends and receives that the backend gets as one. */
enum { TRI_LINK_CALLS = 8 * TRI_MAX_LISTS };

/* `bytes` of each rank, in rank order; in place if send is block `rank` of recv. */
trib_status tri_link_allgather(struct tri_run *run, const void *send, void *recv, size_t bytes,
                               size_t payload);
/* Each rank's packet of `bytes` bytes, which begins with its header, stays where it is, for the others to read:
 * all headers. Counts as an allgather of the packets, for each rank reads those of all others. */
trib_status tri_link_packet_headers(struct tri_run *run, const void *packet,
                                    struct tri_header *headers, size_t bytes, size_t payload);
/* `bytes` of `root` to all; `data` on all ranks. */
trib_status tri_link_broadcast(struct tri_run *run, void *data, size_t bytes, size_t payload,
                               int32_t root);
/* The sum of `count` elements over the ranks, in place. */
trib_status tri_link_allreduce(struct tri_run *run, void *data, size_t count, trib_dtype dtype,
                               bool payload);
/* The same, out of place. */
trib_status tri_link_allreduce_to(struct tri_run *run, const void *send, void *recv, size_t count,
                                  trib_dtype dtype, bool payload);

/* Among the ranks of run->inside alone: rank i of them gets the sum of block i, of `count` elements, of
 * each rank's `send`. In place if recv is that block. Counts as a message of each block to its rank. Not
 * between begin and end. */
trib_status tri_link_reduce_scatter_inside(struct tri_run *run, const void *send, void *recv,
                                           size_t count, trib_dtype dtype);

/* The backend gets the collectives between begin and end as one: at most TRI_RUN_GROUP of the
 * functions above and tri_link_headers. None may use the output of another one. */
void tri_link_begin(struct tri_run *run);
trib_status tri_link_end(struct tri_run *run);

/* One message to a rank, or from it. Peer -1 and 0 bytes mean no message; both sides know the size.
 * The messages of one call travel concurrently. Messages of a rank to itself are copies, the first
 * send to the first receive, and are not counted. */
struct tri_message {
    int32_t peer;
    void *data;
    size_t bytes, payload;
};
trib_status tri_link_exchange(struct tri_run *run, const struct tri_message *sends, size_t nsends,
                              const struct tri_message *receives, size_t nreceives);

/* All ranks' headers in `headers` (one per rank), each from its scalars.header (nonfinite, and
 * count if the algorithm reads it). For algorithms that have no packet to carry the header. */
trib_status tri_link_headers(struct tri_run *run, struct tri_header *headers);

/* Lists of any length: rank r's counts[r] entries (host memory, the same on all ranks) reach `out`,
 * rank after rank without gaps. Ignores send->count; writes out->count unless it is NULL. */
trib_status tri_link_allgather_entries(struct tri_run *run, const struct tri_entries *send,
                                       const uint32_t *counts, const struct tri_entries *out);

#endif
